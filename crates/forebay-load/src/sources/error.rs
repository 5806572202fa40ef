//! Defines the errors of sources.

use std::path::PathBuf;

use super::format::Format;
use super::origin::Place;
use crate::convert::{ConvertError, Loss};
use crate::near;

/// An error of a source. Each names the file, and the place in it.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    #[error("{source_text}: there is no such file or directory{hint}")]
    Missing { source_text: String, hint: String },
    #[error(
        "{source_text}: it is {what}, not a file: give - in its place, and send its content to standard input, as in \
         'forebay ... - < {source_text}'"
    )]
    NoFile {
        source_text: String,
        what: &'static str,
    },
    #[error(
        "{source_text:?}: files whose names hold control characters, such as line ends, are not read: rename it"
    )]
    Name { source_text: String },
    #[error(
        "{directory}: a name in this directory is not UTF-8, and such files are not read: rename the file {file}"
    )]
    NotUnicode { directory: String, file: String },
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
    #[error(
        "{file}: {what}, so that there are no columns; leave it out, or find out why nothing is in it"
    )]
    NoColumns { file: String, what: &'static str },
    #[error("{file}: it should be {expected}, but {what}{advice}")]
    Mistaken {
        file: String,
        expected: String,
        what: String,
        advice: String,
    },
    #[error(
        "{file}: neither its name nor its beginning shows the format ({what}): give --format, one of parquet, csv, \
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
    /// The content may be intact, but uses an unsupported feature, or its writer violates the
    /// format.
    #[error("{file}: {place}cannot be read: {reason}")]
    Undecoded {
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
    #[error("{file}: line {line} is not {format}: the file seems to be {what}; {advice}")]
    NotText {
        file: String,
        line: usize,
        format: &'static str,
        what: String,
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
    /// A record shows that the types inferred from a sample are not those of all rows. The caller
    /// should determine the types of all rows ([`super::SourceSet::look_at_all`]), and open the
    /// sources again with the result.
    #[error("{file}: {place}: {news}, which the first rows did not show")]
    GuessFailed {
        file: String,
        place: Place,
        news: String,
    },
    #[error(
        "the column '{column}' is {first_type} in {first_file} but {second_type} in {second_file}: these do not widen to one type; give it one by {} (text holds all that is not nested), or push them apart",
        near::column_option(column, "TYPE")
    )]
    Conflict {
        column: String,
        first_file: String,
        first_type: String,
        second_file: String,
        second_type: String,
    },
    #[error(
        "a type was given for the column '{column}', which no file has; they have: {columns}{hint}"
    )]
    UnknownColumn {
        column: String,
        columns: String,
        /// A suggestion of a similar existing name.
        hint: String,
    },
    #[error(
        "'{text}' is not NAME:TYPE with a type such as int64, float64, text, bool, date, timestamp, decimal(12,2), \
         list(text) or struct(net float64, gross float64), nor NAME:TYPE:HOW with {}",
        Loss::WORDS
    )]
    ColumnType { text: String },
    /// An error of the columns of a table to be created.
    #[error("{problem}")]
    Columns { problem: String },
    #[error("{file}: what makes the rows failed after row {row}: {reason}")]
    Batches {
        file: String,
        row: u64,
        reason: String,
    },
    #[error(
        "the column '{column}' is {there} in the table, so that --column cannot make it {given}; what may be lost on the \
         way there is said by {}",
        near::column_option(column, &format!("{there}:HOW"))
    )]
    TableType {
        column: String,
        given: String,
        there: String,
    },
    #[error(
        "{file}: the file was written to while it was read: replace files by renaming others over them, and push again"
    )]
    Changed { file: String },
    #[error("{file}: two columns are named '{column}', and only one could be kept: rename one")]
    ColumnTwice { file: String, column: String },
    #[error("--column says twice what '{column}' is: once for '{other}'; leave one out")]
    GivenTwice { column: String, other: String },
    #[error("{file}: {error}")]
    Convert {
        file: String,
        #[source]
        error: ConvertError,
    },
    #[error("cannot start the input's runtime")]
    Runtime(#[source] std::io::Error),
}
