//! Walking a snapshot's records in its table's order, either way, over all partitions.

use std::sync::Arc;

use forebay_run::scan::{Direction, ScanRange};

use crate::live::cursor::SourceCursor;
use crate::live::error::LiveError;
use crate::live::part::PartView;
use crate::live::shape::Shape;
use crate::walk::Walk;

/// A walk over records, in hash order or key order as the table is. It holds the files and memory of its snapshot.
///
/// After [`LiveScan::advance`] returned `true`, `key` and `value` are those of the record that it moved
/// to; otherwise they mean nothing. What had expired when the walk was begun is left out.
pub struct LiveScan {
    shape: Arc<Shape>,
    parts: Arc<[Arc<PartView>]>,
    walk: Walk<SourceCursor>,
}

impl LiveScan {
    pub(crate) fn new(
        shape: Arc<Shape>,
        parts: Arc<[Arc<PartView>]>,
        range: ScanRange,
        direction: Direction,
    ) -> Self {
        let walk = Walk::new(&shape.router, parts.len(), range, direction, shape.now_ms());
        Self { shape, parts, walk }
    }

    /// Ends the walk after `records`.
    #[must_use]
    pub fn limit(mut self, records: u64) -> Self {
        self.walk.limit(records);
        self
    }

    /// Moves to the next record; `false` when there is none.
    #[inline]
    pub fn advance(&mut self) -> Result<bool, LiveError> {
        let (shape, parts) = (&self.shape, &self.parts);
        let moved = self.walk.advance(|partition, range, direction| {
            let cursors = parts[partition].cursors(shape, range, direction);
            (cursors, shape.kind())
        });
        moved.map_err(|source| shape.run_error(source))
    }

    /// The key's hash64; 0 in ordered tables.
    pub fn hash(&self) -> u64 {
        self.walk.hash()
    }

    #[inline]
    pub fn key(&self) -> &[u8] {
        self.walk.key()
    }

    #[inline]
    pub fn value(&self) -> &[u8] {
        self.walk.value().map_or(&[], |(value, _)| value)
    }
}

impl std::fmt::Debug for LiveScan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LiveScan")
            .field("table", &self.shape.table)
            .field("range", &self.walk.range)
            .finish_non_exhaustive()
    }
}
