//! Arguments of methods, with errors that name the wrong class.

use pyo3::Borrowed;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::errors::usage;
use crate::keys::{whole_number, wrong};

/// Names of columns: a list of text, or any other iterable.
pub struct ColumnNames(pub Vec<String>);

impl FromPyObject<'_, '_> for ColumnNames {
    type Error = PyErr;

    fn extract(names: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        if names.is_instance_of::<PyString>() {
            let reported = format!("columns is a list of names, as in [{}]", names.repr()?);
            return Err(PyTypeError::new_err(reported));
        }
        let what = "columns is a list of names";
        let all = names.try_iter().map_err(|_| wrong(&names, what))?;
        let text = |name: PyResult<Bound<'_, PyAny>>| {
            let name = name?;
            let text = name.cast::<PyString>();
            let text = text.map_err(|_| wrong(&name, "columns has a name that is str"))?;
            text.extract()
        };
        all.map(text).collect::<PyResult<_>>().map(Self)
    }
}

/// The most records.
pub struct Limit(pub u64);

impl FromPyObject<'_, '_> for Limit {
    type Error = PyErr;

    fn extract(limit: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let Some(number) = whole_number(&limit)? else {
            return Err(wrong(&limit, "limit is a whole number"));
        };
        // No table has more.
        let most = number.gt(u64::MAX)?;
        if most {
            return Ok(Self(u64::MAX));
        }
        number.extract().map(Self).map_err(|_| {
            let reported = format!("limit is how many records there are at most, not {number}");
            usage(limit.py(), reported)
        })
    }
}

/// Returns the names as a list, for tables of servers.
#[pyfunction]
pub fn column_names(names: ColumnNames) -> Vec<String> {
    names.0
}

/// Returns the number, for tables of servers.
#[pyfunction]
pub fn scan_limit(limit: Limit) -> u64 {
    limit.0
}
