//! Walks a version's records in its order, in either direction, over all partitions.

use std::ops::Bound;
use std::sync::Arc;

use forebay_run::Order;
use forebay_run::RunScan;
use forebay_run::operation::DeltaKind;
use forebay_run::scan::{Direction, ScanRange};

use crate::error::ReadError;
use crate::keys::walk::Walk;
use crate::tables::version::Version;

/// A walk over records, in the table's order: by hash or by key. It holds its version open.
///
/// After [`VersionScan::advance`] returned `true`, `key` and `value` are those of the record that
/// it moved to; otherwise they have no meaning. Records that had expired when the walk began are
/// omitted.
pub struct VersionScan {
    version: Arc<Version>,
    walk: Walk<RunScan>,
}

impl Version {
    /// Walks all records of the open partitions.
    pub fn scan(self: &Arc<Self>, direction: Direction) -> VersionScan {
        self.scan_range(ScanRange::all(), direction)
    }

    /// Walks the records between two keys. Returns [`ReadError::NoKeyOrder`] if the table is not
    /// ordered, and [`ReadError::NotHere`] if a partition of the range is not open.
    pub fn scan_keys(
        self: &Arc<Self>,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        direction: Direction,
    ) -> Result<VersionScan, ReadError> {
        match self.order() {
            Order::Ordered => {
                let range = ScanRange::keys(from, to);
                match self.router.gap_in(&range) {
                    Some(key) => Err(self.not_here(&key)),
                    None => Ok(self.scan_range(range, direction)),
                }
            }
            Order::Hashed => Err(ReadError::NoKeyOrder {
                table: self.table().clone(),
            }),
        }
    }

    /// Walks the records of a range of positions in the table's own order, in the open partitions.
    pub fn scan_range(self: &Arc<Self>, range: ScanRange, direction: Direction) -> VersionScan {
        let walk = Walk::new(&self.router, range, direction, self.now_ms());
        VersionScan {
            version: Arc::clone(self),
            walk,
        }
    }

    fn cursors(
        &self,
        segment: usize,
        range: &ScanRange,
        direction: Direction,
    ) -> (Vec<RunScan>, DeltaKind) {
        let partition = self.router.owner(segment);
        let runs = partition.map_or(&[][..], |partition| &self.parts[partition].runs);
        let runs = runs.iter();
        let scan = |run| RunScan::new(Arc::clone(run), range.clone(), direction);
        // A table without a delta kind has no deltas, so any kind will do.
        let kind = self.manifest().delta.unwrap_or(DeltaKind::Append);
        (runs.map(scan).collect(), kind)
    }
}

impl VersionScan {
    /// Ends the walk after `records`.
    #[must_use]
    pub fn limit(mut self, records: u64) -> Self {
        self.walk.limit(records);
        self
    }

    /// Moves to the next record; `false` when there is none.
    pub fn advance(&mut self) -> Result<bool, ReadError> {
        let version = &self.version;
        let enter = |segment, range: &_, direction| version.cursors(segment, range, direction);
        let moved = self.walk.advance(enter);
        moved.map_err(|error| version.read_error(error))
    }

    /// Returns the key's hash64; 0 in ordered tables.
    pub fn hash(&self) -> u64 {
        self.walk.hash()
    }

    pub fn key(&self) -> &[u8] {
        self.walk.key()
    }

    pub fn value(&self) -> &[u8] {
        self.walk.value().map_or(&[], |(value, _)| value)
    }

    /// Returns the record's expiry time, in milliseconds since 1970-01-01 UTC; `u64::MAX` is never.
    pub fn expires_ms(&self) -> u64 {
        self.walk
            .value()
            .map_or(u64::MAX, |(_, expires_ms)| expires_ms)
    }

    pub fn version(&self) -> &Arc<Version> {
        &self.version
    }
}

impl std::fmt::Debug for VersionScan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VersionScan")
            .field("table", self.version.table())
            .field("version", &self.version.version())
            .field("range", &self.walk.range)
            .finish_non_exhaustive()
    }
}
