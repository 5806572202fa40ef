//! Damage that was met in the runs of a table.
//!
//! A run never changes: one page of it that is not what was written stays so, and whoever needs it
//! fails. It is noted by the run, and told of the partitions that have the run now.

use std::collections::BTreeMap;
use std::io;

use forebay_run::RunError;
use forebay_run::verify::read_back;
use parking_lot::Mutex;

use crate::layout::run_of;
use crate::live::LiveTable;
use crate::live::error::LiveError;
use crate::live::manifest::{LiveManifest, LivePartition};
use crate::live::shared::LiveShared;
use crate::name::RunId;
use crate::partition::PartitionId;

/// Runs that somebody could not read, and why.
#[derive(Debug, Default)]
pub(crate) struct MetDamage(Mutex<BTreeMap<RunId, String>>);

impl MetDamage {
    #[cold]
    pub fn note(&self, error: &RunError) {
        if (error.is_damage() || is_gone(error))
            && let Some(run) = error.path().and_then(run_of)
        {
            self.0
                .lock()
                .entry(run)
                .or_insert_with(|| error.to_string());
        }
    }
}

/// Somebody removed the file, which is open still.
fn is_gone(error: &RunError) -> bool {
    matches!(error, RunError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
}

impl LiveTable {
    /// The partitions with damage in their runs that a read, a merge, a flush or a check has met
    /// since the table was opened, each once, and what was met. One that a copy took the place of
    /// is none of them any more.
    pub fn damaged(&self) -> Vec<(PartitionId, String)> {
        let shared = self.shared();
        let is_sound = shared.shape.damage.0.lock().is_empty();
        match is_sound {
            true => Vec::new(),
            false => shared.damaged_of(&shared.structure.lock()),
        }
    }

    /// Reads a finished run that is among the table's files back from the device, all of it.
    pub fn check_run(&self, id: &RunId) -> Result<(), LiveError> {
        self.shared().check_run(id)
    }
}

impl LiveShared {
    /// See [`LiveTable::damaged`].
    pub fn damaged_of(&self, manifest: &LiveManifest) -> Vec<(PartitionId, String)> {
        let met = self.shape.damage.0.lock().clone();
        let problem = |partition: &LivePartition| {
            let mut runs = partition.runs.iter();
            let problem = runs.find_map(|run| met.get(&run.id))?;
            Some((partition.id, problem.clone()))
        };
        manifest.partitions.iter().filter_map(problem).collect()
    }

    fn check_run(&self, id: &RunId) -> Result<(), LiveError> {
        let path = self.files.run(id);
        let read = read_back(&**self.disk(), &path, self.shape.order, &mut |_| ());
        match read {
            Ok(_) => Ok(()),
            Err(source) => Err(self.shape.run_error(source)),
        }
    }
}
