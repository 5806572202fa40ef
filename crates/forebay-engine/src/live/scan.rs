//! Walking a snapshot's records in its table's order, either way, over all partitions.

use std::ops::{Bound, Range};

use forebay_run::merge::{Merge, Resolve};
use forebay_run::operation::Operation;
use forebay_run::scan::{Cursor, Direction, Position, ScanRange};

use crate::live::cursor::SourceCursor;
use crate::live::error::LiveError;
use crate::live::snapshot::Snapshot;

/// A walk over records, in hash order or key order as the table is. It holds its snapshot.
///
/// After [`LiveScan::advance`] returned `true`, `key` and `value` are those of the record that it moved
/// to; otherwise they mean nothing. What had expired when the walk was begun is left out.
pub struct LiveScan {
    snapshot: Snapshot,
    range: ScanRange,
    direction: Direction,
    /// The partitions still to come.
    partitions: Range<usize>,
    current: Option<Merge<SourceCursor>>,
    /// How many records may still come.
    left: u64,
    /// The moment that the walk sees.
    now_ms: u64,
}

impl LiveScan {
    pub(crate) fn new(snapshot: Snapshot, range: ScanRange, direction: Direction) -> Self {
        let router = &snapshot.shape.router;
        let partition = |at: &Position| router.partition(at.hash, &at.key);
        let first = match &range.from {
            Bound::Included(at) | Bound::Excluded(at) => partition(at),
            Bound::Unbounded => 0,
        };
        let last = match &range.to {
            Bound::Included(at) | Bound::Excluded(at) => partition(at),
            Bound::Unbounded => snapshot.parts.len() - 1,
        };
        let now_ms = snapshot.shape.now_ms();
        Self {
            now_ms,
            snapshot,
            range,
            direction,
            partitions: first..last + 1,
            current: None,
            left: u64::MAX,
        }
    }

    /// Ends the walk after `records`.
    #[must_use]
    pub fn limit(mut self, records: u64) -> Self {
        self.left = records;
        self
    }

    fn enter(&self, partition: usize) -> Merge<SourceCursor> {
        let shape = &self.snapshot.shape;
        let view = &self.snapshot.parts[partition];
        let cursors = view.cursors(shape, &self.range, self.direction);
        Merge::new(cursors, Resolve::Compose(shape.kind()), self.direction)
    }

    /// Moves to the next record; `false` when there is none.
    pub fn advance(&mut self) -> Result<bool, LiveError> {
        while self.left > 0 {
            let Some(current) = &mut self.current else {
                let next = match self.direction {
                    Direction::Forward => self.partitions.next(),
                    Direction::Backward => self.partitions.next_back(),
                };
                let Some(next) = next else { break };
                self.current = Some(self.enter(next));
                continue;
            };
            let moved = current.advance();
            if !moved.map_err(|source| self.snapshot.shape.run_error(source))? {
                self.current = None;
                continue;
            }
            let value = current.operation().value();
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
        self.current.as_ref().map_or(0, Cursor::hash)
    }

    pub fn key(&self) -> &[u8] {
        self.current.as_ref().map_or(&[], Cursor::key)
    }

    pub fn value(&self) -> &[u8] {
        let value = self.current.as_ref().map(Cursor::operation);
        let value = value.and_then(Operation::value);
        value.map_or(&[], |(value, _)| value)
    }
}

impl std::fmt::Debug for LiveScan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LiveScan")
            .field("table", &self.snapshot.shape.table)
            .field("range", &self.range)
            .finish_non_exhaustive()
    }
}
