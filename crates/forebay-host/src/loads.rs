//! Loads as proposals: a number by which each replica finds the run that it has brought before.

use std::fmt::Debug;

use bytes::{BufMut, Bytes, BytesMut};
use forebay_engine::{PartitionId, RunId, TableName};

use crate::outside::StateError;

/// What a proposal of a load begins with. One of commands begins with another byte.
const KIND: u8 = 2;

/// The runs of loads that are here before their entries come.
pub trait LoadedRuns: Debug + Send + Sync {
    /// The run of a load for a partition, with an id of the table here. None: it is not here, and
    /// its entry waits.
    fn find(&self, table: &TableName, partition: PartitionId, load: u64) -> Option<RunId>;

    /// It is a part of the table by now, or removed.
    fn taken(&self, table: &TableName, partition: PartitionId, load: u64);
}

/// The proposal that adds a load, by its number, to a partition.
pub fn load_proposal(load: u64) -> Bytes {
    let mut proposal = BytesMut::with_capacity(9);
    proposal.put_u8(KIND);
    proposal.put_u64_le(load);
    proposal.freeze()
}

/// Whether a proposal adds a load.
pub(crate) fn is_load(operations: &[u8]) -> bool {
    operations.first() == Some(&KIND)
}

/// The load that a proposal adds; `None`: it is one of another kind.
pub(crate) fn load_of(operations: &[u8]) -> Option<Result<u64, StateError>> {
    let (kind, rest) = operations.split_first()?;
    let number = || {
        let bytes = <[u8; 8]>::try_from(rest).ok()?;
        Some(u64::from_le_bytes(bytes))
    };
    let damaged = || StateError::Never("a load's proposal is damaged".to_owned());
    (*kind == KIND).then(|| number().ok_or_else(damaged))
}
