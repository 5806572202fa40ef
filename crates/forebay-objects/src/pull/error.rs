//! Why a version could not be pulled.

use forebay_engine::{PushError, StoreError, TableName};
use thiserror::Error;

/// The error of a pull.
#[derive(Debug, Error)]
pub enum PullError {
    #[error("{name}: {source}")]
    Request {
        name: String,
        source: std::io::Error,
    },
    #[error("{name} is damaged in the store: {problem}")]
    Damaged { name: String, problem: String },
    #[error("version {version} of table {table} is damaged in the store: {problem}; push it again")]
    Unsound {
        table: TableName,
        version: u64,
        problem: String,
    },
    #[error(
        "{} {other}: name another directory, one that is empty or not there",
        dir.display()
    )]
    NotACache {
        dir: std::path::PathBuf,
        other: String,
    },
    /// The version is no longer wanted. A pull of the newer one follows.
    #[error("a newer version has superseded this one")]
    Superseded,
    /// A fault of this program. The work is tried again after a pause.
    #[error("the thread of the pull panicked: this is a fault of the program, please report it")]
    BrokenThread,
    #[error("cannot write {name} here: {source}")]
    Disk {
        name: String,
        source: std::io::Error,
    },
    #[error(transparent)]
    Push(#[from] PushError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl PullError {
    /// Returns whether the origin answered that the object does not exist.
    pub(super) fn is_absent(&self) -> bool {
        match self {
            Self::Request { source, .. } => source.kind() == std::io::ErrorKind::NotFound,
            _ => false,
        }
    }
}
