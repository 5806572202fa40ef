//! The commands of the command line, called from Python.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use arrow_array::ffi_stream::RecordBatchStreamReader;
use arrow_array::{RecordBatch, RecordBatchIterator};
use arrow_pyarrow::FromPyArrow;
use forebay::embed::{self, CommandError, Outcome};
use forebay_engine::live::LiveTable;
use forebay_load::sources::Batches;
use forebay_run::io::{Clock, SystemClock};
use pyo3::prelude::*;

use crate::errors::{of_anyhow, usage};
use crate::listener::Listener;
use crate::table::RawTable;

/// Between two looks for a load to take.
const POLL: Duration = Duration::from_millis(20);

/// Does `work`; the table, if there is one, takes what is loaded into it meanwhile.
fn taking<R>(table: Option<&LiveTable>, work: impl FnOnce() -> R) -> R {
    let Some(table) = table else { return work() };
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Relaxed) {
                // A load that is not taken is told so by its own waiting.
                _ = table.take_load();
                SystemClock.sleep(POLL);
            }
        });
        let result = work();
        over.store(true, Relaxed);
        result
    })
}

/// Runs a command, given as its words. Gives whether the gate held the swap, the result as JSON, and what
/// else there was to say. With `data`, an object with an Arrow stream or a batch, a push or
/// a load takes its rows from there; `taker` is the live table that is loaded, where it is open here;
/// `rows` is how many there are, where that is known.
#[pyfunction]
#[pyo3(signature = (words, data=None, name="data", rows=None, listener=None, taker=None))]
pub fn command(
    py: Python<'_>,
    words: Vec<String>,
    data: Option<Bound<'_, PyAny>>,
    name: &str,
    rows: Option<u64>,
    listener: Option<Py<PyAny>>,
    taker: Option<PyRef<'_, RawTable>>,
) -> PyResult<(bool, String, Vec<String>)> {
    let batches = match &data {
        None => None,
        Some(data) if data.hasattr("__arrow_c_stream__")? => {
            let reader = RecordBatchStreamReader::from_pyarrow_bound(data)?;
            Some(Batches::new(name, rows, reader))
        }
        Some(data) => {
            let batch = RecordBatch::from_pyarrow_bound(data)?;
            let (rows, schema) = (batch.num_rows() as u64, batch.schema());
            let reader = RecordBatchIterator::new([Ok(batch)], schema);
            Some(Batches::new(name, Some(rows), reader))
        }
    };
    let listener = Arc::new(Listener::new(listener));
    let heard = Arc::clone(&listener);
    let table = match &taker {
        Some(table) => Some(table.live(py)?.1),
        None => None,
    };
    drop(taker);
    let result = py.detach(move || taking(table.as_ref(), || embed::run(&words, batches, heard)));
    let raised = listener.take_raised();
    match (result, raised) {
        (Ok((outcome, text)), None) => {
            Ok((outcome == Outcome::Held, text, listener.take_messages()))
        }
        // It was done before it could be stopped; whoever asked for that hears of it all the same.
        (_, Some(raised)) => Err(raised),
        (Err(CommandError::Words(text)), None) => Err(usage(py, text)),
        (Err(CommandError::Failed(error)), None) => {
            py.check_signals()?;
            Err(of_anyhow(py, &error))
        }
    }
}
