//! Decodes CSV records.
//!
//! The library splits records into texts. The form of a field decides whether it is null. A value
//! is a text read as the column's type, by the one rule of conversion.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, StringArray, new_null_array};
use arrow_buffer::NullBuffer;
use arrow_csv::ReaderBuilder;
use arrow_csv::reader::Decoder;
use arrow_schema::{DataType, Field, FieldRef, Fields, Schema, SchemaRef};
use forebay_run::row::Datum;
use memchr::memmem;

use super::csv::{batch_rows, fields};
use super::excerpt::not_utf8;
use super::infer_csv::Guess;
use super::jsonl::JsonDecoder;
use super::splitter::{Splitter, is_blank};
use crate::convert::quick;
use crate::convert::{Changes, ConvertError, Converter, Rules, Trouble, shown};
use crate::sources::CsvOptions;
use crate::type_name::type_name;

const SPLIT: &str = "a carriage return within the record ends it early: quote the field";

/// A decoder of records of a schema. The library reads fields as text, and the one rule of
/// conversion turns them into values.
pub(in crate::sources) struct CsvDecoder {
    /// The schema with all fields as text.
    texts: SchemaRef,
    schema: SchemaRef,
    columns: Vec<CsvCells>,
    rules: Arc<Rules>,
    /// The inferred types of columns. These columns are decoded as text, and each value must have
    /// the form of the inferred type.
    guesses: Vec<Option<Guess>>,
    options: CsvOptions,
    /// The byte that ends the file's lines, as in [`Splitter`].
    line_end: u8,
    decoder: Decoder,
}

impl CsvDecoder {
    pub fn new(
        schema: &SchemaRef,
        (options, line_end): (&CsvOptions, u8),
        rules: &Arc<Rules>,
        mut guesses: Vec<Option<Guess>>,
    ) -> Result<CsvDecoder, ConvertError> {
        for (guess, field) in guesses.iter_mut().zip(schema.fields()) {
            *guess = guess.filter(|guess| match guess {
                Guess::Nothing => *field.data_type() == DataType::Utf8,
                Guess::Text => false,
                guess => guess.data_type() == *field.data_type(),
            });
        }
        let fields = schema.fields().iter();
        let columns = fields.clone().map(|field| CsvCells::new(field, rules));
        let texts = fields.map(|field| Field::new(field.name(), DataType::Utf8, true));
        let texts = Arc::new(Schema::new(texts.collect::<Vec<Field>>()));
        Ok(CsvDecoder {
            columns: columns.collect::<Result<_, _>>()?,
            schema: Arc::clone(schema),
            rules: Arc::clone(rules),
            guesses,
            options: options.clone(),
            line_end,
            decoder: build(&texts, options),
            texts,
        })
    }

    /// Decodes whole records. An error says what is wrong with the first bad one; the decoder
    /// remains usable.
    pub fn decode(&mut self, bytes: &[u8], count: usize) -> Result<RecordBatch, String> {
        let decoded = self.texts(bytes, count);
        if decoded.is_err() {
            self.decoder = build(&self.texts, &self.options);
            if let Err(error) = std::str::from_utf8(bytes) {
                return Err(not_utf8(bytes, error.valid_up_to()));
            }
        }
        self.values(bytes, &decoded?)
    }

    /// Returns the fields' texts; null fields are empty.
    fn texts(&mut self, bytes: &[u8], count: usize) -> Result<RecordBatch, String> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let taken = self
                .decoder
                .decode(rest)
                .map_err(|error| reason(&error.to_string()))?;
            if taken == 0 {
                return Err(SPLIT.to_owned());
            }
            rest = &rest[taken..];
        }
        // An empty read signals the end of the input: it ends a record that has no line end.
        self.decoder
            .decode(&[])
            .map_err(|error| reason(&error.to_string()))?;
        let batch = self
            .decoder
            .flush()
            .map_err(|error| reason(&error.to_string()))?;
        match batch {
            Some(batch) if batch.num_rows() == count => Ok(batch),
            _ => Err(SPLIT.to_owned()),
        }
    }

    fn values(&mut self, bytes: &[u8], texts: &RecordBatch) -> Result<RecordBatch, String> {
        let quoted = self.quoted_empty(bytes);
        let mut changes = Changes::default();
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(self.columns.len());
        for (index, field) in self.schema.fields().iter().enumerate() {
            let column = texts.column(index).as_string::<i32>();
            let keeps_empty = holds_empty(field.data_type());
            let quoted = |row: usize| keeps_empty && quoted.contains(&(row, index));
            let column = self.with_nulls(column, quoted);
            if let Some(guess) = self.guesses[index] {
                // Values in their common forms have the inferred type.
                if let Some(values) = quick::read(&column, field.data_type()) {
                    columns.push(values);
                    continue;
                }
                // An empty text belongs to a column that has shown nothing else.
                let empty = |text: &str| text.is_empty() && keeps_empty;
                let strange = |text: &&str| !empty(text) && !guess.holds(text.as_bytes());
                if let Some(text) = column.iter().flatten().find(strange) {
                    return Err(misfit(field, text));
                }
            }
            columns.push(self.columns[index].decode(column, &mut changes)?);
        }
        self.rules.count(&changes);
        let rows = RecordBatchOptions::new().with_row_count(Some(texts.num_rows()));
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &rows)
            .map_err(|error| error.to_string())
    }

    /// Replaces the texts for null by nulls. An empty field is null unless it is quoted.
    fn with_nulls(&self, column: &StringArray, quoted: impl Fn(usize) -> bool) -> StringArray {
        let offsets = column.value_offsets();
        let is_empty = |ends: &[i32]| ends[0] == ends[1];
        if self.options.null.is_empty() && !offsets.windows(2).any(is_empty) {
            return column.clone();
        }
        let (offsets, values, _) = column.clone().into_parts();
        let present = |row: usize| match column.value(row) {
            "" => quoted(row),
            text => !self.options.is_null(text.as_bytes()),
        };
        let nulls = NullBuffer::from_iter((0..column.len()).map(present));
        let nulls = (nulls.null_count() > 0).then_some(nulls);
        StringArray::new(offsets, values, nulls)
    }

    /// Returns rows and columns of the fields that are an empty pair of quotes: these are empty
    /// texts, while an empty field is null.
    fn quoted_empty(&self, bytes: &[u8]) -> HashSet<(usize, usize)> {
        let (delimiter, quote) = (self.options.delimiter, self.options.quote);
        let mut found = HashSet::new();
        if memmem::find(bytes, &[quote, quote]).is_none() {
            return found;
        }
        let mut splitter = Splitter::csv(delimiter, quote, self.line_end);
        let (mut rest, mut row) = (bytes, 0);
        while !rest.is_empty() {
            let (record, after) = rest.split_at(splitter.end(rest).unwrap_or(rest.len()));
            rest = after;
            if is_blank(record, self.line_end) {
                continue;
            }
            let fields = fields(record, &self.options).into_iter().enumerate();
            let empty =
                fields.filter(|(_, field)| matches!(field, Cow::Owned(text) if text.is_empty()));
            found.extend(empty.map(|(column, _)| (row, column)));
            row += 1;
        }
        found
    }
}

/// The conversion of the texts of a column.
enum CsvCells {
    /// A column that contains only nulls.
    Nulls(FieldRef),
    Plain(Converter),
    /// Lists, structs and maps are JSON in the form of replies: each field is decoded as the only
    /// value of an object.
    Json(JsonDecoder),
}

impl CsvCells {
    fn new(field: &FieldRef, rules: &Arc<Rules>) -> Result<CsvCells, ConvertError> {
        if *field.data_type() == DataType::Null {
            return Ok(CsvCells::Nulls(Arc::clone(field)));
        }
        if field.data_type().is_nested() {
            let schema = Arc::new(Schema::new(vec![Arc::clone(field)]));
            return JsonDecoder::new(&Fields::empty(), &schema, rules).map(CsvCells::Json);
        }
        let converter = Converter::new(field.name(), &DataType::Utf8, field.data_type(), rules);
        converter.map(CsvCells::Plain)
    }

    fn decode(&mut self, texts: StringArray, changes: &mut Changes) -> Result<ArrayRef, String> {
        match self {
            CsvCells::Nulls(field) => match texts.iter().flatten().next() {
                None => Ok(new_null_array(&DataType::Null, texts.len())),
                Some(text) => Err(misfit(field, text)),
            },
            CsvCells::Plain(converter) => {
                let texts: ArrayRef = Arc::new(texts);
                converter.convert(&texts, changes).map_err(Trouble::reason)
            }
            CsvCells::Json(decoder) => decoder.decode_values(&texts),
        }
    }
}

/// Returns whether an empty text is a value of the type.
fn holds_empty(data_type: &DataType) -> bool {
    use DataType::{Binary, LargeBinary, LargeUtf8, Utf8};
    matches!(data_type, Utf8 | LargeUtf8 | Binary | LargeBinary)
}

/// Returns the decoder's message without its line number, which counts records since it was built.
fn reason(message: &str) -> String {
    let message = message
        .trim_start_matches("Parser error: ")
        .trim_start_matches("Csv error: ");
    let end = message.find(" at line ").unwrap_or(message.len());
    let message = &message[..end];
    let message = match message.split_once(" for line ") {
        Some((what, line)) => {
            let more = line.trim_start_matches(|digit: char| digit.is_ascii_digit());
            format!("{what}{more}")
        }
        None => message.to_owned(),
    };
    message.replacen("incorrect number", "wrong number", 1)
}

/// Returns the error of a value that does not have the form of its column's inferred type.
fn misfit(field: &Field, value: &str) -> String {
    let (name, data_type) = (field.name(), type_name(field.data_type()));
    let value = shown(&Datum::Text(value));
    format!("the column '{name}' is {data_type}, and {value} is not")
}

fn build(texts: &SchemaRef, options: &CsvOptions) -> Decoder {
    // By the library's own rule an empty field is null; `with_nulls` decides later about other
    // texts.
    ReaderBuilder::new(Arc::clone(texts))
        .with_header(false)
        .with_delimiter(options.delimiter)
        .with_quote(options.quote)
        .with_batch_size(batch_rows(texts.fields().len()))
        .build_decoder()
}
