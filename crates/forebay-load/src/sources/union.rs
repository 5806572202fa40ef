//! One schema for files whose schemas differ: columns go by name, types widen.
//!
//! Integers widen to larger ones and to float64, floats to float64, decimals to hold both, times and
//! timestamps to the finer unit, every text and binary layout to the large one. A column that a file
//! lacks is null there. Columns of text formats whose guesses disagree are text.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Fields, Schema, SchemaRef, TimeUnit};

use super::error::SourceError;
use crate::types::plain_type;
use crate::uuid::{is_uuid, with_uuid_mark};

/// A file's columns as it has them.
#[derive(Debug, Clone)]
pub(super) struct FileColumns {
    pub file: Arc<str>,
    pub fields: Fields,
    /// Types were guessed from text, so that text is always possible.
    pub guessed: bool,
}

struct Merged {
    field: Field,
    file: Arc<str>,
    guessed: bool,
    files: usize,
}

/// The schema that holds the columns of all files, in the order in which they are first met.
/// `given` are types that take the place of guessed and widened ones.
pub(super) fn unite(
    files: &[FileColumns],
    given: &[(String, DataType)],
) -> Result<SchemaRef, SourceError> {
    let mut merged: Vec<Merged> = Vec::new();
    for file in files {
        for field in &file.fields {
            let data_type = match given.iter().find(|(name, _)| name == field.name()) {
                Some((_, given)) => given.clone(),
                None => plain_type(field.data_type()),
            };
            add(
                &mut merged,
                file,
                field.as_ref().clone().with_data_type(data_type),
            )?;
        }
    }
    if let Some((column, _)) = given
        .iter()
        .find(|(n, _)| merged.iter().all(|m| m.field.name() != n))
    {
        let columns: Vec<&str> = merged.iter().map(|m| m.field.name().as_str()).collect();
        let columns = columns.join(", ");
        return Err(SourceError::UnknownColumn {
            column: column.clone(),
            columns,
        });
    }
    let fields: Vec<Field> = (merged.into_iter())
        .map(
            |Merged {
                 field,
                 guessed,
                 files: holders,
                 ..
             }| {
                let nullable = field.is_nullable() || holders < files.len();
                let unknown = guessed && *field.data_type() == DataType::Null;
                let data_type = if unknown {
                    DataType::Utf8
                } else {
                    field.data_type().clone()
                };
                let united = Field::new(field.name(), data_type, nullable);
                match is_uuid(&field) {
                    true => with_uuid_mark(united),
                    false => united,
                }
            },
        )
        .collect();
    Ok(Arc::new(Schema::new(fields)))
}

fn add(merged: &mut Vec<Merged>, file: &FileColumns, field: Field) -> Result<(), SourceError> {
    let (name, guessed) = (file.file.clone(), file.guessed);
    let Some(have) = merged
        .iter_mut()
        .find(|have| have.field.name() == field.name())
    else {
        merged.push(Merged {
            field,
            file: name,
            guessed,
            files: 1,
        });
        return Ok(());
    };
    have.files += 1;
    let both_guessed = have.guessed && guessed;
    let widened = widen(have.field.data_type(), field.data_type())
        .or_else(|| {
            let nested = have.field.data_type().is_nested() || field.data_type().is_nested();
            (both_guessed && !nested).then_some(DataType::Utf8)
        })
        .ok_or_else(|| SourceError::Conflict {
            column: field.name().clone(),
            first_file: have.file.to_string(),
            first_type: have.field.data_type().to_string(),
            second_file: name.to_string(),
            second_type: field.data_type().to_string(),
        })?;
    let nullable = have.field.is_nullable() || field.is_nullable();
    have.guessed = both_guessed;
    have.field = have
        .field
        .clone()
        .with_data_type(widened)
        .with_nullable(nullable);
    Ok(())
}

/// The type that holds the values of both; `None` when none does.
pub(super) fn widen(a: &DataType, b: &DataType) -> Option<DataType> {
    use DataType::{Float32, Float64, Null};
    if a == b {
        return Some(a.clone());
    }
    Some(match (a, b) {
        (Null, other) | (other, Null) => other.clone(),
        _ if integer(a).is_some() && integer(b).is_some() => {
            wider_integer(integer(a)?, integer(b)?)?
        }
        (Float32 | Float64, other) | (other, Float32 | Float64)
            if integer(other).is_some() || is_float(other) =>
        {
            Float64
        }
        (DataType::Float16, other) | (other, DataType::Float16) if integer(other).is_some() => {
            Float64
        }
        _ if is_text(a) && is_text(b) => DataType::LargeUtf8,
        _ if is_binary(a) && is_binary(b) => DataType::LargeBinary,
        (DataType::Timestamp(u, zone), DataType::Timestamp(v, other))
            if zone.is_some() == other.is_some() =>
        {
            let zone = if zone == other {
                zone.clone()
            } else {
                Some(Arc::from("UTC"))
            };
            DataType::Timestamp(finer(*u, *v), zone)
        }
        (DataType::Date32, DataType::Date64) | (DataType::Date64, DataType::Date32) => {
            DataType::Date64
        }
        (DataType::Duration(u), DataType::Duration(v)) => DataType::Duration(finer(*u, *v)),
        (DataType::Time32(u) | DataType::Time64(u), DataType::Time32(v) | DataType::Time64(v)) => {
            match finer(*u, *v) {
                unit @ (TimeUnit::Second | TimeUnit::Millisecond) => DataType::Time32(unit),
                unit => DataType::Time64(unit),
            }
        }
        (DataType::Struct(a), DataType::Struct(b)) => DataType::Struct(widen_fields(a, b)?),
        _ => match (list_item(a), list_item(b)) {
            (Some(x), Some(y)) => {
                let item = widen(x.data_type(), y.data_type())?;
                DataType::new_large_list(item, x.is_nullable() || y.is_nullable())
            }
            _ => wider_decimal(a, b)?,
        },
    })
}

/// Bits and whether signed.
fn integer(data_type: &DataType) -> Option<(u8, bool)> {
    Some(match data_type {
        DataType::Int8 => (8, true),
        DataType::Int16 => (16, true),
        DataType::Int32 => (32, true),
        DataType::Int64 => (64, true),
        DataType::UInt8 => (8, false),
        DataType::UInt16 => (16, false),
        DataType::UInt32 => (32, false),
        DataType::UInt64 => (64, false),
        _ => return None,
    })
}

/// Unsigned with signed needs a signed type with more bits; none has more than 64.
fn wider_integer(a: (u8, bool), b: (u8, bool)) -> Option<DataType> {
    let signed = a.1 || b.1;
    let bits = |(bits, has_sign): (u8, bool)| if signed && !has_sign { bits * 2 } else { bits };
    Some(match (bits(a).max(bits(b)), signed) {
        (8, true) => DataType::Int8,
        (16, true) => DataType::Int16,
        (32, true) => DataType::Int32,
        (64, true) => DataType::Int64,
        (128, true) => DataType::Decimal128(20, 0),
        (8, false) => DataType::UInt8,
        (16, false) => DataType::UInt16,
        (32, false) => DataType::UInt32,
        (64, false) => DataType::UInt64,
        _ => return None,
    })
}

fn wider_decimal(a: &DataType, b: &DataType) -> Option<DataType> {
    let (whole_a, scale_a) = decimal(a)?;
    let (whole_b, scale_b) = decimal(b)?;
    let scale = scale_a.max(scale_b);
    let precision = whole_a.max(whole_b) + i16::from(scale);
    match u8::try_from(precision).ok()? {
        precision @ 0..=38 => Some(DataType::Decimal128(precision.max(1), scale)),
        precision @ 39..=76 => Some(DataType::Decimal256(precision, scale)),
        _ => None,
    }
}

/// Digits before the point, and the scale, of a decimal or integer.
fn decimal(data_type: &DataType) -> Option<(i16, i8)> {
    match data_type {
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
        | DataType::Decimal256(precision, scale) => {
            Some((i16::from(*precision) - i16::from(*scale), *scale))
        }
        other => integer(other).map(|(bits, _)| (if bits == 64 { 20 } else { 10 }, 0)),
    }
}

fn finer(a: TimeUnit, b: TimeUnit) -> TimeUnit {
    let rank = |unit| match unit {
        TimeUnit::Second => 0,
        TimeUnit::Millisecond => 1,
        TimeUnit::Microsecond => 2,
        TimeUnit::Nanosecond => 3,
    };
    if rank(a) >= rank(b) { a } else { b }
}

fn is_float(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Float16 | DataType::Float32 | DataType::Float64
    )
}

fn is_text(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View
    )
}

fn is_binary(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView
    )
}

fn list_item(data_type: &DataType) -> Option<&Field> {
    match data_type {
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item) => Some(item),
        _ => None,
    }
}

/// The fields of both, by name; one that only one struct has is nullable.
fn widen_fields(a: &Fields, b: &Fields) -> Option<Fields> {
    let mut fields: Vec<Field> = Vec::with_capacity(a.len());
    for field in a {
        let Some((_, other)) = b.find(field.name()) else {
            fields.push(field.as_ref().clone().with_nullable(true));
            continue;
        };
        let widened = widen(field.data_type(), other.data_type())?;
        fields.push(Field::new(
            field.name(),
            widened,
            field.is_nullable() || other.is_nullable(),
        ));
    }
    let new = b.iter().filter(|field| a.find(field.name()).is_none());
    fields.extend(new.map(|field| field.as_ref().clone().with_nullable(true)));
    Some(Fields::from(fields))
}
