//! Formats a value as JSON.
//!
//! Integers and decimals are numbers with all their digits. NaN and the infinities, which JSON
//! lacks, are the strings `"NaN"`, `"Infinity"` and `"-Infinity"`. Binary is a string if it is
//! UTF-8, else `{"base64": "..."}`. A map is an object if its keys are scalars, else an array of
//! objects with `key` and `value`. The names in that object are the keys' text, of binary keys as
//! [`super::write_binary_text`] says.

use super::base64::{is_plain, write_base64_object, write_binary_text};
use super::datum::{Datum, f16_to_f32};
use super::schema::Schema;
use super::text::write_scalar;
use super::{ListView, RowError, RowView};

impl Datum<'_> {
    /// Appends the value as text, as [`super::RowView::text`] describes; if it is null, returns
    /// `false` and appends nothing.
    pub fn write_text(&self, out: &mut Vec<u8>) -> Result<bool, RowError> {
        match self {
            Datum::List(_) | Datum::Row(_) | Datum::Map(_) => write(self, out)?,
            scalar => return Ok(write_scalar(scalar, out)),
        }
        Ok(true)
    }

    /// Appends the value as JSON.
    pub fn write_json(&self, out: &mut Vec<u8>) -> Result<(), RowError> {
        write(self, out)
    }
}

fn write(value: &Datum<'_>, out: &mut Vec<u8>) -> Result<(), RowError> {
    match value {
        Datum::Null => out.extend_from_slice(b"null"),
        Datum::Bool(_) | Datum::Int(_) | Datum::UInt(_) => write_plain(value, out),
        Datum::Decimal { .. } | Datum::Decimal256 { .. } => write_plain(value, out),
        Datum::Float16(bits) => write_float(f16_to_f32(*bits).is_finite(), value, out)?,
        Datum::Float32(float) => write_float(float.is_finite(), value, out)?,
        Datum::Float64(float) => write_float(float.is_finite(), value, out)?,
        Datum::Text(text) => write_string(text, out),
        Datum::Bytes(bytes) => write_bytes(bytes, out),
        Datum::List(list) => write_list(list, out)?,
        Datum::Row(row) => write_row(row, out)?,
        Datum::Map(entries) => write_map(entries, out)?,
        _ => {
            out.push(b'"');
            write_plain(value, out);
            out.push(b'"');
        }
    }
    Ok(())
}

fn write_plain(scalar: &Datum<'_>, out: &mut Vec<u8>) {
    write_scalar(scalar, out);
}

fn write_float(finite: bool, value: &Datum<'_>, out: &mut Vec<u8>) -> Result<(), RowError> {
    if finite {
        write_plain(value, out);
        return Ok(());
    }
    out.push(b'"');
    write_plain(value, out);
    out.push(b'"');
    Ok(())
}

fn write_list(list: &ListView<'_>, out: &mut Vec<u8>) -> Result<(), RowError> {
    out.push(b'[');
    for (index, item) in list.items().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write(&item?, out)?;
    }
    out.push(b']');
    Ok(())
}

fn write_row(row: &RowView<'_>, out: &mut Vec<u8>) -> Result<(), RowError> {
    out.push(b'{');
    for (index, column) in row.schema().columns().iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_string(&column.name, out);
        out.push(b':');
        write(&row.datum(index)?, out)?;
    }
    out.push(b'}');
    Ok(())
}

fn write_map(entries: &ListView<'_>, out: &mut Vec<u8>) -> Result<(), RowError> {
    if !entries.entry_schema().is_some_and(scalar_key) {
        return write_entries(entries, out);
    }
    let mut key = Vec::new();
    out.push(b'{');
    for (index, entry) in entries.items().enumerate() {
        let Datum::Row(entry) = entry? else { continue };
        if index > 0 {
            out.push(b',');
        }
        key.clear();
        match entry.datum(0)? {
            Datum::Bytes(bytes) => write_binary_text(bytes, &mut key),
            other => write_plain(&other, &mut key),
        }
        write_string(
            std::str::from_utf8(&key).map_err(|_| RowError::NotUtf8)?,
            out,
        );
        out.push(b':');
        write(&entry.datum(1)?, out)?;
    }
    out.push(b'}');
    Ok(())
}

/// Writes the entries with fixed names, even if the schema has others.
fn write_entries(entries: &ListView<'_>, out: &mut Vec<u8>) -> Result<(), RowError> {
    out.push(b'[');
    for (index, entry) in entries.items().enumerate() {
        let Datum::Row(entry) = entry? else { continue };
        out.extend_from_slice(if index > 0 {
            b",{\"key\":"
        } else {
            b"{\"key\":"
        });
        write(&entry.datum(0)?, out)?;
        out.extend_from_slice(b",\"value\":");
        write(&entry.datum(1)?, out)?;
        out.push(b'}');
    }
    out.push(b']');
    Ok(())
}

fn scalar_key(entries: &Schema) -> bool {
    entries
        .columns()
        .first()
        .is_some_and(|key| !key.kind.is_nested())
}

/// Appends bytes as a JSON string if they are UTF-8, else as `{"base64": "..."}`. A string that
/// looks like that form is written in it, too.
pub fn write_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    match std::str::from_utf8(bytes) {
        Ok(text) if is_plain(bytes) => write_string(text, out),
        _ => write_base64_object(bytes, out),
    }
}

/// Appends a JSON string, quoted and escaped.
pub fn write_string(text: &str, out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    out.push(b'"');
    let bytes = text.as_bytes();
    // No early exit, so that the loop handles many bytes at a time.
    let plain = |all: bool, byte: &u8| all & (*byte >= 0x20) & (*byte != b'"') & (*byte != b'\\');
    if bytes.iter().fold(true, plain) {
        out.extend_from_slice(bytes);
        out.push(b'"');
        return;
    }
    let mut plain = 0;
    for (index, byte) in bytes.iter().enumerate() {
        let short = match byte {
            b'"' | b'\\' => *byte,
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            0..0x20 => b'u',
            _ => continue,
        };
        out.extend_from_slice(&bytes[plain..index]);
        out.extend_from_slice(&[b'\\', short]);
        if short == b'u' {
            let digits = [HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]];
            out.extend_from_slice(b"00");
            out.extend_from_slice(&digits);
        }
        plain = index + 1;
    }
    out.extend_from_slice(&bytes[plain..]);
    out.push(b'"');
}
