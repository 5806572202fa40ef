//! Opens tables for reading: those of a store, and copies of those of a cluster.

use std::sync::Arc;

use anyhow::bail;
use forebay_engine::live::{Checkpoint, LiveError, LiveTable};
use forebay_engine::{Source, StoreError, TableName, Version};

use crate::backing::cluster_checkpoint;
use crate::backing::scratch::ScratchDir;
use crate::context::Context;
use crate::target::Target;

/// A table that was opened for reading.
#[derive(Debug)]
pub enum OpenedTable {
    Batch(Arc<Version>),
    Live(LiveReading),
}

/// A live table that was opened for reading.
#[derive(Debug)]
pub struct LiveReading {
    pub table: LiveTable,
    _held: LiveHeld,
}

/// The source of a table that other processes have open.
#[derive(Debug)]
enum LiveHeld {
    Nothing,
    /// A checkpoint: another process of this machine has the table open.
    Checkpoint {
        _checkpoint: Checkpoint,
    },
    /// A copy: the nodes of a cluster have the table.
    Copy {
        _scratch: ScratchDir,
    },
}

impl OpenedTable {
    pub fn source(&self) -> Source<'_> {
        match self {
            OpenedTable::Batch(version) => Source::Batch(version),
            OpenedTable::Live(reading) => Source::Live(&reading.table),
        }
    }
}

impl Context {
    /// Opens the table of a target, of either kind, for reading. A live table of a cluster is
    /// copied from its nodes.
    pub fn open_target(&self, target: &Target) -> anyhow::Result<OpenedTable> {
        self.open_target_for(target, None)
    }

    /// As `open_target`, for reading only these keys. Of a live table of a cluster only the
    /// partitions of the keys are copied.
    pub fn open_target_for(
        &self,
        target: &Target,
        keys: Option<&[Vec<u8>]>,
    ) -> anyhow::Result<OpenedTable> {
        let store = self.open_store()?;
        let is_in_cluster = self.is_live_in_cluster(&target.table)?;
        if !is_in_cluster && !store.is_live(&target.table)? {
            return self.open_version(target).map(OpenedTable::Batch);
        }
        if let Some(version) = target.version {
            bail!(
                "table {} is live and has no versions, so no version {version}",
                target.table
            );
        }
        match is_in_cluster {
            true => self
                .read_of_cluster(&target.table, keys)
                .map(OpenedTable::Live),
            false => self.read_live(&target.table).map(OpenedTable::Live),
        }
    }

    fn read_of_cluster(
        &self,
        name: &TableName,
        keys: Option<&[Vec<u8>]>,
    ) -> anyhow::Result<LiveReading> {
        let (store, scratch) = cluster_checkpoint::fetch(name, keys, self)?;
        let table = store.live_table(name, &self.live_budget())?;
        let _held = LiveHeld::Copy { _scratch: scratch };
        Ok(LiveReading { table, _held })
    }

    /// Opens a live table for reading: directly, or a checkpoint as of now if a server has it open.
    pub fn read_live(&self, name: &TableName) -> anyhow::Result<LiveReading> {
        if self.is_live_in_cluster(name)? {
            return self.read_of_cluster(name, None);
        }
        let (store, budget) = (self.open_store()?, self.live_budget());
        match store.live_table(name, &budget) {
            Err(LiveError::Store(StoreError::InUse { .. })) => {
                let checkpoint = store.checkpoint(name, &budget)?;
                let table = checkpoint.store().live_table(name, &budget)?;
                let _held = LiveHeld::Checkpoint {
                    _checkpoint: checkpoint,
                };
                Ok(LiveReading { table, _held })
            }
            opened => Ok(LiveReading {
                table: opened?,
                _held: LiveHeld::Nothing,
            }),
        }
    }
}
