//! Walks a snapshot's records in its table's order, in both directions, over all partitions.

use std::sync::Arc;

use forebay_run::scan::{Direction, ScanRange};

use crate::keys::route::Router;
use crate::keys::walk::Walk;
use crate::live::basics::error::LiveError;
use crate::live::basics::shape::{PartTime, Shape};
use crate::live::memory::cursor::SourceCursor;
use crate::live::partition::part::SnapshotPart;

/// A walk over records, in the table's hash order or key order. It keeps the files and memory of
/// its snapshot.
///
/// After [`LiveScan::advance`] returned `true`, `key` and `value` are those of the current record.
/// Otherwise they have no meaning. Records that had expired when the walk began are left out.
pub struct LiveScan {
    shape: Arc<Shape>,
    router: Arc<Router>,
    /// By their places.
    parts: Arc<[SnapshotPart]>,
    walk: Walk<SourceCursor>,
}

impl LiveScan {
    pub(crate) fn new(
        shape: Arc<Shape>,
        router: Arc<Router>,
        parts: Arc<[SnapshotPart]>,
        range: ScanRange,
        direction: Direction,
    ) -> Self {
        let now_ms = shape.now_ms(PartTime::CLOCK);
        let mut walk = Walk::new(&router, range, direction, now_ms);
        if parts.iter().any(|part| part.time != PartTime::CLOCK) {
            walk.at_moments(moments(&shape, &router, &parts));
        }
        Self {
            shape,
            router,
            parts,
            walk,
        }
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
        let (shape, router, parts) = (&self.shape, &self.router, &self.parts);
        let moved = self.walk.advance(|segment, range, direction| {
            let part = router.owner(segment).map(|partition| &parts[partition]);
            let cursors = part.map(|part| part.view.cursors(shape, range, direction));
            (cursors.unwrap_or_default(), shape.kind())
        });
        moved.map_err(|source| shape.run_error(source))
    }

    /// Returns the key's hash64; 0 in ordered tables.
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

/// Returns the time of the partition of each segment.
fn moments(shape: &Shape, router: &Router, parts: &[SnapshotPart]) -> Vec<u64> {
    let segments = router.segments(&ScanRange::all());
    let moment = |segment| {
        let owner = router.owner(segment).map(|partition| parts[partition].time);
        shape.now_ms(owner.unwrap_or(PartTime::CLOCK))
    };
    (0..segments.end).map(moment).collect()
}

impl std::fmt::Debug for LiveScan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LiveScan")
            .field("table", &self.shape.table)
            .field("range", &self.walk.range)
            .finish_non_exhaustive()
    }
}
