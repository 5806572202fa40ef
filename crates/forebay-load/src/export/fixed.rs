//! Writes fixed-width values in Arrow's layout, as stored or in the type that Parquet supports.

use arrow_buffer::{MutableBuffer, i256};
use forebay_run::row::{Column, Datum, Kind, RowError, Schema, TimeUnit};

const DAY_MS: i64 = 86_400_000;
/// The digits of a decimal of 128 bits.
const MAX_DIGITS_128: u8 = 38;

/// An error of a value that cannot be stored in an array.
#[derive(Debug)]
pub(super) enum CellError {
    Row(RowError),
    /// The file's type does not hold the value.
    Beyond(&'static str),
}

impl From<RowError> for CellError {
    fn from(error: RowError) -> CellError {
        CellError::Row(error)
    }
}

/// The change of a value when it is written to a Parquet file.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Change {
    None,
    /// Seconds become milliseconds.
    Milliseconds,
    /// Milliseconds since 1970-01-01 become days.
    Days,
    /// A decimal is multiplied to remove its negative scale.
    Scale(i256),
}

impl Change {
    /// Returns the change that turns values of `kind` into those of its [`parquet_kind`].
    pub fn of(kind: &Kind) -> Change {
        match kind {
            Kind::Timestamp {
                unit: TimeUnit::Second,
                ..
            }
            | Kind::Time {
                unit: TimeUnit::Second,
            } => Change::Milliseconds,
            Kind::Date64 => Change::Days,
            Kind::Decimal {
                scale: scale @ ..0, ..
            } => {
                let power = i256::from_i128(10).checked_pow(u32::from(scale.unsigned_abs()));
                // Decimals for which this is too large are refused before anything is written.
                power.map_or(Change::None, Change::Scale)
            }
            _ => Change::None,
        }
    }
}

/// Returns the kind that Parquet supports for a kind: milliseconds for seconds, days for a date of
/// 64 bits, no negative scales.
pub(super) fn parquet_kind(kind: &Kind) -> Kind {
    let column = |column: &Column| {
        let kind = parquet_kind(&column.kind);
        Column::new(column.name.clone(), kind, column.nullable)
    };
    let schema = |schema: &Schema| Schema::new(schema.columns().iter().map(column).collect());
    match kind {
        Kind::Timestamp {
            unit: TimeUnit::Second,
            zone,
        } => Kind::Timestamp {
            unit: TimeUnit::Millisecond,
            zone: zone.clone(),
        },
        Kind::Time {
            unit: TimeUnit::Second,
        } => Kind::Time {
            unit: TimeUnit::Millisecond,
        },
        Kind::Date64 => Kind::Date32,
        Kind::Decimal {
            precision,
            scale: scale @ ..0,
            ..
        } => {
            let precision = precision.saturating_add(scale.unsigned_abs());
            let bits = if precision > MAX_DIGITS_128 { 256 } else { 128 };
            Kind::Decimal {
                precision,
                scale: 0,
                bits,
            }
        }
        Kind::List { item, length } => Kind::List {
            item: Box::new(column(item)),
            length: *length,
        },
        Kind::Struct { fields } => Kind::Struct {
            fields: schema(fields),
        },
        Kind::Map { entries, sorted } => Kind::Map {
            entries: schema(entries),
            sorted: *sorted,
        },
        other => other.clone(),
    }
}

/// Appends a changed value in `width` bytes.
pub(super) fn push_changed(
    bytes: &mut MutableBuffer,
    width: usize,
    change: Change,
    value: &Datum<'_>,
) -> Result<(), CellError> {
    match (change, value) {
        (Change::None, _) | (_, Datum::Null) => Ok(push_stored(bytes, width, value)?),
        (Change::Milliseconds, Datum::Timestamp { value, .. } | Datum::Time { value, .. }) => {
            let far = CellError::Beyond("it is too far for a Parquet column of milliseconds");
            let units = value.checked_mul(1000);
            let units = units.filter(|units| width == 8 || i32::try_from(*units).is_ok());
            bytes.extend_from_slice(&units.ok_or(far)?.to_le_bytes()[..width.min(8)]);
            Ok(())
        }
        (Change::Days, Datum::Date64(value)) => {
            let days = i32::try_from(value.div_euclid(DAY_MS)).ok();
            let days = days.filter(|_| value.rem_euclid(DAY_MS) == 0);
            let other =
                CellError::Beyond("Parquet's dates are whole days of 32 bits, and it is not one");
            bytes.extend_from_slice(&days.ok_or(other)?.to_le_bytes());
            Ok(())
        }
        (Change::Scale(power), Datum::Decimal { value, .. }) => {
            push_scaled(bytes, width, i256::from_i128(*value), power)
        }
        (Change::Scale(power), Datum::Decimal256 { value, .. }) => {
            push_scaled(bytes, width, i256::from_le_bytes(*value), power)
        }
        _ => Err(RowError::Type { column: 0 }.into()),
    }
}

fn push_scaled(
    bytes: &mut MutableBuffer,
    width: usize,
    value: i256,
    power: i256,
) -> Result<(), CellError> {
    let scaled = value.checked_mul(power);
    let scaled = scaled.filter(|scaled| width == 32 || scaled.to_i128().is_some());
    let many = CellError::Beyond("it has more digits than its type says");
    bytes.extend_from_slice(&scaled.ok_or(many)?.to_le_bytes()[..width.min(32)]);
    Ok(())
}

/// Appends a value as it is stored.
fn push_stored(bytes: &mut MutableBuffer, width: usize, value: &Datum<'_>) -> Result<(), RowError> {
    let number = |number: i128, bytes: &mut MutableBuffer| {
        bytes.extend_from_slice(&number.to_le_bytes()[..width.min(16)]);
    };
    match value {
        Datum::Null => bytes.extend_zeros(width),
        Datum::Bytes(binary) if binary.len() == width => bytes.extend_from_slice(binary),
        Datum::Decimal256 { value, .. } if width == 32 => bytes.extend_from_slice(value),
        Datum::Int(value) => number(i128::from(*value), bytes),
        Datum::UInt(value) => number(i128::from(*value), bytes),
        Datum::Float16(bits) => number(i128::from(*bits), bytes),
        Datum::Float32(value) => number(i128::from(value.to_bits()), bytes),
        Datum::Float64(value) => number(i128::from(value.to_bits()), bytes),
        Datum::Decimal { value, .. } => number(*value, bytes),
        Datum::Date(value) => number(i128::from(*value), bytes),
        Datum::Date64(value)
        | Datum::Time { value, .. }
        | Datum::Timestamp { value, .. }
        | Datum::Duration { value, .. } => number(i128::from(*value), bytes),
        Datum::Interval {
            months,
            days,
            nanoseconds,
        } => {
            let low = |value: i32| i128::from(value as u32);
            match width {
                4 => number(i128::from(*months), bytes),
                8 => number(
                    low(*days) | low((nanoseconds / 1_000_000) as i32) << 32,
                    bytes,
                ),
                _ => number(
                    low(*months) | low(*days) << 32 | i128::from(*nanoseconds) << 64,
                    bytes,
                ),
            }
        }
        _ => return Err(RowError::Type { column: 0 }),
    }
    Ok(())
}
