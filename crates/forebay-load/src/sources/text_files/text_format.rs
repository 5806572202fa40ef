//! Defines the formats of text files.

use crate::sources::CsvOptions;

/// The decoding of the records of a file.
#[derive(Debug, Clone)]
pub(in crate::sources) enum TextFormat {
    Csv(CsvOptions),
    /// Objects, each on a line, or the elements of one array.
    Json,
}
