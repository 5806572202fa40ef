//! CSV and JSON-lines files: described by a sample, read a chunk of records at a time.
//!
//! A chunk is decoded as a whole. When that fails it is halved until the bad records are alone: they are
//! rejected one by one, the others are kept.

use std::io::Read;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{DataType, Field, Fields, SchemaRef};
use flate2::read::MultiGzDecoder;

use super::blob::Blob;
use super::csv::{self, CsvDecoder};
use super::error::SourceError;
use super::format::Packing;
use super::infer_csv::Guess;
use super::infer_json::{Shape, top_columns};
use super::jsonl::JsonDecoder;
use super::records::{Chunk, CutError, MAX_RECORD_BYTES, Record, Records, Splitter};
use super::split::{RANGE_BYTES, split};
use super::{BATCH_ROWS, CsvOptions, SourceOptions};
use crate::convert::Rules;

/// Bytes of records decoded together.
const CHUNK_BYTES: usize = 4 << 20;
/// Bytes of a file that its sample has at most.
const SAMPLE_BYTES: usize = 8 << 20;

/// How the records of a file are decoded.
#[derive(Debug, Clone)]
pub(super) enum TextFormat {
    Csv(CsvOptions),
    JsonLines,
}

/// A part of a text file: whole records.
#[derive(Debug, Clone)]
pub(super) struct TextPart {
    pub range: Range<u64>,
    pub line: u64,
}

/// What a text file was found to be.
#[derive(Debug)]
pub(super) struct TextFile {
    pub format: TextFormat,
    pub packing: Packing,
    pub fields: Fields,
    /// The first record that is data, and its line.
    start: u64,
    line: u64,
}

type Reader = Box<dyn Read + Send>;
/// Takes rows and the records that they are of.
type Emit<'a, E> = &'a mut dyn FnMut(RecordBatch, &[Record]) -> Result<(), E>;
/// Takes a bad record, its bytes and what is wrong with it.
type RejectRecord<'a, E> = &'a mut dyn FnMut(&Record, &[u8], String) -> Result<(), E>;

fn open(blob: &Blob, packing: Packing, range: Range<u64>) -> Result<Reader, SourceError> {
    let reader = blob.reader(range);
    Ok(match packing {
        Packing::Plain => Box::new(reader),
        Packing::Gzip => Box::new(MultiGzDecoder::new(reader)),
        Packing::Zstd => {
            Box::new(zstd::stream::read::Decoder::new(reader).map_err(|e| blob.io_error(e))?)
        }
    })
}

fn splitter(format: &TextFormat) -> Splitter {
    match format {
        TextFormat::Csv(options) => Splitter::csv(options.delimiter, options.quote),
        TextFormat::JsonLines => Splitter::Lines,
    }
}

fn cut_error(blob: &Blob, packing: Packing, error: CutError) -> SourceError {
    match error {
        CutError::Long { line } => SourceError::LongRecord {
            file: blob.name.to_string(),
            line,
            limit: MAX_RECORD_BYTES,
        },
        CutError::Io(error) if packing == Packing::Plain => blob.io_error(error),
        CutError::Io(error) => blob.damaged("its compressed content ", error),
    }
}

impl TextFile {
    /// Reads the header and a sample.
    pub fn describe(
        blob: &Blob,
        format: TextFormat,
        packing: Packing,
        options: &SourceOptions,
    ) -> Result<TextFile, SourceError> {
        let reader = open(blob, packing, 0..blob.size_bytes)?;
        let mut records = Records::new(reader, splitter(&format), 1);
        records
            .skip_mark()
            .map_err(|e| cut_error(blob, packing, CutError::Io(e)))?;
        let mut names = Vec::new();
        if let TextFormat::Csv(csv_options) = &format
            && csv_options.header
        {
            let header = first_record(&mut records).map_err(|e| cut_error(blob, packing, e))?;
            names = csv::header(&header, csv_options).map_err(|reason| SourceError::Header {
                file: blob.name.to_string(),
                reason,
            })?;
        }
        let (start, line) = (records.position(), records.line());
        let sample = records
            .next(options.sample_rows, SAMPLE_BYTES)
            .map_err(|e| cut_error(blob, packing, e))?
            .unwrap_or_default();
        let fields = match &format {
            TextFormat::Csv(csv_options) => guess_csv(names, &sample, csv_options),
            TextFormat::JsonLines => guess_json(&sample),
        };
        Ok(TextFile {
            format,
            packing,
            fields,
            start,
            line,
        })
    }

    /// Whether rows may have columns that the sample has not shown.
    pub fn is_open(&self) -> bool {
        matches!(self.format, TextFormat::JsonLines)
    }

    fn decoder(
        &self,
        blob: &Blob,
        schema: &SchemaRef,
        rules: &Arc<Rules>,
    ) -> Result<Decoder, SourceError> {
        let decoder = match &self.format {
            TextFormat::Csv(options) => CsvDecoder::new(schema, options, rules)
                .map(|decoder| Decoder::Csv(Box::new(decoder))),
            TextFormat::JsonLines => {
                JsonDecoder::new(&self.fields, schema, rules).map(Decoder::Json)
            }
        };
        decoder.map_err(|error| SourceError::Convert {
            file: blob.name.to_string(),
            error,
        })
    }

    /// The parts that can be read side by side.
    pub fn parts(&self, blob: &Blob) -> Result<Vec<TextPart>, SourceError> {
        let size = blob.size_bytes;
        let parts = match self.packing {
            Packing::Plain if self.start >= size => Vec::new(),
            Packing::Plain => split(
                blob,
                self.start,
                self.line,
                splitter(&self.format),
                RANGE_BYTES,
            )?,
            _ => vec![(0..size, 1)],
        };
        Ok(parts
            .into_iter()
            .map(|(range, line)| TextPart { range, line })
            .collect())
    }

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
        let failed = |error| E::from(cut_error(blob, self.packing, error));
        let reader = open(blob, self.packing, part.range.clone())?;
        let mut records = Records::new(reader, splitter(&self.format), part.line);
        if self.packing != Packing::Plain {
            records.skip_mark().map_err(CutError::Io).map_err(failed)?;
            if matches!(&self.format, TextFormat::Csv(options) if options.header) {
                first_record(&mut records).map_err(failed)?;
            }
        }
        let mut decoder = self.decoder(blob, schema, rules)?;
        while let Some(chunk) = records.next(BATCH_ROWS, CHUNK_BYTES).map_err(failed)? {
            let (good, open) = match chunk.records.split_last() {
                Some((last, before)) if chunk.unclosed => (before, Some(last)),
                _ => (&chunk.records[..], None),
            };
            decode(&mut decoder, chunk.bytes, good, emit, reject)?;
            if let Some(open) = open {
                let bytes = chunk.bytes[open.start..open.end].trim_ascii_end();
                reject(
                    open,
                    bytes,
                    "a quote is not closed before the file ends".to_owned(),
                )?;
            }
        }
        Ok(())
    }
}

fn first_record(records: &mut Records<Reader>) -> Result<Vec<u8>, CutError> {
    while let Some(chunk) = records.next(1, usize::MAX)? {
        if let Some(record) = chunk.records.first() {
            return Ok(chunk.bytes[record.start..record.end].to_vec());
        }
    }
    Ok(Vec::new())
}

fn guess_csv(names: Vec<String>, sample: &Chunk<'_>, options: &CsvOptions) -> Fields {
    let mut guesses = vec![Guess::Nothing; names.len()];
    for record in &sample.records {
        let fields = csv::fields(&sample.bytes[record.start..record.end], options);
        if names.is_empty() && guesses.is_empty() {
            guesses.resize(fields.len(), Guess::Nothing);
        }
        if fields.len() != guesses.len() {
            continue;
        }
        for (guess, field) in guesses.iter_mut().zip(&fields) {
            if !options.is_null(field) {
                *guess = guess.join(Guess::of(field));
            }
        }
    }
    let names = names.into_iter().map(Some).chain(std::iter::repeat(None));
    let fields = guesses
        .into_iter()
        .zip(names)
        .enumerate()
        .map(|(index, (guess, name))| {
            let name = name.unwrap_or_else(|| format!("column_{}", index + 1));
            Field::new(name, guess.data_type(), true)
        });
    fields.collect()
}

/// Lines that are no objects are left to be rejected as they are read.
fn guess_json(sample: &Chunk<'_>) -> Fields {
    let mut all = Shape::Object(Vec::new());
    for record in &sample.records {
        let line = &sample.bytes[record.start..record.end];
        if let Ok(shape @ Shape::Object(_)) = serde_json::from_slice::<Shape>(line) {
            all = all.join(shape);
        }
    }
    match all {
        Shape::Object(fields) => top_columns(fields),
        _ => Fields::empty(),
    }
}

/// A decoder of either format.
enum Decoder {
    Csv(Box<CsvDecoder>),
    Json(JsonDecoder),
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

fn decode<E>(
    decoder: &mut Decoder,
    bytes: &[u8],
    records: &[Record],
    emit: Emit<'_, E>,
    reject: RejectRecord<'_, E>,
) -> Result<(), E> {
    let (Some(first), Some(last)) = (records.first(), records.last()) else {
        return Ok(());
    };
    match decoder.decode(&bytes[first.start..last.end], records.len()) {
        Ok(batch) => emit(batch, records),
        Err(reason) if records.len() == 1 => reject(
            first,
            bytes[first.start..first.end].trim_ascii_end(),
            reason,
        ),
        Err(_) => {
            let (left, right) = records.split_at(records.len() / 2);
            decode(decoder, bytes, left, emit, reject)?;
            decode(decoder, bytes, right, emit, reject)
        }
    }
}

/// The columns of a file with the types that all files have together; where rows may have columns that the sample
/// has not shown, all columns there are.
pub(super) fn decode_schema(file: &TextFile, united: &SchemaRef) -> SchemaRef {
    let typed = |field: &Arc<Field>| {
        let data_type = match united.field_with_name(field.name()) {
            Ok(united) => united.data_type().clone(),
            Err(_) => DataType::Utf8,
        };
        Field::new(field.name(), data_type, true)
    };
    let fields = if file.is_open() {
        united.fields()
    } else {
        &file.fields
    };
    Arc::new(arrow_schema::Schema::new(
        fields.iter().map(typed).collect::<Vec<Field>>(),
    ))
}
