//! Checks that an open run is the one that a manifest describes.

use forebay_run::hash::KeyHasher;
use forebay_run::{Order, Run, RunSummary};

/// A manifest's description of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RunDescription<'a> {
    pub summary: &'a RunSummary,
    pub order: Order,
    /// The hasher of the table's keys.
    pub hasher: &'a KeyHasher,
}

impl RunDescription<'_> {
    /// Returns the difference if the run is not the one described.
    pub fn differs(self, run: &Run) -> Option<String> {
        if run.order() != self.order {
            return Some("it is sorted in the other order".to_owned());
        }
        if run.summary() != self.summary {
            let (found, wanted) = (run.summary(), self.summary);
            return Some(format!(
                "it is another run: it holds {} records in {} bytes, the manifest says {} in {}, or what \
                 they amount to differs",
                found.records, found.file_bytes, wanted.records, wanted.file_bytes
            ));
        }
        if self.order == Order::Hashed && run.hasher() != self.hasher {
            let prefix = String::from_utf8_lossy(run.hasher().prefix()).into_owned();
            return Some(format!(
                "its keys were hashed for the prefix {prefix:?}, so look-ups would miss them"
            ));
        }
        None
    }
}
