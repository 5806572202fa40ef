//! Text files: CSV and JSON, guessing their format and types, splitting and reading them.

pub(in crate::sources) mod csv;
pub(in crate::sources) mod csv_decoder;
pub(in crate::sources) mod excerpt;
pub(in crate::sources) mod guesses;
pub(in crate::sources) mod infer_csv;
pub(in crate::sources) mod infer_json;
pub(in crate::sources) mod infer_number;
pub(in crate::sources) mod jsonl;
pub(in crate::sources) mod look;
pub(in crate::sources) mod look_all;
pub(in crate::sources) mod read_text;
pub(in crate::sources) mod records;
pub(in crate::sources) mod shape;
pub(in crate::sources) mod sniff;
pub(in crate::sources) mod split;
pub(in crate::sources) mod splitter;
pub(in crate::sources) mod text;

use super::CsvOptions;

/// The decoding of the records of a file.
#[derive(Debug, Clone)]
pub(in crate::sources) enum TextFormat {
    Csv(CsvOptions),
    /// Objects, each on a line, or the elements of one array.
    Json,
}
