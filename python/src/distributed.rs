//! Pushes and loads that tasks of another engine build.
//!
//! The module has the driver's part and the two kinds of tasks.

use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::ffi_stream::RecordBatchStreamReader;
use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_pyarrow::{FromPyArrow, ToPyArrow};
use arrow_schema::Schema;
use forebay::command_line::distributed;
use forebay::command_line::embed::{CommandError, Outcome};
use parking_lot::Mutex;
use pyo3::prelude::*;

use crate::errors::{of_anyhow, usage};
use crate::listener::Listener;

/// A push whose rows tasks add, on its driver. It holds the table's push lock.
#[pyclass(frozen, module = "forebay._forebay")]
pub struct DistributedPush {
    push: Mutex<Option<distributed::DistributedPush>>,
}

/// A load into a live table of a cluster whose rows tasks add, on its driver.
///
/// It holds the lock of loads into the table.
#[pyclass(frozen, module = "forebay._forebay")]
pub struct DistributedLoad {
    load: Mutex<Option<distributed::DistributedLoad>>,
}

/// Turns the rows of one part of the source into records; `source` is that part's number.
#[pyclass(frozen, module = "forebay._forebay")]
pub struct TaskEncoder {
    task: Mutex<Option<distributed::RowTask>>,
}

/// Writes the runs of whole partitions into the store.
#[pyclass(frozen, module = "forebay._forebay")]
pub struct PartWriter {
    task: Mutex<Option<distributed::PartTask>>,
}

/// Does `work` on an object's content, without the interpreter's lock.
fn with<T: Send, R: Send>(
    py: Python<'_>,
    held: &Mutex<Option<T>>,
    work: impl FnOnce(&mut T) -> anyhow::Result<R> + Send,
) -> PyResult<R> {
    let done = py.detach(|| held.lock().as_mut().map(work));
    done.ok_or_else(|| ended(py))?
        .map_err(|error| of_anyhow(py, &error))
}

/// Does `work` as `with` does, and removes the content from the object.
fn with_last<T: Send, R: Send>(
    py: Python<'_>,
    held: &Mutex<Option<T>>,
    work: impl FnOnce(T) -> anyhow::Result<R> + Send,
) -> PyResult<R> {
    let done = py.detach(|| {
        let taken = held.lock().take();
        taken.map(work)
    });
    done.ok_or_else(|| ended(py))?
        .map_err(|error| of_anyhow(py, &error))
}

/// Returns the result of `work` and its messages, unless the listener raised an exception.
fn received_by<R>(
    py: Python<'_>,
    listener: Option<Py<PyAny>>,
    work: impl FnOnce(Arc<Listener>) -> PyResult<R>,
) -> PyResult<(R, Vec<String>)> {
    let listener = Arc::new(Listener::new(listener));
    let result = work(Arc::clone(&listener));
    match (result, listener.end()) {
        (Ok(result), None) => Ok((result, listener.take_messages())),
        (_, Some(raised)) => Err(raised),
        (Err(error), None) => {
            py.check_signals()?;
            Err(error)
        }
    }
}

fn not_begun(py: Python<'_>, error: CommandError) -> PyErr {
    match error {
        CommandError::Words(text) => usage(py, text),
        CommandError::Failed(error) => of_anyhow(py, &error),
    }
}

fn ended(py: Python<'_>) -> PyErr {
    usage(py, "it has ended already")
}

/// Returns a batch, or all batches of a table.
fn batches_of(data: &Bound<'_, PyAny>) -> PyResult<Vec<RecordBatch>> {
    if !data.hasattr("__arrow_c_stream__")? {
        return Ok(vec![RecordBatch::from_pyarrow_bound(data)?]);
    }
    let reader = RecordBatchStreamReader::from_pyarrow_bound(data)?;
    let schema = reader.schema();
    let batches: Result<Vec<RecordBatch>, _> = reader.collect();
    let batches = batches.map_err(|error| usage(data.py(), error.to_string()))?;
    Ok(match batches.is_empty() {
        true => vec![RecordBatch::new_empty(schema)],
        false => batches,
    })
}

#[pymethods]
impl DistributedPush {
    #[new]
    fn new(
        py: Python<'_>,
        words: Vec<String>,
        schema: &Bound<'_, PyAny>,
        name: &str,
    ) -> PyResult<Self> {
        let schema = Arc::new(Schema::from_pyarrow_bound(schema)?);
        let begun = py.detach(|| distributed::DistributedPush::begin(&words, schema, name));
        let push = Mutex::new(Some(begun.map_err(|error| not_begun(py, error))?));
        Ok(Self { push })
    }

    /// Whether `set_boundaries` must be called, with samples, before rows can be encoded.
    #[getter]
    fn needs_samples(&self, py: Python<'_>) -> PyResult<bool> {
        with(py, &self.push, |push| Ok(push.needs_samples()))
    }

    /// The number of partitions, once it is decided.
    #[getter]
    fn partitions(&self, py: Python<'_>) -> PyResult<usize> {
        with(py, &self.push, |push| push.partitions())
    }

    /// Sets where partitions begin, from results of `TaskEncoder.sample`: a batch or a table.
    ///
    /// `rows` is the number of rows of the source. Returns the number of partitions.
    fn set_boundaries(
        &self,
        py: Python<'_>,
        samples: Option<&Bound<'_, PyAny>>,
        rows: u64,
    ) -> PyResult<usize> {
        let samples = samples.map(batches_of).transpose()?.unwrap_or_default();
        with(py, &self.push, |push| push.set_boundaries(&samples, rows))
    }

    /// The data that tasks need; before `set_boundaries`, for `TaskEncoder.sample` only.
    fn recipe(&self, py: Python<'_>) -> PyResult<Vec<u8>> {
        with(py, &self.push, |push| push.recipe())
    }

    /// Publishes the version of the reports; returns what `command` returns.
    #[pyo3(signature = (reports, listener=None))]
    fn commit(
        &self,
        py: Python<'_>,
        reports: Vec<String>,
        listener: Option<Py<PyAny>>,
    ) -> PyResult<(bool, String, Vec<String>)> {
        let (result, messages) = received_by(py, listener, |received| {
            with_last(py, &self.push, |push| push.commit(&reports, received))
        })?;
        let (outcome, text) = result;
        Ok((outcome == Outcome::Held, text, messages))
    }

    /// Releases the lock and removes what tasks wrote. After `commit` it does nothing.
    fn abandon(&self, py: Python<'_>) {
        py.detach(|| {
            let push = self.push.lock().take();
            drop(push);
        });
    }
}

#[pymethods]
impl DistributedLoad {
    #[new]
    fn new(
        py: Python<'_>,
        words: Vec<String>,
        schema: &Bound<'_, PyAny>,
        name: &str,
    ) -> PyResult<Self> {
        let schema = Arc::new(Schema::from_pyarrow_bound(schema)?);
        let begun = py.detach(|| distributed::DistributedLoad::begin(&words, schema, name));
        let load = Mutex::new(Some(begun.map_err(|error| not_begun(py, error))?));
        Ok(Self { load })
    }

    /// Whether the order of two rows of a key matters.
    #[getter]
    fn by_age(&self, py: Python<'_>) -> PyResult<bool> {
        with(py, &self.load, |load| Ok(load.is_by_age()))
    }

    /// Whether `make_ready` must be called before rows are encoded.
    #[getter]
    fn planned(&self, py: Python<'_>) -> PyResult<bool> {
        with(py, &self.load, |load| Ok(load.is_planned()))
    }

    /// Whether `make_ready` needs samples.
    #[getter]
    fn needs_samples(&self, py: Python<'_>) -> PyResult<bool> {
        with(py, &self.load, |load| Ok(load.needs_samples()))
    }

    /// The number of partitions of the table.
    #[getter]
    fn partitions(&self, py: Python<'_>) -> PyResult<usize> {
        with(py, &self.load, |load| Ok(load.partitions()))
    }

    /// Has the table's partitions split and moved according to the plan.
    ///
    /// The plan may be made from the results of `TaskEncoder.sample`, a batch or a table, of `rows`
    /// rows.
    #[pyo3(signature = (samples, rows, listener=None))]
    fn make_ready(
        &self,
        py: Python<'_>,
        samples: Option<&Bound<'_, PyAny>>,
        rows: u64,
        listener: Option<Py<PyAny>>,
    ) -> PyResult<()> {
        let samples = samples.map(batches_of).transpose()?.unwrap_or_default();
        received_by(py, listener, |received| {
            with(py, &self.load, |load| {
                load.make_ready(&samples, rows, received)
            })
        })?;
        Ok(())
    }

    /// The data that tasks need; before `make_ready`, for `TaskEncoder.sample` only.
    fn recipe(&self, py: Python<'_>) -> PyResult<Vec<u8>> {
        with(py, &self.load, |load| load.recipe())
    }

    /// Has the cluster add the rows of the reports; returns the result as JSON.
    #[pyo3(signature = (reports, listener=None))]
    fn commit(
        &self,
        py: Python<'_>,
        reports: Vec<String>,
        listener: Option<Py<PyAny>>,
    ) -> PyResult<String> {
        let (text, _) = received_by(py, listener, |received| {
            with_last(py, &self.load, |load| load.commit(&reports, received))
        })?;
        Ok(text)
    }

    /// Releases the lock and removes what tasks wrote. After `commit` it does nothing.
    fn abandon(&self, py: Python<'_>) {
        py.detach(|| {
            let load = self.load.lock().take();
            drop(load);
        });
    }
}

#[pymethods]
impl TaskEncoder {
    #[new]
    fn new(py: Python<'_>, recipe: Vec<u8>, source: i64) -> PyResult<Self> {
        let task = py.detach(|| distributed::row_task(&recipe, source));
        let task = task.map_err(|error| of_anyhow(py, &error))?;
        Ok(Self {
            task: Mutex::new(Some(task)),
        })
    }

    /// Returns a batch of `key` and `bytes`, for `set_boundaries`: each row represents `weights`
    /// rows.
    ///
    /// Rows that cannot be stored are left out.
    fn sample<'py>(
        &self,
        py: Python<'py>,
        batch: &Bound<'py, PyAny>,
        weights: Vec<u64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let batch = RecordBatch::from_pyarrow_bound(batch)?;
        let samples = with(py, &self.task, |task| Ok(task.sample(&batch, &weights)?))?;
        samples.to_pyarrow(py)
    }

    /// Encodes rows; returns batches of `partition`, `records`, `source`, `sequence`.
    ///
    /// Send them now. Each of their rows has a chunk of records.
    fn encode<'py>(
        &self,
        py: Python<'py>,
        batch: &Bound<'py, PyAny>,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let batch = RecordBatch::from_pyarrow_bound(batch)?;
        let ready = with(py, &self.task, |task| Ok(task.encode(&batch)?))?;
        ready.iter().map(|batch| batch.to_pyarrow(py)).collect()
    }

    /// Returns the rest and the control rows, to be shuffled with it: `sequence` is -1.
    fn finish<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let rest = with_last(py, &self.task, |task| Ok(task.finish()?))?;
        rest.iter().map(|batch| batch.to_pyarrow(py)).collect()
    }
}

#[pymethods]
impl PartWriter {
    #[new]
    fn new(py: Python<'_>, recipe: Vec<u8>, scratch: PathBuf) -> PyResult<Self> {
        let task = py.detach(|| distributed::PartTask::begin(&recipe, &scratch));
        let task = task.map_err(|error| of_anyhow(py, &error))?;
        Ok(Self {
            task: Mutex::new(Some(task)),
        })
    }

    /// Adds chunks of records and control rows, in any order; returns the number of records.
    ///
    /// If one of several rows of a key is chosen, they must be sorted by `source` and `sequence`.
    fn add(&self, py: Python<'_>, batch: &Bound<'_, PyAny>) -> PyResult<u64> {
        let batches = batches_of(batch)?;
        with(py, &self.task, |task| {
            let mut records = 0;
            for batch in &batches {
                records += task.add(batch)?;
            }
            Ok(records)
        })
    }

    /// Writes the runs and reads them back; returns a report for each partition.
    fn finish(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        with_last(py, &self.task, distributed::PartTask::finish)
    }
}
