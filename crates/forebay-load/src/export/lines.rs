//! Writes CSV and JSON lines.
//!
//! CSV: a header, then one record a line. Null is the empty field, and an empty text is `""`.
//! Lists, structs and maps are JSON. Binary is its bytes if they are UTF-8, else
//! `{"base64":"..."}`. JSON lines: one object a line, in the form in which `get --json` shows
//! values.

use std::io::Write;

use forebay_run::row::{Column, Datum, RowError, write_binary_text, write_json_string};

use super::layout::Layout;
use super::{ExportError, row_error};

pub(super) struct CsvLines<W> {
    output: W,
    line: Vec<u8>,
    field: Vec<u8>,
}

impl<W: Write> CsvLines<W> {
    pub fn new(columns: &[Column], mut output: W) -> Result<CsvLines<W>, ExportError> {
        let mut line = Vec::new();
        for (index, column) in columns.iter().enumerate() {
            if index > 0 {
                line.push(b',');
            }
            push_field(column.name.as_bytes(), &mut line);
        }
        line.push(b'\n');
        output.write_all(&line)?;
        Ok(CsvLines {
            output,
            line,
            field: Vec::new(),
        })
    }

    pub fn push(&mut self, layout: &Layout, key: &[u8], value: &[u8]) -> Result<(), ExportError> {
        let CsvLines {
            output,
            line,
            field,
        } = self;
        line.clear();
        let written = layout.record::<RowError>(key, value, |index, value| {
            if index > 0 {
                line.push(b',');
            }
            field.clear();
            let written = match value {
                Datum::Bytes(bytes) => {
                    write_binary_text(bytes, field);
                    true
                }
                other => other.write_text(field)?,
            };
            if written {
                push_field(field, line);
            }
            Ok(())
        });
        written.map_err(|error| row_error(key, error))?;
        line.push(b'\n');
        Ok(output.write_all(line)?)
    }

    pub fn finish(mut self) -> Result<W, ExportError> {
        self.output.flush()?;
        Ok(self.output)
    }
}

/// Appends a field, quoted if necessary.
fn push_field(field: &[u8], line: &mut Vec<u8>) {
    let special = |byte: &u8| matches!(byte, b',' | b'"' | b'\n' | b'\r');
    if !field.is_empty() && !field.iter().any(special) {
        line.extend_from_slice(field);
        return;
    }
    line.push(b'"');
    for byte in field {
        if *byte == b'"' {
            line.push(b'"');
        }
        line.push(*byte);
    }
    line.push(b'"');
}

pub(super) struct JsonLines<W> {
    /// The text before each column's value: a brace or comma, the name and a colon.
    names: Vec<Vec<u8>>,
    output: W,
    line: Vec<u8>,
}

impl<W: Write> JsonLines<W> {
    pub fn new(columns: &[Column], output: W) -> JsonLines<W> {
        let name = |(index, column): (usize, &Column)| {
            let mut name = if index == 0 { vec![b'{'] } else { vec![b','] };
            write_json_string(&column.name, &mut name);
            name.push(b':');
            name
        };
        let names = columns.iter().enumerate().map(name).collect();
        JsonLines {
            names,
            output,
            line: Vec::new(),
        }
    }

    pub fn push(&mut self, layout: &Layout, key: &[u8], value: &[u8]) -> Result<(), ExportError> {
        let JsonLines {
            names,
            output,
            line,
        } = self;
        line.clear();
        let written = layout.record::<RowError>(key, value, |index, value: &Datum<'_>| {
            line.extend_from_slice(names.get(index).map_or(&[], Vec::as_slice));
            value.write_json(line)
        });
        written.map_err(|error| row_error(key, error))?;
        line.extend_from_slice(if names.is_empty() { b"{}\n" } else { b"}\n" });
        Ok(output.write_all(line)?)
    }

    pub fn finish(mut self) -> Result<W, ExportError> {
        self.output.flush()?;
        Ok(self.output)
    }
}
