//! The errors of live tables.

use forebay_io::may_pass;
use forebay_run::RunError;
use forebay_run::operation::OperandError;
use thiserror::Error;

use crate::error::StoreError;
use crate::keys::partition::PartitionId;
use crate::live::basics::applied::EntryError;
use crate::live::log::LogError;
use crate::name::TableName;

/// An error of an operation on a live table. A refused write has changed nothing. After an error
/// that [`LiveError::is_final`] accepts, the table takes no writes until it is reopened.
#[derive(Debug, Error)]
pub enum LiveError {
    #[error("table {table} exists already; drop it first, or give another name")]
    Exists { table: TableName },
    #[error("there is no live table {table}: create it first")]
    NoTable { table: TableName },
    #[error(
        "table {table} is a batch table: it is pushed to as a whole and takes no single writes"
    )]
    Batch { table: TableName },
    #[error("live table {table} cannot be made: {problem}")]
    Options { table: TableName, problem: String },
    #[error("table {table}: a key of {bytes} bytes; keys have 1 to {limit}")]
    Key {
        table: TableName,
        bytes: usize,
        limit: usize,
    },
    #[error("table {table}, key {key}: a value of {bytes} bytes; values have at most {limit}")]
    Value {
        table: TableName,
        key: String,
        bytes: usize,
        limit: usize,
    },
    #[error("table {table} was made without a kind of deltas: make it with one, or update the key")]
    NoDelta { table: TableName },
    #[error(
        "table {table} was made without expiry, so that its inserts need not read: make it with one, or \
         write without a moment to expire at"
    )]
    NoExpiry { table: TableName },
    #[error("table {table}, key {key}: {source}")]
    Operand {
        table: TableName,
        key: String,
        source: OperandError,
    },
    #[error(
        "table {table}: keys {first} and {second} lie in different partitions, and a batch is atomic \
         within one only: give them the same hashtag, as in {{user1}}:name, or write them one by one"
    )]
    AcrossPartitions {
        table: TableName,
        first: String,
        second: String,
    },
    /// This table does not have the key's partition, so it cannot tell whether the key exists, and
    /// takes no writes of it.
    #[error("table {table}: the partition of key {key} is not open here; ask where it is")]
    NotHere { table: TableName, key: String },
    #[error("table {table}: {problem}")]
    Partition { table: TableName, problem: String },
    #[error(
        "table {table} is replicated, and {what} is not done to one replica alone: propose it to the \
         leader of the partition"
    )]
    Replicated { table: TableName, what: String },
    /// A decided entry was not applied in its order.
    #[error("table {table}, partition {partition}: {source}")]
    Entry {
        table: TableName,
        partition: PartitionId,
        source: EntryError,
    },
    #[error(
        "table {table} is kept in the order of hashes: it has no ranges of keys. Scan it whole, or \
         create a table of the order \"ordered\""
    )]
    NoKeyOrder { table: TableName },
    /// The table takes no writes until it is reopened. Reads continue.
    #[error(
        "table {table} takes no more writes: {why}. What the device holds is not known for sure: \
         check the device, then restart; what was acknowledged is read back from the log"
    )]
    Failed { table: TableName, why: String },
    /// Writes continue once runs can be written.
    #[error(
        "table {table} has no memory left for writes, because no runs can be written: {why}. Fix \
         the cause; writes then continue automatically"
    )]
    Full { table: TableName, why: String },
    #[error("table {table}: {source}")]
    Run { table: TableName, source: RunError },
    #[error("table {table}: {problem}")]
    Ingest { table: TableName, problem: String },
    #[error(transparent)]
    Log(#[from] LogError),
    #[error("table {table} is being closed")]
    Closed { table: TableName },
    #[error("table {table}: cannot start its thread: {source}")]
    Thread {
        table: TableName,
        source: std::io::Error,
    },
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl LiveError {
    /// Returns whether the table takes no writes until it is reopened, whatever is freed or
    /// repaired.
    pub fn is_final(&self) -> bool {
        use LogError::Closed;
        match self {
            LiveError::Failed { .. } | LiveError::Closed { .. } => true,
            LiveError::Log(source) => matches!(source, Closed { .. }),
            _ => false,
        }
    }

    /// Returns whether the same operation may succeed later: room, a thread, or open files are
    /// missing.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Run {
                source: RunError::Io { source, .. },
                ..
            }
            | Self::Store(StoreError::Io { source, .. }) => may_pass(source),
            Self::Full { .. } | Self::Log(LogError::Full { .. }) | Self::Thread { .. } => true,
            _ => false,
        }
    }

    /// Returns whether a run's file, or the device under it, no longer gives what was written.
    /// Another replica may.
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Run { source, .. } if source.is_damage())
    }

    /// Returns whether the error is of this machine, so that another replica may not have it.
    /// Errors of the request or of the stored data are not.
    pub fn is_of_this_machine(&self) -> bool {
        match self {
            Self::Failed { .. }
            | Self::Full { .. }
            | Self::Run { .. }
            | Self::Log(_)
            | Self::Closed { .. }
            | Self::Thread { .. }
            | Self::Store(_)
            | Self::NotHere { .. }
            | Self::Partition { .. }
            | Self::Replicated { .. }
            | Self::Entry { .. } => true,
            Self::Exists { .. }
            | Self::NoTable { .. }
            | Self::Batch { .. }
            | Self::Options { .. }
            | Self::Key { .. }
            | Self::Value { .. }
            | Self::NoDelta { .. }
            | Self::NoExpiry { .. }
            | Self::Operand { .. }
            | Self::AcrossPartitions { .. }
            | Self::NoKeyOrder { .. }
            | Self::Ingest { .. } => false,
        }
    }
}
