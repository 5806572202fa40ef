//! Deletes a range of keys by one record, in one moment for all partitions.
//!
//! Every partition's buffer is sorted first, so that earlier writes are in older sources. Then a
//! source without records says which keys of those are deleted (`removed`). No key is read, and
//! none is written.

use std::ops::Bound;

use forebay_run::Order;
use forebay_run::scan::ScanRange;
use parking_lot::MutexGuard;

use crate::live::basics::error::LiveError;
use crate::live::basics::removed::KeyRange;
use crate::live::basics::shape::PartTime;
use crate::live::log::Lsn;
use crate::live::partition::entry::BoundEntry;
use crate::live::partition::part::{Access, LivePart, PartFound, PartView};
use crate::live::partition::shared::LiveShared;
use crate::live::reading::snapshot::Snapshot;
use crate::live::writing::commit::Commit;

/// A partition with this many ranges in its memory and its runs takes no more of them: look-ups
/// search them, and the manifest names them.
const MOST_RANGES: usize = 1000;

/// The outcome of the deletion of a range.
#[derive(Debug)]
pub(crate) enum Removal<'a> {
    /// The table just before the deletion, and the commit.
    Done(Snapshot, Commit<'a>),
    /// Nothing was done: the limit of ranges is reached.
    TooMany,
}

/// All partitions locked, and the part of a range in each.
type LockedPieces<'a> = (Vec<MutexGuard<'a, LivePart>>, Vec<(usize, KeyRange)>);

impl LiveShared {
    /// Deletes the keys between two. Only for ordered tables: [`LiveError::NoKeyOrder`]. The table
    /// must hold all partitions of the range: [`LiveError::NotHere`].
    pub fn remove_keys(
        &self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        bound: Option<&BoundEntry>,
    ) -> Result<Removal<'_>, LiveError> {
        if self.shape.order == Order::Hashed {
            let table = self.shape.table.clone();
            return Err(LiveError::NoKeyOrder { table });
        }
        let (parts, pieces) = self.lock_pieces(&KeyRange::between(from, to), bound)?;
        // While all are locked, none is released or split.
        let gap = self.parts.routing().gap_in(&ScanRange::keys(from, to));
        match gap.filter(|_| bound.is_none()) {
            Some(key) => Err(self.shape.not_here(&key)),
            None => self.remove(parts, pieces, bound),
        }
    }

    /// Deletes all keys of the partitions that this table holds. A bound handle deletes only those
    /// of its own partition.
    pub fn remove_all(&self, bound: Option<&BoundEntry>) -> Result<Commit<'_>, LiveError> {
        let (parts, pieces) = self.lock_pieces(&KeyRange::all(), bound)?;
        Ok(self.remove_pieces(pieces, parts, bound)?.1)
    }

    fn remove<'a>(
        &'a self,
        parts: Vec<MutexGuard<'a, LivePart>>,
        pieces: Vec<(usize, KeyRange)>,
        bound: Option<&BoundEntry>,
    ) -> Result<Removal<'a>, LiveError> {
        let is_full = |part: &LivePart| part.view.removed_ranges() >= MOST_RANGES;
        let mut in_part = pieces.iter().filter(|(_, piece)| !piece.is_all());
        if in_part.any(|(place, _)| is_full(&parts[*place])) {
            return Ok(Removal::TooMany);
        }
        let (before, commit) = self.remove_pieces(pieces, parts, bound)?;
        Ok(Removal::Done(before, commit))
    }

    /// Returns the part of a range in each partition that this table holds.
    fn pieces(
        &self,
        range: &KeyRange,
        parts: &[MutexGuard<'_, LivePart>],
    ) -> Vec<(usize, KeyRange)> {
        let here = parts.iter().enumerate();
        let here = here.filter(|(_, part)| part.is_here());
        let piece = |(place, _)| Some((place, range.within(self.parts.bounds_at(place))?));
        here.filter_map(piece).collect()
    }

    fn remove_pieces<'a>(
        &'a self,
        pieces: Vec<(usize, KeyRange)>,
        mut parts: Vec<MutexGuard<'a, LivePart>>,
        bound: Option<&BoundEntry>,
    ) -> Result<(Snapshot, Commit<'a>), LiveError> {
        debug_assert!(
            bound.is_none() || pieces.len() <= 1,
            "a proposal deletes keys of {} partitions",
            pieces.len()
        );
        let lsn = self.log_removed(&pieces)?;
        let mut freeze = self.log_is_long(lsn);
        for part in &mut parts {
            freeze |= part.seal(&self.memory);
        }
        let before = self.snapshot_of(&parts);
        for (place, piece) in pieces {
            let part = &mut *parts[place];
            let (view, time) = (&part.view, part.time());
            part.watchers
                .removed(&piece, |key| self.may_be_there(view, time, key));
            freeze |= part.remove(piece, &self.memory);
            part.wrote(bound);
            // Records on the disk are to be removed, too.
            freeze |= part.view.is_half_removed(true);
        }
        drop(parts);
        if freeze {
            self.freeze();
        }
        self.compact_memory_after_snapshot();
        Ok((before, Commit::new(self, lsn)))
    }

    /// Returns whether a view has a key, or may have it: this must not wait for the device.
    fn may_be_there(&self, view: &PartView, time: PartTime, key: &[u8]) -> bool {
        let place = self.shape.place(key);
        let found = view.get((&self.shape, time), place, key, None, false);
        !matches!(found, Ok(PartFound::Value(None)))
    }

    /// Locks all partitions, and checks that writes to those with a part of the range may pass. A
    /// bound handle gets only its own partition's part.
    fn lock_pieces(
        &self,
        range: &KeyRange,
        bound: Option<&BoundEntry>,
    ) -> Result<LockedPieces<'_>, LiveError> {
        loop {
            let parts = self.parts.lock_all();
            if self.gate.reasons() != 0 {
                drop(parts);
                self.wait_at_gate()?;
                continue;
            }
            let mut pieces = self.pieces(range, &parts);
            pieces.retain(|(place, _)| bound.is_none_or(|bound| bound.slot == *place));
            let is_paused =
                |(place, _): &&(usize, KeyRange)| parts[*place].access == Access::Paused;
            match pieces.iter().find(is_paused).map(|(place, _)| *place) {
                None => {
                    for (place, _) in &pieces {
                        self.admit(&parts[*place], *place, bound)?;
                    }
                    return Ok((parts, pieces));
                }
                Some(place) => {
                    drop(parts);
                    self.wait_while_paused(place)?;
                }
            }
        }
    }

    /// Writes the ranges of all partitions as one record: a crash leaves all of them or none.
    fn log_removed(&self, pieces: &[(usize, KeyRange)]) -> Result<Option<Lsn>, LiveError> {
        let Some(log) = self.log.as_ref().filter(|_| !pieces.is_empty()) else {
            return Ok(None);
        };
        let mut record = Vec::new();
        for (place, piece) in pieces {
            piece.append_to(&mut record, self.parts.id_at(*place));
        }
        let appended = log.append(&record);
        appended.map(Some).map_err(|source| self.log_error(source))
    }
}
