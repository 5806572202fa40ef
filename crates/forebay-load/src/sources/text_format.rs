//! Defines the formats of text files.

use super::CsvOptions;

/// The decoding of the records of a file.
#[derive(Debug, Clone)]
pub(super) enum TextFormat {
    Csv(CsvOptions),
    /// Objects, each on a line, or the elements of one array.
    Json,
}
