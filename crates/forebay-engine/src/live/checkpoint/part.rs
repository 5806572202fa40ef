//! Some partitions of an open live table at one moment, whose files stay while others copy them.
//!
//! A node of a cluster shares the partitions that it leads in this way. The whole table is
//! assembled from the parts of all leaders ([`TableCheckpoint`](super::TableCheckpoint)).

use std::io;
use std::sync::Arc;

use forebay_io::ReadFile;

use crate::documents::layout::run_of;
use crate::documents::seal::DocumentError;
use crate::keys::partition::PartitionId;
use crate::live::LiveTable;
use crate::live::basics::error::LiveError;
use crate::live::basics::manifest::LiveManifest;
use crate::live::partition::shared::LiveShared;
use crate::name::RunId;

/// Partitions at one moment. Merges keep their files until this is dropped; nothing is linked or
/// written for it. The table stays open as long.
#[derive(Debug)]
pub struct PartCheckpoint {
    table: LiveTable,
    manifest: LiveManifest,
}

impl LiveTable {
    /// Returns these partitions as they are now, or a little later: memory is written to runs
    /// first. Each partition is of one moment. All are of one moment if nothing is written to them
    /// meanwhile.
    pub fn checkpoint_of(&self, ids: &[PartitionId]) -> Result<PartCheckpoint, LiveError> {
        let manifest = self.shared().checkpoint_of(ids)?;
        let table = self.unbound();
        Ok(PartCheckpoint { table, manifest })
    }
}

impl PartCheckpoint {
    /// Returns the encoded manifest, for [`TableCheckpoint::join`](super::TableCheckpoint::join).
    pub fn to_bytes(&self) -> Result<Vec<u8>, DocumentError> {
        self.manifest.to_bytes()
    }

    /// Returns the partitions, each with its epoch.
    pub fn partitions(&self) -> impl Iterator<Item = (PartitionId, u64)> {
        let partitions = self.manifest.partitions.iter();
        partitions.map(|partition| (partition.id, partition.epoch))
    }

    /// Opens a file of one of its runs, by its name. Any other file is `NotFound`.
    pub fn open(&self, file: &str) -> io::Result<Arc<dyn ReadFile>> {
        let path = self.table.shared().files.runs().join(file);
        let id = run_of(&path).filter(|id| self.manifest.names(id));
        id.ok_or(io::ErrorKind::NotFound)?;
        self.table.shared().disk().open(&path)
    }

    fn runs(&self) -> impl Iterator<Item = &RunId> {
        self.manifest.runs().map(|run| &run.id)
    }
}

impl Drop for PartCheckpoint {
    fn drop(&mut self) {
        self.table.shared().let_go(self.runs());
    }
}

impl LiveShared {
    fn checkpoint_of(&self, ids: &[PartitionId]) -> Result<LiveManifest, LiveError> {
        let place = |id: &PartitionId| self.parts.find(*id).ok_or_else(|| self.no_partition(*id));
        let places: Vec<usize> = ids.iter().map(place).collect::<Result<_, _>>()?;
        self.flush_of(&places)?;
        // Only a thread that has replaced a manifest removes runs that the old one named.
        let structure = self.structure.lock();
        let mut manifest = structure.without_log();
        manifest.gone.clear();
        manifest.partitions.retain(|part| ids.contains(&part.id));
        if let Some(gone) = ids.iter().find(|id| !manifest.has(**id)) {
            return Err(self.no_partition(*gone));
        }
        self.hold_runs(manifest.runs().map(|run| &run.id));
        Ok(manifest)
    }
}
