//! Reads a whole run and checks it.

use std::path::Path;
use std::sync::Arc;

use crate::content::ContentSum;
use crate::error::{Result, RunError, named_key};
use crate::format::{Order, RunSummary};
use crate::record::encode;
use crate::run::Run;
use crate::scan::{Cursor, Direction, Position, ScanRange};
use forebay_io::Disk;

impl Run {
    /// Reads every page and every large value. Checks their checksums, that records rise, that
    /// look-ups and the filter find each record, and that counts and content agree with the footer.
    /// `advance` receives the number of pages read.
    pub fn verify(self: &Arc<Self>, advance: &mut dyn FnMut(u64)) -> Result<RunSummary> {
        let scan = self.scan(ScanRange::all(), Direction::Forward);
        let mut scan = scan.releasing().comparing();
        let mut summary = RunSummary { ..*self.summary() };
        (summary.records, summary.key_bytes, summary.value_bytes) = (0, 0, 0);
        summary.content = ContentSum::default();
        let mut last: Option<Position> = None;
        let mut page = 0;
        while scan.advance()? {
            let (hash, key) = (scan.hash(), scan.key());
            self.check_rises(&last, hash, key)?;
            if key.len() > self.longest_key() {
                return Err(self.misplaced(key, "is longer than the footer says"));
            }
            if !self.covers(scan.page(), hash, key) {
                return Err(self.misplaced(key, "is in a page where no look-up searches"));
            }
            if !self.may_hold_key(hash, key) {
                return Err(self.misplaced(key, "is not in the filter"));
            }
            let (_, payload) = encode(scan.operation());
            summary.records += 1;
            summary.key_bytes += key.len() as u64;
            summary.value_bytes += payload.len() as u64;
            summary.content += ContentSum::of(key, &payload);
            let place = last.get_or_insert_with(|| Position {
                hash,
                key: Vec::new(),
            });
            place.hash = hash;
            place.key.clear();
            place.key.extend_from_slice(key);
            if scan.page() != page {
                advance((scan.page() - page) as u64);
                page = scan.page();
            }
        }
        advance(self.summary().pages - page as u64);
        if summary != *self.summary() {
            let what = format!(
                "read back {summary:?}, the footer says {:?}",
                self.summary()
            );
            return Err(RunError::damaged(self.path(), what));
        }
        Ok(summary)
    }

    fn check_rises(&self, last: &Option<Position>, hash: u64, key: &[u8]) -> Result<()> {
        match last {
            Some(last) if (hash, key) <= (last.hash, &last.key[..]) => {
                Err(self.misplaced(key, "is not above the one before it"))
            }
            _ => Ok(()),
        }
    }

    fn misplaced(&self, key: &[u8], what: &str) -> RunError {
        let key = named_key(key);
        RunError::damaged(self.path(), format!("key {key} {what}"))
    }
}

/// Opens a run that was just written, bypassing the system's cache, and verifies it. So the check
/// covers the data on the device.
pub fn read_back(
    disk: &dyn Disk,
    path: &Path,
    order: Order,
    advance: &mut dyn FnMut(u64),
) -> Result<Arc<Run>> {
    let run = Arc::new(Run::open_uncached(disk, path)?);
    if run.order() != order {
        let what = format!("the run is {:?}, not {order:?}", run.order());
        return Err(RunError::damaged(path, what));
    }
    run.verify(advance)?;
    Ok(run)
}
