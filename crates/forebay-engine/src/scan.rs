//! Walking a version's records in its order, either way, over all partitions.

use std::ops::{Bound, Range};
use std::sync::Arc;

use forebay_run::Order;
use forebay_run::merge::{Merge, Resolve};
use forebay_run::operation::DeltaKind;
use forebay_run::scan::{Cursor, Direction, Position, RunScan, ScanRange};

use crate::error::ReadError;
use crate::version::Version;

/// A walk over records, in hash order or key order as the table is. It holds its version open.
///
/// After [`VersionScan::advance`] returned `true`, `key` and `value` are those of the record that it
/// moved to; otherwise they mean nothing. What had expired when the walk was begun is left out.
pub struct VersionScan {
    version: Arc<Version>,
    range: ScanRange,
    direction: Direction,
    /// The partitions still to come.
    partitions: Range<usize>,
    current: Option<PartScan>,
    /// How many records may still come.
    left: u64,
    /// The moment that the walk sees.
    now_ms: u64,
}

enum PartScan {
    One(RunScan),
    Many(Merge<RunScan>),
}

impl Version {
    /// Walks all records.
    pub fn scan(self: &Arc<Self>, direction: Direction) -> VersionScan {
        self.scan_range(ScanRange::all(), direction)
    }

    /// Walks the records between two keys. Only for ordered tables: [`ReadError::NoKeyOrder`].
    pub fn scan_keys(
        self: &Arc<Self>,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        direction: Direction,
    ) -> Result<VersionScan, ReadError> {
        match self.order() {
            Order::Ordered => Ok(self.scan_range(ScanRange::keys(from, to), direction)),
            Order::Hashed => Err(ReadError::NoKeyOrder {
                table: self.table().clone(),
            }),
        }
    }

    /// Walks the records of a range of positions in the table's own order.
    pub fn scan_range(self: &Arc<Self>, range: ScanRange, direction: Direction) -> VersionScan {
        let partition = |at: &Position| self.router.partition(at.hash, &at.key);
        let first = match &range.from {
            Bound::Included(at) | Bound::Excluded(at) => partition(at),
            Bound::Unbounded => 0,
        };
        let last = match &range.to {
            Bound::Included(at) | Bound::Excluded(at) => partition(at),
            Bound::Unbounded => self.parts.len() - 1,
        };
        VersionScan {
            version: Arc::clone(self),
            range,
            direction,
            partitions: first..last + 1,
            current: None,
            left: u64::MAX,
            now_ms: self.now_ms(),
        }
    }

    fn scan_part(&self, partition: usize, range: &ScanRange, direction: Direction) -> PartScan {
        let runs = &self.parts[partition].runs;
        let scan = |run| RunScan::new(Arc::clone(run), range.clone(), direction);
        if let [run] = &**runs {
            return PartScan::One(scan(run));
        }
        // A table without a kind of deltas has none, so that any kind will do.
        let kind = self.manifest().delta.unwrap_or(DeltaKind::Append);
        let scans = runs.iter().map(scan).collect();
        PartScan::Many(Merge::new(scans, Resolve::Compose(kind), direction))
    }
}

impl VersionScan {
    /// Ends the walk after `records`.
    #[must_use]
    pub fn limit(mut self, records: u64) -> Self {
        self.left = records;
        self
    }

    /// Moves to the next record; `false` when there is none.
    pub fn advance(&mut self) -> Result<bool, ReadError> {
        while self.left > 0 {
            let Some(current) = &mut self.current else {
                let next = match self.direction {
                    Direction::Forward => self.partitions.next(),
                    Direction::Backward => self.partitions.next_back(),
                };
                let Some(next) = next else { break };
                self.current = Some(self.version.scan_part(next, &self.range, self.direction));
                continue;
            };
            let moved = current.cursor_mut().advance();
            if !moved.map_err(|error| self.version.read_error(error))? {
                self.current = None;
                continue;
            }
            let value = current.cursor().operation().value();
            if value.is_some_and(|(_, expires_ms)| self.now_ms < expires_ms) {
                self.left -= 1;
                return Ok(true);
            }
        }
        self.left = 0;
        self.current = None;
        Ok(false)
    }

    /// The key's hash64; 0 in ordered tables.
    pub fn hash(&self) -> u64 {
        self.current
            .as_ref()
            .map_or(0, |current| current.cursor().hash())
    }

    pub fn key(&self) -> &[u8] {
        self.current
            .as_ref()
            .map_or(&[], |current| current.cursor().key())
    }

    pub fn value(&self) -> &[u8] {
        let current = self.current.as_ref();
        let value = current.and_then(|current| current.cursor().operation().value());
        value.map_or(&[], |(value, _)| value)
    }

    /// When the record expires, in milliseconds since 1970-01-01 UTC; `u64::MAX` is never.
    pub fn expires_ms(&self) -> u64 {
        let current = self.current.as_ref();
        let value = current.and_then(|current| current.cursor().operation().value());
        value.map_or(u64::MAX, |(_, expires_ms)| expires_ms)
    }

    pub fn version(&self) -> &Arc<Version> {
        &self.version
    }
}

impl PartScan {
    fn cursor(&self) -> &dyn Cursor {
        match self {
            PartScan::One(scan) => scan,
            PartScan::Many(merge) => merge,
        }
    }

    fn cursor_mut(&mut self) -> &mut dyn Cursor {
        match self {
            PartScan::One(scan) => scan,
            PartScan::Many(merge) => merge,
        }
    }
}

impl std::fmt::Debug for VersionScan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VersionScan")
            .field("table", self.version.table())
            .field("version", &self.version.version())
            .field("range", &self.range)
            .finish_non_exhaustive()
    }
}
