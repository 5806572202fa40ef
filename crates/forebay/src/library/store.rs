//! A store, and the live tables that are open in it.

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

/// A store in a directory. Clones are handles to the same store, for any number of threads.
/// Several processes may use a store at a time; a live table is open in one of them.
#[derive(Debug, Clone)]
pub struct Store {
    store: forebay_engine::Store,
    budget: Arc<Budget>,
    /// Open until they are closed: whoever asks again gets the same.
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

    /// The store's directory.
    pub fn path(&self) -> &Path {
        self.store.root()
    }

    /// The names of the batch tables, sorted.
    pub fn batch_tables(&self) -> Result<Vec<String>, Error> {
        Ok(self
            .store
            .tables()?
            .iter()
            .map(ToString::to_string)
            .collect())
    }

    /// The names of the live tables, sorted.
    pub fn live_tables(&self) -> Result<Vec<String>, Error> {
        let names = self.store.live_tables()?;
        Ok(names.iter().map(ToString::to_string).collect())
    }

    /// A batch table, at the version that serves.
    pub fn batch(&self, table: &str) -> Result<BatchTable, Error> {
        BatchTable::open(self.store.table(&TableName::new(table)?)?, None)
    }

    /// A batch table, at a version by its number.
    pub fn batch_at(&self, table: &str, version: u64) -> Result<BatchTable, Error> {
        BatchTable::open(self.store.table(&TableName::new(table)?)?, Some(version))
    }

    /// A live table, opened if it is not open in this store yet.
    /// [`ErrorKind::InUse`](crate::ErrorKind::InUse) where another process has it open, or another
    /// [`Store`] that is no clone of this one.
    pub fn live(&self, table: &str) -> Result<LiveTable, Error> {
        let name = TableName::new(table)?;
        let mut open = self.open_tables();
        if let Some(table) = open.get(&name) {
            return Ok(table.clone());
        }
        let table = self.store.live_table(&name, &self.budget)?;
        self.keep(&mut open, name, table)
    }

    /// Makes a live table and opens it.
    pub fn create_live(&self, table: &str, options: LiveOptions) -> Result<LiveTable, Error> {
        let mut open = self.open_tables();
        self.create(&mut open, TableName::new(table)?, options)
    }

    /// A live table, made if there is none of that name. Fails where there is one of another
    /// order, with other values or other deltas; all else stays as it was made.
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

    /// Closes a live table, so that other processes can open it: now, or with the last handle of
    /// it that the program still has. All live tables are closed with the last handle of the
    /// store.
    pub fn close_live(&self, table: &str) -> Result<(), Error> {
        let closed = self.open_tables().remove(&TableName::new(table)?);
        drop(closed);
        Ok(())
    }

    /// Removes a table with all that it has: refused while a push to a batch table is under way,
    /// and while a handle of a live table is left in this program or another one has it open.
    pub fn drop_table(&self, table: &str) -> Result<(), Error> {
        self.close_live(table)?;
        Ok(self.store.drop_table(&TableName::new(table)?)?)
    }

    /// Copies a live table as it is now into the store at `dir`, which is made if there is none,
    /// while it is written to, here or by a server. On one file system its runs are linked and
    /// take no room at first.
    pub fn checkpoint(&self, table: &str, dir: impl AsRef<Path>) -> Result<CheckpointCopy, Error> {
        let name = TableName::new(table)?;
        let checkpoint = self.store.checkpoint(&name, &self.budget)?;
        Ok(checkpoint.copy_to(dir.as_ref(), &mut |_| ())?)
    }

    /// A push to a batch table, which need not exist.
    pub fn push(&self, table: &str) -> PushBuilder {
        PushBuilder::new(self.store.clone(), table)
    }

    /// A load: many rows into a live table, at one moment.
    pub fn load(&self, table: &str) -> LoadBuilder {
        LoadBuilder::new(self.store.clone(), table)
    }

    fn open_tables(&self) -> MutexGuard<'_, HashMap<TableName, LiveTable>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
