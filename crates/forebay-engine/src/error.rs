//! Errors of the engine, one enum for each area: stores and tables, pushes, reads.

use std::io;
use std::path::{Path, PathBuf};

use forebay_io::advice;
use forebay_run::RunError;
use thiserror::Error;

use crate::documents::layout::STORE_FILE;
use crate::documents::seal::DocumentError;
use crate::name::{NameError, TableName};

/// A failed operation on a store, a table or its pointer. Nothing was changed unless the text says
/// so.
#[derive(Debug, Error)]
pub enum StoreError {
    #[error("cannot {action} {}: {source}{}", path.display(), advice(source))]
    Io {
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error(
        "there is no forebay store at {}: check the path; forebay push and create make a store there with --create",
        root.display()
    )]
    NoStore { root: PathBuf },
    #[error(
        "the store at {} belongs to a cluster, whose nodes serve it: start one by forebay serve --cluster",
        root.display()
    )]
    InCluster { root: PathBuf },
    /// A change that a cluster refused to begin.
    #[error("{problem}")]
    Refused {
        problem: String,
        /// Another change is running.
        is_busy: bool,
    },
    #[error(
        "the command lost contact with the cluster: {problem}; its request may still be in \
         progress: check it with forebay cluster status"
    )]
    Unheard { problem: String },
    /// A change that a cluster began and undid.
    #[error("{problem}")]
    NotRolledOut {
        problem: String,
        /// An operator's rollback took precedence.
        gave_way: bool,
    },
    #[error("the cluster's catalog does not show which version of table {table} serves: {problem}")]
    Catalog { table: TableName, problem: String },
    #[error(
        "{} holds other files and no forebay.json: choose an empty or a new directory. You may \
         empty the former cache of a node: the node fetches its data again",
        root.display()
    )]
    NotEmpty { root: PathBuf },
    #[error(
        "{} has versions of table {owner}, as a link to it or a copy: nothing was changed. Remove the link or \
         the copy, and push table {table} by itself",
        dir.display()
    )]
    OfAnother {
        dir: PathBuf,
        table: TableName,
        owner: TableName,
    },
    #[error("{}", unread_words(path, problem))]
    Damaged {
        path: PathBuf,
        problem: DocumentError,
    },
    #[error(
        "the pointer {} is damaged: {problem}; nothing says for sure which version should serve. \
         Restore the file from a backup, or remove it and swap to the version that you want",
        path.display()
    )]
    DamagedPointer {
        path: PathBuf,
        problem: DocumentError,
    },
    #[error(transparent)]
    Name(#[from] NameError),
    #[error("there is no table {table} (forebay tables lists those that there are)")]
    NoTable { table: TableName },
    #[error(
        "table {table} is a live table: it has no versions. Write to it through its server, or \
         load many rows with forebay load"
    )]
    IsLive { table: TableName },
    #[error("live table {table} is in use: {holder}; end that process, or talk to its server")]
    InUse { table: TableName, holder: String },
    #[error("table {table} has no version {version}{}", have(existing))]
    NoVersion {
        table: TableName,
        version: u64,
        existing: Vec<u64>,
    },
    #[error("table {table} serves no version yet: swap to one first")]
    NothingServes { table: TableName },
    #[error(
        "table {table} cannot be rolled back: no version served before version {serving}, or a push removed those \
         that did, as its --keep N says how many versions stay"
    )]
    NothingBefore { table: TableName, serving: u64 },
    #[error(
        "table {table} serves version {serving}, not version {from}: nothing was changed. To roll back from what \
         serves: forebay rollback {table} --from {serving}"
    )]
    ServesOther {
        table: TableName,
        from: u64,
        serving: u64,
    },
    #[error(
        "table {table} was rolled back from version {from} to version {serving} {seconds} s ago, perhaps by somebody \
         else: nothing was changed. To go back once more: forebay rollback {table} --from {serving}"
    )]
    JustRolledBack {
        table: TableName,
        from: u64,
        serving: u64,
        seconds: u64,
    },
    #[error(
        "the store at {} keeps no dropped tables: that needs a directory that belongs to no \
         cluster. Drop the table without --keep-dropped, and it is removed for good",
        root.display()
    )]
    NotKeeping { root: PathBuf },
    #[error(
        "no dropped table {table} is kept: it was dropped without --keep-dropped, or its time is over \
         (forebay tables --dropped)"
    )]
    NotKept { table: TableName },
    #[error(
        "there is a table {table}, or the rest of one: nothing was changed. Drop that one first (with --keep-dropped 7d \
         it can come back, too), then: forebay undrop {table} --dropped {dropped}"
    )]
    NameTaken { table: TableName, dropped: String },
    #[error(
        "the manifest {} of live table {table} is missing, but runs or a log of that table are in \
         {}: restore the manifest from a backup, or remove all that is left of the table with \
         forebay drop {table}",
        path.display(), dir.display()
    )]
    LostManifest {
        table: TableName,
        path: PathBuf,
        dir: PathBuf,
    },
    #[error(
        "version {version} of table {table} is incomplete: {problem}; it cannot serve. Push it again; where it serves, forebay rollback {table} goes back at once"
    )]
    Incomplete {
        table: TableName,
        version: u64,
        problem: String,
    },
    #[error(
        "{}, but {} cannot be synced: {source}; a power cut may undo it. Check the disk, then {}",
        done(table, *serves),
        dir.display(),
        again(table, *serves)
    )]
    NotSynced {
        table: TableName,
        /// The serving version; none for a table that was dropped.
        serves: Option<u64>,
        dir: PathBuf,
        source: io::Error,
    },
    #[error(
        "table {table} is dropped, but not all of its files are removed: {source}; drop it again to remove them"
    )]
    Remains {
        table: TableName,
        source: Box<StoreError>,
    },
    #[error("cannot start the thread that follows the store: {0}")]
    Thread(io::Error),
    #[error("{} is locked: {holder}; try again when that is over", path.display())]
    Locked { path: PathBuf, holder: String },
    #[error(
        "a push or a load of table {table} is under way: {holder}; try again when that is over"
    )]
    PushRuns { table: TableName, holder: String },
}

impl StoreError {
    /// Returns whether the file with the store's kind and format is damaged or missing. A file of
    /// another format is sound.
    pub fn lacks_kind(&self) -> bool {
        match self {
            Self::NotEmpty { .. } => true,
            Self::Damaged { path, problem } => {
                let is_format = matches!(problem, DocumentError::Format { .. });
                !is_format && path.file_name() == Some(STORE_FILE.as_ref())
            }
            _ => false,
        }
    }

    /// Returns the error that left files of a dropped table behind.
    pub(crate) fn remains(table: &TableName, source: Self) -> Self {
        Self::Remains {
            table: table.clone(),
            source: Box::new(source),
        }
    }

    /// Returns the same error for a pointer change that readers cannot see: only the sync failed.
    pub(crate) fn but_for_readers(self) -> Self {
        match self {
            Self::NotSynced { dir, source, .. } => Self::Io {
                action: "sync",
                path: dir,
                source,
            },
            other => other,
        }
    }
}

/// A push that could not begin or commit. Nothing of it is visible.
#[derive(Debug, Error)]
pub enum PushError {
    #[error(
        "another push to table {table} is under way: {holder}; wait for it to end, or end that \
         process: its unfinished version is then cleaned up by the next push"
    )]
    Busy { table: TableName, holder: String },
    #[error(
        "version {version} of table {table} cannot be pushed: versions rise, and there is already \
         version {greatest}. Give a greater number or none"
    )]
    NotRising {
        table: TableName,
        version: u64,
        greatest: u64,
    },
    #[error("table {table} has used up all version numbers: drop it to start again at 1")]
    NoNumberLeft { table: TableName },
    #[error("version {version} of table {table} cannot be committed: {problem}")]
    BadManifest {
        table: TableName,
        version: u64,
        problem: String,
    },
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// A failed read of a version.
#[derive(Debug, Error)]
pub enum ReadError {
    #[error("version {version} of table {table}: {source}")]
    Run {
        table: TableName,
        version: u64,
        source: RunError,
    },
    #[error(
        "table {table} is kept in the order of hashes: it has no ranges of keys. Scan it whole, or \
         push it with the order \"ordered\""
    )]
    NoKeyOrder { table: TableName },
    /// This store cannot know whether the key exists.
    #[error(
        "version {version} of table {table}: the partition of key {key} is not open here; ask where it is"
    )]
    NotHere {
        table: TableName,
        version: u64,
        key: String,
    },
    #[error("table {table}, key {key} of version {versions}: {problem}")]
    Value {
        table: TableName,
        versions: String,
        key: String,
        problem: String,
    },
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A file of another format is sound, so a backup would not help.
fn unread_words(path: &Path, problem: &DocumentError) -> String {
    let path = path.display();
    match problem {
        DocumentError::Format { .. } => format!("{path} cannot be read: {problem}"),
        _ => format!("{path} is damaged: {problem}; restore it from a backup"),
    }
}

fn done(table: &TableName, serves: Option<u64>) -> String {
    match serves {
        Some(version) => format!("table {table} serves version {version} now"),
        None => format!("table {table} is dropped"),
    }
}

fn again(table: &TableName, serves: Option<u64>) -> String {
    match serves {
        Some(version) => format!("make sure of it by forebay swap {table} {version}"),
        None => format!("drop it again: its files are still there (forebay drop {table})"),
    }
}

fn have(existing: &[u64]) -> String {
    if existing.is_empty() {
        return "; it has none at all".to_owned();
    }
    let numbers: Vec<String> = existing.iter().map(u64::to_string).collect();
    format!("; it has {}", numbers.join(", "))
}

/// Adds the attempted action and its file to an I/O error.
pub(crate) trait At<T> {
    fn at(self, action: &'static str, path: &Path) -> Result<T, StoreError>;
}

impl<T> At<T> for io::Result<T> {
    fn at(self, action: &'static str, path: &Path) -> Result<T, StoreError> {
        self.map_err(|source| StoreError::Io {
            action,
            path: path.to_path_buf(),
            source,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unwritable_place_is_reported_with_a_remedy() {
        use io::ErrorKind::{NotADirectory, PermissionDenied, ReadOnlyFilesystem, TimedOut};
        for (kind, step) in [
            (PermissionDenied, "give the user of this process the right"),
            (ReadOnlyFilesystem, "mount the file system for writing"),
            (NotADirectory, "a file is where a directory has to be"),
            (TimedOut, ""),
        ] {
            let error = StoreError::Io {
                action: "lock",
                path: PathBuf::from("store/tables/t/push.lock"),
                source: kind.into(),
            };
            let text = error.to_string();
            assert!(text.contains("push.lock") && text.contains(step), "{text}");
            assert_eq!(text.contains("name another directory"), !step.is_empty());
        }
    }
}
