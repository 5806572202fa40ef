//! A store with its open live tables.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forebay_engine::TableName;
use forebay_engine::live::{Budget, CheckpointCopy};

use super::batch_table::BatchTable;
use super::error::Error;
use super::live_options::LiveOptions;
use super::live_table::LiveTable;
use super::load::LoadBuilder;
use super::open_table::OpenTable;
use super::push::PushBuilder;

/// A store in a directory. Clones are handles to the same store, for any number of threads. Several
/// processes may use a store at a time; each live table is open in one of them.
#[derive(Debug, Clone)]
pub struct Store {
    store: forebay_engine::Store,
    budget: Arc<Budget>,
    /// Open live tables, until they are closed. A second open returns the same table.
    live: Arc<Mutex<HashMap<TableName, LiveTable>>>,
}

impl Store {
    pub(super) fn new(store: forebay_engine::Store, budget: Arc<Budget>) -> Self {
        let live = Arc::default();
        Self {
            store,
            budget,
            live,
        }
    }

    /// Returns the store's directory.
    pub fn path(&self) -> &Path {
        self.store.root()
    }

    /// Returns the names of the batch tables, sorted.
    pub fn batch_tables(&self) -> Result<Vec<String>, Error> {
        Ok(self
            .store
            .tables()?
            .iter()
            .map(ToString::to_string)
            .collect())
    }

    /// Returns the names of the live tables, sorted.
    pub fn live_tables(&self) -> Result<Vec<String>, Error> {
        let names = self.store.live_tables()?;
        Ok(names.iter().map(ToString::to_string).collect())
    }

    /// Opens a batch table at its serving version.
    pub fn batch(&self, table: &str) -> Result<BatchTable, Error> {
        BatchTable::open(self.store.table(&TableName::new(table)?)?, None)
    }

    /// Opens a batch table at a version by its number.
    pub fn batch_at(&self, table: &str, version: u64) -> Result<BatchTable, Error> {
        BatchTable::open(self.store.table(&TableName::new(table)?)?, Some(version))
    }

    /// Returns a live table, and opens it if it is not open in this store yet. The error is
    /// [`ErrorKind::InUse`](crate::ErrorKind::InUse) if another process has it open, or another
    /// [`Store`] that is not a clone of this one.
    pub fn live(&self, table: &str) -> Result<LiveTable, Error> {
        let name = TableName::new(table)?;
        let mut open = self.open_tables();
        if let Some(table) = open.get(&name) {
            return Ok(table.clone());
        }
        let table = self.store.live_table(&name, &self.budget)?;
        self.keep(&mut open, name, table)
    }

    /// Creates a live table and opens it.
    pub fn create_live(&self, table: &str, options: LiveOptions) -> Result<LiveTable, Error> {
        let mut open = self.open_tables();
        self.create(&mut open, TableName::new(table)?, options)
    }

    /// Opens a live table, and creates it if there is none of that name. Fails if the table has
    /// another order, other values or other deltas. Its other options stay as they were created.
    pub fn live_or_create(&self, table: &str, options: LiveOptions) -> Result<LiveTable, Error> {
        let name = TableName::new(table)?;
        let mut open = self.open_tables();
        if !open.contains_key(&name) && !self.store.is_live(&name)? {
            return self.create(&mut open, name, options);
        }
        drop(open);
        let there = self.live(table)?;
        options.check(there.engine())?;
        Ok(there)
    }

    fn create(
        &self,
        open: &mut HashMap<TableName, LiveTable>,
        name: TableName,
        options: LiveOptions,
    ) -> Result<LiveTable, Error> {
        let draft = options.into_draft();
        let table = self.store.create_live(&name, draft, &self.budget)?;
        self.keep(open, name, table)
    }

    fn keep(
        &self,
        open: &mut HashMap<TableName, LiveTable>,
        name: TableName,
        table: forebay_engine::live::LiveTable,
    ) -> Result<LiveTable, Error> {
        let table = LiveTable::new(OpenTable::start(table, self.store.clock())?);
        open.insert(name, table.clone());
        Ok(table)
    }

    /// Closes a live table, so that other processes can open it: now, or when the program drops its
    /// last handle. All live tables are closed with the last handle of the store.
    pub fn close_live(&self, table: &str) -> Result<(), Error> {
        let closed = self.open_tables().remove(&TableName::new(table)?);
        drop(closed);
        Ok(())
    }

    /// Removes a table with all its data. Refused while a push to a batch table is running. For a
    /// live table, refused while this program has a handle of it or another program has it open.
    pub fn drop_table(&self, table: &str) -> Result<(), Error> {
        self.close_live(table)?;
        Ok(self.store.drop_table(&TableName::new(table)?)?)
    }

    /// Copies a live table as it is now into the store at `dir`, which is created if it does not
    /// exist. This program or a server may write to the table meanwhile. On one file system its
    /// runs are linked and take no space at first.
    pub fn checkpoint(&self, table: &str, dir: impl AsRef<Path>) -> Result<CheckpointCopy, Error> {
        let name = TableName::new(table)?;
        let checkpoint = self.store.checkpoint(&name, &self.budget)?;
        Ok(checkpoint.copy_to(dir.as_ref(), &mut |_| ())?)
    }

    /// Begins a push to a batch table, which need not exist.
    pub fn push(&self, table: &str) -> PushBuilder {
        PushBuilder::new(self.store.clone(), table)
    }

    /// Begins a load of many rows into a live table, at one moment.
    pub fn load(&self, table: &str) -> LoadBuilder {
        LoadBuilder::new(self.store.clone(), table)
    }

    fn open_tables(&self) -> MutexGuard<'_, HashMap<TableName, LiveTable>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
