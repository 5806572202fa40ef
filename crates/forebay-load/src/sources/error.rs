//! Why sources cannot be read.

use std::path::PathBuf;

use super::format::Format;

/// An error about sources. Each names the file, and where in it.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    #[error("{source_text}: there is no such file or directory{hint}")]
    Missing { source_text: String, hint: String },
    #[error("{source_text}: no file matches")]
    NoMatch { source_text: String },
    #[error("{source_text}: the directory has no file ending in {endings}; name a format to read others", endings = Format::ENDINGS)]
    EmptyDirectory { source_text: String },
    #[error(
        "{source_text}: sources are paths, file://, s3://, s3a://, gs://, az://, http:// or https:// URLs, or - for \
         standard input"
    )]
    Scheme { source_text: String },
    #[error("{source_text}: {reason}")]
    Address { source_text: String, reason: String },
    #[error("{source_text}: cannot be reached{hint}")]
    Remote {
        source_text: String,
        hint: &'static str,
        #[source]
        error: std::io::Error,
    },
    #[error(
        "{root} is {what} (it has {mark}); its files are not read one by one, as deleted rows would come back: \
         {advice}"
    )]
    Lake {
        root: String,
        what: &'static str,
        mark: &'static str,
        advice: String,
    },
    #[error("standard input is a terminal: send something there, as in 'cat FILE | forebay ...'")]
    Terminal,
    #[error(
        "{file}: no room for it in {}, after {written} bytes: it is kept there while it is read; free some, or name \
         another directory by --work-dir or TMPDIR", dir.display()
    )]
    SpoolFull {
        file: String,
        dir: PathBuf,
        written: u64,
    },
    #[error("{file}: cannot be kept in {} while it is read", dir.display())]
    Spool {
        file: String,
        dir: PathBuf,
        #[source]
        error: std::io::Error,
    },
    #[error("{file}: the directory {dir} {reason}")]
    Partition {
        file: String,
        dir: String,
        reason: &'static str,
    },
    #[error("{file}: it is empty (0 bytes); leave it out, or find out why nothing is in it")]
    EmptyFile { file: String },
    #[error("{file}: it should be {expected}, but {what}{advice}")]
    Mistaken {
        file: String,
        expected: String,
        what: String,
        advice: String,
    },
    #[error(
        "{file}: neither its name nor its beginning tells the format ({what}): give --format, one of parquet, csv, \
         jsonl, arrow, pcap"
    )]
    UnknownFormat { file: String, what: String },
    #[error("{file}: only text is read inside .gz or .zst: unpack the file first")]
    Compressed { file: String },
    #[error("no source was given")]
    NoSource,
    #[error("{file}: cannot be read")]
    Io {
        file: String,
        #[source]
        error: std::io::Error,
    },
    #[error("{file}: {place}is damaged or cut off: {reason}")]
    Damaged {
        file: String,
        place: String,
        reason: String,
    },
    #[error("{file}: {reason}")]
    Header { file: String, reason: String },
    #[error(
        "{file}: the record that begins at line {line} is longer than {limit} bytes: a quote before it may not be closed"
    )]
    LongRecord {
        file: String,
        line: u64,
        limit: usize,
    },
    #[error(
        "the column '{column}' is {first_type} in {first_file} but {second_type} in {second_file}: these do not widen to one type; push them apart, or cast one"
    )]
    Conflict {
        column: String,
        first_file: String,
        first_type: String,
        second_file: String,
        second_type: String,
    },
    #[error("a type was given for the column '{column}', which no file has; they have: {columns}")]
    UnknownColumn { column: String, columns: String },
    #[error(
        "'{text}' is not NAME:TYPE with a type such as int64, float64, text, bool, date, timestamp or decimal(12,2)"
    )]
    ColumnType { text: String },
    #[error("{file}: what makes the rows failed after row {row}: {reason}")]
    Batches {
        file: String,
        row: u64,
        reason: String,
    },
    #[error("cannot start the input's runtime")]
    Runtime(#[source] std::io::Error),
}
