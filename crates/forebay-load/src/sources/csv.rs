//! Decoding of CSV records.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, StringArray};
use arrow_buffer::NullBuffer;
use arrow_csv::ReaderBuilder;
use arrow_csv::reader::Decoder;
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use forebay_run::row::Datum;
use regex::Regex;

use super::CsvOptions;
use super::infer_csv::Guess;
use super::splitter::Splitter;
use crate::convert::{Changes, ConvertError, Converter, Rules, shown};
use crate::type_name::type_name;

/// The fields of one record, unquoted.
pub(super) fn fields<'r>(record: &'r [u8], options: &CsvOptions) -> Vec<Cow<'r, [u8]>> {
    let record = record.strip_suffix(b"\n").unwrap_or(record);
    let record = record.strip_suffix(b"\r").unwrap_or(record);
    let mut fields = Vec::new();
    let mut rest = record;
    loop {
        let (field, after) = field(rest, options);
        fields.push(field);
        match after {
            Some(after) => rest = after,
            None => return fields,
        }
    }
}

/// The first field, and what follows its delimiter.
fn field<'r>(record: &'r [u8], options: &CsvOptions) -> (Cow<'r, [u8]>, Option<&'r [u8]>) {
    let (delimiter, quote) = (options.delimiter, options.quote);
    let plain_end = |from: &[u8]| from.iter().position(|byte| *byte == delimiter);
    let after = |end: usize| record.get(end + 1..);
    if record.first() != Some(&quote) {
        return match plain_end(record) {
            Some(end) => (Cow::Borrowed(&record[..end]), after(end)),
            None => (Cow::Borrowed(record), None),
        };
    }
    let mut text = Vec::new();
    let mut at = 1;
    while at < record.len() {
        if record[at] != quote {
            text.push(record[at]);
            at += 1;
        } else if record.get(at + 1) == Some(&quote) {
            text.push(quote);
            at += 2;
        } else {
            break;
        }
    }
    // What stands between the closing quote and the delimiter belongs to the field, as in the decoder.
    let rest = record.get(at + 1..).unwrap_or_default();
    match plain_end(rest) {
        Some(end) => {
            text.extend_from_slice(&rest[..end]);
            (Cow::Owned(text), rest.get(end + 1..))
        }
        None => {
            text.extend_from_slice(rest);
            (Cow::Owned(text), None)
        }
    }
}

/// The names of a header, or what is wrong with it.
pub(super) fn header(record: &[u8], options: &CsvOptions) -> Result<Vec<String>, String> {
    if record.is_empty() {
        return Err(
            "the file is empty: a CSV file begins with a header (or say that it has none)"
                .to_owned(),
        );
    }
    let mut names: Vec<String> = Vec::new();
    for (index, field) in fields(record, options).into_iter().enumerate() {
        let name = String::from_utf8(field.into_owned())
            .map_err(|_| format!("the name of column {} is not UTF-8", index + 1))?;
        let name = match name.is_empty() {
            true => column_name(index + 1),
            false => name,
        };
        if names.contains(&name) {
            return Err(format!(
                "two columns are named '{name}': rename one in the header"
            ));
        }
        names.push(name);
    }
    Ok(names)
}

/// The name of a column that has none.
pub(super) fn column_name(number: usize) -> String {
    format!("column_{number}")
}

const SPLIT: &str = "a carriage return within the record ends it early: quote the field";

/// Decodes records of a schema: fields as text by the library, their values by the one rule of conversion.
pub(super) struct CsvDecoder {
    /// All fields as text.
    texts: SchemaRef,
    schema: SchemaRef,
    converters: Vec<Converter>,
    rules: Arc<Rules>,
    /// Of columns whose types were guessed; they are decoded as text, and have to be written as was guessed.
    guesses: Vec<Option<Guess>>,
    options: CsvOptions,
    decoder: Decoder,
}

impl CsvDecoder {
    pub fn new(
        schema: &SchemaRef,
        options: &CsvOptions,
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
        let converters = fields
            .clone()
            .map(|field| Converter::new(field.name(), &DataType::Utf8, field.data_type(), rules));
        let texts = fields.map(|field| Field::new(field.name(), DataType::Utf8, true));
        let texts = Arc::new(Schema::new(texts.collect::<Vec<Field>>()));
        Ok(CsvDecoder {
            converters: converters.collect::<Result<_, _>>()?,
            schema: Arc::clone(schema),
            rules: Arc::clone(rules),
            guesses,
            options: options.clone(),
            decoder: build(&texts, options),
            texts,
        })
    }

    /// Decodes whole records. An error says what is wrong with the first bad one; the decoder can be used further.
    pub fn decode(&mut self, bytes: &[u8], count: usize) -> Result<RecordBatch, String> {
        let decoded = self.texts(bytes, count);
        if decoded.is_err() {
            self.decoder = build(&self.texts, &self.options);
        }
        self.values(bytes, &decoded?)
    }

    /// The fields' texts; absent ones are empty.
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
        // An empty read is the end of the input: it ends a record that has no line end.
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

    fn values(&self, bytes: &[u8], texts: &RecordBatch) -> Result<RecordBatch, String> {
        let quoted = self.quoted_empty(bytes);
        let mut changes = Changes::default();
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(self.converters.len());
        for (index, converter) in self.converters.iter().enumerate() {
            let column = texts.column(index).as_string::<i32>();
            let is_text = *self.schema.field(index).data_type() == DataType::Utf8;
            let quoted = |row: usize| is_text && quoted.contains(&(row, index));
            let column = self.with_nulls(column, quoted);
            if let Some(guess) = self.guesses[index] {
                let strange = |text: &&str| !guess.holds(text.as_bytes());
                if let Some(text) = column.iter().flatten().find(strange) {
                    return Err(misfit(self.schema.field(index), text));
                }
            }
            let column: ArrayRef = Arc::new(column);
            match converter.convert(&column, &mut changes) {
                Ok(column) => columns.push(column),
                Err(trouble) => return Err(trouble.reason()),
            }
        }
        self.rules.count(&changes);
        let rows = RecordBatchOptions::new().with_row_count(Some(texts.num_rows()));
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &rows)
            .map_err(|error| error.to_string())
    }

    /// Nulls in place of what stands for null; an empty field does unless it is quoted.
    fn with_nulls(&self, column: &StringArray, quoted: impl Fn(usize) -> bool) -> StringArray {
        let (offsets, values, _) = column.clone().into_parts();
        let present = |row: usize| match column.value(row) {
            "" => quoted(row),
            text => !self.options.is_null(text.as_bytes()),
        };
        let nulls = NullBuffer::from_iter((0..column.len()).map(present));
        let nulls = (nulls.null_count() > 0).then_some(nulls);
        StringArray::new(offsets, values, nulls)
    }

    /// Rows and columns of the fields that are a pair of quotes with nothing between: text of no length, where an
    /// empty field is none.
    fn quoted_empty(&self, bytes: &[u8]) -> HashSet<(usize, usize)> {
        let (delimiter, quote) = (self.options.delimiter, self.options.quote);
        let mut found = HashSet::new();
        let pair = |pair: &[u8]| pair[0] == quote && pair[1] == quote;
        if !bytes.contains(&quote) || !bytes.windows(2).any(pair) {
            return found;
        }
        let line_end = if bytes.contains(&b'\n') { b'\n' } else { b'\r' };
        let mut splitter = Splitter::csv(delimiter, quote, line_end);
        let (mut rest, mut row) = (bytes, 0);
        while !rest.is_empty() {
            let (record, after) = rest.split_at(splitter.end(rest).unwrap_or(rest.len()));
            rest = after;
            if record.iter().all(|byte| matches!(byte, b'\r' | b'\n')) {
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

/// The decoder's message without what is about the chunk and not the record.
fn reason(message: &str) -> String {
    let message = message
        .trim_start_matches("Parser error: ")
        .trim_start_matches("Csv error: ");
    let end = message.find(" at line ").unwrap_or(message.len());
    let lines = "incorrect number of fields for line 1";
    message[..end].replacen(lines, "wrong number of fields", 1)
}

/// What is wrong with a value that is not written as its column's type was guessed to be.
fn misfit(field: &Field, value: &str) -> String {
    let (name, data_type) = (field.name(), type_name(field.data_type()));
    let value = shown(&Datum::Text(value));
    format!("the column '{name}' is {data_type}, and {value} is none")
}

fn build(texts: &SchemaRef, options: &CsvOptions) -> Decoder {
    let builder = ReaderBuilder::new(Arc::clone(texts))
        .with_header(false)
        .with_delimiter(options.delimiter)
        .with_quote(options.quote)
        .with_batch_size(super::BATCH_ROWS);
    // What is null is told later: nothing is here.
    match Regex::new("[^\\s\\S]") {
        Ok(nothing) => builder.with_null_regex(nothing).build_decoder(),
        Err(_) => builder.build_decoder(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(record: &str) -> Vec<String> {
        let fields = fields(record.as_bytes(), &CsvOptions::default());
        fields
            .iter()
            .map(|field| String::from_utf8_lossy(field).into_owned())
            .collect()
    }

    #[test]
    fn fields_are_unquoted() {
        assert_eq!(texts("a,b,\r\n"), ["a", "b", ""]);
        assert_eq!(texts("\"a,\"\"b\"\"\nc\",d\"e"), ["a,\"b\"\nc", "d\"e"]);
        assert_eq!(texts("\"a\"x,\"open"), ["ax", "open"]);
        assert_eq!(texts(""), [""]);
    }

    #[test]
    fn headers_are_checked() {
        let header = |record: &[u8]| super::header(record, &CsvOptions::default());
        assert_eq!(header(b"a,,c\n").unwrap(), ["a", "column_2", "c"]);
        assert!(header(b"a,a\n").unwrap_err().contains("two columns"));
        assert!(header(b"").unwrap_err().contains("empty"));
        assert!(header(b"\xff\n").unwrap_err().contains("UTF-8"));
    }
}
