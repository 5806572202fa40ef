//! A staged load whose runs other processes write. Only its document says which runs it has.
//!
//! When the load is dropped, all runs that were written for it are removed.

use serde::{Deserialize, Serialize};

use super::Load;
use super::offer::staged;
use crate::documents::layout::TableFiles;
use crate::error::{At, StoreError};
use crate::name::{RunId, TableName};
use crate::publishing::push::NewRun;
use crate::tables::store::Store;

/// A ticket to write runs for a staged load of another process. Its text may come from anywhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadTicket {
    pub table: TableName,
    /// The load's id.
    pub load: RunId,
    pub created_unix_ms: u64,
    /// A random number.
    pub stamp: u64,
}

impl LoadTicket {
    /// Returns an id and a path for a run of the partition of that index, for a process that writes
    /// it for the load. Each call returns another one. A run that the load's document does not name
    /// is removed at the end of the load, or by the next load of the table.
    pub fn new_run(&self, store: &Store, partition: usize) -> NewRun {
        let chance = store.random().next_u64();
        let id = RunId::plain(format!("{}{chance:016x}", self.run_prefix(partition)));
        let path = TableFiles::new(store.root(), &self.table).run(&staged(&id));
        NewRun { id, path }
    }

    /// Returns whether a run was written for this load and this partition, by its id.
    pub fn is_of(&self, id: &RunId, partition: usize) -> bool {
        let digits = id.as_str().strip_prefix(&*self.run_prefix(partition));
        digits.is_some_and(|digits| digits.len() == 16)
    }

    /// Makes the directory entries of the load's runs durable. For a store in object storage, waits
    /// until the upload is complete.
    pub fn sync(&self, store: &Store) -> Result<(), StoreError> {
        let runs = TableFiles::new(store.root(), &self.table).runs();
        store.disk().sync_dir(&runs).at("sync", &runs)
    }

    fn run_prefix(&self, partition: usize) -> String {
        // Short enough for the suffix, and for the prefix of staged runs.
        let partition = partition % 100_000;
        format!("{partition:05}-{:016x}-", self.stamp)
    }
}

impl Load {
    /// Returns the ticket that other processes need to write runs for this load.
    pub fn share(&mut self) -> LoadTicket {
        self.is_shared = true;
        LoadTicket {
            table: self.table.clone(),
            load: self.id.clone(),
            created_unix_ms: self.store.clock().unix_ms(),
            stamp: self.store.random().next_u64(),
        }
    }

    /// Fails if another load has begun because this one was delayed. The runs that others wrote for
    /// it are gone then.
    pub fn check_lock_held(&self) -> Result<(), StoreError> {
        self.lock.check_held().at("hold", &self.files.push_lock())
    }
}
