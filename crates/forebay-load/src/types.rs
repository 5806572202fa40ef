//! Converts between Arrow types and the kinds as which rows are stored.
//!
//! Encodings are not types: dictionaries and run-end encoding are unwrapped, and large and view
//! layouts are stored as the plain ones. [`arrow_type`] returns the plain Arrow type of a kind.

use std::collections::HashSet;
use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef, Fields, IntervalUnit, SchemaRef, TimeUnit};
use forebay_run::row::{self, Column, Kind};

/// The most nested structs and lists in a table.
pub const MAX_DEPTH: usize = 32;

/// An error of a column that cannot be stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TypeError {
    #[error(
        "column '{column}' is a union ({data_type}), which a table cannot hold: export it as a struct, or leave it out"
    )]
    Union { column: String, data_type: String },
    #[error(
        "column '{column}' has the type {data_type}, which a table cannot hold: leave it out, or cast it when exporting"
    )]
    Unsupported { column: String, data_type: String },
    #[error("column '{column}' nests lists and structs deeper than {MAX_DEPTH}")]
    Deep { column: String },
    #[error("two columns are named '{column}': rename one")]
    Twice { column: String },
}

/// Returns the stored schema of rows of an Arrow schema.
pub fn row_schema(schema: &SchemaRef) -> Result<row::Schema, TypeError> {
    let fields = schema.fields();
    let columns = fields.iter().map(|field| (field, field.name().clone()));
    distinct(columns, 0)
}

/// Returns fields with their paths. Duplicate names are refused, because one of two values would be
/// lost.
fn distinct<'f>(
    fields: impl Iterator<Item = (&'f FieldRef, String)>,
    depth: usize,
) -> Result<row::Schema, TypeError> {
    let mut met = HashSet::new();
    let columns = fields.map(|(field, path)| match met.insert(field.name()) {
        true => column(field, &path, depth),
        false => Err(TypeError::Twice { column: path }),
    });
    columns.collect::<Result<_, _>>().map(row::Schema::new)
}

fn column(field: &Field, path: &str, depth: usize) -> Result<Column, TypeError> {
    let kind = kind(field.data_type(), path, depth)?;
    Ok(Column::new(field.name().clone(), kind, field.is_nullable()))
}

/// Returns the kind of an Arrow type; `path` names the column in errors.
pub(crate) fn kind_of(path: &str, data_type: &DataType) -> Result<Kind, TypeError> {
    kind(data_type, path, 0)
}

fn kind(data_type: &DataType, path: &str, depth: usize) -> Result<Kind, TypeError> {
    if depth > MAX_DEPTH {
        return Err(TypeError::Deep {
            column: path.to_owned(),
        });
    }
    if let Some(kind) = scalar(data_type) {
        return Ok(kind);
    }
    Ok(match data_type {
        DataType::FixedSizeBinary(width) => Kind::FixedBinary {
            width: u32::try_from(*width).map_err(|_| unsupported(path, data_type))?,
        },
        DataType::Dictionary(_, values) => kind(values, path, depth)?,
        DataType::RunEndEncoded(_, values) => kind(values.data_type(), path, depth)?,
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item) => list(item, None, path, depth)?,
        DataType::FixedSizeList(item, length) => {
            let length = u32::try_from(*length).map_err(|_| unsupported(path, data_type))?;
            list(item, Some(length), path, depth)?
        }
        DataType::Struct(fields) => Kind::Struct {
            fields: nested(fields, path, depth)?,
        },
        DataType::Map(entries, sorted) => match entries.data_type() {
            DataType::Struct(fields) if fields.len() == 2 => Kind::Map {
                entries: nested(fields, path, depth)?,
                sorted: *sorted,
            },
            _ => return Err(unsupported(path, data_type)),
        },
        DataType::Union(..) => {
            let data_type = data_type.to_string();
            return Err(TypeError::Union {
                column: path.to_owned(),
                data_type,
            });
        }
        _ => return Err(unsupported(path, data_type)),
    })
}

/// Returns the kind of a type that contains no others.
fn scalar(data_type: &DataType) -> Option<Kind> {
    let decimal = |precision: &u8, scale: &i8, bits| Kind::Decimal {
        precision: *precision,
        scale: *scale,
        bits,
    };
    Some(match data_type {
        DataType::Null => Kind::Null,
        DataType::Boolean => Kind::Bool,
        DataType::Int8 => Kind::Int8,
        DataType::Int16 => Kind::Int16,
        DataType::Int32 => Kind::Int32,
        DataType::Int64 => Kind::Int64,
        DataType::UInt8 => Kind::UInt8,
        DataType::UInt16 => Kind::UInt16,
        DataType::UInt32 => Kind::UInt32,
        DataType::UInt64 => Kind::UInt64,
        DataType::Float16 => Kind::Float16,
        DataType::Float32 => Kind::Float32,
        DataType::Float64 => Kind::Float64,
        DataType::Decimal32(precision, scale) => decimal(precision, scale, 32),
        DataType::Decimal64(precision, scale) => decimal(precision, scale, 64),
        DataType::Decimal128(precision, scale) => decimal(precision, scale, 128),
        DataType::Decimal256(precision, scale) => decimal(precision, scale, 256),
        DataType::Date32 => Kind::Date32,
        DataType::Date64 => Kind::Date64,
        DataType::Time32(unit) | DataType::Time64(unit) => Kind::Time {
            unit: unit_of(*unit),
        },
        DataType::Timestamp(unit, zone) => Kind::Timestamp {
            unit: unit_of(*unit),
            zone: zone.as_ref().map(|zone| zone.to_string()),
        },
        DataType::Duration(unit) => Kind::Duration {
            unit: unit_of(*unit),
        },
        DataType::Interval(IntervalUnit::YearMonth) => Kind::IntervalMonths,
        DataType::Interval(IntervalUnit::DayTime) => Kind::IntervalDayTime,
        DataType::Interval(IntervalUnit::MonthDayNano) => Kind::IntervalMonthDayNano,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Kind::Text,
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => Kind::Binary,
        _ => return None,
    })
}

fn unsupported(path: &str, data_type: &DataType) -> TypeError {
    TypeError::Unsupported {
        column: path.to_owned(),
        data_type: data_type.to_string(),
    }
}

fn list(item: &Field, length: Option<u32>, path: &str, depth: usize) -> Result<Kind, TypeError> {
    let item = column(item, &format!("{path}[]"), depth + 1)?;
    Ok(Kind::List {
        item: Box::new(item),
        length,
    })
}

fn nested(fields: &Fields, path: &str, depth: usize) -> Result<row::Schema, TypeError> {
    let fields = fields.iter();
    let fields = fields.map(|field| (field, format!("{path}.{}", field.name())));
    distinct(fields, depth + 1)
}

fn unit_of(unit: TimeUnit) -> row::TimeUnit {
    match unit {
        TimeUnit::Second => row::TimeUnit::Second,
        TimeUnit::Millisecond => row::TimeUnit::Millisecond,
        TimeUnit::Microsecond => row::TimeUnit::Microsecond,
        TimeUnit::Nanosecond => row::TimeUnit::Nanosecond,
    }
}

fn arrow_unit(unit: row::TimeUnit) -> TimeUnit {
    match unit {
        row::TimeUnit::Second => TimeUnit::Second,
        row::TimeUnit::Millisecond => TimeUnit::Millisecond,
        row::TimeUnit::Microsecond => TimeUnit::Microsecond,
        row::TimeUnit::Nanosecond => TimeUnit::Nanosecond,
    }
}

/// Returns the Arrow schema of stored rows.
pub fn arrow_schema(schema: &row::Schema) -> SchemaRef {
    Arc::new(arrow_schema::Schema::new(arrow_fields(schema)))
}

pub(crate) fn arrow_fields(schema: &row::Schema) -> Fields {
    schema.columns().iter().map(arrow_field).collect()
}

pub(crate) fn arrow_field(column: &Column) -> FieldRef {
    let nullable = column.nullable || column.kind == Kind::Null;
    Arc::new(Field::new(
        column.name.clone(),
        arrow_type(&column.kind),
        nullable,
    ))
}

/// Returns the plain Arrow type of a kind.
pub fn arrow_type(kind: &Kind) -> DataType {
    match kind {
        Kind::Null => DataType::Null,
        Kind::Bool => DataType::Boolean,
        Kind::Int8 => DataType::Int8,
        Kind::Int16 => DataType::Int16,
        Kind::Int32 => DataType::Int32,
        Kind::Int64 => DataType::Int64,
        Kind::UInt8 => DataType::UInt8,
        Kind::UInt16 => DataType::UInt16,
        Kind::UInt32 => DataType::UInt32,
        Kind::UInt64 => DataType::UInt64,
        Kind::Float16 => DataType::Float16,
        Kind::Float32 => DataType::Float32,
        Kind::Float64 => DataType::Float64,
        Kind::Decimal {
            precision,
            scale,
            bits,
        } => match bits {
            32 => DataType::Decimal32(*precision, *scale),
            64 => DataType::Decimal64(*precision, *scale),
            128 => DataType::Decimal128(*precision, *scale),
            _ => DataType::Decimal256(*precision, *scale),
        },
        Kind::Date32 => DataType::Date32,
        Kind::Date64 => DataType::Date64,
        Kind::Time {
            unit: unit @ (row::TimeUnit::Second | row::TimeUnit::Millisecond),
        } => DataType::Time32(arrow_unit(*unit)),
        Kind::Time { unit } => DataType::Time64(arrow_unit(*unit)),
        Kind::Timestamp { unit, zone } => {
            DataType::Timestamp(arrow_unit(*unit), zone.as_deref().map(Arc::from))
        }
        Kind::Duration { unit } => DataType::Duration(arrow_unit(*unit)),
        Kind::IntervalMonths => DataType::Interval(IntervalUnit::YearMonth),
        Kind::IntervalDayTime => DataType::Interval(IntervalUnit::DayTime),
        Kind::IntervalMonthDayNano => DataType::Interval(IntervalUnit::MonthDayNano),
        Kind::Text => DataType::Utf8,
        Kind::Binary => DataType::Binary,
        Kind::FixedBinary { width } => DataType::FixedSizeBinary(*width as i32),
        Kind::List { item, length: None } => DataType::List(arrow_field(item)),
        Kind::List {
            item,
            length: Some(length),
        } => DataType::FixedSizeList(arrow_field(item), *length as i32),
        Kind::Struct { fields } => DataType::Struct(arrow_fields(fields)),
        Kind::Map { entries, sorted } => {
            let entries = Field::new("entries", DataType::Struct(arrow_fields(entries)), false);
            DataType::Map(Arc::new(entries), *sorted)
        }
    }
}

/// Returns the schema with dictionaries and run ends unwrapped.
pub fn plain_schema(schema: &SchemaRef) -> SchemaRef {
    let plain = |field: &FieldRef| {
        field
            .as_ref()
            .clone()
            .with_data_type(plain_type(field.data_type()))
    };
    let fields = schema.fields().iter().map(plain);
    Arc::new(arrow_schema::Schema::new(fields.collect::<Vec<Field>>()))
}

/// Returns the type with dictionaries and run-end encoding unwrapped, at any depth. Around them
/// lists of views become plain lists.
pub fn plain_type(data_type: &DataType) -> DataType {
    let plain = |field: &FieldRef| -> FieldRef {
        Arc::new(
            field
                .as_ref()
                .clone()
                .with_data_type(plain_type(field.data_type())),
        )
    };
    match data_type {
        DataType::Dictionary(_, values) => plain_type(values),
        DataType::RunEndEncoded(_, values) => plain_type(values.data_type()),
        DataType::List(item) => DataType::List(plain(item)),
        DataType::LargeList(item) => DataType::LargeList(plain(item)),
        DataType::ListView(item) => match plain(item) {
            same if same == *item => data_type.clone(),
            other => DataType::List(other),
        },
        DataType::LargeListView(item) => match plain(item) {
            same if same == *item => data_type.clone(),
            other => DataType::LargeList(other),
        },
        DataType::FixedSizeList(item, length) => DataType::FixedSizeList(plain(item), *length),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(plain).collect()),
        DataType::Map(entries, sorted) => DataType::Map(plain(entries), *sorted),
        other => other.clone(),
    }
}
