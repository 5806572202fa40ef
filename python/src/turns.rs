//! Gives turns to other Python threads while a call makes or reads many objects.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

/// How many objects are handled between two turns. Each takes some microseconds.
const OBJECTS: usize = 32;

static NOTHING: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// Lets another thread run, if one has waited for the interpreter's switch interval, and runs the
/// handlers of signals, whose error it returns. `at` counts the objects.
///
/// It calls a Python function, at whose beginning the interpreter does both. Releasing the
/// interpreter and acquiring it again at once would be worse than nothing. The release would wake
/// the waiting thread, which would be too late, and its interval would start again.
pub fn give_turn(py: Python<'_>, at: usize) -> PyResult<()> {
    if at % OBJECTS < OBJECTS - 1 {
        return Ok(());
    }
    let nothing = NOTHING.get_or_try_init(py, || {
        py.eval(c"lambda: None", None, None).map(Bound::unbind)
    })?;
    nothing.call0(py).map(drop)
}
