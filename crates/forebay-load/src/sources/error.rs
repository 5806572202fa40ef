//! Why sources cannot be read.

use super::format::Format;
use crate::convert::{ConvertError, Loss};

/// An error about sources. Each names the file, and where in it.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    #[error("{source_text}: there is no such file or directory")]
    Missing { source_text: String },
    #[error("{source_text}: no file matches")]
    NoMatch { source_text: String },
    #[error("{source_text}: the directory has no file ending in {endings}; name a format to read others", endings = Format::ENDINGS)]
    EmptyDirectory { source_text: String },
    #[error("{source_text}: only local paths are read; copy the files here first")]
    Remote { source_text: String },
    #[error(
        "{file}: the name's ending tells no format: name one of parquet, csv, jsonl, arrow, pcap"
    )]
    UnknownFormat { file: String },
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
        "'{text}' is not NAME:TYPE with a type such as int64, float64, text, bool, date, timestamp, decimal(12,2), \
         list(text) or struct(net float64, gross float64), nor NAME:TYPE:HOW with {}",
        Loss::WORDS
    )]
    ColumnType { text: String },
    #[error("{file}: what makes the rows failed after row {row}: {reason}")]
    Batches {
        file: String,
        row: u64,
        reason: String,
    },
    #[error(
        "the column '{column}' is {there} in the table, so that --column cannot make it {given}; what may be lost on the \
         way there is said by --column '{column}:{there}:HOW'"
    )]
    TableType {
        column: String,
        given: String,
        there: String,
    },
    #[error("{file}: {error}")]
    Convert {
        file: String,
        #[source]
        error: ConvertError,
    },
    #[error("cannot start the input's runtime")]
    Runtime(#[source] std::io::Error),
}
