//! The formats of text files.

use super::CsvOptions;

/// How the records of a file are decoded.
#[derive(Debug, Clone)]
pub(super) enum TextFormat {
    Csv(CsvOptions),
    /// Objects, each on a line, or the elements of one array.
    Json,
}
