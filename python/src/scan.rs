//! Scans of a table: as an Arrow stream, or record by record.

use std::ops::Bound as KeyBound;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow_array::RecordBatchReader;
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_schema::ffi::FFI_ArrowSchema;
use forebay_engine::live::{LiveError, Snapshot};
use forebay_engine::{ReadError, Scan, SourceError, TableName, Version};
use forebay_load::export::ScanBatches;
use forebay_run::Order;
use forebay_run::scan::{Direction, ScanRange};
use parking_lot::Mutex;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule, PyDict, PyString, PyTuple};

use crate::errors::{exception, of_error, usage};
use crate::forks::{OpenedIn, of_parent};
use crate::shape::Shape;
use crate::turns::give_turn;
use crate::values::{to_python, to_python_fields};

/// Records that are fetched at once for a loop in Python: enough that the loop runs for longer than
/// the interpreter's switch interval before it releases the interpreter. A loop that releases it
/// more often, and for less time than other threads need to wake up, starves them.
const AHEAD_RECORDS: usize = 4096;
/// The most bytes of those records.
const AHEAD_BYTES: usize = 512 << 10;

/// The source of a scan: a version, or a live table as it was at a moment.
pub enum Walk {
    Batch(Arc<Version>),
    Live(Snapshot, TableName),
}

/// The records of a scan, and their order and form.
pub struct Range {
    pub start: Option<Vec<u8>>,
    pub end: Option<Vec<u8>>,
    pub limit: u64,
    pub direction: Direction,
    /// Whether keys are bytes, not text.
    pub binary: bool,
    /// Only the columns of these names.
    pub columns: Option<Vec<String>>,
}

/// A range of a table, which can be scanned any number of times; `Table.scan` returns it.
///
/// It is an Arrow stream (`pyarrow.table(scan)`, `polars.DataFrame(scan)`), and an iterable of
/// pairs of key and value. The key is a separate column unless the columns of its template are
/// included.
///
/// >>> import polars as pl
/// >>> import pyarrow as pa
/// >>> opened = forebay.open(store, create=True)
/// >>> rows = pa.table({"id": ["a", "b"], "name": ["Ada", "Bob"]})
/// >>> opened.push(rows, "people", key="{id}", order="ordered").version
/// 1
/// >>> scan = opened["people"].scan("b")
/// >>> list(scan)
/// [('b', {'id': 'b', 'name': 'Bob'})]
/// >>> pl.DataFrame(scan).rows()
/// [('b', 'Bob')]
///
/// The examples of its methods continue this one.
#[pyclass(frozen, name = "Scan", module = "forebay")]
pub struct RawScan {
    walk: Walk,
    shape: Arc<Shape>,
    range: Range,
    opened_in: OpenedIn,
}

impl RawScan {
    /// Creates a scan. Fails if a range of keys of a hashed table is requested.
    pub fn new(py: Python<'_>, walk: Walk, shape: Arc<Shape>, range: Range) -> PyResult<Self> {
        if shape.order == Order::Hashed && (range.start.is_some() || range.end.is_some()) {
            return Err(match &walk {
                Walk::Batch(version) => {
                    let table = version.table().clone();
                    of_error(py, ReadError::NoKeyOrder { table })
                }
                Walk::Live(_, table) => {
                    let table = table.clone();
                    of_error(py, LiveError::NoKeyOrder { table })
                }
            });
        }
        let columns = shape.table_columns(range.binary, range.columns.as_deref());
        let checked = columns.columns();
        checked.map_err(|error| usage(py, error.to_string()))?;
        Ok(Self {
            walk,
            shape,
            range,
            opened_in: OpenedIn::this_process(),
        })
    }

    fn begin(&self, py: Python<'_>) -> PyResult<Scan> {
        match &self.walk {
            Walk::Live(_, table) if self.opened_in.is_parent() => {
                Err(of_parent(py, table.as_str()))
            }
            _ => {
                let scan = py.detach(|| self.scan());
                scan.map_err(|error| of_error(py, error))
            }
        }
    }

    fn scan(&self) -> Result<Scan, SourceError> {
        let whole = self.range.start.is_none() && self.range.end.is_none();
        let from = self
            .range
            .start
            .as_deref()
            .map_or(KeyBound::Unbounded, KeyBound::Included);
        let to = self
            .range
            .end
            .as_deref()
            .map_or(KeyBound::Unbounded, KeyBound::Excluded);
        Ok(match &self.walk {
            Walk::Batch(version) if whole => {
                Scan::Batch(version.scan_range(ScanRange::all(), self.range.direction))
            }
            Walk::Batch(version) => {
                Scan::Batch(version.scan_keys(from, to, self.range.direction)?)
            }
            Walk::Live(snapshot, ..) if whole => {
                Scan::Live(snapshot.scan_range(ScanRange::all(), self.range.direction))
            }
            Walk::Live(snapshot, ..) => {
                Scan::Live(snapshot.scan_keys(from, to, self.range.direction)?)
            }
        })
    }

    fn batches(&self, py: Python<'_>) -> PyResult<ScanBatches> {
        let scan = self.begin(py)?;
        let columns = self
            .shape
            .table_columns(self.range.binary, self.range.columns.as_deref());
        ScanBatches::new(scan, &columns, self.range.limit)
            .map_err(|error| usage(py, error.to_string()))
    }
}

impl RawScan {
    /// Returns the number of its records.
    pub fn count(&self, py: Python<'_>) -> PyResult<u64> {
        let mut scan = self.begin(py)?;
        let counted = py.detach(|| {
            let mut count = 0;
            while count < self.range.limit && scan.advance()? {
                count += 1;
            }
            Ok::<u64, SourceError>(count)
        });
        counted.map_err(|error| of_error(py, error))
    }
}

#[pymethods]
impl RawScan {
    /// Its columns as a `pyarrow.Schema`.
    ///
    /// >>> scan.schema.names
    /// ['id', 'name']
    #[getter]
    fn schema<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        by_package(slf, "pyarrow", "schema")
    }

    /// All of it as a `pyarrow.Table`.
    ///
    /// Raises `UsageError`, without `binary`, for keys that are not UTF-8; `DamagedError` for
    /// damaged data.
    ///
    /// >>> scan.to_arrow().to_pydict()
    /// {'id': ['b'], 'name': ['Bob']}
    fn to_arrow<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        by_package(slf, "pyarrow", "table")
    }

    /// All of it as a `pandas.DataFrame`, made by pyarrow; raises what `to_arrow` raises.
    ///
    /// Whole numbers and truth values among nulls get pandas' own types, as `Int64` and `boolean`:
    /// as floats numbers would be rounded.
    ///
    /// >>> scan.to_pandas()["name"].tolist()
    /// ['Bob']
    fn to_pandas<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let table = by_package(slf, "pyarrow", "table")?;
        import(slf.py(), "pandas")?;
        let frames = slf.py().import("forebay._frames")?;
        frames.getattr("of_pandas")?.call1((table,))
    }

    /// All of it as a `polars.DataFrame`. Raises what `to_arrow` raises, as polars exceptions.
    ///
    /// >>> scan.to_polars()["name"].to_list()
    /// ['Bob']
    fn to_polars<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        by_package(slf, "polars", "DataFrame")
    }

    /// pandas and NumPy would silently make objects of keys and rows.
    #[pyo3(signature = (*args, **kwargs))]
    fn __array__(
        &self,
        args: &Bound<'_, PyTuple>,
        kwargs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        _ = (args, kwargs);
        Err(PyTypeError::new_err(
            "a scan is no array: scan.to_pandas() is a data frame, scan.to_arrow() and scan.to_polars() others",
        ))
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // The protocol allows this to ignore requests for other types.
        drop(requested_schema);
        let stream = FFI_ArrowArrayStream::new(Box::new(self.batches(py)?));
        PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = self.batches(py)?.schema();
        let schema = FFI_ArrowSchema::try_from(schema.as_ref());
        let schema = schema.map_err(|error| of_error(py, error))?;
        PyCapsule::new_with_value(py, schema, c"arrow_schema")
    }

    fn __iter__(&self, py: Python<'_>) -> PyResult<RawRecords> {
        let scan = self.begin(py)?;
        Ok(RawRecords {
            binary: self.range.binary,
            fields: self
                .range
                .columns
                .as_ref()
                .map(|names| self.shape.fields(names)),
            shape: Arc::clone(&self.shape),
            given: AtomicUsize::new(0),
            state: Mutex::new(State {
                scan,
                left: self.range.limit,
                ahead: Vec::new().into_iter(),
            }),
        })
    }
}

/// An iterator over the records of a scan: a key and a value each.
#[pyclass(frozen, name = "_Records", module = "forebay._forebay")]
pub struct RawRecords {
    shape: Arc<Shape>,
    binary: bool,
    /// The requested columns of rows, if not all.
    fields: Option<Vec<usize>>,
    /// The number of records returned so far.
    given: AtomicUsize,
    state: Mutex<State>,
}

/// A key and a value.
type Record = (Vec<u8>, Vec<u8>);

struct State {
    scan: Scan,
    left: u64,
    ahead: std::vec::IntoIter<Record>,
}

impl State {
    fn next(&mut self) -> Result<Option<Record>, SourceError> {
        if let Some(record) = self.ahead.next() {
            return Ok(Some(record));
        }
        let (mut ahead, mut bytes) = (Vec::new(), 0);
        while ahead.len() < AHEAD_RECORDS && bytes < AHEAD_BYTES && self.left > 0 {
            if !self.scan.advance()? {
                self.left = 0;
                break;
            }
            self.left -= 1;
            let record = (self.scan.key().to_vec(), self.scan.value().to_vec());
            bytes += record.0.len() + record.1.len();
            ahead.push(record);
        }
        self.ahead = ahead.into_iter();
        Ok(self.ahead.next())
    }
}

fn import<'py>(py: Python<'py>, package: &str) -> PyResult<Bound<'py, PyModule>> {
    py.import(package).map_err(|error| {
        let message = format!("it takes the package {package} (pip install {package}): {error}");
        exception(py, "UsageError", message)
    })
}

/// Calls a function of the package with the scan as its argument.
fn by_package<'py>(
    scan: &Bound<'py, RawScan>,
    package: &str,
    function: &str,
) -> PyResult<Bound<'py, PyAny>> {
    let function = import(scan.py(), package)?.getattr(function)?;
    function.call1((scan,)).map_err(|error| {
        // How polars reports types that it does not support; `except Exception` does not catch it.
        let class = error.get_type(scan.py()).name();
        match class.is_ok_and(|name| name == "PanicException") {
            true => usage(
                scan.py(),
                format!(
                    "{package} does not hold the types of all columns: use to_arrow(), or scan \
                     the others by columns=[...] ({error})"
                ),
            ),
            false => error,
        }
    })
}

#[pymethods]
impl RawRecords {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        // The loop may not be a Python function: `dict(table)`.
        give_turn(py, self.given.fetch_add(1, Ordering::Relaxed))?;
        // Waits for the lock without the interpreter, which the lock's holder may be waiting for.
        let ahead = self
            .state
            .try_lock()
            .and_then(|mut state| state.ahead.next());
        let next = match ahead {
            Some(record) => Ok(Some(record)),
            None => py.detach(|| self.state.lock().next()),
        };
        let Some((key, value)) = next.map_err(|error| of_error(py, error))? else {
            return Ok(None);
        };
        let key = match (self.binary, std::str::from_utf8(&key)) {
            (true, _) => PyBytes::new(py, &key).into_any(),
            (false, Ok(text)) => PyString::new(py, text).into_any(),
            (false, Err(_)) => {
                let key = forebay_engine::show_key(&key);
                let message = format!("the key {key} is not UTF-8: scan with binary=True");
                return Err(exception(py, "UsageError", message));
            }
        };
        let value = match &self.fields {
            Some(fields) => to_python_fields(py, &self.shape, &value, fields)?,
            None => to_python(py, &self.shape, &value)?,
        };
        PyTuple::new(py, [key, value]).map(Some)
    }
}
