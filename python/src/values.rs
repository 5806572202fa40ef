//! Converts stored values to Python objects: bytes, numbers, dicts of columns, lists.
//!
//! Dates, times and decimals are made by `forebay/_values.py`, which knows Python's classes for
//! them.

use forebay_engine::ValueKind;
use forebay_run::number::Number;
use forebay_run::row::{
    Datum, Kind, ListView, RowError, RowView, TimeUnit, f16_to_f32, write_decimal, write_decimal256,
};
use pyo3::BoundObject;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};

use crate::errors::{unreadable, usage};
use crate::shape::Shape;

/// Returns a value by its table's kind.
pub fn to_python<'py>(py: Python<'py>, shape: &Shape, value: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    let read = |error: RowError| unreadable(py, &error);
    if let Some(number) = shape.number {
        return number_object(py, number, value);
    }
    match &shape.kind {
        ValueKind::Row => row(py, RowView::new(&shape.schema, value).map_err(read)?),
        ValueKind::List { item, .. } => list(py, item, &ListView::new(item, value).map_err(read)?),
        ValueKind::Bytes { .. } | ValueKind::Number { .. } => {
            Ok(PyBytes::new(py, value).into_any())
        }
    }
}

/// Returns a value as `to_python` does, but only these columns of a row.
pub fn to_python_fields<'py>(
    py: Python<'py>,
    shape: &Shape,
    value: &[u8],
    fields: &[usize],
) -> PyResult<Bound<'py, PyAny>> {
    if !matches!((&shape.kind, shape.number), (ValueKind::Row, None)) {
        return to_python(py, shape, value);
    }
    let view = RowView::new(&shape.schema, value).map_err(|error| unreadable(py, &error))?;
    row_of(py, view, fields.iter().copied())
}

fn number_object<'py>(
    py: Python<'py>,
    number: Number,
    value: &[u8],
) -> PyResult<Bound<'py, PyAny>> {
    let bytes: [u8; 8] = value
        .try_into()
        .map_err(|_| unreadable(py, &format!("a number has 8 bytes, not {}", value.len())))?;
    match number {
        Number::I64 => object(py, i64::from_le_bytes(bytes)),
        Number::F64 => object(py, f64::from_le_bytes(bytes)),
    }
}

fn object<'py, T: IntoPyObject<'py>>(py: Python<'py>, value: T) -> PyResult<Bound<'py, PyAny>>
where
    PyErr: From<T::Error>,
{
    Ok(value.into_pyobject(py)?.into_bound().into_any())
}

fn row<'py>(py: Python<'py>, row: RowView<'_>) -> PyResult<Bound<'py, PyAny>> {
    row_of(py, row, 0..row.len())
}

fn row_of<'py>(
    py: Python<'py>,
    row: RowView<'_>,
    fields: impl Iterator<Item = usize>,
) -> PyResult<Bound<'py, PyAny>> {
    let dict = PyDict::new(py);
    for index in fields {
        let value = row.datum(index).map_err(|error| unreadable(py, &error))?;
        let column = &row.schema().columns()[index];
        let value = datum(py, &column.kind, &value);
        let value = value.map_err(|error| of_column(py, &column.name, error))?;
        dict.set_item(&column.name, value)?;
    }
    Ok(dict.into_any())
}

/// Returns an error about a value, with the column that has it.
fn of_column(py: Python<'_>, column: &str, error: PyErr) -> PyErr {
    let class = error.get_type(py).name();
    match class.is_ok_and(|class| class == "UsageError") {
        true => usage(py, format!("column '{column}': {}", error.value(py))),
        false => error,
    }
}

fn list<'py>(py: Python<'py>, kind: &Kind, list: &ListView<'_>) -> PyResult<Bound<'py, PyAny>> {
    let out = PyList::empty(py);
    for item in list.items() {
        let item = item.map_err(|error| unreadable(py, &error))?;
        out.append(datum(py, kind, &item)?)?;
    }
    Ok(out.into_any())
}

/// Returns a map as a list of pairs: its keys need not be hashable.
fn pairs<'py>(py: Python<'py>, entries: &ListView<'_>) -> PyResult<Bound<'py, PyAny>> {
    let out = PyList::empty(py);
    for entry in entries.items() {
        let entry = entry.map_err(|error| unreadable(py, &error))?;
        let Datum::Row(entry) = entry else {
            return Err(unreadable(py, &"a map's entry is no pair"));
        };
        let side = |index| -> PyResult<Bound<'py, PyAny>> {
            let value = entry.datum(index).map_err(|error| unreadable(py, &error))?;
            datum(py, &entry.schema().columns()[index].kind, &value)
        };
        out.append(PyTuple::new(py, [side(0)?, side(1)?])?)?;
    }
    Ok(out.into_any())
}

/// Returns a value of a column or of items of that kind.
fn datum<'py>(py: Python<'py>, kind: &Kind, value: &Datum<'_>) -> PyResult<Bound<'py, PyAny>> {
    let make = |function: &str| py.import("forebay._values")?.getattr(function);
    match value {
        Datum::Null => Ok(py.None().into_bound(py)),
        Datum::Bool(value) => object(py, *value),
        Datum::Int(value) => object(py, *value),
        Datum::UInt(value) => object(py, *value),
        Datum::Float16(bits) => object(py, f16_to_f32(*bits)),
        Datum::Float32(value) => object(py, *value),
        Datum::Float64(value) => object(py, *value),
        Datum::Text(text) => object(py, *text),
        Datum::Bytes(bytes) => Ok(PyBytes::new(py, bytes).into_any()),
        Datum::List(items) => match kind {
            Kind::List { item, .. } => list(py, &item.kind, items),
            _ => Err(unreadable(py, &"a list where its type says none")),
        },
        Datum::Map(entries) => pairs(py, entries),
        Datum::Row(fields) => row(py, *fields),
        Datum::Decimal { value, scale } => {
            let mut text = Vec::new();
            write_decimal(*value, *scale, &mut text);
            make("decimal")?.call1((String::from_utf8_lossy(&text),))
        }
        Datum::Decimal256 { value, scale } => {
            let mut text = Vec::new();
            write_decimal256(value, *scale, &mut text);
            make("decimal")?.call1((String::from_utf8_lossy(&text),))
        }
        Datum::Date(days) => make("date")?.call1((*days,)),
        Datum::Date64(ms) => make("timestamp")?.call1((*ms, 1000, py.None())),
        Datum::Time { value, unit } => make("time")?.call1((*value, per_second(*unit))),
        Datum::Timestamp { value, unit, .. } => {
            let zone = match kind {
                Kind::Timestamp { zone, .. } => zone.as_deref(),
                _ => None,
            };
            make("timestamp")?.call1((*value, per_second(*unit), zone))
        }
        Datum::Duration { value, unit } => make("duration")?.call1((*value, per_second(*unit))),
        Datum::Interval {
            months,
            days,
            nanoseconds,
        } => object(py, (*months, *days, *nanoseconds)),
    }
}

fn per_second(unit: TimeUnit) -> i64 {
    unit.per_second()
}
