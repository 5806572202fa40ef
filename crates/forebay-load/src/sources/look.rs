//! Looks at the records of a text file for the types of their columns.

use super::csv;
use super::error::SourceError;
use super::guesses::{GivenColumns, SeenType, too_wide};
use super::infer_csv::Guess;
use super::infer_json::JsonLook;
use super::records::Chunk;
use super::shape::TooWide;
use super::text_format::TextFormat;

/// Takes in records of one file.
pub(super) struct Look<'f> {
    format: &'f TextFormat,
    csv: Vec<Guess>,
    json: JsonLook,
}

impl<'f> Look<'f> {
    /// Columns that are `given` are not looked at.
    pub fn new(format: &'f TextFormat, columns: usize, given: &GivenColumns) -> Look<'f> {
        Look {
            format,
            csv: vec![Guess::Nothing; columns],
            json: JsonLook::new(given),
        }
    }

    /// Takes in records; those that are none of the format are left to be rejected as they are
    /// read.
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

    /// Whether nothing that was looked at is of the format, so that the file is not.
    pub fn saw_nothing(&self) -> bool {
        matches!(self.format, TextFormat::Json) && self.json.objects() == 0
    }

    /// What is wrong with the first record that is no JSON.
    pub fn fault(&self) -> Option<String> {
        self.json.fault()
    }

    /// The number of the first JSON record with a name twice, and what is wrong with it.
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
