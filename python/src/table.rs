//! A table to be read and, where it is live, written.

use std::sync::Arc;

use arrow_array::{RecordBatchIterator, RecordBatchReader};
use arrow_pyarrow::IntoPyArrow;
use forebay_engine::live::{LiveError, LiveLookup, LiveTable};
use forebay_engine::{Lookup, Version};
use forebay_load::export::{ExportError, LookupRowsError, lookup_batches};
use forebay_run::scan::Direction;
use parking_lot::RwLock;
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::errors::{exception, of_error, unreadable, usage};
use crate::expiry::{expires_ms, seconds_left};
use crate::forks::of_parent;
use crate::keys::{TURN_OBJECTS, key_of, keys_of};
use crate::operations::{self, Verb, Write};
use crate::scan::{Range, RawScan, Walk};
use crate::shape::Shape;
use crate::store::{Found, Live, RawStore};
use crate::values::to_python;

/// See the module's text. Of a batch table it is one version, until it is told to go on to another.
#[pyclass(frozen, subclass, module = "forebay._forebay")]
pub struct RawTable {
    #[pyo3(get)]
    name: String,
    opened: RwLock<Opened>,
}

#[derive(Clone)]
pub enum Opened {
    Batch(Arc<Version>, Arc<Shape>),
    Live(Arc<Live>),
}

impl From<Found> for Opened {
    fn from(found: Found) -> Self {
        match found {
            Found::Live(live) => Opened::Live(live),
            Found::Batch(version) => {
                let shape = Shape::of(forebay_engine::Source::Batch(&version));
                Opened::Batch(version, Arc::new(shape))
            }
        }
    }
}

impl Opened {
    fn shape(&self) -> &Shape {
        match self {
            Opened::Batch(_, shape) => shape,
            Opened::Live(live) => &live.shape,
        }
    }
}

impl RawTable {
    fn opened(&self) -> Opened {
        self.opened.read().clone()
    }

    /// The live table, or an error that says why there is none.
    pub fn live(&self, py: Python<'_>) -> PyResult<(Arc<Live>, LiveTable)> {
        match self.opened() {
            Opened::Live(live) => {
                let table = open(py, &self.name, &live)?;
                Ok((live, table))
            }
            Opened::Batch(version, _) => {
                let table = version.table().clone();
                Err(of_error(py, LiveError::Batch { table }))
            }
        }
    }

    /// The values of keys, in their order.
    fn values_of(
        &self,
        py: Python<'_>,
        opened: &Opened,
        keys: &[Vec<u8>],
    ) -> PyResult<Vec<Option<Vec<u8>>>> {
        match opened {
            Opened::Batch(version, _) => {
                let read = py.detach(|| {
                    let mut values = vec![None; keys.len()];
                    let read = version.get_many(keys, |place, value| {
                        values[place] = value.map(|value| value.to_vec());
                    });
                    read.map(|()| values)
                });
                read.map_err(|error| of_error(py, error))
            }
            Opened::Live(live) => {
                let table = open(py, &self.name, live)?;
                let read = py.detach(|| table.get_many(keys));
                read.map_err(|error| of_error(py, error))
            }
        }
    }

    fn write(
        &self,
        py: Python<'_>,
        verb: Verb,
        key: &Bound<'_, PyAny>,
        value: Option<&Bound<'_, PyAny>>,
        ttl: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let (live, table) = self.live(py)?;
        let write = Write {
            verb,
            key: key_of(key)?.into_owned(),
            value: operations::operand(&live.shape, &table, verb, value)?,
            expires_ms: ttl.map(expires_ms).transpose()?,
        };
        py.detach(|| operations::write(&table, &write))
            .map_err(|error| of_error(py, error))
    }
}

type Parts<'py> = (
    String,
    Bound<'py, PyAny>,
    Option<Bound<'py, PyAny>>,
    Option<Bound<'py, PyAny>>,
);

/// What an operation consists of; the time to live may be left out.
fn parts<'py>(write: &Bound<'py, PyAny>) -> PyResult<Parts<'py>> {
    if write.len()? == 4 {
        return write.extract();
    }
    let (verb, key, value) = write.extract()?;
    Ok((verb, key, value, None))
}

/// The table of a slot; an error once it is closed.
pub fn open(py: Python<'_>, name: &str, live: &Live) -> PyResult<LiveTable> {
    if live.opened_in.is_parent() {
        return Err(of_parent(py, name));
    }
    live.table().ok_or_else(|| {
        let message = format!("table {name} is closed: take it from its store again");
        exception(py, "Error", message)
    })
}

#[pymethods]
impl RawTable {
    #[new]
    fn new(py: Python<'_>, store: &RawStore, target: &str) -> PyResult<Self> {
        let opened = Opened::from(store.find(py, target)?);
        let name = target.split('@').next().unwrap_or(target).to_owned();
        Ok(Self {
            name,
            opened: RwLock::new(opened),
        })
    }

    /// Goes on to what a target names; gives whether that is another version.
    fn go_to(&self, py: Python<'_>, store: &RawStore, target: &str) -> PyResult<bool> {
        let next = Opened::from(store.find(py, target)?);
        let mut opened = self.opened.write();
        let same = match (&*opened, &next) {
            (Opened::Batch(a, _), Opened::Batch(b, _)) => a.version() == b.version(),
            (Opened::Live(a), Opened::Live(b)) => Arc::ptr_eq(a, b),
            _ => false,
        };
        *opened = next;
        Ok(!same)
    }

    /// The version that is read; None where the table is live.
    #[getter]
    fn version(&self) -> Option<u64> {
        match self.opened() {
            Opened::Batch(version, _) => Some(version.version()),
            Opened::Live(_) => None,
        }
    }

    /// The rows, as far as they are known: the least and the greatest number.
    #[getter]
    fn rows_between(&self, py: Python<'_>) -> PyResult<(u64, u64)> {
        match self.opened() {
            Opened::Batch(version, _) => Ok(version.manifest().rows_between()),
            Opened::Live(_) => {
                let (_, table) = self.live(py)?;
                let records = py.detach(|| table.stats().run_records);
                Ok((0, records))
            }
        }
    }

    /// `hashed` or `ordered`.
    #[getter]
    fn order(&self) -> String {
        format!("{:?}", self.opened().shape().order).to_lowercase()
    }

    /// `bytes`, `number`, `row` or `list`.
    #[getter]
    fn kind(&self) -> &'static str {
        self.opened().shape().kind_name()
    }

    /// The template of the keys.
    #[getter]
    fn key_template(&self) -> String {
        let opened = self.opened();
        let key = opened.shape().key.as_deref();
        key.unwrap_or("{key}").to_owned()
    }

    /// The columns as an Arrow schema says them: names and types.
    #[getter]
    fn columns(&self) -> Vec<(String, String)> {
        let opened = self.opened();
        let schema = forebay_load::types::arrow_schema(&opened.shape().schema);
        let fields = schema.fields().iter();
        fields
            .map(|field| (field.name().clone(), field.data_type().to_string()))
            .collect()
    }

    #[pyo3(signature = (key, default=None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let key = key_of(key)?;
        let opened = self.opened();
        let found = match &opened {
            Opened::Batch(version, shape) => match version.try_get(&key) {
                Ok(Lookup::Found(value)) => Some(to_python(py, shape, &value)?),
                Ok(Lookup::Absent) => None,
                Ok(Lookup::NotResident) => {
                    let value = py.detach(|| {
                        version
                            .get(&key)
                            .map(|value| value.map(|value| value.to_vec()))
                    });
                    let value = value.map_err(|error| of_error(py, error))?;
                    value
                        .map(|value| to_python(py, shape, &value))
                        .transpose()?
                }
                Err(error) => return Err(of_error(py, error)),
            },
            Opened::Live(live) => {
                let table = open(py, &self.name, live)?;
                let value = match table.try_get(&key) {
                    Ok(LiveLookup::Found(value)) => Some(value),
                    Ok(LiveLookup::Absent) => None,
                    Ok(LiveLookup::NotResident) => {
                        let value = py.detach(|| table.get(&key));
                        value.map_err(|error| of_error(py, error))?
                    }
                    Err(error) => return Err(of_error(py, error)),
                };
                value
                    .map(|value| to_python(py, &live.shape, &value))
                    .transpose()?
            }
        };
        Ok(found.or(default))
    }

    fn __getitem__<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        match self.get(py, key, None)? {
            Some(value) => Ok(value),
            None => Err(PyKeyError::new_err(key.clone().unbind())),
        }
    }

    fn __contains__(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        let key = key_of(key)?;
        match self.opened() {
            Opened::Batch(version, _) => py
                .detach(|| version.exists(&key))
                .map_err(|error| of_error(py, error)),
            Opened::Live(live) => {
                let table = open(py, &self.name, &live)?;
                let value = py.detach(|| table.get(&key));
                Ok(value.map_err(|error| of_error(py, error))?.is_some())
            }
        }
    }

    /// The values of keys, in their order; the default for one that is absent.
    #[pyo3(signature = (keys, default=None))]
    fn get_many<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyList>> {
        let wanted = keys_of(keys)?;
        let opened = self.opened();
        let values = self.values_of(py, &opened, &wanted)?;
        let default = default.unwrap_or_else(|| py.None().into_bound(py));
        let out = PyList::empty(py);
        py.detach(move || drop(wanted));
        for (at, value) in values.into_iter().enumerate() {
            match value {
                Some(value) => out.append(to_python(py, opened.shape(), &value)?)?,
                None => out.append(&default)?,
            }
            if at % TURN_OBJECTS == TURN_OBJECTS - 1 {
                py.detach(|| ());
            }
        }
        Ok(out)
    }

    #[pyo3(signature = (keys, columns=None, *, binary=false))]
    fn get_many_arrow<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
        columns: Option<Vec<String>>,
        binary: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let wanted = keys_of(keys)?;
        let opened = self.opened();
        let values = self.values_of(py, &opened, &wanted)?;
        let columns = opened.shape().table_columns(binary, columns.as_deref());
        let batches = py.detach(|| {
            let records = wanted.iter().zip(&values);
            let records = records.map(|(key, value)| (key.as_slice(), value.as_deref()));
            lookup_batches(&columns, records)
        });
        let (schema, batches) = batches.map_err(|error| match error {
            LookupRowsError::Column(error) => usage(py, error.to_string()),
            LookupRowsError::Row(ExportError::NotText { key, .. }) => {
                let message = format!("the key {key} is not UTF-8: look up with binary=True");
                usage(py, message)
            }
            LookupRowsError::Row(error) => unreadable(py, &error),
        })?;
        let reader = RecordBatchIterator::new(batches.into_iter().map(Ok), schema);
        let reader: Box<dyn RecordBatchReader + Send> = Box::new(reader);
        reader.into_pyarrow(py)?.call_method0("read_all")
    }

    /// How many records there are now, by a look at each where that is not known.
    fn count(&self, py: Python<'_>) -> PyResult<u64> {
        match self.opened() {
            Opened::Batch(version, _) => {
                let (least, most) = version.manifest().rows_between();
                if least == most {
                    return Ok(most);
                }
            }
            Opened::Live(live) => drop(open(py, &self.name, &live)?),
        }
        let all = self.scan(py, None, None, None, false, true, None)?;
        all.count(py)
    }

    #[pyo3(signature = (start=None, end=None, *, limit=None, reverse=false, binary=false, columns=None))]
    #[expect(
        clippy::too_many_arguments,
        reason = "they are the method's, in Python"
    )]
    fn scan(
        &self,
        py: Python<'_>,
        start: Option<&Bound<'_, PyAny>>,
        end: Option<&Bound<'_, PyAny>>,
        limit: Option<u64>,
        reverse: bool,
        binary: bool,
        columns: Option<Vec<String>>,
    ) -> PyResult<RawScan> {
        let bound = |key: Option<&Bound<'_, PyAny>>| {
            key.map(|key| key_of(key).map(|key| key.into_owned()))
                .transpose()
        };
        let (walk, shape) = match self.opened() {
            Opened::Batch(version, shape) => (Walk::Batch(version), shape),
            Opened::Live(live) => {
                let table = open(py, &self.name, &live)?;
                let snapshot = py.detach(|| table.snapshot());
                (
                    Walk::Live(snapshot, table.name().clone()),
                    Arc::clone(&live.shape),
                )
            }
        };
        let range = Range {
            start: bound(start)?,
            end: bound(end)?,
            limit: limit.unwrap_or(u64::MAX),
            direction: if reverse {
                Direction::Backward
            } else {
                Direction::Forward
            },
            binary,
            columns,
        };
        RawScan::new(py, walk, shape, range)
    }

    #[pyo3(signature = (key, value, *, ttl=None))]
    fn put(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        ttl: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        self.write(py, Verb::Put, key, Some(value), ttl)
    }

    #[pyo3(signature = (key, value, *, ttl=None))]
    fn insert(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        ttl: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        self.write(py, Verb::Insert, key, Some(value), ttl)
    }

    #[pyo3(signature = (key, delta, *, ttl=None))]
    fn delta(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        delta: &Bound<'_, PyAny>,
        ttl: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        self.write(py, Verb::Delta, key, Some(delta), ttl)
    }

    fn delete(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<()> {
        self.write(py, Verb::Delete, key, None, None)
    }

    /// Does operations, each (verb, key, value) or (verb, key, value, ttl); all at once, or else
    /// one by one, waiting for the device once.
    fn write_many(&self, py: Python<'_>, writes: &Bound<'_, PyAny>, atomic: bool) -> PyResult<u64> {
        let (live, table) = self.live(py)?;
        let mut batch = Vec::new();
        for write in writes.try_iter()? {
            let (verb, key, value, ttl) = parts(&write?)?;
            let verb = Verb::of(&verb)
                .ok_or_else(|| usage(py, format!("no operation is called {verb}")))?;
            batch.push(Write {
                verb,
                key: key_of(&key)?.into_owned(),
                value: operations::operand(&live.shape, &table, verb, value.as_ref())?,
                expires_ms: ttl.as_ref().map(expires_ms).transpose()?,
            });
        }
        py.detach(|| operations::write_many(&table, &batch, atomic))
            .map_err(|error| of_error(py, error))
    }

    /// For how many seconds more a key lasts; None: for ever, or until it is deleted.
    fn ttl(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<Option<f64>> {
        let bytes = key_of(key)?;
        let found = match self.opened() {
            Opened::Batch(version, _) => {
                let found = py.detach(|| version.expires_ms(&bytes));
                found.map_err(|error| of_error(py, error))?
            }
            Opened::Live(live) => {
                let table = open(py, &self.name, &live)?;
                let found = py.detach(|| table.expires_ms(&bytes));
                found.map_err(|error| of_error(py, error))?
            }
        };
        match found {
            Some(expires_ms) => Ok(seconds_left(expires_ms)),
            None => Err(PyKeyError::new_err(key.clone().unbind())),
        }
    }

    /// Writes all that is in memory to runs.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        let (_, table) = self.live(py)?;
        py.detach(|| table.flush())
            .map_err(|error| of_error(py, error))
    }

    /// Flushes, then merges each partition's runs into one.
    fn optimize(&self, py: Python<'_>) -> PyResult<()> {
        let (_, table) = self.live(py)?;
        py.detach(|| table.compact())
            .map_err(|error| of_error(py, error))
    }

    /// Reads every run of a live table back; gives how many there are and what is wrong.
    fn verify_live(&self, py: Python<'_>) -> PyResult<(usize, Vec<String>)> {
        let (_, table) = self.live(py)?;
        let verified = py.detach(|| table.verify(&mut |_| ()));
        let (runs, problems) = verified.map_err(|error| of_error(py, error))?;
        Ok((runs, problems.iter().map(ToString::to_string).collect()))
    }

    /// How a live table is doing.
    fn live_stats(&self, py: Python<'_>) -> PyResult<(Vec<usize>, u64, u64, u64)> {
        let (_, table) = self.live(py)?;
        let stats = py.detach(|| table.stats());
        Ok((
            stats.runs,
            stats.run_records,
            stats.file_bytes,
            stats.log_bytes,
        ))
    }

    fn close(&self, py: Python<'_>) {
        if let Opened::Live(live) = self.opened() {
            py.detach(|| live.close());
        }
    }
}
