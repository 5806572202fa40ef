//! Describes CSV and JSON files from heads and samples, and splits them into parts and chunks.

use std::collections::HashMap;
use std::io::{ErrorKind, Read};
use std::ops::Range;
use std::sync::Arc;

use arrow_schema::{DataType, Field, Fields, Schema, SchemaRef};
use flate2::read::MultiGzDecoder;
use memchr::memchr_iter;

use super::TextFormat;
use super::csv;
use super::excerpt::excerpt;
use super::guesses::{GivenColumns, Guesses, SeenType, given};
use super::look::Look;
use super::records::{Chunk, CutError, MAX_RECORD_BYTES, Record, Records};
use super::shape::Shape;
use super::sniff::{self, SNIFF_BYTES};
use super::split::{RANGE_BYTES, split};
use super::splitter::Splitter;
use crate::sources::batch_bytes::BATCH_BYTES;
use crate::sources::blob::Blob;
use crate::sources::error::SourceError;
use crate::sources::format::Packing;
use crate::sources::origin::{Place, Places};
use crate::sources::{BATCH_ROWS, SourceOptions};

/// The most bytes of a file's sample.
const SAMPLE_BYTES: usize = 8 << 20;

/// A part of a text file: whole records.
#[derive(Debug, Clone)]
pub(in crate::sources) struct TextPart {
    pub range: Range<u64>,
    /// The line, or element number, at which it begins.
    pub number: u64,
}

/// The description of a text file.
#[derive(Debug)]
pub(in crate::sources) struct TextFile {
    pub format: TextFormat,
    pub packing: Packing,
    /// The columns, once they are settled.
    pub fields: Fields,
    /// The columns of CSV, in the file's order.
    pub names: Vec<String>,
    /// The types of the first records, until the columns are settled.
    pub sample: Option<SeenType>,
    /// The inferred types of the columns, and whether they come from all rows.
    pub guesses: Arc<Guesses>,
    pub known: bool,
    /// Whether there is no record.
    pub empty: bool,
    pub given: GivenColumns,
    /// The place of the first JSON record with a duplicate name, and its error.
    pub name_twice: Option<String>,
    /// Whether the format was given, not detected from the file's name or content.
    is_format_given: bool,
    splitter: Splitter,
    /// The number of bytes before the first element of an array.
    head_bytes: usize,
    /// The first record that is data, and its line or number.
    start: u64,
    number: u64,
}

type Reader = Box<dyn Read + Send>;

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

impl TextFile {
    /// Reads the head and a sample.
    pub fn describe(
        blob: &Blob,
        format: TextFormat,
        packing: Packing,
        options: &SourceOptions,
    ) -> Result<TextFile, SourceError> {
        let mut file = TextFile {
            format,
            packing,
            fields: Fields::empty(),
            names: Vec::new(),
            sample: None,
            guesses: Arc::default(),
            known: options.guesses.is_some(),
            empty: true,
            given: given(options),
            name_twice: None,
            is_format_given: options.format.is_some(),
            splitter: Splitter::Lines,
            head_bytes: 0,
            start: 0,
            number: 1,
        };
        let mut records = file.records(blob, 0..blob.size_bytes, 1)?;
        file.begin(blob, &mut records)?;
        file.read_names(blob, &mut records, options)?;
        (file.start, file.number) = (records.position(), records.number());
        // Even if all types are known, the first record may be needed for the number of columns.
        let rows = if file.known { 1 } else { options.sample_rows };
        let sample = records.next(rows, SAMPLE_BYTES);
        let sample = sample.map_err(|error| file.cut_error(blob, 0, error))?;
        let sample = sample.unwrap_or_default();
        file.empty = sample.records.is_empty();
        file.number_names(&sample);
        if !file.known {
            let mut look = Look::new(&file.format, file.names.len(), &file.given);
            look.look(&blob.name, &sample)?;
            let nothing = look.saw_nothing();
            let stranger = nothing
                .then(|| file.stranger(&sample, look.fault()))
                .flatten();
            if nothing && records.at_end() && !records.closed() {
                return Err(unended(blob));
            }
            if let Some(reason) = stranger {
                let file = blob.name.to_string();
                return Err(SourceError::Header { file, reason });
            }
            let twice = look.name_twice();
            file.name_twice =
                twice.map(|(number, reason)| format!("{}: {reason}", file.place(number)));
            file.sample = Some(look.finish());
        }
        Ok(file)
    }

    /// Detects from the first bytes how records end, and whether this is text at all.
    fn begin(&mut self, blob: &Blob, records: &mut Records<Reader>) -> Result<(), SourceError> {
        let head = records.skip_mark().and_then(|()| records.peek(SNIFF_BYTES));
        let head = head.map_err(|error| self.cut_error(blob, 0, CutError::Io(error)))?;
        if let Some((what, advice)) = sniff::stranger(head, &self.format, self.is_format_given) {
            return Err(SourceError::NotText {
                file: blob.name.to_string(),
                line: sniff::strange_line(head, &what),
                format: match self.format {
                    TextFormat::Csv(_) => "CSV",
                    TextFormat::Json => "JSON",
                },
                what,
                advice,
            });
        }
        (self.splitter, self.head_bytes) = sniff::splitter(head, &self.format);
        records.cut_by(self.splitter);
        records.skip(self.head_bytes);
        Ok(())
    }

    /// Reads the header of a CSV file that has one.
    fn read_names(
        &mut self,
        blob: &Blob,
        records: &mut Records<Reader>,
        options: &SourceOptions,
    ) -> Result<(), SourceError> {
        let TextFormat::Csv(csv_options) = &self.format else {
            return Ok(());
        };
        if !csv_options.header {
            return Ok(());
        }
        let header = first_record(records).map_err(|error| self.cut_error(blob, 0, error))?;
        let names = if header.is_unclosed {
            Err(csv::unclosed_header(&header.bytes, csv_options))
        } else if self.splitter.has_stray_return(&header.bytes) {
            Err(format!("its header has {}", csv::STRAY_RETURN))
        } else {
            csv::header(&header.bytes, csv_options)
        };
        let names = names.and_then(|names| match &names[..] {
            [name] if !options.delimiter_given => {
                match sniff::other_delimiter(name, csv_options.delimiter) {
                    None => Ok(names),
                    Some(other) => Err(other_delimiter(name, other, csv_options.delimiter)),
                }
            }
            _ => Ok(names),
        });
        self.names = names.map_err(|reason| SourceError::Header {
            file: blob.name.to_string(),
            reason,
        })?;
        Ok(())
    }

    /// Names the columns of a CSV file without a header by their numbers.
    fn number_names(&mut self, sample: &Chunk<'_>) {
        if let TextFormat::Csv(options) = &self.format
            && !options.header
            && let Some(first) = sample.records.first()
        {
            let fields = csv::fields(&sample.bytes[first.start..first.end], options);
            self.names = (1..=fields.len()).map(csv::column_name).collect();
        }
    }

    /// Returns the error of a JSON file whose first records include no object.
    fn stranger(&self, sample: &Chunk<'_>, fault: Option<String>) -> Option<String> {
        let first = sample.records.first()?;
        let record = sample.bytes[first.start..first.end].trim_ascii();
        let place = self.place(first.number);
        if !record.starts_with(b"{") {
            let begins = sniff::begins(record, self.is_format_given);
            return Some(format!("{place} is no JSON object: {begins}"));
        }
        Some(format!("{place}: {}", fault?))
    }

    /// Sets the file's columns.
    pub fn settle(&mut self, guesses: &Arc<Guesses>) {
        self.fields = match &self.format {
            TextFormat::Json => guesses.json_columns(&self.given),
            TextFormat::Csv(_) => (self.names.iter())
                .map(|name| Field::new(name, guesses.csv(name).data_type(), true))
                .collect(),
        };
        self.guesses = guesses.clone();
    }

    /// Drops columns that were given, that no row has shown, and that come from elsewhere.
    pub fn leave_out_unmet(&mut self, from_elsewhere: impl Fn(&str) -> bool) {
        let unmet = |field: &Field| {
            self.is_json() && *field.data_type() == DataType::Null && from_elsewhere(field.name())
        };
        let kept = self.fields.iter().filter(|field| !unmet(field));
        self.fields = kept.cloned().collect();
    }

    /// Returns whether the column was given and no inspected JSON record has it.
    pub fn is_unmet(&self, column: &str) -> bool {
        self.is_json() && self.given.contains(column) && self.guesses.json().get(column).is_none()
    }

    pub fn is_json(&self) -> bool {
        matches!(self.format, TextFormat::Json)
    }

    /// Returns the parts that can be read in parallel.
    pub fn parts(&self, blob: &Blob) -> Result<Vec<TextPart>, SourceError> {
        let size = blob.size_bytes;
        let array = matches!(self.splitter, Splitter::Elements { .. });
        let parts = match self.packing {
            // An array must have an end, even one without elements.
            Packing::Plain if self.start >= size && !array => Vec::new(),
            Packing::Plain => split(blob, self.start, self.number, self.splitter, RANGE_BYTES)?,
            _ => vec![(0..size, 1)],
        };
        Ok(parts
            .into_iter()
            .map(|(range, number)| TextPart { range, number })
            .collect())
    }

    /// Passes on the records of a part, one chunk after another.
    pub fn chunks<E: From<SourceError>>(
        &self,
        blob: &Blob,
        part: &TextPart,
        take: &mut dyn FnMut(&Chunk<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let failed = |error| E::from(self.cut_error(blob, part.range.start, error));
        let mut records = self.records(blob, part.range.clone(), part.number)?;
        if self.packing != Packing::Plain {
            records.skip_mark().map_err(CutError::Io).map_err(failed)?;
            records
                .peek(self.head_bytes)
                .map_err(CutError::Io)
                .map_err(failed)?;
            records.skip(self.head_bytes);
            if matches!(&self.format, TextFormat::Csv(options) if options.header) {
                first_record(&mut records).map_err(failed)?;
            }
        }
        let rows = match self.format {
            TextFormat::Csv(_) => csv::batch_rows(self.names.len()),
            TextFormat::Json => BATCH_ROWS,
        };
        while let Some(chunk) = records.next(rows, BATCH_BYTES).map_err(failed)? {
            take(&chunk)?;
        }
        if part.range.end >= blob.size_bytes && !records.closed() {
            return Err(unended(blob).into());
        }
        Ok(())
    }

    /// Returns the place of a record.
    pub fn place(&self, number: u64) -> Place {
        match self.splitter {
            Splitter::Elements { .. } => Place::Element(number),
            _ => Place::Line(number),
        }
    }

    /// Returns the byte that ends the lines of a CSV file.
    pub fn line_end(&self) -> u8 {
        match self.splitter {
            Splitter::Csv { line_end, .. } => line_end,
            _ => b'\n',
        }
    }

    /// Returns the places of records.
    pub fn places(&self, records: &[Record]) -> Places {
        let numbers = records.iter().map(|record| record.number).collect();
        match self.splitter {
            Splitter::Elements { .. } => Places::Elements(numbers),
            _ => Places::Lines(numbers),
        }
    }

    /// Returns the line of a byte of the text.
    fn line_at(&self, blob: &Blob, at: u64) -> Result<u64, SourceError> {
        let mut before = open(blob, self.packing, 0..blob.size_bytes)?.take(at);
        let (mut lines, mut buffer) = (1, vec![0; SNIFF_BYTES]);
        loop {
            match before.read(&mut buffer) {
                Ok(0) => return Ok(lines),
                Ok(length) => lines += memchr_iter(b'\n', &buffer[..length]).count() as u64,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.cut_error(blob, 0, CutError::Io(error))),
            }
        }
    }

    fn records(
        &self,
        blob: &Blob,
        range: Range<u64>,
        number: u64,
    ) -> Result<Records<Reader>, SourceError> {
        let reader = open(blob, self.packing, range)?;
        Ok(Records::new(reader, self.splitter, number))
    }

    /// Returns the error of records that began at `start` and could not be read.
    fn cut_error(&self, blob: &Blob, start: u64, error: CutError) -> SourceError {
        match error {
            CutError::Behind { at, text } => match self.line_at(blob, start + at) {
                Ok(line) => SourceError::Header {
                    file: blob.name.to_string(),
                    reason: format!(
                        "line {line}: '{}' follows the ] that ends the JSON array; a file is one array, or an object a line",
                        excerpt(&text)
                    ),
                },
                Err(error) => error,
            },
            CutError::Long { number } => SourceError::LongRecord {
                file: blob.name.to_string(),
                place: self.place(number),
                limit: MAX_RECORD_BYTES,
            },
            CutError::Io(error) if self.packing == Packing::Plain => blob.io_error(error),
            CutError::Io(error) => blob.damaged("its compressed content ", error),
        }
    }
}

fn unended(blob: &Blob) -> SourceError {
    blob.damaged("its JSON array ", "no ] ends it")
}

/// The record that may be a header; empty if there is none.
#[derive(Default)]
struct FirstRecord {
    bytes: Vec<u8>,
    /// Whether it ends, with the file, within quotes.
    is_unclosed: bool,
}

fn first_record(records: &mut Records<Reader>) -> Result<FirstRecord, CutError> {
    while let Some(chunk) = records.next(1, usize::MAX)? {
        if let Some(record) = chunk.records.first() {
            return Ok(FirstRecord {
                bytes: chunk.bytes[record.start..record.end].to_vec(),
                is_unclosed: chunk.unclosed,
            });
        }
    }
    Ok(FirstRecord::default())
}

fn other_delimiter(name: &str, other: &str, delimiter: u8) -> String {
    let shown = match delimiter {
        b'\t' => "\\t".to_owned(),
        delimiter => char::from(delimiter).to_string(),
    };
    format!(
        "its header is one column, '{name}': if its fields are delimited by '{other}', give \
         --csv-delimiter '{other}', and if it has one column, --csv-delimiter '{shown}'"
    )
}

/// Returns the columns of a file with the common types of all files. If a sample of JSON has only
/// nulls, the type is null.
pub(in crate::sources) fn decode_schema(text: &TextFile, united: &SchemaRef) -> SchemaRef {
    let fields = united.fields().iter();
    let united: HashMap<&str, &Arc<Field>> =
        fields.map(|field| (field.name().as_str(), field)).collect();
    let typed = |field: &Arc<Field>| {
        let name = field.name().as_str();
        let data_type = match united.get(name) {
            Some(united) if text.known || text.given.contains(name) => united.data_type().clone(),
            Some(united) => match text.format {
                TextFormat::Csv(_) => united.data_type().clone(),
                TextFormat::Json => only_met(text.guesses.json().get(name), united.data_type()),
            },
            None => DataType::Utf8,
        };
        Field::new(name, data_type, true)
    };
    Arc::new(Schema::new(
        text.fields.iter().map(typed).collect::<Vec<Field>>(),
    ))
}

/// Returns the type, or null if no value was found.
fn only_met(shape: Option<&Shape>, data_type: &DataType) -> DataType {
    let inner = |shape: Option<&Shape>, field: &Field| {
        let data_type = only_met(shape, field.data_type());
        field.clone().with_data_type(data_type)
    };
    match (shape, data_type) {
        (Some(Shape::Null), DataType::Utf8) => DataType::Null,
        (Some(Shape::List(item)), DataType::List(field)) => {
            DataType::List(Arc::new(inner(Some(item), field)))
        }
        (Some(Shape::Object(object)), DataType::Struct(fields)) => DataType::Struct(
            (fields.iter())
                .map(|field| inner(object.get(field.name()), field))
                .collect(),
        ),
        (_, data_type) => data_type.clone(),
    }
}
