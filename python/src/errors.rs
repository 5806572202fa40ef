//! Converts errors of the libraries to the exceptions of `forebay/_errors.py`.

use forebay::ErrorKind;
use forebay::command_line::words;
use pyo3::prelude::*;

/// Returns an exception by its class in `forebay._errors`, with a message for Python users.
pub fn exception(py: Python<'_>, class: &str, message: String) -> PyErr {
    let reported = py
        .import("forebay._python_words")
        .and_then(|module| module.getattr("reported")?.call1((message,)));
    let made = reported.and_then(|reported| {
        let class = py.import("forebay._errors")?.getattr(class)?;
        class.call1((reported,))
    });
    made.map_or_else(|error| error, PyErr::from_value)
}

/// Returns the exception for wrong options, keys or values.
pub fn usage(py: Python<'_>, message: impl Into<String>) -> PyErr {
    exception(py, "UsageError", message.into())
}

/// Returns the exception of a failed command.
pub fn of_anyhow(py: Python<'_>, error: &anyhow::Error) -> PyErr {
    let class = match ErrorKind::of(error) {
        ErrorKind::Busy | ErrorKind::InUse => "BusyError",
        ErrorKind::Missing => "MissingError",
        ErrorKind::Usage => "UsageError",
        ErrorKind::Data => "DataError",
        ErrorKind::Damaged => "DamagedError",
        _ => "Error",
    };
    exception(py, class, words(error))
}

/// Returns the exception of any error of the libraries, as [`of_anyhow`] does.
pub fn of_error(py: Python<'_>, error: impl std::error::Error + Send + Sync + 'static) -> PyErr {
    of_anyhow(py, &anyhow::Error::new(error))
}

/// Returns the exception for a stored value that cannot be read.
pub fn unreadable(py: Python<'_>, error: &impl std::fmt::Display) -> PyErr {
    let message = format!("cannot read the value: {error}; verify the table");
    exception(py, "DamagedError", message)
}
