//! Converts Python objects to stored values, by the kinds of their table's columns.

use forebay_engine::ValueKind;
use forebay_run::number::Number;
use forebay_run::operation::DeltaKind;
use forebay_run::row::{Datum, Kind, ListView, ListWriter, RowError, RowView, RowWriter, Schema};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyByteArray, PyBytes, PyDict, PyFloat, PyInt, PyString};

use crate::errors::usage;
use crate::keys::bytes_of;
use crate::shape::Shape;

/// Returns the bytes of a whole value of a table.
pub fn value_of(shape: &Shape, value: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    let py = value.py();
    if let Some(number) = shape.number {
        return number_of(number, value);
    }
    match &shape.kind {
        ValueKind::Row => {
            let row = value
                .cast::<PyDict>()
                .map_err(|_| wrong(value, "a row is a dict of its columns"))?;
            row_of(&shape.schema, row)
        }
        ValueKind::List { item, .. } => list_of(item, value),
        ValueKind::Bytes { .. } => Ok(bytes_of(value, "a value of this table")?.into_owned()),
        ValueKind::Number { .. } => Err(usage(py, "the table's numbers have no kind of deltas")),
    }
}

/// Returns the bytes of a delta.
pub fn delta_of(
    shape: &Shape,
    kind: Option<DeltaKind>,
    delta: &Bound<'_, PyAny>,
) -> PyResult<Vec<u8>> {
    match (kind, shape.number) {
        (Some(DeltaKind::Append), _) => Ok(bytes_of(delta, "what is appended")?.into_owned()),
        (_, Some(number)) => {
            let infinite = delta
                .extract::<f64>()
                .ok()
                .filter(|float| float.is_infinite());
            match infinite {
                Some(float) => Err(usage_of(float, "is no number to add: give a finite one")),
                None => number_of(number, delta),
            }
        }
        // The engine refuses it with its own message.
        (_, None) => Ok(Vec::new()),
    }
}

fn number_of(number: Number, value: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    let plain = plain_number(value)?;
    let value = plain.as_ref().unwrap_or(value);
    let bytes = match number {
        Number::I64 if is_integer(value) => {
            let beyond = |_| usage(value.py(), format!("{value} is no whole number of 64 bits"));
            value.extract::<i64>().map_err(beyond)?.to_le_bytes()
        }
        Number::I64 => return Err(wrong(value, "a value of this table is a whole number")),
        Number::F64 if is_integer(value) || value.is_instance_of::<PyFloat>() => {
            let float = value.extract::<f64>();
            let float =
                float.map_err(|_| usage(value.py(), "it is beyond the numbers of 64 bits"))?;
            if float.is_nan() {
                return Err(usage_of(float, "is no number that deltas could add to"));
            }
            if is_integer(value) && !value.eq(float)? {
                return Err(usage_of(
                    float,
                    "is the nearest number of 64 bits, and another one",
                ));
            }
            float.to_le_bytes()
        }
        Number::F64 => return Err(wrong(value, "a value of this table is a number")),
    };
    Ok(bytes.to_vec())
}

fn usage_of(value: f64, what: &str) -> PyErr {
    Python::attach(|py| usage(py, format!("{value} {what}")))
}

/// Returns a number of NumPy as a Python number; `None`: it is not one.
fn plain_number<'py>(value: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let is_plain = value.is_exact_instance_of::<PyInt>()
        || value.is_exact_instance_of::<PyFloat>()
        || value.is_exact_instance_of::<PyString>()
        || value.is_exact_instance_of::<PyBool>();
    if is_plain {
        return Ok(None);
    }
    // If NumPy was not imported, the value is not one of its numbers.
    let modules = value.py().import("sys")?.getattr("modules")?;
    let Some(numpy) = modules.cast::<PyDict>()?.get_item("numpy")? else {
        return Ok(None);
    };
    // NumPy counts its durations among whole numbers, and as such they have no unit.
    if value.is_instance(&numpy.getattr("timedelta64")?)? {
        return Ok(None);
    }
    for class in ["bool_", "integer", "floating"] {
        if value.is_instance(&numpy.getattr(class)?)? {
            return value.call_method0("item").map(Some);
        }
    }
    Ok(None)
}

fn is_integer(value: &Bound<'_, PyAny>) -> bool {
    value.is_instance_of::<PyInt>() && !value.is_instance_of::<PyBool>()
}

fn wrong(value: &Bound<'_, PyAny>, rule: &str) -> PyErr {
    let kind = value.get_type().name();
    let kind = kind.map_or_else(|_| "that".to_owned(), |name| name.to_string());
    PyTypeError::new_err(format!("{rule}, not {kind}"))
}

fn row_of(schema: &Schema, row: &Bound<'_, PyDict>) -> PyResult<Vec<u8>> {
    let py = row.py();
    let mut known = 0;
    let mut writer = RowWriter::new(schema);
    writer.begin();
    for (index, column) in schema.columns().iter().enumerate() {
        let value = row.get_item(&column.name)?;
        known += usize::from(value.is_some());
        let cell = match &value {
            Some(value) => Cell::of(&column.kind, value, &column.name)?,
            None => Cell::Null,
        };
        if matches!(cell, Cell::Null) && !column.nullable {
            let name = &column.name;
            return Err(usage(
                py,
                format!("the column '{name}' cannot be null, and the row has none"),
            ));
        }
        let datum = cell.datum(&column.kind).map_err(|error| fits(py, &error))?;
        let set = writer.datum(index, &column.kind, &datum);
        set.map_err(|error| fits(py, &error))?;
    }
    if known < row.len() {
        let names: Vec<&str> = schema
            .columns()
            .iter()
            .map(|column| column.name.as_str())
            .collect();
        let unknown = row.keys().iter().find(|name| {
            let name = name.extract::<String>();
            name.map_or(true, |name| !names.contains(&name.as_str()))
        });
        let unknown = unknown.map_or_else(String::new, |name| name.to_string());
        return Err(usage(
            py,
            format!(
                "the table has no column '{unknown}'; it has: {}",
                names.join(", ")
            ),
        ));
    }
    let mut out = Vec::new();
    writer.finish(&mut out).map_err(|error| fits(py, &error))?;
    Ok(out)
}

fn list_of(item: &Kind, list: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    let py = list.py();
    if is_no_sequence(list) || list.is_instance_of::<PyDict>() {
        return Err(wrong(list, "a list is a sequence of its items"));
    }
    let mut writer = ListWriter::new(item);
    writer.begin();
    for value in list.try_iter()? {
        let cell = Cell::of(item, &value?, "item")?;
        let datum = cell.datum(item).map_err(|error| fits(py, &error))?;
        let pushed = writer.datum(item, &datum);
        pushed.map_err(|error| fits(py, &error))?;
    }
    let mut out = Vec::new();
    writer.finish(&mut out).map_err(|error| fits(py, &error))?;
    Ok(out)
}

/// Returns whether it is text or bytes, which are iterable.
fn is_no_sequence(value: &Bound<'_, PyAny>) -> bool {
    value.is_instance_of::<PyString>()
        || value.is_instance_of::<PyBytes>()
        || value.is_instance_of::<PyByteArray>()
}

/// Packs a list, a map or a struct.
fn nested(kind: &Kind, value: &Bound<'_, PyAny>, name: &str) -> PyResult<Vec<u8>> {
    match kind {
        Kind::List {
            item,
            length: Some(length),
        } => match value.len() {
            Ok(len) if len == *length as usize => list_of(&item.kind, value),
            _ => Err(outside(value, name, kind)),
        },
        Kind::List { item, .. } => list_of(&item.kind, value),
        Kind::Map { entries, .. } => map_of(entries, value),
        Kind::Struct { fields } => match value.cast::<PyDict>() {
            Ok(row) => row_of(fields, row),
            Err(_) => Err(outside(value, name, kind)),
        },
        _ => Err(outside(value, name, kind)),
    }
}

/// Packs a dict, or pairs, which is the form in which a map is read.
fn map_of(entries: &Schema, map: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    let py = map.py();
    let pairs = match map.cast::<PyDict>() {
        Ok(dict) => dict.items().into_any(),
        Err(_) if is_no_sequence(map) => {
            return Err(wrong(map, "a map is a dict, or a list of pairs"));
        }
        Err(_) => map.clone(),
    };
    let names: Vec<&str> = entries.columns().iter().map(|one| &*one.name).collect();
    let kind = Kind::Struct {
        fields: entries.clone(),
    };
    let mut writer = ListWriter::new(&kind);
    writer.begin();
    for pair in pairs.try_iter()? {
        let pair = pair?;
        let Ok((key, value)) = pair.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>() else {
            return Err(wrong(&pair, "a map is a dict, or a list of pairs"));
        };
        let entry = PyDict::new(py);
        for (name, part) in names.iter().zip([key, value]) {
            entry.set_item(name, part)?;
        }
        let bytes = row_of(entries, &entry)?;
        let row = RowView::new(entries, &bytes).map_err(|error| fits(py, &error))?;
        let pushed = writer.datum(&kind, &Datum::Row(row));
        pushed.map_err(|error| fits(py, &error))?;
    }
    let mut out = Vec::new();
    writer.finish(&mut out).map_err(|error| fits(py, &error))?;
    Ok(out)
}

fn fits(py: Python<'_>, error: &RowError) -> PyErr {
    usage(py, format!("the value does not fit the table: {error}"))
}

/// An owned value of a column.
enum Cell {
    Null,
    Bool(bool),
    Int(i64),
    UInt(u64),
    Float32(f32),
    Float64(f64),
    Decimal(i128),
    Decimal256([u8; 32]),
    Float16(u16),
    Interval(i32, i32, i64),
    Text(String),
    /// Bytes, or a packed list or struct.
    Bytes(Vec<u8>),
}

/// Converts a value with a function of the package's Python part.
fn converted<'py>(
    value: &Bound<'py, PyAny>,
    function: &str,
    arguments: impl pyo3::call::PyCallArgs<'py>,
) -> PyResult<Bound<'py, PyAny>> {
    let module = value.py().import("forebay._values")?;
    module.getattr(function)?.call1(arguments)
}

/// Returns a date, a time or a duration in the column's unit.
///
/// `None`: the number is too great.
fn moment(kind: &Kind, value: &Bound<'_, PyAny>) -> PyResult<Option<i64>> {
    let units = match kind {
        Kind::Timestamp { unit, zone } => {
            let given = (value, unit.per_second(), zone.is_some());
            converted(value, "timestamp_of", given)?
        }
        Kind::Time { unit } => converted(value, "time_of", (value, unit.per_second()))?,
        Kind::Duration { unit } => converted(value, "duration_of", (value, unit.per_second()))?,
        _ => converted(value, "days_of", (value,))?,
    };
    Ok(units.extract().ok())
}

impl Cell {
    fn of(kind: &Kind, value: &Bound<'_, PyAny>, name: &str) -> PyResult<Cell> {
        if value.is_none() {
            return Ok(Cell::Null);
        }
        let plain = plain_number(value)?;
        let value = plain.as_ref().unwrap_or(value);
        let integer = |least: i64, most: i64| -> PyResult<Cell> {
            match value.extract::<i64>().ok().filter(|_| is_integer(value)) {
                Some(number) if (least..=most).contains(&number) => Ok(Cell::Int(number)),
                _ => Err(outside(value, name, kind)),
            }
        };
        let natural = |most: u64| -> PyResult<Cell> {
            let number = is_integer(value)
                .then(|| value.extract::<u64>().ok())
                .flatten();
            match number {
                Some(number) if number <= most => Ok(Cell::UInt(number)),
                _ => Err(outside(value, name, kind)),
            }
        };
        Ok(match kind {
            Kind::Bool if value.is_instance_of::<PyBool>() => Cell::Bool(value.extract()?),
            Kind::Int8 => integer(i8::MIN.into(), i8::MAX.into())?,
            Kind::Int16 => integer(i16::MIN.into(), i16::MAX.into())?,
            Kind::Int32 => integer(i32::MIN.into(), i32::MAX.into())?,
            Kind::Int64 => integer(i64::MIN, i64::MAX)?,
            Kind::UInt8 => natural(u8::MAX.into())?,
            Kind::UInt16 => natural(u16::MAX.into())?,
            Kind::UInt32 => natural(u32::MAX.into())?,
            Kind::UInt64 => natural(u64::MAX)?,
            Kind::Float32 | Kind::Float64 => {
                Cell::float(kind, value)?.ok_or_else(|| outside(value, name, kind))?
            }
            Kind::Text if value.is_instance_of::<PyString>() => Cell::Text(value.extract()?),
            Kind::Binary => Cell::Bytes(bytes_of(value, name)?.into_owned()),
            Kind::FixedBinary { width } => {
                let bytes = bytes_of(value, name)?;
                if bytes.len() != *width as usize {
                    return Err(outside(value, name, kind));
                }
                Cell::Bytes(bytes.into_owned())
            }
            Kind::Decimal {
                precision,
                scale,
                bits: ..=128,
            } => {
                let scaled = converted(value, "scaled", (value, *precision, *scale))?;
                Cell::Decimal(scaled.extract()?)
            }
            Kind::Date32 | Kind::Timestamp { .. } | Kind::Time { .. } | Kind::Duration { .. } => {
                Cell::Int(moment(kind, value)?.ok_or_else(|| outside(value, name, kind))?)
            }
            Kind::List { .. } | Kind::Map { .. } | Kind::Struct { .. } => {
                Cell::Bytes(nested(kind, value, name)?)
            }
            _ => Cell::rare(kind, value)?.ok_or_else(|| outside(value, name, kind))?,
        })
    }

    /// Converts values of rare column kinds; `None`: the value fits none of them.
    fn rare(kind: &Kind, value: &Bound<'_, PyAny>) -> PyResult<Option<Cell>> {
        Ok(Some(match kind {
            Kind::Date64 => {
                Cell::Int(converted(value, "timestamp_of", (value, 1000, false))?.extract()?)
            }
            Kind::Float16 => Cell::Float16(converted(value, "half_of", (value,))?.extract()?),
            Kind::Decimal {
                precision, scale, ..
            } => {
                let bytes = converted(value, "scaled_bytes", (value, *precision, *scale))?;
                Cell::Decimal256(bytes.extract()?)
            }
            Kind::IntervalMonths | Kind::IntervalDayTime | Kind::IntervalMonthDayNano => {
                let name = kind.to_string();
                let (months, days, nanoseconds) =
                    converted(value, "interval_of", (value, name))?.extract()?;
                Cell::Interval(months, days, nanoseconds)
            }
            _ => return Ok(None),
        }))
    }

    /// Converts a float; `None`: it is not a number that the column can store.
    fn float(kind: &Kind, value: &Bound<'_, PyAny>) -> PyResult<Option<Cell>> {
        let is_whole = is_integer(value);
        if !is_whole && !value.is_instance_of::<PyFloat>() {
            return Ok(None);
        }
        let Ok(float) = value.extract::<f64>() else {
            return Ok(None);
        };
        if is_whole && !value.eq(float)? {
            return Ok(None);
        }
        Ok(match kind {
            Kind::Float32 => narrowed(float).map(Cell::Float32),
            _ => Some(Cell::Float64(float)),
        })
    }

    fn datum<'a>(&'a self, kind: &'a Kind) -> Result<Datum<'a>, RowError> {
        Ok(match (self, kind) {
            (Cell::Null, _) => Datum::Null,
            (Cell::Bool(value), _) => Datum::Bool(*value),
            (Cell::Int(value), Kind::Date32) => Datum::Date(*value as i32),
            (Cell::Int(value), Kind::Date64) => Datum::Date64(*value),
            (Cell::Int(value), Kind::Timestamp { unit, zone }) => Datum::Timestamp {
                value: *value,
                unit: *unit,
                zoned: zone.is_some(),
            },
            (Cell::Int(value), Kind::Time { unit }) => Datum::Time {
                value: *value,
                unit: *unit,
            },
            (Cell::Int(value), Kind::Duration { unit }) => Datum::Duration {
                value: *value,
                unit: *unit,
            },
            (Cell::Int(value), _) => Datum::Int(*value),
            (Cell::UInt(value), _) => Datum::UInt(*value),
            (Cell::Float32(value), _) => Datum::Float32(*value),
            (Cell::Float64(value), _) => Datum::Float64(*value),
            (Cell::Decimal(value), Kind::Decimal { scale, .. }) => Datum::Decimal {
                value: *value,
                scale: *scale,
            },
            (Cell::Decimal256(value), Kind::Decimal { scale, .. }) => Datum::Decimal256 {
                value: *value,
                scale: *scale,
            },
            (Cell::Float16(bits), _) => Datum::Float16(*bits),
            (Cell::Interval(months, days, nanoseconds), _) => Datum::Interval {
                months: *months,
                days: *days,
                nanoseconds: *nanoseconds,
            },
            (Cell::Decimal(_) | Cell::Decimal256(_), _) => {
                return Err(RowError::Type { column: 0 });
            }
            (Cell::Text(text), _) => Datum::Text(text),
            (Cell::Bytes(bytes), Kind::List { item, .. }) => {
                Datum::List(ListView::new(&item.kind, bytes)?)
            }
            (Cell::Bytes(bytes), Kind::Map { entries, .. }) => {
                Datum::Map(ListView::rows(entries, bytes)?)
            }
            (Cell::Bytes(bytes), Kind::Struct { fields }) => {
                Datum::Row(RowView::new(fields, bytes)?)
            }
            (Cell::Bytes(bytes), _) => Datum::Bytes(bytes),
        })
    }
}

/// Returns a number of 64 bits as one of 32: itself, or the one with the same digits.
fn narrowed(float: f64) -> Option<f32> {
    let narrow = float as f32;
    let same = f64::from(narrow) == float || float.is_nan();
    let digits = || narrow.is_finite() && narrow.to_string().parse() == Ok(float);
    (same || digits()).then_some(narrow)
}

fn outside(value: &Bound<'_, PyAny>, name: &str, kind: &Kind) -> PyErr {
    let shown = value
        .repr()
        .map_or_else(|_| "that".to_owned(), |text| text.to_string());
    usage(value.py(), format!("{shown} is no {kind} for '{name}'"))
}
