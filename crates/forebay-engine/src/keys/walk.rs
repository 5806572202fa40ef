//! Walks records over partitions, in either direction, for versions and live tables.

use std::ops::Range;

use forebay_run::RunError;
use forebay_run::merge::{Merge, Resolve};
use forebay_run::operation::DeltaKind;
use forebay_run::scan::{Cursor, Direction, ScanRange};

use crate::keys::route::Router;

/// A walk over records. [`Walk::advance`] receives the source of a partition's records. Records
/// that had expired when the walk began are omitted.
pub(crate) struct Walk<C> {
    pub range: ScanRange,
    direction: Direction,
    /// The router's remaining segments.
    segments: Range<usize>,
    current: Option<PartWalk<C>>,
    /// The most records that the walk may still return.
    left: u64,
    /// The time at which the walk reads.
    now_ms: u64,
    /// The time of each segment, if the segments have their own; else empty.
    moments: Vec<u64>,
}

/// The records of a partition.
enum PartWalk<C> {
    One(C),
    Many(Merge<C>),
}

impl<C: Cursor> Walk<C> {
    pub fn new(router: &Router, range: ScanRange, direction: Direction, now_ms: u64) -> Self {
        Self {
            segments: router.segments(&range),
            range,
            direction,
            current: None,
            left: u64::MAX,
            now_ms,
            moments: Vec::new(),
        }
    }

    /// Sets a separate time for each of the router's segments.
    pub fn at_moments(&mut self, moments: Vec<u64>) {
        self.moments = moments;
    }

    /// Ends the walk after `records`.
    pub fn limit(&mut self, records: u64) {
        self.left = records;
    }

    /// Moves to the next record; `false` when there is none. `enter` returns cursors over all
    /// sources of a segment's partition, oldest first, whose operations compose by the kind; none
    /// for a gap.
    #[inline]
    pub fn advance(
        &mut self,
        enter: impl Fn(usize, &ScanRange, Direction) -> (Vec<C>, DeltaKind),
    ) -> Result<bool, RunError> {
        while self.left > 0 {
            let moved = match &mut self.current {
                Some(current) => match current.advance() {
                    Ok(moved) => moved,
                    Err(error) => return Err(self.fail(error)),
                },
                None => false,
            };
            if !moved {
                self.enter_next(&enter);
                continue;
            }
            let value = self.value();
            if value.is_some_and(|(_, expires_ms)| self.now_ms < expires_ms) {
                self.left -= 1;
                return Ok(true);
            }
        }
        self.current = None;
        Ok(false)
    }

    /// Continues with the next partition's records, if there is one.
    #[cold]
    #[inline(never)]
    fn enter_next(&mut self, enter: impl Fn(usize, &ScanRange, Direction) -> (Vec<C>, DeltaKind)) {
        let next = match self.direction {
            Direction::Forward => self.segments.next(),
            Direction::Backward => self.segments.next_back(),
        };
        if let Some(moment) = next.and_then(|next| self.moments.get(next)) {
            self.now_ms = *moment;
        }
        self.current = next.map(|next| {
            let (cursors, kind) = enter(next, &self.range, self.direction);
            PartWalk::new(cursors, kind, self.direction)
        });
        if self.current.is_none() {
            self.left = 0;
        }
    }

    /// Ends the walk, because the positions of the cursors are unknown.
    #[cold]
    fn fail(&mut self, error: RunError) -> RunError {
        self.left = 0;
        self.current = None;
        error
    }

    pub fn hash(&self) -> u64 {
        match &self.current {
            Some(PartWalk::One(cursor)) => cursor.hash(),
            Some(PartWalk::Many(merge)) => merge.hash(),
            None => 0,
        }
    }

    #[inline]
    pub fn key(&self) -> &[u8] {
        match &self.current {
            Some(PartWalk::One(cursor)) => cursor.key(),
            Some(PartWalk::Many(merge)) => merge.key(),
            None => &[],
        }
    }

    /// Returns the record's value and its expiry time.
    #[inline]
    pub fn value(&self) -> Option<(&[u8], u64)> {
        self.current.as_ref().and_then(PartWalk::value)
    }
}

impl<C: Cursor> PartWalk<C> {
    fn new(mut cursors: Vec<C>, kind: DeltaKind, direction: Direction) -> Self {
        match cursors.len() {
            1 => PartWalk::One(cursors.remove(0)),
            _ => PartWalk::Many(Merge::new(cursors, Resolve::Compose(kind), direction)),
        }
    }

    #[inline]
    fn advance(&mut self) -> Result<bool, RunError> {
        match self {
            PartWalk::One(cursor) => cursor.advance(),
            PartWalk::Many(merge) => merge.advance(),
        }
    }

    #[inline]
    fn value(&self) -> Option<(&[u8], u64)> {
        match self {
            PartWalk::One(cursor) => cursor.value(),
            PartWalk::Many(merge) => merge.value(),
        }
    }
}
