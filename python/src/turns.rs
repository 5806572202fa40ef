//! Turns of other threads of Python, while a call makes or reads many objects.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

/// After so many objects others get their turn. Each takes some microseconds.
const OBJECTS: usize = 32;

static NOTHING: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// Lets another thread run, if one has waited for the interpreter's switch interval, and the
/// handlers of signals, whose error it gives. `at` counts the objects.
///
/// A function of Python is called, at whose beginning the interpreter sees to both. To let go of
/// the interpreter and to take it again at once would be worse than nothing: whoever waits is woken
/// by that, comes too late, and its interval begins anew.
pub fn give_turn(py: Python<'_>, at: usize) -> PyResult<()> {
    if at % OBJECTS < OBJECTS - 1 {
        return Ok(());
    }
    let nothing = NOTHING.get_or_try_init(py, || {
        py.eval(c"lambda: None", None, None).map(Bound::unbind)
    })?;
    nothing.call0(py).map(drop)
}
