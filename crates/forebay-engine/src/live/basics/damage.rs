//! The damage that was found in the runs of a table.
//!
//! A run never changes: a corrupt page stays corrupt, and every read of it fails. The damage is
//! recorded for the run, and reported for the partitions that have the run now.

use std::collections::BTreeMap;
use std::io;

use forebay_run::RunError;
use parking_lot::Mutex;

use crate::documents::layout::run_of;
use crate::name::RunId;

/// The runs that could not be read, and why.
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

/// Returns whether the file, which is still open, was removed.
fn is_gone(error: &RunError) -> bool {
    matches!(error, RunError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
}
