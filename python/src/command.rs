//! Calls the commands of the command line from Python.

use std::sync::Arc;

use arrow_array::ffi_stream::RecordBatchStreamReader;
use arrow_array::{RecordBatch, RecordBatchIterator, RecordBatchReader};
use arrow_pyarrow::FromPyArrow;
use forebay::command_line::embed::{self, CommandError, Outcome};
use forebay_load::sources::Batches;
use pyo3::prelude::*;

use crate::errors::{of_anyhow, usage};
use crate::listener::Listener;
use crate::not_stored::not_stored;

/// Runs a command, given as its arguments. Returns whether the gate held the swap, the result as
/// JSON, and the messages. With `data`, an object with an Arrow stream or a batch, a push or a load
/// reads its rows from it. `rows` is their number, if it is known.
#[pyfunction]
#[pyo3(signature = (words, data=None, name="data", rows=None, listener=None))]
pub fn command(
    py: Python<'_>,
    words: Vec<String>,
    data: Option<Bound<'_, PyAny>>,
    name: &str,
    rows: Option<u64>,
    listener: Option<Py<PyAny>>,
) -> PyResult<(bool, String, Vec<String>)> {
    let mut messages = Vec::new();
    let batches = match &data {
        None => None,
        Some(data) if data.hasattr("__arrow_c_stream__")? => {
            let reader = RecordBatchStreamReader::from_pyarrow_bound(data)?;
            messages = not_stored(&reader.schema());
            Some(Batches::new(name, rows, reader))
        }
        Some(data) => {
            let batch = RecordBatch::from_pyarrow_bound(data)?;
            let (rows, schema) = (batch.num_rows() as u64, batch.schema());
            messages = not_stored(&schema);
            let reader = RecordBatchIterator::new([Ok(batch)], schema);
            Some(Batches::new(name, Some(rows), reader))
        }
    };
    let listener = Arc::new(Listener::new(listener));
    let received = Arc::clone(&listener);
    let result = py.detach(move || embed::run(&words, batches, received));
    let raised = listener.end();
    match (result, raised) {
        (Ok((outcome, text)), None) => {
            messages.extend(listener.take_messages());
            Ok((outcome == Outcome::Held, text, messages))
        }
        // The command was done before it could be stopped; the caller still gets the exception.
        (_, Some(raised)) => Err(raised),
        (Err(CommandError::Words(text)), None) => Err(usage(py, text)),
        (Err(CommandError::Failed(error)), None) => {
            py.check_signals()?;
            Err(of_anyhow(py, &error))
        }
    }
}
