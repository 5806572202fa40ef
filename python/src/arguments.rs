//! Arguments of methods, with errors that name the wrong class; times to live.

use forebay_io::{Clock, SystemClock};
use pyo3::Borrowed;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyString};

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

/// A thousand centuries. Anything longer is meant to last for ever, and has no time to live.
const MOST_MS: f64 = 1e5 * 365.25 * 86_400_000.0;

/// Returns the time at which something with this `ttl` from now expires: a number of seconds, a
/// timedelta, or text as the command line takes it. In milliseconds since 1970-01-01 UTC.
pub fn expires_ms(ttl: &Bound<'_, PyAny>) -> PyResult<u64> {
    let now_ms = SystemClock.unix_ms();
    Ok(now_ms.saturating_add(lifetime_ms(ttl)?).min(u64::MAX - 1))
}

fn lifetime_ms(ttl: &Bound<'_, PyAny>) -> PyResult<u64> {
    let py = ttl.py();
    let wrong = || {
        let given = ttl.repr().map_or_else(|_| String::new(), |r| r.to_string());
        let how = "give seconds above 0, a timedelta, or text as in '12h'";
        usage(py, format!("{given} is no time to live: {how}"))
    };
    let ms = if let Ok(text) = ttl.cast::<PyString>() {
        let time = forebay::command_line::parse_lifetime(text.to_str()?)
            .map_err(|error| usage(py, error))?;
        time.as_millis() as f64
    } else if let Ok(total) = ttl.call_method0("total_seconds") {
        total.extract::<f64>()? * 1000.0
    } else if ttl.is_instance_of::<PyBool>() {
        return Err(wrong());
    } else {
        ttl.extract::<f64>().map_err(|_| wrong())? * 1000.0
    };
    // A time shorter than the clock's step lasts one step.
    match ms.ceil() {
        ms if (1.0..MOST_MS).contains(&ms) => Ok(ms as u64),
        _ => Err(wrong()),
    }
}

/// Returns for how many seconds more something lasts; `None`: for ever.
pub fn seconds_left(expires_ms: u64) -> Option<f64> {
    let now_ms = SystemClock.unix_ms();
    (expires_ms < u64::MAX - 1).then(|| expires_ms.saturating_sub(now_ms) as f64 / 1000.0)
}
