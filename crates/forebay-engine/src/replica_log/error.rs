//! The errors of logs of replicas.

use std::path::PathBuf;

use thiserror::Error;

use super::record::EntryPlace;
use crate::live::log::LogError;
use crate::name::TableName;

/// An error of an operation on a log of replicas. A refused operation has changed nothing.
#[derive(Debug, Clone, Error)]
pub enum ReplicaLogError {
    /// A full disk, a failed device, or files of another log or of a newer program.
    #[error(transparent)]
    Log(#[from] LogError),
    /// Written records are gone, or have changed.
    #[error(
        "the log of the replicas of table {table} is damaged: {} at offset {offset}: {problem}. Its \
         replicas may have forgotten what they promised: remove the log, and have them join their \
         groups as new peers",
        path.display()
    )]
    Damaged {
        table: TableName,
        path: PathBuf,
        offset: u64,
        problem: String,
    },
    #[error(
        "the log of the replicas of table {table} keeps no entry {index} of group {group}: its \
         first one is {first}; fetch a copy of the partition"
    )]
    Trimmed {
        table: TableName,
        group: u64,
        index: u64,
        first: u64,
    },
    #[error("the log of the replicas of table {table} has no group {group}")]
    NoGroup { table: TableName, group: u64 },
    #[error(
        "entry {found} of group {group} of table {table} was not logged: it cannot follow entry {before}"
    )]
    Order {
        table: TableName,
        group: u64,
        found: EntryPlace,
        before: EntryPlace,
    },
    #[error(
        "group {group} of table {table} is named twice in one write: merge what is logged of it"
    )]
    Twice { table: TableName, group: u64 },
    #[error(
        "a promise of {bytes} bytes of group {group} of table {table} was not logged: it may have \
         {greatest}"
    )]
    PromiseBytes {
        table: TableName,
        group: u64,
        bytes: usize,
        greatest: usize,
    },
}

impl ReplicaLogError {
    /// Converts errors of opening and reading; damage gets the terms of replicas.
    pub(super) fn of(error: LogError) -> Self {
        match error {
            LogError::Damaged {
                table,
                path,
                offset,
                problem,
                ..
            } => Self::Damaged {
                table,
                path,
                offset,
                problem,
            },
            LogError::Missing {
                table,
                missing,
                next,
                ..
            } => Self::Damaged {
                table,
                path: missing,
                offset: 0,
                problem: format!(
                    "it is missing, and {} continues where it ended",
                    next.display()
                ),
            },
            LogError::Lost {
                table,
                path,
                offset,
                note,
                found,
            } => Self::Damaged {
                table,
                path,
                offset,
                problem: format!(
                    "it was durable up to there, says {}; {found}",
                    note.display()
                ),
            },
            LogError::Note { table, path } => Self::Damaged {
                table,
                path,
                offset: 0,
                problem: "it is no longer what was written".to_owned(),
            },
            other => Self::Log(other),
        }
    }

    /// Returns whether the log has lost records, so that its replicas must come back as new peers.
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Damaged { .. })
    }
}
