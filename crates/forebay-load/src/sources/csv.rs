//! Decoding of CSV records.

use std::borrow::Cow;

use arrow_array::RecordBatch;
use arrow_csv::ReaderBuilder;
use arrow_csv::reader::Decoder;
use arrow_schema::SchemaRef;
use regex::Regex;

use super::CsvOptions;

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
        let name = if name.is_empty() {
            format!("column_{}", index + 1)
        } else {
            name
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

const SPLIT: &str = "a carriage return within the record ends it early: quote the field";

/// Decodes records of a schema.
pub(super) struct CsvDecoder {
    schema: SchemaRef,
    options: CsvOptions,
    decoder: Decoder,
}

impl CsvDecoder {
    pub fn new(schema: SchemaRef, options: &CsvOptions) -> CsvDecoder {
        let decoder = build(&schema, options);
        CsvDecoder {
            schema,
            options: options.clone(),
            decoder,
        }
    }

    /// Decodes whole records. An error says what is wrong with the first bad one; the decoder can be used further.
    pub fn decode(&mut self, bytes: &[u8], count: usize) -> Result<RecordBatch, String> {
        let decoded = self.try_decode(bytes, count);
        if decoded.is_err() {
            self.decoder = build(&self.schema, &self.options);
        }
        decoded
    }

    fn try_decode(&mut self, bytes: &[u8], count: usize) -> Result<RecordBatch, String> {
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
}

fn build(schema: &SchemaRef, options: &CsvOptions) -> Decoder {
    let builder = ReaderBuilder::new(schema.clone())
        .with_header(false)
        .with_delimiter(options.delimiter)
        .with_quote(options.quote)
        .with_batch_size(super::BATCH_ROWS);
    match &options.null {
        None => builder.build_decoder(),
        // Escaped, the text is always a valid expression.
        Some(null) => match Regex::new(&format!("^(?:{})?$", regex::escape(null))) {
            Ok(null) => builder.with_null_regex(null).build_decoder(),
            Err(_) => builder.build_decoder(),
        },
    }
}

/// The decoder's message without what is about the chunk and not the record.
fn reason(message: &str) -> String {
    let message = message
        .trim_start_matches("Parser error: ")
        .trim_start_matches("Csv error: ");
    let end = message.find(" at line ").unwrap_or(message.len());
    message[..end].replacen(
        "incorrect number of fields for line 1",
        "wrong number of fields",
        1,
    )
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
