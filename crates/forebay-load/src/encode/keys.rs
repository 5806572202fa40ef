//! Writes keys by a template.

use std::sync::Arc;

use forebay_engine::write_hex;
use forebay_run::format::MAX_KEY_BYTES;
use forebay_run::row::{Column, Datum, Kind, Schema, civil_from_days, f16_to_f32};

use super::EncodeError;
use super::bad_row::BadRow;
use crate::convert::cells::Cells;
use crate::convert::scalar::scalar;
use crate::key::{Form, KeyTemplate, TemplatePart};
use crate::uuid::UUID_BYTES;

/// Integers up to this one are exact in a 64-bit float.
const MAX_WHOLE_FLOAT: f64 = 9_007_199_254_740_992.0;

/// A template bound to the columns of a schema.
#[derive(Debug, Clone)]
pub(super) struct KeyWriter {
    parts: Vec<Bound>,
}

#[derive(Debug, Clone)]
enum Bound {
    Literal(Vec<u8>),
    Column {
        index: usize,
        name: Arc<str>,
        kind: Kind,
        form: Form,
    },
}

impl KeyWriter {
    pub fn new(schema: &Schema, template: &KeyTemplate) -> Result<KeyWriter, EncodeError> {
        let whole = template.parts().len() == 1;
        let bind = |part: &TemplatePart| -> Result<Bound, EncodeError> {
            match part {
                TemplatePart::Literal(text) => Ok(Bound::Literal(text.clone().into_bytes())),
                TemplatePart::Column { name, form } => {
                    let index = super::find(schema, name, "the key template")?;
                    let column = &schema.columns()[index];
                    check(column, *form, whole)?;
                    let name = Arc::from(name.as_str());
                    Ok(Bound::Column {
                        index,
                        name,
                        kind: column.kind.clone(),
                        form: *form,
                    })
                }
            }
        };
        Ok(KeyWriter {
            parts: template
                .parts()
                .iter()
                .map(bind)
                .collect::<Result<_, _>>()?,
        })
    }

    /// Appends the key of a row, or returns why it has none.
    #[inline]
    pub fn write(&self, cells: &[Cells<'_>], row: usize, out: &mut Vec<u8>) -> Result<(), BadRow> {
        for part in &self.parts {
            match part {
                Bound::Literal(text) => out.extend_from_slice(text),
                Bound::Column {
                    index,
                    name,
                    kind,
                    form,
                } => {
                    let value =
                        scalar(&cells[*index], kind, row).map_err(|error| BadRow::Unreadable {
                            reason: error.to_string(),
                        })?;
                    write_value(&value, name, *form, out)?;
                }
            }
        }
        match out.len() {
            0 => Err(BadRow::EmptyKey),
            1..=MAX_KEY_BYTES => Ok(()),
            bytes => Err(BadRow::LongKey { bytes }),
        }
    }
}

/// Refuses kinds that cannot make keys, and widths for kinds that are not numbers.
fn check(column: &Column, form: Form, whole: bool) -> Result<(), EncodeError> {
    let refuse = |reason| {
        Err(EncodeError::KeyType {
            column: column.name.clone(),
            reason,
        })
    };
    match &column.kind {
        kind if form == Form::BigEndian && !has_big_endian(kind) => {
            refuse("is neither a whole number nor a time, and only these are written big-endian")
        }
        Kind::List { .. } | Kind::Struct { .. } | Kind::Map { .. } => refuse("is nested"),
        Kind::Null => refuse("holds nothing but nulls"),
        Kind::Duration { .. }
        | Kind::IntervalMonths
        | Kind::IntervalDayTime
        | Kind::IntervalMonthDayNano => refuse("is a span of time, whose text does not sort"),
        kind if form == Form::Uuid && !is_uuid(kind) => {
            refuse("has no 16 bytes, and only these are written as UUIDs")
        }
        kind if form == Form::Hex && !is_binary(kind) => {
            refuse("is not binary, and only bytes are written as hex digits")
        }
        kind if is_binary(kind) && form == Form::Text && !whole => refuse(
            "is binary, which makes a key as it is only as the whole template: write {COLUMN:hex}, or \
             {COLUMN:uuid} for UUIDs of 16 bytes",
        ),
        kind if matches!(form, Form::Padded(_)) && !kind.is_number() => {
            refuse("is no number, and only numbers have a width")
        }
        _ => Ok(()),
    }
}

fn has_big_endian(kind: &Kind) -> bool {
    let time = matches!(kind, Kind::Date32 | Kind::Date64 | Kind::Timestamp { .. });
    time || kind.integer().is_some()
}

fn is_binary(kind: &Kind) -> bool {
    matches!(kind, Kind::Binary | Kind::FixedBinary { .. })
}

fn is_uuid(kind: &Kind) -> bool {
    matches!(kind, Kind::FixedBinary { width } if *width == UUID_BYTES as u32)
}

#[inline]
fn write_value(
    value: &Datum<'_>,
    name: &Arc<str>,
    form: Form,
    out: &mut Vec<u8>,
) -> Result<(), BadRow> {
    let start = out.len();
    match value {
        _ if form == Form::BigEndian && *value != Datum::Null => {
            return write_big_endian(value, out);
        }
        Datum::Null => {
            return Err(BadRow::NullKey {
                column: name.clone(),
            });
        }
        Datum::Bytes(bytes) if form == Form::Hex => write_hex(bytes, out),
        Datum::Bytes(bytes) if form == Form::Uuid => write_uuid(bytes, out),
        Datum::Float16(bits) => whole_number(f64::from(f16_to_f32(*bits)), name, out)?,
        Datum::Float32(float) => whole_number(f64::from(*float), name, out)?,
        Datum::Float64(float) => whole_number(*float, name, out)?,
        _ => {
            check_year(value, name)?;
            value.write_text(out).map_err(|error| BadRow::Unreadable {
                reason: error.to_string(),
            })?;
        }
    }
    if let Form::Padded(width) = form {
        if out.get(start) == Some(&b'-') {
            return Err(BadRow::NegativeKey {
                column: name.clone(),
            });
        }
        let missing = width.saturating_sub(out.len() - start);
        out.resize(out.len() + missing, b'0');
        out[start..].rotate_right(missing);
    }
    Ok(())
}

/// 8-4-4-4-12 digits.
fn write_uuid(bytes: &[u8], out: &mut Vec<u8>) {
    for (at, byte) in bytes.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            out.push(b'-');
        }
        write_hex(std::slice::from_ref(byte), out);
    }
}

/// Writes eight big-endian bytes. Signed numbers have their sign bit flipped, so that negative ones
/// sort first.
fn write_big_endian(value: &Datum<'_>, out: &mut Vec<u8>) -> Result<(), BadRow> {
    let signed = |value: i64| value as u64 ^ 1 << 63;
    let number = match value {
        Datum::Int(value) | Datum::Date64(value) | Datum::Timestamp { value, .. } => signed(*value),
        Datum::Date(days) => signed(i64::from(*days)),
        Datum::UInt(value) => *value,
        other => {
            return Err(BadRow::Unreadable {
                reason: format!("{other:?} has no big-endian form"),
            });
        }
    };
    out.extend_from_slice(&number.to_be_bytes());
    Ok(())
}

fn whole_number(float: f64, name: &Arc<str>, out: &mut Vec<u8>) -> Result<(), BadRow> {
    if float.fract() != 0.0 || !float.is_finite() || float.abs() > MAX_WHOLE_FLOAT {
        return Err(BadRow::FractionKey {
            column: name.clone(),
            value: float,
        });
    }
    let written = Datum::Int(float as i64).write_text(out);
    written.map(|_| ()).map_err(|error| BadRow::Unreadable {
        reason: error.to_string(),
    })
}

/// Refuses years outside 0000 to 9999, which do not sort as text.
fn check_year(value: &Datum<'_>, name: &Arc<str>) -> Result<(), BadRow> {
    let days = match value {
        Datum::Date(days) => i64::from(*days),
        Datum::Date64(milliseconds) => milliseconds.div_euclid(86_400_000),
        Datum::Timestamp { value, unit, .. } => {
            value.div_euclid(unit.per_second()).div_euclid(86_400)
        }
        _ => return Ok(()),
    };
    match civil_from_days(days).0 {
        0..=9999 => Ok(()),
        year => Err(BadRow::KeyYear {
            column: name.clone(),
            year,
        }),
    }
}
