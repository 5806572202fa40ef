//! Keys as Python gives them: text, bytes, or whole numbers in decimal, and columns of them.

use std::borrow::Cow;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyByteArray, PyBytes, PyInt, PyString};

use crate::turns::give_turn;

/// How many values of a column become objects at once.
const COLUMN_PART: usize = 4096;
/// The methods of columns that return a list of Python objects, in NumPy and pandas, pyarrow, and
/// polars.
const AS_LIST: [&str; 3] = ["tolist", "to_pylist", "to_list"];

/// Returns the bytes of a key, or of a value that is text or bytes.
pub fn bytes_of<'a>(value: &'a Bound<'_, PyAny>, what: &str) -> PyResult<Cow<'a, [u8]>> {
    match text_or_bytes(value)? {
        Some(bytes) => Ok(bytes),
        None => Err(wrong(value, &format!("{what} is str or bytes"))),
    }
}

fn text_or_bytes<'a>(value: &'a Bound<'_, PyAny>) -> PyResult<Option<Cow<'a, [u8]>>> {
    if let Ok(text) = value.cast::<PyString>() {
        return Ok(Some(Cow::Borrowed(text.to_str()?.as_bytes())));
    }
    if let Ok(bytes) = value.cast::<PyBytes>() {
        return Ok(Some(Cow::Borrowed(bytes.as_bytes())));
    }
    let array = value.cast::<PyByteArray>().ok();
    Ok(array.map(|bytes| Cow::Owned(bytes.to_vec())))
}

/// Returns a TypeError that names the expected type and the value's class.
pub fn wrong(value: &Bound<'_, PyAny>, what: &str) -> PyErr {
    let kind = value.get_type().name();
    let kind = kind.map_or_else(|_| "that".to_owned(), |kind| kind.to_string());
    PyTypeError::new_err(format!("{what}, not {kind}"))
}

/// Returns the bytes of a key.
pub fn key_of<'a>(key: &'a Bound<'_, PyAny>) -> PyResult<Cow<'a, [u8]>> {
    if let Some(bytes) = text_or_bytes(key)? {
        return Ok(bytes);
    }
    if let Some(number) = whole_number(key)? {
        return Ok(Cow::Owned(number.str()?.to_str()?.as_bytes().to_vec()));
    }
    // A scalar of pyarrow.
    if key.hasattr("as_py")? {
        return Ok(Cow::Owned(
            key_of(&key.call_method0("as_py")?)?.into_owned(),
        ));
    }
    Err(wrong(key, "a key is str, bytes or a whole number"))
}

/// Returns a whole number, also one of NumPy. `None`: it is not a whole number.
pub fn whole_number<'py>(key: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    // An enum's own text is not its number.
    if key.is_exact_instance_of::<PyInt>() {
        return Ok(Some(key.clone()));
    }
    if key.is_instance_of::<PyBool>() {
        return Ok(None);
    }
    match key.call_method0("__index__") {
        // For a null of pyarrow it is None.
        Ok(number) => Ok(number.is_instance_of::<PyInt>().then_some(number)),
        Err(error) if error.is_instance_of::<pyo3::exceptions::PyAttributeError>(key.py()) => {
            Ok(None)
        }
        Err(error) if error.is_instance_of::<PyTypeError>(key.py()) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns a key's bytes in a table.
#[pyfunction]
pub fn key_bytes<'py>(py: Python<'py>, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    Ok(PyBytes::new(py, &key_of(key)?))
}

/// Returns the bytes of many keys, as `RawTable.get_many` takes them.
#[pyfunction]
pub fn all_key_bytes<'py>(
    py: Python<'py>,
    keys: &Bound<'py, PyAny>,
) -> PyResult<Vec<Bound<'py, PyBytes>>> {
    let keys = keys_of(keys)?;
    Ok(keys.iter().map(|key| PyBytes::new(py, key)).collect())
}

/// Returns the bytes of many keys: of a list or any other iterable, or of a column of NumPy,
/// pandas, pyarrow or polars. Other threads run meanwhile.
pub fn keys_of(keys: &Bound<'_, PyAny>) -> PyResult<Vec<Vec<u8>>> {
    if text_or_bytes(keys)?.is_some() {
        return Err(wrong(keys, "keys are a list, as in [\"a\", \"b\"]"));
    }
    let mut all = Vec::new();
    for method in AS_LIST {
        if keys.hasattr(method)? {
            add_column(keys, method, &mut all)?;
            return Ok(all);
        }
    }
    if keys.hasattr("__arrow_c_stream__")? {
        return Err(wrong(keys, "keys are one column, as in data[\"id\"]"));
    }
    add(keys, &mut all)?;
    Ok(all)
}

fn add(keys: &Bound<'_, PyAny>, all: &mut Vec<Vec<u8>>) -> PyResult<()> {
    for key in keys.try_iter()? {
        give_turn(keys.py(), all.len())?;
        all.push(key_of(&key?)?.into_owned());
    }
    Ok(())
}

fn add_column(column: &Bound<'_, PyAny>, method: &str, all: &mut Vec<Vec<u8>>) -> PyResult<()> {
    let py = column.py();
    let length = column.len()?;
    // By position, not by the labels of an index.
    let places = match column.hasattr("iloc")? {
        true => column.getattr("iloc")?,
        false => column.clone(),
    };
    for start in (0..length).step_by(COLUMN_PART) {
        let end = length.min(start + COLUMN_PART);
        let range = pyo3::types::PySlice::new(py, start as isize, end as isize, 1);
        let part = places.get_item(range)?.call_method0(method)?;
        add(&part, all)?;
    }
    Ok(())
}
