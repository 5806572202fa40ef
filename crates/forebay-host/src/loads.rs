//! Loads as proposals: the number of a load, by which each replica finds the run that it has
//! fetched.

use std::fmt::Debug;

use bytes::{BufMut, Bytes, BytesMut};
use forebay_engine::{PartitionId, RunId, TableName};

use crate::environment::StateError;

/// The first byte of a load's proposal. A proposal of commands begins with another byte.
const KIND: u8 = 2;

/// The runs of loads that a node has before their entries arrive.
pub trait LoadedRuns: Debug + Send + Sync {
    /// Returns the run of a load for a partition, with an id of this node's table. If it returns
    /// none, the node does not have the run, and the load's entry waits.
    fn find(&self, table: &TableName, partition: PartitionId, load: u64) -> Option<RunId>;

    /// Reports that the run is part of the table now, or removed.
    fn taken(&self, table: &TableName, partition: PartitionId, load: u64);
}

/// Returns the proposal that adds a load, by its number, to a partition.
pub fn load_proposal(load: u64) -> Bytes {
    let mut proposal = BytesMut::with_capacity(9);
    proposal.put_u8(KIND);
    proposal.put_u64_le(load);
    proposal.freeze()
}

/// Returns whether a proposal adds a load.
pub(crate) fn is_load(operations: &[u8]) -> bool {
    operations.first() == Some(&KIND)
}

/// Returns the load that a proposal adds, or `None` if it is another kind of proposal.
pub(crate) fn load_of(operations: &[u8]) -> Option<Result<u64, StateError>> {
    let (kind, rest) = operations.split_first()?;
    let number = || {
        let bytes = <[u8; 8]>::try_from(rest).ok()?;
        Some(u64::from_le_bytes(bytes))
    };
    let damaged = || StateError::Never("a load's proposal is damaged".to_owned());
    (*kind == KIND).then(|| number().ok_or_else(damaged))
}
