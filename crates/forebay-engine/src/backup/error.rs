//! Errors of backups and restores.

use std::path::PathBuf;

use forebay_run::RunError;
use thiserror::Error;

use crate::error::{PushError, StoreError};
use crate::live::{CheckpointError, LiveError};
use crate::name::TableName;

/// A backup that was not made, read or restored. Existing data is unchanged.
#[derive(Debug, Error)]
pub enum BackupError {
    #[error(
        "{} is in the directory of a store, or of other backups: name one outside of it",
        root.display()
    )]
    Inside { root: PathBuf },
    #[error("there is no backup yet at {}", root.display())]
    Empty { root: PathBuf },
    #[error(
        "table {table}: a file of the backup is damaged or missing: {source}. Remove that file: the next backup \
         copies it again, if the store still has it; else restore another backup"
    )]
    DamagedRun { table: TableName, source: RunError },
    #[error(
        "there are no backups at {}: name the place that 'forebay backup --to' was given",
        root.display()
    )]
    NoPlace { root: PathBuf },
    #[error(
        "{} has backups, but no file forebay-backup.json, which marks a place of backups. Write it with the content \
         {{\"forebay_backup_place\": 1}}",
        root.display()
    )]
    NoMarker { root: PathBuf },
    #[error(
        "the file {} marks no place of backups that this program knows: {problem}",
        path.display()
    )]
    Marker { path: PathBuf, problem: String },
    #[error(
        "{} holds other files and no forebay-backup.json: name an empty or a new directory or prefix",
        root.display()
    )]
    NotEmpty { root: PathBuf },
    #[error(
        "another backup is being made there: {holder}; wait for it to end, or end that process"
    )]
    Busy { holder: String },
    #[error("there is no backup {name} at {}; there are: {there}", root.display())]
    NoBackup {
        root: PathBuf,
        name: String,
        there: String,
    },
    #[error("backup {backup} has no table {table}; it has {there}")]
    NoTable {
        backup: String,
        table: TableName,
        there: String,
    },
    #[error("table {table} of backup {backup} is a {is} table, not a {wanted} table")]
    OtherKind {
        backup: String,
        table: TableName,
        is: &'static str,
        wanted: &'static str,
    },
    #[error(
        "the file {} of a backup cannot be used: {problem}. Restore another backup; to give this one up, remove the \
         file",
        path.display()
    )]
    Damaged { path: PathBuf, problem: String },
    #[error(
        "the file {} of backup {backup} cannot be used: {problem}. Restore another backup; to give this one up, \
         remove its file backups/{backup}.json",
        path.display()
    )]
    DamagedTable {
        path: PathBuf,
        backup: String,
        problem: String,
    },
    #[error("table {table}: a run could not be read back after it was copied: {source}")]
    Copy { table: TableName, source: RunError },
    #[error(
        "table {table}: what was copied could not be read back: {problem}. 'forebay restore --check' reads the backup \
         itself; --backup NAME takes another one"
    )]
    Restored { table: TableName, problem: String },
    #[error(
        "table {table} has another version {version} than the one in the backup: nothing was restored. Restore \
         into another store, or drop the table first"
    )]
    OtherVersion { table: TableName, version: u64 },
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Push(#[from] PushError),
    #[error(transparent)]
    Live(#[from] LiveError),
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
}
