//! The set of tables that commands see.

use std::sync::{Arc, LazyLock};

use arc_swap::Guard;
use forebay_engine::live::LiveTable;
use forebay_engine::{Source, Tables, Version};

use crate::live::LiveMap;

/// One consistent set of serving versions, and the live tables.
#[derive(Debug)]
pub struct TableView {
    pub batch: Guard<Arc<Tables>>,
    pub live: Guard<Arc<LiveMap>>,
    /// Whether replicated live tables must be accessed through their replicas.
    pub in_cluster: bool,
}

impl TableView {
    /// Returns the same set for long use.
    pub fn keep(&self) -> Self {
        Self {
            batch: Guard::from_inner(Arc::clone(&self.batch)),
            live: Guard::from_inner(Arc::clone(&self.live)),
            in_cluster: self.in_cluster,
        }
    }

    /// Returns the same set with other serving versions for their tables.
    pub fn with(&self, versions: &[Arc<Version>]) -> Self {
        Self {
            batch: Guard::from_inner(Arc::new(self.batch.with(versions))),
            live: Guard::from_inner(Arc::clone(&self.live)),
            in_cluster: self.in_cluster,
        }
    }

    #[inline]
    pub fn get(&self, table: &[u8]) -> Option<Source<'_>> {
        match self.batch.get(table) {
            Some(version) => Some(Source::Batch(version)),
            None => self.live(table).map(Source::Live),
        }
    }

    /// Returns whether a live table is read and written only through its replicas.
    #[inline]
    pub fn is_replica(&self, table: &LiveTable) -> bool {
        self.in_cluster && table.options().replication.is_some()
    }

    /// Returns whether any live table may be.
    #[inline]
    pub fn has_replicas(&self) -> bool {
        self.in_cluster && !self.live.is_empty()
    }

    /// Returns a set of one live table, as if it were not replicated: an evaluation's.
    pub fn of_one(table: &LiveTable) -> Self {
        static NO_TABLES: LazyLock<Arc<Tables>> = LazyLock::new(Arc::default);
        let mut live = LiveMap::new();
        live.insert(table.name().clone(), table.clone());
        Self {
            batch: Guard::from_inner(Arc::clone(&NO_TABLES)),
            live: Guard::from_inner(Arc::new(live)),
            in_cluster: false,
        }
    }

    #[inline]
    pub fn live(&self, table: &[u8]) -> Option<&LiveTable> {
        if self.live.is_empty() {
            return None;
        }
        self.live.get(std::str::from_utf8(table).ok()?)
    }

    pub fn iter(&self) -> impl Iterator<Item = Source<'_>> {
        let batch = self.batch.iter().map(|(_, version)| Source::Batch(version));
        batch.chain(self.live.values().map(Source::Live))
    }
}
