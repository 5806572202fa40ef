//! One value of a row or list, borrowed from its bytes.

use super::pack::{push_signed, push_unsigned, push_wide, widen, widen_unsigned};
use super::schema::{Kind, RowSlot, TimeUnit};
use super::{ListView, RowError, RowView};

/// A value with the scale, unit or zone of its kind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Datum<'a> {
    /// No value.
    Null,
    /// A truth value.
    Bool(bool),
    /// Signed integers of all widths.
    Int(i64),
    /// Unsigned integers of all widths.
    UInt(u64),
    /// The bits of a half-precision float; see [`f16_to_f32`].
    Float16(u16),
    /// A float of 32 bits.
    Float32(f32),
    /// A float of 64 bits.
    Float64(f64),
    /// `value` times 10^-scale; decimals of up to 128 bits.
    Decimal { value: i128, scale: i8 },
    /// `value` (little-endian two's complement) times 10^-scale.
    Decimal256 { value: [u8; 32], scale: i8 },
    /// Days since 1970-01-01.
    Date(i32),
    /// Milliseconds since 1970-01-01.
    Date64(i64),
    /// Units since midnight.
    Time { value: i64, unit: TimeUnit },
    /// Units since 1970-01-01T00:00:00.
    Timestamp {
        value: i64,
        unit: TimeUnit,
        zoned: bool,
    },
    /// A number of units.
    Duration { value: i64, unit: TimeUnit },
    /// A span of the calendar.
    Interval {
        months: i32,
        days: i32,
        nanoseconds: i64,
    },
    /// UTF-8.
    Text(&'a str),
    /// Bytes of any kind.
    Bytes(&'a [u8]),
    /// Values of one kind.
    List(ListView<'a>),
    /// The fields of a struct.
    Row(RowView<'a>),
    /// A list of rows of two columns, the key and the value.
    Map(ListView<'a>),
}

impl<'a> Datum<'a> {
    /// Returns whether the value is null.
    pub fn is_null(&self) -> bool {
        matches!(self, Datum::Null)
    }

    /// Reads and checks all nested values, for values that another program has packed.
    pub fn check(&self) -> Result<(), RowError> {
        match self {
            Datum::Row(row) => (0..row.len()).try_for_each(|column| row.datum(column)?.check()),
            Datum::List(list) | Datum::Map(list) => list.items().try_for_each(|item| item?.check()),
            _ => Ok(()),
        }
    }

    /// Reads a value of fixed width. REQUIRES: `bytes` is as wide as the kind.
    pub fn from_fixed(kind: &'a Kind, bytes: &'a [u8]) -> Result<Datum<'a>, RowError> {
        Ok(match kind {
            Kind::Int8 | Kind::Int16 | Kind::Int32 => Datum::Int(signed(bytes)?),
            Kind::UInt8 | Kind::UInt16 | Kind::UInt32 => Datum::UInt(widen_unsigned(bytes)?),
            Kind::Float16 => Datum::Float16(widen_unsigned(bytes)? as u16),
            Kind::Float32 => Datum::Float32(f32::from_bits(widen_unsigned(bytes)? as u32)),
            Kind::Float64 => Datum::Float64(f64::from_bits(widen_unsigned(bytes)?)),
            Kind::Decimal { scale, .. } => Datum::Decimal {
                value: i128::from(signed(bytes)?),
                scale: *scale,
            },
            Kind::Date32 => Datum::Date(signed(bytes)? as i32),
            Kind::Date64 => Datum::Date64(signed(bytes)?),
            Kind::Time { unit } => Datum::Time {
                value: signed(bytes)?,
                unit: *unit,
            },
            Kind::Timestamp { unit, zone } => Datum::Timestamp {
                value: signed(bytes)?,
                unit: *unit,
                zoned: zone.is_some(),
            },
            Kind::Duration { unit } => Datum::Duration {
                value: signed(bytes)?,
                unit: *unit,
            },
            Kind::IntervalMonths | Kind::IntervalDayTime | Kind::IntervalMonthDayNano => {
                interval(kind, bytes)?
            }
            _ => Datum::Bytes(bytes),
        })
    }

    /// Reads a value of variable size.
    pub fn from_variable(kind: &'a Kind, bytes: &'a [u8]) -> Result<Datum<'a>, RowError> {
        Ok(match kind {
            Kind::Int64 => Datum::Int(signed(bytes)?),
            Kind::UInt64 => Datum::UInt(widen_unsigned(bytes)?),
            Kind::Decimal {
                scale, bits: 256, ..
            } => Datum::Decimal256 {
                value: widen(bytes)?,
                scale: *scale,
            },
            Kind::Decimal { scale, .. } => Datum::Decimal {
                value: i128::from_le_bytes(widen(bytes)?),
                scale: *scale,
            },
            Kind::Text => Datum::Text(std::str::from_utf8(bytes).map_err(|_| RowError::NotUtf8)?),
            Kind::List { item, .. } => Datum::List(ListView::new(&item.kind, bytes)?),
            Kind::Struct { fields } => Datum::Row(RowView::new(fields, bytes)?),
            Kind::Map { entries, .. } => Datum::Map(ListView::rows(entries, bytes)?),
            _ => Datum::Bytes(bytes),
        })
    }

    /// Appends a value of a kind of variable size; if it is not of the kind, returns `None` and
    /// appends nothing.
    pub(super) fn push_variable(&self, kind: &Kind, out: &mut Vec<u8>) -> Option<()> {
        match (self, kind) {
            (Datum::Int(value), Kind::Int64) => push_signed(out, *value),
            (Datum::UInt(value), Kind::UInt64) => push_unsigned(out, *value),
            (Datum::Decimal { value, .. }, Kind::Decimal { bits: 64 | 128, .. }) => {
                push_wide(out, &value.to_le_bytes());
            }
            (Datum::Decimal256 { value, .. }, Kind::Decimal { bits: 256, .. }) => {
                push_wide(out, value);
            }
            (Datum::Text(value), Kind::Text) => out.extend_from_slice(value.as_bytes()),
            (Datum::Bytes(value), Kind::Binary) => out.extend_from_slice(value),
            (Datum::List(list), Kind::List { .. }) => out.extend_from_slice(list.bytes()),
            (Datum::Map(list), Kind::Map { .. }) => out.extend_from_slice(list.bytes()),
            (Datum::Row(row), Kind::Struct { .. }) => out.extend_from_slice(row.bytes()),
            _ => return None,
        }
        Some(())
    }

    /// Returns the little-endian bytes of a value in a kind of fixed width, and that width; `None`
    /// if it is not of the kind. For binary values it returns no bytes.
    pub(super) fn fixed_bytes(&self, kind: &Kind) -> Option<([u8; 16], usize)> {
        let width = match kind.slot() {
            RowSlot::Fixed(width) => width,
            _ => return None,
        };
        let wide = match (self, kind) {
            (Datum::Int(value), Kind::Int8 | Kind::Int16 | Kind::Int32) => i128::from(*value),
            (Datum::UInt(value), Kind::UInt8 | Kind::UInt16 | Kind::UInt32) => i128::from(*value),
            (Datum::Float16(bits), Kind::Float16) => i128::from(*bits),
            (Datum::Float32(value), Kind::Float32) => i128::from(value.to_bits()),
            (Datum::Float64(value), Kind::Float64) => i128::from(value.to_bits()),
            (Datum::Decimal { value, .. }, Kind::Decimal { bits: 32, .. }) => *value,
            (Datum::Date(value), Kind::Date32) => i128::from(*value),
            (Datum::Date64(value), Kind::Date64) => i128::from(*value),
            (Datum::Time { value, .. }, Kind::Time { .. })
            | (Datum::Timestamp { value, .. }, Kind::Timestamp { .. })
            | (Datum::Duration { value, .. }, Kind::Duration { .. }) => i128::from(*value),
            (
                Datum::Interval {
                    months,
                    days,
                    nanoseconds,
                },
                _,
            ) => match kind {
                Kind::IntervalMonths => i128::from(*months),
                Kind::IntervalDayTime => pair(*days, (nanoseconds / 1_000_000) as i32),
                Kind::IntervalMonthDayNano => pair(*months, *days) | i128::from(*nanoseconds) << 64,
                _ => return None,
            },
            _ => return None,
        };
        Some((wide.to_le_bytes(), width))
    }
}

fn pair(low: i32, high: i32) -> i128 {
    i128::from(low as u32) | i128::from(high as u32) << 32
}

fn signed(bytes: &[u8]) -> Result<i64, RowError> {
    Ok(i64::from_le_bytes(widen(bytes)?))
}

fn interval(kind: &Kind, bytes: &[u8]) -> Result<Datum<'static>, RowError> {
    let wide = i128::from_le_bytes(widen(bytes)?);
    let (first, second) = (wide as i32, (wide >> 32) as i32);
    Ok(match kind {
        Kind::IntervalMonths => Datum::Interval {
            months: first,
            days: 0,
            nanoseconds: 0,
        },
        Kind::IntervalDayTime => Datum::Interval {
            months: 0,
            days: first,
            nanoseconds: i64::from(second) * 1_000_000,
        },
        _ => Datum::Interval {
            months: first,
            days: second,
            nanoseconds: (wide >> 64) as i64,
        },
    })
}

/// Returns the value of a half-precision float.
pub fn f16_to_f32(bits: u16) -> f32 {
    let sign = if bits & 0x8000 != 0 { -1.0 } else { 1.0 };
    let exponent = i32::from(bits >> 10 & 0x1f);
    let fraction = f32::from(bits & 0x3ff);
    match exponent {
        0 => sign * fraction * 2.0_f32.powi(-24),
        31 if fraction == 0.0 => sign * f32::INFINITY,
        31 => f32::NAN,
        _ => sign * (1024.0 + fraction) * 2.0_f32.powi(exponent - 25),
    }
}
