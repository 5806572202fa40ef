//! Times to live as Python gives them.

use forebay_io::{Clock, SystemClock};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyString};

use crate::errors::usage;

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
