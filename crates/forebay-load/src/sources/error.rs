//! Why sources cannot be read.

use super::format::Format;
use super::origin::Place;

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
        "{file}: {place}: the record that begins here is longer than {limit} bytes: a quote before it may not be closed"
    )]
    LongRecord {
        file: String,
        place: Place,
        limit: usize,
    },
    #[error("{file}: line 1 is not {format}: the file seems to be {what}; {advice}")]
    NotText {
        file: String,
        format: &'static str,
        what: &'static str,
        advice: &'static str,
    },
    #[error(
        "{file}: its rows have more than {limit} fields, such as {names}: more than columns can be; {advice}"
    )]
    TooManyFields {
        file: String,
        limit: usize,
        names: String,
        advice: String,
    },
    /// A record shows that the types guessed from a sample are not those of all rows: look at all of them
    /// ([`super::SourceSet::look_at_all`]), and open the sources again with what comes of it.
    #[error("{file}: {place}: {news}, which the first rows did not show")]
    GuessFailed {
        file: String,
        place: Place,
        news: String,
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
