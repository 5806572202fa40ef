//! The errors of logs.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use forebay_io::{advice, is_out_of_files};
use thiserror::Error;

use crate::name::TableName;

/// Returns what the user must do so that the failed operation works again.
fn remedy(error: &io::Error) -> &'static str {
    match is_out_of_files(error) {
        true => "let more files be open (ulimit -n)",
        false => "make room",
    }
}

/// An error of an operation on a log. Clones share their cause, as one failed sync is reported to
/// all threads that wait for it.
#[derive(Debug, Clone, Error)]
pub enum LogError {
    #[error("cannot {action} {}, of the log of table {table}: {source}{}", path.display(), advice(source))]
    Io {
        table: TableName,
        action: &'static str,
        path: PathBuf,
        source: Arc<io::Error>,
    },
    /// There is no space, or too many files are open.
    #[error(
        "table {table} takes no writes now: cannot {action} {}: {source}. Nothing was written; {} and \
         write again",
        path.display(), remedy(source)
    )]
    Full {
        table: TableName,
        action: &'static str,
        path: PathBuf,
        source: Arc<io::Error>,
    },
    #[error(
        "table {table} takes no more writes: could not {action} {}: {source}. Whether the last \
         writes that were not acknowledged are durable is unknown; reads continue. Check the \
         device, then open the table again",
        path.display()
    )]
    Closed {
        table: TableName,
        action: &'static str,
        path: PathBuf,
        source: Arc<io::Error>,
    },
    #[error(
        "an operation of {bytes} bytes on table {table} does not fit its log, whose records are 1 to \
         {greatest} bytes: split it"
    )]
    RecordBytes {
        table: TableName,
        bytes: usize,
        greatest: usize,
    },
    #[error(
        "the log of table {table} is damaged: {} at offset {offset}: {problem}. Restore the table \
         from a backup; or, to give up every write from there on, truncate that file to {offset} \
         bytes and remove the files of its directory with higher numbers, and {}",
        path.display(), note.display()
    )]
    Damaged {
        table: TableName,
        path: PathBuf,
        offset: u64,
        problem: String,
        note: PathBuf,
    },
    #[error(
        "the log of table {table} lacks a file: {} is missing, and {} continues where it ended. \
         Restore it, or the table, from a backup; or, to give up every write from the missing file \
         on, remove {}, the files of its directory with higher numbers, and {}",
        missing.display(), next.display(), next.display(), note.display()
    )]
    Missing {
        table: TableName,
        missing: PathBuf,
        next: PathBuf,
        note: PathBuf,
    },
    /// Records that were durable are gone, and no later ones exist.
    #[error(
        "the log of table {table} has lost its end: it was durable up to offset {offset} of {}, as {} \
         says, and {found}. Restore the table from a backup; or, to give up every write from there on, \
         remove {} and open the table again",
        path.display(), note.display(), note.display()
    )]
    Lost {
        table: TableName,
        /// The end of the part that was durable.
        path: PathBuf,
        offset: u64,
        note: PathBuf,
        /// A description of the part that exists.
        found: String,
    },
    #[error(
        "{}, which says how far the log of table {table} is durable, is damaged. Restore it from a \
         backup; or remove it and open the table again: then a log that has lost its end is not noticed",
        path.display()
    )]
    Note { table: TableName, path: PathBuf },
    #[error("{} is no part of the log of table {table}: {problem}; move it away", path.display())]
    Foreign {
        table: TableName,
        path: PathBuf,
        problem: String,
    },
    #[error(
        "{} is a log of format {found}, this program reads format {known}: use a newer forebay",
        path.display()
    )]
    Format {
        path: PathBuf,
        found: u32,
        known: u32,
    },
}
