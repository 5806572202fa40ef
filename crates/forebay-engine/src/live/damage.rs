//! Damage that was met in the runs of a table.
//!
//! A run never changes: one page of it that is not what was written stays so, and whoever needs it
//! fails. It is noted by the run, and told of the partitions that have the run now.

use std::collections::BTreeMap;
use std::io;

use forebay_run::RunError;
use parking_lot::Mutex;

use crate::layout::run_of;
use crate::name::RunId;

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

    pub fn all(&self) -> BTreeMap<RunId, String> {
        self.0.lock().clone()
    }
}

/// Somebody removed the file, which is open still.
fn is_gone(error: &RunError) -> bool {
    matches!(error, RunError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
}
