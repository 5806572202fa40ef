//! Reads the records of text files as batches.
//!
//! A chunk is decoded as a whole. If that fails, it is split in half until the bad records are
//! alone. These are rejected one by one, and the others are kept. A record may be well formed, and
//! bad only because a type was inferred from a sample. Then reading ends with
//! [`SourceError::GuessFailed`].

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{Fields, SchemaRef};

use super::TextFormat;
use super::csv;
use super::csv_decoder::CsvDecoder;
use super::excerpt::SHOWN_CHARS;
use super::infer_json::{JsonLook, are_deep, too_deep};
use super::jsonl::JsonDecoder;
use super::records::{Chunk, Record};
use super::text::{TextFile, TextPart};
use crate::convert::{Rules, holds};
use crate::sources::blob::Blob;
use crate::sources::error::SourceError;

/// A callback that receives rows and the records they come from.
type Emit<'a, E> = &'a mut dyn FnMut(RecordBatch, &[Record]) -> Result<(), E>;
/// A callback that receives a bad record, its bytes and its error.
type RejectRecord<'a, E> = &'a mut dyn FnMut(&Record, &[u8], String) -> Result<(), E>;

impl TextFile {
    /// Reads a part. `schema` has the file's columns in the file's order.
    pub fn read<E: From<SourceError>>(
        &self,
        blob: &Blob,
        part: &TextPart,
        schema: &SchemaRef,
        rules: &Arc<Rules>,
        emit: Emit<'_, E>,
        reject: RejectRecord<'_, E>,
    ) -> Result<(), E> {
        let mut reading = TextReading {
            file: self,
            name: &blob.name,
            decoder: self.decoder(blob, schema, rules)?,
            look: None,
            emit,
            reject,
        };
        self.chunks(blob, part, &mut |chunk| reading.chunk(chunk))
    }

    fn decoder(
        &self,
        blob: &Blob,
        schema: &SchemaRef,
        rules: &Arc<Rules>,
    ) -> Result<Decoder, SourceError> {
        let decoder = match &self.format {
            TextFormat::Csv(options) => {
                let guess = |name: &String| {
                    let guessed = !self.given.contains(name);
                    guessed.then(|| self.guesses.csv(name))
                };
                let guesses = self.names.iter().map(guess).collect();
                let form = (options, self.line_end());
                CsvDecoder::new(schema, form, rules, guesses)
                    .map(|decoder| Decoder::Csv(Box::new(decoder)))
            }
            TextFormat::Json => {
                let decoder = JsonDecoder::new(&self.guessed(), schema, rules);
                decoder.map(|decoder| Decoder::Json(Box::new(decoder)))
            }
        };
        decoder.map_err(|error| SourceError::Convert {
            file: blob.name.to_string(),
            error,
        })
    }

    /// Returns the columns whose types were inferred, including those of all nested places.
    fn guessed(&self) -> Fields {
        let fields = self.fields.iter();
        let guessed =
            fields.filter(|field| !self.given.iter().any(|name| holds(field.name(), name)));
        guessed.cloned().collect()
    }

    /// Returns the error of a CSV record that cannot be split without a loss.
    fn malformed(&self, record: &[u8]) -> String {
        let glued = match &self.format {
            TextFormat::Csv(options) => csv::glued_field(record, options),
            TextFormat::Json => None,
        };
        match glued.map(|index| self.names.get(index)) {
            Some(Some(name)) => csv::glued(&format!("the column '{name}'")),
            Some(None) => csv::glued("a field"),
            None => csv::STRAY_RETURN.to_owned(),
        }
    }

    /// Returns what in a record contradicts the types, if they were inferred from a sample.
    fn news(&self, record: &[u8], look: &mut Option<JsonLook>) -> Option<String> {
        if self.known || std::str::from_utf8(record).is_err() {
            return None;
        }
        match &self.format {
            TextFormat::Csv(options) => {
                let fields = csv::fields(record, options);
                if fields.len() != self.names.len() {
                    return None;
                }
                let mut columns = self.names.iter().zip(&fields);
                let (name, value) = columns.find(|(name, value)| {
                    !self.given.contains(*name)
                        && !options.is_null(value)
                        && !self.guesses.csv(name).holds(value)
                })?;
                let value = String::from_utf8_lossy(value);
                let value: String = value.chars().take(SHOWN_CHARS).collect();
                Some(format!("the column '{name}' holds '{value}'"))
            }
            TextFormat::Json => {
                let look = look.get_or_insert_with(|| JsonLook::new(&self.given));
                let whole = [Record {
                    start: 0,
                    end: record.len(),
                    number: 0,
                }];
                // Fields beyond the limit are also unknown.
                _ = look.look(record, &whole);
                self.guesses.news(look.take())
            }
        }
    }
}

/// A reader of a part.
struct TextReading<'a, E> {
    file: &'a TextFile,
    name: &'a str,
    decoder: Decoder,
    look: Option<JsonLook>,
    emit: Emit<'a, E>,
    reject: RejectRecord<'a, E>,
}

impl<E: From<SourceError>> TextReading<'_, E> {
    fn chunk(&mut self, chunk: &Chunk<'_>) -> Result<(), E> {
        let (good, open) = match chunk.records.split_last() {
            Some((last, before)) if chunk.unclosed => (before, Some(last)),
            _ => (&chunk.records[..], None),
        };
        let mut from = 0;
        for at in chunk.malformed.iter().filter(|at| **at < good.len()) {
            self.decode(chunk.bytes, &good[from..*at])?;
            let bad = &good[*at];
            let bytes = &chunk.bytes[bad.start..bad.end];
            (self.reject)(bad, bytes.trim_ascii(), self.file.malformed(bytes))?;
            from = at + 1;
        }
        self.decode(chunk.bytes, &good[from..])?;
        let Some(open) = open else { return Ok(()) };
        let bytes = chunk.bytes[open.start..open.end].trim_ascii_end();
        (self.reject)(open, bytes, csv::UNCLOSED.to_owned())
    }

    fn decode(&mut self, bytes: &[u8], records: &[Record]) -> Result<(), E> {
        let (Some(first), Some(last)) = (records.first(), records.last()) else {
            return Ok(());
        };
        let json = matches!(self.decoder, Decoder::Json(_));
        let decoded = if json && are_deep(bytes, records) {
            Err(too_deep())
        } else {
            let bytes = &bytes[first.start..last.end];
            self.decoder.decode(bytes, records.len())
        };
        match decoded {
            Ok(batch) => (self.emit)(batch, records),
            Err(reason) if records.len() == 1 => {
                self.refuse(first, &bytes[first.start..first.end], reason)
            }
            Err(_) => {
                let (left, right) = records.split_at(records.len() / 2);
                self.decode(bytes, left)?;
                self.decode(bytes, right)
            }
        }
    }

    fn refuse(&mut self, record: &Record, bytes: &[u8], reason: String) -> Result<(), E> {
        match self.file.news(bytes, &mut self.look) {
            None => (self.reject)(record, bytes.trim_ascii(), reason),
            Some(news) => Err(SourceError::GuessFailed {
                file: self.name.to_owned(),
                place: self.file.place(record.number),
                news,
            }
            .into()),
        }
    }
}

/// A decoder of either format.
enum Decoder {
    Csv(Box<CsvDecoder>),
    Json(Box<JsonDecoder>),
}

impl Decoder {
    /// Decodes `count` records; an error says what is wrong with some of them.
    fn decode(&mut self, bytes: &[u8], count: usize) -> Result<RecordBatch, String> {
        match self {
            Decoder::Csv(decoder) => decoder.decode(bytes, count),
            Decoder::Json(decoder) => decoder.decode(bytes, count),
        }
    }
}
