//! A table for reading and, if it is live, for writing.

use std::sync::Arc;

use arrow_array::{RecordBatchIterator, RecordBatchReader};
use arrow_pyarrow::IntoPyArrow;
use forebay_engine::live::LiveTable;
use forebay_load::export::{ExportError, LookupRowsError, lookup_batches};
use forebay_run::scan::Direction;
use parking_lot::RwLock;
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::arguments::{ColumnNames, Limit, expires_ms, seconds_left};
use crate::errors::{of_error, unreadable, usage};
use crate::keys::{key_of, keys_of};
use crate::opened::OpenedTable;
use crate::operations::{self, Verb, Write};
use crate::scan::{Range, RawScan};
use crate::store::{Live, RawStore};
use crate::turns::give_turn;
use crate::values::to_python;

/// The native part of `forebay.Table`, which users of the package do not see.
// For a batch table it is one version, until it changes to another.
#[pyclass(frozen, subclass, module = "forebay._forebay")]
pub struct RawTable {
    /// The table's name (str), without a version.
    ///
    /// >>> people.name
    /// 'people'
    #[pyo3(get)]
    name: String,
    opened: RwLock<OpenedTable>,
}

impl RawTable {
    fn opened(&self) -> OpenedTable {
        self.opened.read().clone()
    }

    fn live(&self, py: Python<'_>) -> PyResult<(Arc<Live>, LiveTable)> {
        self.opened().live(py, &self.name)
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

/// Returns the parts of an operation; the time to live may be left out.
fn parts<'py>(write: &Bound<'py, PyAny>) -> PyResult<Parts<'py>> {
    if write.len()? == 4 {
        return write.extract();
    }
    let (verb, key, value) = write.extract()?;
    Ok((verb, key, value, None))
}

#[pymethods]
impl RawTable {
    #[new]
    fn new(py: Python<'_>, store: &RawStore, target: &str) -> PyResult<Self> {
        let opened = OpenedTable::from(store.find(py, target)?);
        let name = target.split('@').next().unwrap_or(target).to_owned();
        Ok(Self {
            name,
            opened: RwLock::new(opened),
        })
    }

    /// Changes to the version that a target names; returns whether it is another one.
    #[pyo3(name = "_go_to")]
    fn go_to(&self, py: Python<'_>, store: &RawStore, target: &str) -> PyResult<bool> {
        let next = OpenedTable::from(store.find(py, target)?);
        let mut opened = self.opened.write();
        let same = opened.is(&next);
        *opened = next;
        Ok(!same)
    }

    /// The number of the version that is read (int); None if the table is live.
    ///
    /// >>> people.version, clicks.version
    /// (1, None)
    #[getter]
    fn version(&self) -> Option<u64> {
        match self.opened() {
            OpenedTable::Batch(version, _) => Some(version.version()),
            OpenedTable::Live(_) => None,
        }
    }

    /// The least and the greatest possible number of rows (two int), known at once.
    ///
    /// Both are the same if the version's count is known. `len(table)` counts.
    ///
    /// >>> people.rows_between
    /// (3, 3)
    #[getter]
    fn rows_between(&self, py: Python<'_>) -> PyResult<(u64, u64)> {
        match self.opened() {
            OpenedTable::Batch(version, _) => Ok(version.manifest().rows_between()),
            OpenedTable::Live(_) => {
                let (_, table) = self.live(py)?;
                let records = py.detach(|| table.stats().run_records);
                Ok((0, records))
            }
        }
    }

    /// The order of keys: `hashed`, or `ordered`, which supports ranges.
    ///
    /// >>> people.order, clicks.order
    /// ('ordered', 'hashed')
    #[getter]
    fn order(&self) -> String {
        format!("{:?}", self.opened().shape().order).to_lowercase()
    }

    /// The kind of values: `bytes`, `number` (int or float), `row` (dicts of columns) or `list`.
    ///
    /// >>> people.kind, clicks.kind
    /// ('row', 'number')
    #[getter]
    fn kind(&self) -> &'static str {
        self.opened().shape().kind_name()
    }

    /// The template over columns from which keys are made; `{key}` for a live table.
    ///
    /// >>> people.key_template
    /// '{id}'
    #[getter]
    fn key_template(&self) -> String {
        let opened = self.opened();
        let key = opened.shape().key.as_deref();
        key.unwrap_or("{key}").to_owned()
    }

    /// The columns of rows: a list of pairs, the name and the Arrow type, both str.
    ///
    /// It is empty if values are not rows. `schema` has them for pyarrow, with the key.
    ///
    /// >>> people.columns
    /// [('id', 'Utf8'), ('name', 'Utf8'), ('age', 'Int64')]
    #[getter]
    fn columns(&self) -> Vec<(String, String)> {
        let opened = self.opened();
        let schema = forebay_load::types::arrow_schema(&opened.shape().schema);
        let fields = schema.fields().iter();
        fields
            .map(|field| (field.name().clone(), field.data_type().to_string()))
            .collect()
    }

    /// The value of a key, or `default` if the key is absent.
    ///
    /// `key` is str, bytes or a whole number, which means its decimal digits; `default` is any
    /// object. The value is of the table's `kind`; `table[key]` is the same with a KeyError in
    /// place of `default`.
    ///
    /// Raises TypeError for a key of another class, `UsageError` for a value that Python's classes
    /// cannot represent (a timestamp with nanoseconds: `scan` reads it), and `DamagedError`.
    ///
    /// >>> people.get("c"), people.get("x", "nobody")
    /// ({'id': 'c', 'name': 'Cyd', 'age': 19}, 'nobody')
    #[pyo3(signature = (key, default=None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let key = key_of(key)?;
        let found = self.opened().value_of(py, &self.name, &key)?;
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
        self.opened().contains(py, &self.name, &key)
    }

    /// The values of many keys as a list, in their order; `default` for each that is absent.
    ///
    /// `keys` is a list or any other iterable, or a column of NumPy, pandas, pyarrow or polars;
    /// keys and values are those of `get`. Other threads run meanwhile.
    ///
    /// Raises what `get` raises, and TypeError for text or a data frame in place of keys.
    ///
    /// >>> people.get_many(["c", "x"])
    /// [{'id': 'c', 'name': 'Cyd', 'age': 19}, None]
    /// >>> clicks.get_many(pa.array(["page-7", "page-8"]), 0)
    /// [3, 0]
    #[pyo3(signature = (keys, default=None))]
    fn get_many<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyList>> {
        let wanted = keys_of(keys)?;
        let opened = self.opened();
        let values = opened.values_of(py, &self.name, &wanted)?;
        let default = default.unwrap_or_else(|| py.None().into_bound(py));
        py.detach(move || drop(wanted));
        let out = PyList::empty(py);
        for (at, value) in values.iter().enumerate() {
            match value {
                Some(value) => out.append(to_python(py, opened.shape(), value)?)?,
                None => out.append(&default)?,
            }
            give_turn(py, at)?;
        }
        // Freeing much memory takes milliseconds.
        py.detach(move || drop(values));
        Ok(out)
    }

    /// The values of many keys as a table of pyarrow: a row for each key, in their order.
    ///
    /// `keys` are those of `get_many`. `columns` is a list of names (list[str]) for the columns of
    /// the table, in that order; the default is all columns of a scan. A row is null if its key is
    /// absent; `to_pandas` of the table converts whole numbers among nulls to `Int64` and the like,
    /// not to floats. With `binary` (bool) a column of keys is bytes, not text. No Python object is
    /// made for a value, so this is the fastest way to read many.
    ///
    /// Raises `UsageError` for a column that does not exist and, without `binary`, for keys that
    /// are not UTF-8; TypeError for an object without keys.
    ///
    /// >>> people.get_many_arrow(["c", "x"], columns=["name", "age"]).to_pydict()
    /// {'name': ['Cyd', None], 'age': [19, None]}
    #[pyo3(signature = (keys, columns=None, *, binary=false))]
    fn get_many_arrow<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
        columns: Option<ColumnNames>,
        binary: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let wanted = keys_of(keys)?;
        let opened = self.opened();
        let values = opened.values_of(py, &self.name, &wanted)?;
        let names = columns.as_ref().map(|names| names.0.as_slice());
        let columns = opened.shape().table_columns(binary, names);
        let batches = py.detach(move || {
            let records = wanted.iter().zip(&values);
            let records = records.map(|(key, value)| (key.as_slice(), value.as_deref()));
            let batches = lookup_batches(&columns, records);
            drop((wanted, values));
            batches
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
        let table = reader.into_pyarrow(py)?.call_method0("read_all")?;
        let frames = py.import("forebay._frames")?;
        frames.getattr("for_pandas")?.call1((table,))
    }

    /// How many records there are now (int); `len(table)` is the same.
    ///
    /// For a version whose count is known, it returns at once; for other versions, and for live
    /// tables, it reads each record. Raises `DamagedError`.
    ///
    /// >>> people.count(), clicks.count()
    /// (3, 1)
    fn count(&self, py: Python<'_>) -> PyResult<u64> {
        match self.opened() {
            OpenedTable::Batch(version, _) => {
                let (least, most) = version.manifest().rows_between();
                if least == most && version.manifest().ttl.is_none() {
                    return Ok(most);
                }
            }
            OpenedTable::Live(_) => drop(self.live(py)?),
        }
        let all = self.scan(py, None, None, None, false, true, None)?;
        all.count(py)
    }

    /// The records from `start` to before `end` as a `Scan`: an Arrow stream, and an iterable.
    ///
    /// `start` and `end` are keys; None is the beginning and the end of the table. `limit` (int) is
    /// the most records. With `reverse` (bool) they are read from the last to the first; with
    /// `binary` (bool) keys are bytes, not text. `columns` (list[str]) names the columns of the
    /// stream, and of rows in loops. A live table is read as of the call of `scan`.
    ///
    /// Raises `UsageError` for `start` or `end` in a hashed table, which has no ranges, and for a
    /// column that does not exist; TypeError for an invalid key.
    ///
    /// >>> [key for key, row in people.scan("b")]
    /// ['b', 'c']
    /// >>> people.scan(limit=1, reverse=True, columns=["name"]).to_arrow().to_pylist()
    /// [{'name': 'Cyd'}]
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
        limit: Option<Limit>,
        reverse: bool,
        binary: bool,
        columns: Option<ColumnNames>,
    ) -> PyResult<RawScan> {
        let bound = |key: Option<&Bound<'_, PyAny>>| {
            key.map(|key| key_of(key).map(|key| key.into_owned()))
                .transpose()
        };
        let opened = self.opened();
        let walk = opened.walk(py, &self.name)?;
        let shape = Arc::clone(opened.shape());
        let range = Range {
            start: bound(start)?,
            end: bound(end)?,
            limit: limit.map_or(u64::MAX, |limit| limit.0),
            direction: if reverse {
                Direction::Backward
            } else {
                Direction::Forward
            },
            binary,
            columns: columns.map(|names| names.0),
        };
        RawScan::new(py, walk, shape, range)
    }

    /// Sets a key's value in a live table; returns once it is as durable as the table promises.
    ///
    /// `key` is str, bytes or a whole number. `value` is of the table's `kind`: str or bytes, a
    /// number, a dict of columns, or a list. `ttl` is how long the key lasts: seconds (int or
    /// float), a timedelta, or text such as "12h"; the default is the table's TTL. A table that was
    /// created with `ttl="never"` accepts none, and neither does one with deltas that was not
    /// created with `ttl="per-key"`.
    ///
    /// Raises `UsageError` for a batch table, and for a value or `ttl` that the table does not
    /// accept; TypeError for a key or value of a wrong class; `Error` if the table is closed.
    ///
    /// >>> sessions.put("s1", "Ada", ttl="12h")
    /// >>> sessions["s1"]
    /// b'Ada'
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

    /// Sets a key's value in a live table if the key is absent; otherwise leaves it as it is.
    ///
    /// `key`, `value`, `ttl` and the exceptions are those of `put`.
    ///
    /// >>> sessions.insert("s1", "Ada")
    /// >>> sessions.insert("s1", "Bob")
    /// >>> sessions["s1"]
    /// b'Ada'
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

    /// Adds to a key's value in a live table, by the kind of deltas that it was created with.
    ///
    /// `key` and `ttl`, which sets again how long the key lasts, are those of `put`; `delta` is a
    /// number, or bytes or str to append. An absent key gets it as its value.
    ///
    /// Raises what `put` raises, and `UsageError` for a table that was created without deltas.
    ///
    /// >>> clicks.delta("page-7", 4)
    /// >>> clicks["page-7"]
    /// 7
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

    /// Removes a key from a live table, whether it exists or not.
    ///
    /// `key` is str, bytes or a whole number. Raises `UsageError` for a batch table, TypeError for
    /// a key of another class, and `Error` if the table is closed.
    ///
    /// >>> clicks.delete("page-7")
    /// >>> "page-7" in clicks
    /// False
    fn delete(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<()> {
        self.write(py, Verb::Delete, key, None, None)
    }

    /// Does operations, each (verb, key, value) or (verb, key, value, ttl).
    ///
    /// All at once, or one by one with one wait for the device.
    #[pyo3(name = "_write_many")]
    fn write_many(&self, py: Python<'_>, writes: &Bound<'_, PyAny>, atomic: bool) -> PyResult<u64> {
        let (live, table) = self.live(py)?;
        let mut batch = Vec::new();
        for write in writes.try_iter()? {
            give_turn(py, batch.len())?;
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

    /// For how many seconds more a key lasts (float); None: until it is deleted.
    ///
    /// `key` is str, bytes or a whole number. Raises KeyError if the key is absent, and TypeError
    /// for a key of another class.
    ///
    /// >>> sessions.put("s1", "Ada", ttl=3600)
    /// >>> 3590 < sessions.ttl("s1") <= 3600
    /// True
    fn ttl(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<Option<f64>> {
        let bytes = key_of(key)?;
        match self.opened().expires_ms(py, &self.name, &bytes)? {
            Some(expires_ms) => Ok(seconds_left(expires_ms)),
            None => Err(PyKeyError::new_err(key.clone().unbind())),
        }
    }

    /// Writes all that a live table has in memory to runs, its files of sorted records.
    ///
    /// A table does it by itself as memory fills. Raises `UsageError` for a batch table, and
    /// `Error` if the table is closed.
    ///
    /// >>> clicks.flush()
    /// >>> clicks.rows_between
    /// (0, 1)
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        let (_, table) = self.live(py)?;
        py.detach(|| table.flush())
            .map_err(|error| of_error(py, error))
    }

    /// Flushes a live table, then merges the runs of each partition into one.
    ///
    /// Reads then have fewer runs to search. A table does it by itself as runs accumulate. Raises
    /// what `flush` raises.
    ///
    /// >>> clicks.optimize()
    fn optimize(&self, py: Python<'_>) -> PyResult<()> {
        let (_, table) = self.live(py)?;
        py.detach(|| table.compact())
            .map_err(|error| of_error(py, error))
    }

    /// Reads every run of a live table back; returns their number and their problems.
    #[pyo3(name = "_verify_live")]
    fn verify_live(&self, py: Python<'_>) -> PyResult<(usize, Vec<String>)> {
        let (_, table) = self.live(py)?;
        let verified = py.detach(|| table.verify(&mut |_| ()));
        let (runs, problems) = verified.map_err(|error| of_error(py, error))?;
        Ok((runs, problems.iter().map(ToString::to_string).collect()))
    }

    /// Returns the statistics of a live table.
    #[pyo3(name = "_live_stats")]
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

    /// Closes a live table, so that another process can open it.
    ///
    /// It waits for writes in progress. Every later call for the table is an `Error`, until it is
    /// taken from its store again. The end of a `with` block closes it, too. For a batch table it
    /// does nothing.
    ///
    /// >>> clicks.close()
    /// >>> opened["clicks"]["page-7"]
    /// 3
    fn close(&self, py: Python<'_>) {
        if let OpenedTable::Live(live) = self.opened() {
            py.detach(|| live.close());
        }
    }
}
