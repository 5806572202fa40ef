//! A staged load whose runs others write: which of these it consists of, its document alone says.
//! When the load is dropped, all that it wrote and they wrote goes.

use serde::{Deserialize, Serialize};

use super::Load;
use super::offer::staged;
use crate::error::{At, StoreError};
use crate::layout::TableFiles;
use crate::name::{RunId, TableName};
use crate::push::NewRun;
use crate::store::Store;

/// A staged load that others write runs for, as they know it. Its text may come from anywhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadTicket {
    pub table: TableName,
    /// The load's id.
    pub load: RunId,
    pub created_unix_ms: u64,
    /// Random.
    pub stamp: u64,
}

impl LoadTicket {
    /// An id and a path for a run of the partition of that index, for whoever writes it for the
    /// load. Each call gives another one. A run that the load's document does not name is removed
    /// with the end of the load, or by the next load of the table.
    pub fn new_run(&self, store: &Store, partition: usize) -> NewRun {
        let chance = store.random().next_u64();
        let id = RunId::plain(format!("{}{chance:016x}", self.run_prefix(partition)));
        let path = TableFiles::new(store.root(), &self.table).run(&staged(&id));
        NewRun { id, path }
    }

    /// Whether a run was written for this load and this partition, by its id.
    pub fn is_of(&self, id: &RunId, partition: usize) -> bool {
        let digits = id.as_str().strip_prefix(&*self.run_prefix(partition));
        digits.is_some_and(|digits| digits.len() == 16)
    }

    /// Makes what was written for the load durable, as far as the directory is concerned; of a
    /// store in object storage, waits until it is there.
    pub fn sync(&self, store: &Store) -> Result<(), StoreError> {
        let runs = TableFiles::new(store.root(), &self.table).runs();
        store.disk().sync_dir(&runs).at("sync", &runs)
    }

    fn run_prefix(&self, partition: usize) -> String {
        // Short enough with what follows, and with the prefix of staged runs.
        let partition = partition % 100_000;
        format!("{partition:05}-{:016x}-", self.stamp)
    }
}

impl Load {
    /// What others need to write runs for this load.
    pub fn share(&mut self) -> LoadTicket {
        self.is_shared = true;
        LoadTicket {
            table: self.table.clone(),
            load: self.id.clone(),
            created_unix_ms: self.store.clock().unix_ms(),
            stamp: self.store.random().next_u64(),
        }
    }

    /// Fails where another load has begun meanwhile, because this one was held up: what others
    /// wrote for it is gone then.
    pub fn confirm(&self) -> Result<(), StoreError> {
        self.lock.confirm().at("hold", &self.files.push_lock())
    }
}
