//! Keys as Python gives them: text, bytes, or whole numbers in decimal.

use std::borrow::Cow;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyByteArray, PyBytes, PyInt, PyString};

/// The bytes of a key, or of a value that is text or bytes.
pub fn bytes_of<'a>(value: &'a Bound<'_, PyAny>, what: &str) -> PyResult<Cow<'a, [u8]>> {
    if let Ok(text) = value.cast::<PyString>() {
        return Ok(Cow::Borrowed(text.to_str()?.as_bytes()));
    }
    if let Ok(bytes) = value.cast::<PyBytes>() {
        return Ok(Cow::Borrowed(bytes.as_bytes()));
    }
    if let Ok(bytes) = value.cast::<PyByteArray>() {
        return Ok(Cow::Owned(bytes.to_vec()));
    }
    let kind = value.get_type().name()?;
    Err(PyTypeError::new_err(format!(
        "{what} is str or bytes, not {kind}"
    )))
}

/// The bytes of a key.
pub fn key_of<'a>(key: &'a Bound<'_, PyAny>) -> PyResult<Cow<'a, [u8]>> {
    if key.is_instance_of::<PyInt>() && !key.is_instance_of::<PyBool>() {
        let text = key.str()?;
        return Ok(Cow::Owned(text.to_str()?.as_bytes().to_vec()));
    }
    bytes_of(key, "a key")
}
