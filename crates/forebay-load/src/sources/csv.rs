//! Decoding of CSV records.

use std::borrow::Cow;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_csv::ReaderBuilder;
use arrow_csv::reader::Decoder;
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use regex::Regex;

use super::CsvOptions;
use super::infer_csv::Guess;

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

/// Decodes records of a schema.
pub(super) struct CsvDecoder {
    schema: SchemaRef,
    /// Of columns whose types were guessed; they are decoded as text, and have to be written as was guessed.
    guesses: Vec<Option<Guess>>,
    options: CsvOptions,
    decoder: Decoder,
}

impl CsvDecoder {
    pub fn new(
        schema: &SchemaRef,
        options: &CsvOptions,
        mut guesses: Vec<Option<Guess>>,
    ) -> CsvDecoder {
        for (guess, field) in guesses.iter_mut().zip(schema.fields()) {
            *guess = guess.filter(|guess| match guess {
                Guess::Nothing => *field.data_type() == DataType::Utf8,
                Guess::Text => false,
                guess => guess.data_type() == *field.data_type(),
            });
        }
        let decoder = build(schema, options, &guesses);
        CsvDecoder {
            schema: schema.clone(),
            guesses,
            options: options.clone(),
            decoder,
        }
    }

    /// Decodes whole records. An error says what is wrong with the first bad one; the decoder can be used further.
    pub fn decode(&mut self, bytes: &[u8], count: usize) -> Result<RecordBatch, String> {
        let decoded = self.try_decode(bytes, count);
        if decoded.is_err() {
            self.decoder = build(&self.schema, &self.options, &self.guesses);
        }
        decoded
    }

    fn try_decode(&mut self, bytes: &[u8], count: usize) -> Result<RecordBatch, String> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let taken = self
                .decoder
                .decode(rest)
                .map_err(|error| self.reason(&error.to_string()))?;
            if taken == 0 {
                return Err(SPLIT.to_owned());
            }
            rest = &rest[taken..];
        }
        // An empty read is the end of the input: it ends a record that has no line end.
        self.decoder
            .decode(&[])
            .map_err(|error| self.reason(&error.to_string()))?;
        let batch = self
            .decoder
            .flush()
            .map_err(|error| self.reason(&error.to_string()))?;
        match batch {
            Some(batch) if batch.num_rows() == count => self.convert(&batch),
            _ => Err(SPLIT.to_owned()),
        }
    }

    /// Turns the texts of guessed columns into values.
    fn convert(&self, batch: &RecordBatch) -> Result<RecordBatch, String> {
        let columns = batch.columns().iter().zip(self.schema.fields());
        let converted = |((array, field), guess): ((&ArrayRef, &Arc<Field>), &Option<Guess>)| {
            let Some(guess) = guess else {
                return Ok(array.clone());
            };
            let texts = array.as_string::<i32>().iter().flatten();
            let strange = |text: &&str| !guess.holds(text.as_bytes());
            if let Some(text) = texts.into_iter().find(strange) {
                return Err(misfit(field, text));
            }
            let options = CastOptions {
                safe: false,
                ..CastOptions::default()
            };
            let cast = cast_with_options(array, field.data_type(), &options);
            cast.map_err(|error| format!("the column '{}' does not convert: {error}", field.name()))
        };
        let columns: Vec<ArrayRef> = columns
            .zip(&self.guesses)
            .map(converted)
            .collect::<Result<_, _>>()?;
        let rows = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        RecordBatch::try_new_with_options(self.schema.clone(), columns, &rows)
            .map_err(|error| error.to_string())
    }

    /// The decoder's message without what is about the chunk and not the record, and with names for numbers.
    fn reason(&self, message: &str) -> String {
        let message = message
            .trim_start_matches("Parser error: ")
            .trim_start_matches("Csv error: ");
        let end = message.find(" at line ").unwrap_or(message.len());
        let message = &message[..end];
        let value = message.strip_prefix("Error while parsing value '");
        let named = value.and_then(|rest| {
            let (value, rest) = rest.rsplit_once("' as type '")?;
            let (_, number) = rest.rsplit_once(" for column ")?;
            let field = self.schema.fields().get(number.parse::<usize>().ok()?)?;
            Some(misfit(field, value))
        });
        named.unwrap_or_else(|| {
            message.replacen(
                "incorrect number of fields for line 1",
                "wrong number of fields",
                1,
            )
        })
    }
}

/// What is wrong with a value that is none of its column's type.
fn misfit(field: &Field, value: &str) -> String {
    let (name, data_type) = (field.name(), field.data_type());
    format!("the column '{name}' is {data_type}, and '{value}' is none")
}

fn build(schema: &SchemaRef, options: &CsvOptions, guesses: &[Option<Guess>]) -> Decoder {
    let decoded = |(field, guess): (&Arc<Field>, &Option<Guess>)| match guess {
        None => field.clone(),
        Some(_) => Arc::new(Field::new(field.name(), DataType::Utf8, true)),
    };
    let fields = schema.fields().iter().zip(guesses).map(decoded);
    let decoded = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let builder = ReaderBuilder::new(decoded)
        .with_header(false)
        .with_delimiter(options.delimiter)
        .with_quote(options.quote)
        .with_batch_size(super::BATCH_ROWS);
    if options.null.is_empty() {
        return builder.build_decoder();
    }
    let nulls: Vec<String> = options
        .null
        .iter()
        .map(|text| regex::escape(text))
        .collect();
    // Escaped, the texts are always a valid expression.
    match Regex::new(&format!("^(?:{})?$", nulls.join("|"))) {
        Ok(null) => builder.with_null_regex(null).build_decoder(),
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
