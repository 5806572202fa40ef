//! A store with its open live tables.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use forebay::command_line::{Context, RowTaker, Target};
use forebay_engine::live::{Budget, LiveTable};
use forebay_engine::{Store, StoreError, TableName, Version};
use parking_lot::Mutex;
use pyo3::prelude::*;

use crate::errors::{exception, of_anyhow, of_error, usage};
use crate::forks::{OpenedIn, of_parent};
use crate::shape::Shape;

/// The native part of `forebay.Store`, which users of the package do not see.
// Live tables are opened once, and shared by all callers.
#[pyclass(frozen, subclass, module = "forebay._forebay")]
pub struct RawStore {
    /// The store's directory or URL (str), as it was opened.
    ///
    /// >>> opened.url == store
    /// True
    #[pyo3(get)]
    url: String,
    store: Store,
    /// How many bytes its live tables may use for what is not written yet (int).
    ///
    /// None: a quarter of the machine's memory.
    ///
    /// >>> opened.memory_bytes is None
    /// True
    #[pyo3(get)]
    memory_bytes: Option<usize>,
    budget: Arc<Budget>,
    live: Mutex<HashMap<TableName, Arc<Live>>>,
    is_closed: AtomicBool,
    opened_in: OpenedIn,
}

/// A live table, until it is closed.
pub struct Live {
    pub shape: Arc<Shape>,
    pub opened_in: OpenedIn,
    table: Mutex<Option<LiveTable>>,
    taker: RowTaker,
}

/// The kind of a table that was found.
pub enum FoundTable {
    Batch(Arc<Version>),
    Live(Arc<Live>),
}

impl Live {
    /// Returns the table; `None` once it is closed.
    pub fn table(&self) -> Option<LiveTable> {
        self.table.lock().clone()
    }

    /// Handles the requests of other processes to the table.
    fn take_asks(&self) {
        // A process whose request is not answered learns so from its own timeout.
        _ = self.table().map(|table| table.take_all());
    }

    /// Waits for the work of its threads; the last handle closes the table.
    pub fn close(&self) {
        if self.opened_in.is_parent() {
            return;
        }
        self.taker.stop();
        let table = self.table.lock().take();
        drop(table);
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        if self.opened_in.is_parent() {
            std::mem::forget(self.table.get_mut().take());
            std::mem::forget(std::mem::take(&mut self.taker));
        }
    }
}

impl Drop for RawStore {
    fn drop(&mut self) {
        if self.opened_in.is_parent() {
            std::mem::forget(Arc::clone(&self.budget));
        }
    }
}

impl RawStore {
    fn check_open(&self, py: Python<'_>) -> PyResult<()> {
        match self.is_closed.load(Ordering::Relaxed) {
            false => Ok(()),
            true => {
                let message = format!("the store {} is closed: open it again", self.url);
                Err(exception(py, "Error", message))
            }
        }
    }

    /// Returns the table that a target (`table` or `table@version`) names.
    pub fn find(&self, py: Python<'_>, target: &str) -> PyResult<FoundTable> {
        self.check_open(py)?;
        let target: Target = target.parse().map_err(|error: String| usage(py, error))?;
        if self.opened_in.is_parent() && self.is_live(py, target.table.as_str())? {
            return Err(of_parent(py, target.table.as_str()));
        }
        py.detach(|| self.find_target(&target))
            .map_err(|error| of_anyhow(py, &error))
    }

    fn find_target(&self, target: &Target) -> anyhow::Result<FoundTable> {
        let name = &target.table;
        if target.version.is_none() && self.store.is_live(name)? {
            return Ok(FoundTable::Live(self.open_live(name)?));
        }
        let table = self.store.table(name)?;
        // In object storage the pointer may be a second old, and the caller may have swapped just
        // now.
        table.look_again();
        let version = match target.version {
            Some(version) => version,
            None => table.serving()?,
        };
        Ok(FoundTable::Batch(table.open_version(version)?))
    }

    fn open_live(&self, name: &TableName) -> anyhow::Result<Arc<Live>> {
        let mut open = self.live.lock();
        if let Some(live) = open.get(name)
            && live.table().is_some()
        {
            return Ok(Arc::clone(live));
        }
        let table = self.store.live_table(name, &self.budget)?;
        let live = Arc::new(Live {
            shape: Arc::new(Shape::of(forebay_engine::Source::Live(&table))),
            opened_in: OpenedIn::this_process(),
            table: Mutex::new(Some(table)),
            taker: RowTaker::default(),
        });
        // The thread keeps no table open: it ends with the last other handle.
        let taken = Arc::downgrade(&live);
        let started = live
            .taker
            .start(move || taken.upgrade().map(|live| live.take_asks()).is_some());
        started.context("cannot start a thread that takes loads")?;
        open.insert(name.clone(), Arc::clone(&live));
        Ok(live)
    }
}

#[pymethods]
impl RawStore {
    #[new]
    #[pyo3(signature = (url, create=false, memory_bytes=None))]
    fn new(py: Python<'_>, url: &str, create: bool, memory_bytes: Option<usize>) -> PyResult<Self> {
        let context = Context::of_store(url);
        let store = py.detach(|| match create {
            true => context.open_or_create_store(),
            false => context.open_store(),
        });
        let store = store.map_err(|error| of_anyhow(py, &error))?;
        Ok(Self {
            url: url.to_owned(),
            store,
            memory_bytes,
            is_closed: AtomicBool::new(false),
            opened_in: OpenedIn::this_process(),
            budget: memory_bytes.map_or_else(|| context.live_budget(), Budget::new),
            live: Mutex::default(),
        })
    }

    /// Whether a table is live.
    ///
    /// `name` is the table's (str). Raises `MissingError` if there is no such table, and
    /// `UsageError` if the name is invalid.
    ///
    /// >>> opened.is_live("people")
    /// False
    fn is_live(&self, py: Python<'_>, name: &str) -> PyResult<bool> {
        let name: TableName = name
            .parse()
            .map_err(|error| of_error(py, StoreError::Name(error)))?;
        py.detach(|| self.store.is_live(&name))
            .map_err(|error| of_error(py, error))
    }

    /// Closes the live table of that name, if this store has it open.
    #[pyo3(name = "_close_table")]
    fn close_table(&self, py: Python<'_>, name: &str) {
        if self.opened_in.is_parent() {
            return;
        }
        let live = self.live.lock().remove(name);
        py.detach(|| live.map(|live| live.close()));
    }

    /// Closes the live tables that are open in it, and the store for further calls.
    ///
    /// Batch tables that were taken from it before can still be read. A later call is an `Error`.
    /// The end of a `with` block closes it, too.
    ///
    /// >>> opened.close()
    /// >>> opened.tables()
    /// Traceback (most recent call last):
    ///     ...
    /// forebay.Error: the store ... is closed: open it again
    fn close(&self, py: Python<'_>) {
        self.is_closed.store(true, Ordering::Relaxed);
        if self.opened_in.is_parent() {
            return;
        }
        let live = std::mem::take(&mut *self.live.lock());
        py.detach(|| live.values().for_each(|live| live.close()));
    }
}

/// Returns the store's directory or URL, or an error once it is closed.
#[pyfunction]
pub fn open_url(py: Python<'_>, store: &RawStore) -> PyResult<String> {
    store.check_open(py).map(|()| store.url.clone())
}
