//! Inspects the records of a text file to infer the types of its columns.

use super::TextFormat;
use super::csv;
use super::guesses::{GivenColumns, SeenType, too_wide};
use super::infer_csv::Guess;
use super::infer_json::JsonLook;
use super::records::Chunk;
use super::shape::TooWide;
use crate::sources::error::SourceError;

/// A reader of the types of records of one file.
pub(in crate::sources) struct Look<'f> {
    format: &'f TextFormat,
    csv: Vec<Guess>,
    json: JsonLook,
}

impl<'f> Look<'f> {
    /// Creates a reader that ignores columns that are `given`.
    pub fn new(format: &'f TextFormat, columns: usize, given: &GivenColumns) -> Look<'f> {
        Look {
            format,
            csv: vec![Guess::Nothing; columns],
            json: JsonLook::new(given),
        }
    }

    /// Adds records. Records that do not have the format are ignored; they are rejected when they
    /// are read.
    pub fn look(&mut self, name: &str, chunk: &Chunk<'_>) -> Result<(), SourceError> {
        let TextFormat::Csv(options) = self.format else {
            let seen = self.json.look(chunk.bytes, &chunk.records);
            return seen.map_err(|TooWide| too_wide(name, &self.json.take()));
        };
        for (index, record) in chunk.records.iter().enumerate() {
            let is_open = chunk.unclosed && index + 1 == chunk.records.len();
            let bytes = &chunk.bytes[record.start..record.end];
            if is_open
                || chunk.malformed.binary_search(&index).is_ok()
                || std::str::from_utf8(bytes).is_err()
            {
                continue;
            }
            let fields = csv::fields(bytes, options);
            if fields.len() != self.csv.len() {
                continue;
            }
            for (guess, field) in self.csv.iter_mut().zip(&fields) {
                if *guess != Guess::Text && !options.is_null(field) {
                    *guess = guess.join(Guess::of(field));
                }
            }
        }
        Ok(())
    }

    /// Returns whether no inspected record has the format, so that the file does not.
    pub fn saw_nothing(&self) -> bool {
        matches!(self.format, TextFormat::Json) && self.json.objects() == 0
    }

    /// Returns the error of the first record that is not JSON.
    pub fn fault(&self) -> Option<String> {
        self.json.fault()
    }

    /// Returns the number of the first JSON record with a duplicate name, and its error.
    pub fn name_twice(&self) -> Option<(u64, String)> {
        self.json.name_twice()
    }

    pub fn finish(mut self) -> SeenType {
        match self.format {
            TextFormat::Csv(_) => SeenType::Csv(self.csv),
            TextFormat::Json => SeenType::Json(self.json.take()),
        }
    }
}
