//! Applying the decided entries of a partition's log.
//!
//! An entry has proposals, each of which is one command that writes at most once, to the one
//! partition. A handle bound to a proposal is a table like any other to the command: its write
//! moves the partition's place under the lock hold that changes the memory, so that no freeze comes
//! between. What a command decides, it decides by the entry's stamp, which is the partition's time
//! from the handle on. So all replicas come to the same state.

use std::ops::Deref;
use std::sync::Arc;

use crate::live::LiveTable;
use crate::live::applied::{AppliedPlace, DecidedEntry, EntryError};
use crate::live::error::LiveError;
use crate::live::expiry::Stored;
use crate::live::part::{AppliedPosition, LivePart};
use crate::live::shared::LiveShared;
use crate::partition::{Bounds, PartitionId};

/// So many entries without a write are worth a manifest by themselves: they keep the log from being
/// shortened.
pub(crate) const MOVED_PROPOSALS: u64 = 1 << 16;

/// A proposal that is being applied; for whoever has the partition locked.
#[derive(Debug)]
pub(crate) struct BoundEntry {
    /// The place of its partition among the table's.
    pub slot: usize,
    entry: DecidedEntry,
    number: u32,
}

/// A table as one proposal of an entry sees it: it writes once at most, to its partition. Made by
/// [`LiveTable::entry`]; what it reads and decides is judged by the entry's stamp.
#[derive(Debug)]
#[must_use = "a proposal is applied when its handle is finished"]
pub struct EntryWrite {
    table: LiveTable,
    id: PartitionId,
}

impl Deref for EntryWrite {
    type Target = LiveTable;

    fn deref(&self) -> &LiveTable {
        &self.table
    }
}

impl EntryWrite {
    /// Says that the proposal has done what it does: where it wrote nothing, the partition's place
    /// moves now. An error is [`LiveError::Entry`], and means that it was not applied in its order.
    pub fn finish(self) -> Result<(), LiveError> {
        let Some(bound) = self.table.bound() else {
            return Ok(());
        };
        self.table.shared().finish_entry(self.id, bound)
    }
}

impl LiveTable {
    /// How far a partition of a replicated table has come.
    pub fn applied(&self, id: PartitionId) -> Result<AppliedPlace, LiveError> {
        let shared = self.shared();
        let part = shared.parts.at(shared.slot_of(id)?).lock();
        let applied = part.applied.as_ref().map(|applied| applied.place.clone());
        applied.ok_or_else(|| shared.entry_error(id, EntryError::NotReplicated))
    }

    /// What of the log a partition's runs hold: the entries behind it are applied again after a
    /// crash, and have to be kept until then.
    pub fn applied_in_runs(&self, id: PartitionId) -> Result<AppliedPlace, LiveError> {
        let shared = self.shared();
        let manifest = shared.structure.lock();
        let mut ids = manifest.partitions.iter().map(|partition| partition.id);
        if !ids.any(|here| here == id) {
            return Err(shared.no_partition(id));
        }
        let applied = manifest.applied(id).cloned();
        applied.ok_or_else(|| shared.entry_error(id, EntryError::NotReplicated))
    }

    /// A handle for the proposal of that number, counted from 0, of a decided entry. The
    /// partition's time is the entry's stamp from here on. Proposals are applied in their order,
    /// those of an entry and then those of the next; others are refused: [`LiveError::Entry`].
    /// After [`EntryWrite::finish`] comes the next one.
    ///
    /// A write of the handle that fails has not applied the proposal, and may be tried again.
    pub fn entry(
        &self,
        id: PartitionId,
        entry: &DecidedEntry,
        number: u32,
    ) -> Result<EntryWrite, LiveError> {
        let slot = self.shared().begin_entry(id, entry, number)?;
        let bound = BoundEntry {
            slot,
            entry: entry.clone(),
            number,
        };
        let table = self.bound_to(Arc::new(bound));
        Ok(EntryWrite { table, id })
    }

    /// Applies an entry without operations: a leader's first, a change of members, or one that
    /// moves the partition's time.
    pub fn pass(&self, id: PartitionId, entry: &DecidedEntry) -> Result<(), LiveError> {
        let shared = self.shared();
        if entry.proposals > 0 {
            let (index, proposals) = (entry.place.index, entry.proposals);
            let source = EntryError::NoProposal {
                index,
                proposals,
                number: proposals,
            };
            return Err(shared.entry_error(id, source));
        }
        shared.move_unwritten(shared.slot_of(id)?, id, entry, 0)
    }

    /// Of a handle of a proposal: whether a key lies in the partition that it writes to.
    pub fn is_of_entry(&self, key: &[u8]) -> bool {
        let (shared, bound) = (self.shared(), self.bound());
        let place = shared.parts.place_of(shared.shape.place(key).hash, key);
        bound.is_some_and(|bound| place == Some(bound.slot))
    }

    /// Of a handle of a proposal: the bounds of the partition that it writes to.
    pub fn entry_bounds(&self) -> Option<Bounds> {
        let id = self.shared().parts.id_at(self.bound()?.slot);
        let mut ranges = self.partitions().into_iter();
        Some(ranges.find(|range| range.id == id)?.bounds)
    }

    /// The time of a key's partition, in milliseconds since 1970-01-01 UTC: by that it is judged
    /// what has expired. Where the table is not replicated it is the machine's.
    pub fn time_of(&self, key: &[u8]) -> Result<u64, LiveError> {
        self.shared().time_of(key)
    }

    /// The value of a key and when it expires, `u64::MAX` being never; `None` where there is none.
    /// Without `wait` the device is not waited for, and the outer `None` says that it had to be.
    pub fn stored(&self, key: &[u8], wait: bool) -> Result<Option<Option<Stored>>, LiveError> {
        self.shared().stored(key, wait)
    }

    /// Whether a key is there by its partition's time and has expired at `now_ms`: an answer would
    /// be another one if that were the partition's time. Waits for the device when it must.
    pub fn would_expire(&self, key: &[u8], now_ms: u64) -> Result<bool, LiveError> {
        let expires_ms = self.expires_ms(key)?;
        Ok(expires_ms.is_some_and(|expires_ms| expires_ms <= now_ms))
    }

    /// [`LiveTable::would_expire`] from a thread that must not wait: `None` where it would have to.
    pub fn try_would_expire(&self, key: &[u8], now_ms: u64) -> Result<Option<bool>, LiveError> {
        let expires_ms = self.try_expires_ms(key)?;
        Ok(expires_ms.map(|found| found.is_some_and(|expires_ms| expires_ms <= now_ms)))
    }
}

impl LiveShared {
    /// Moves the partition's time to an entry's stamp, if the proposal comes next.
    fn begin_entry(
        &self,
        id: PartitionId,
        entry: &DecidedEntry,
        number: u32,
    ) -> Result<usize, LiveError> {
        if number >= entry.proposals {
            let source = EntryError::NoProposal {
                index: entry.place.index,
                proposals: entry.proposals,
                number,
            };
            return Err(self.entry_error(id, source));
        }
        let slot = self.slot_of(id)?;
        let mut part = self.parts.at(slot).lock();
        let next = part.expect_next(entry, number);
        next.map_err(|source| self.entry_error(id, source))?;
        if let Some(applied) = &mut part.applied {
            applied.place.stamp_ms = applied.place.stamp_ms.max(entry.place.stamp_ms);
        }
        Ok(slot)
    }

    /// Where a partition is once an entry without operations, which comes next, is applied.
    pub fn place_behind(
        &self,
        id: PartitionId,
        entry: &DecidedEntry,
    ) -> Result<AppliedPlace, LiveError> {
        let part = self.parts.at(self.slot_of(id)?).lock();
        let next = part.expect_next(entry, 0);
        next.map_err(|source| self.entry_error(id, source))?;
        let applied = part.applied.as_ref();
        let applied = applied.ok_or_else(|| self.entry_error(id, EntryError::NotReplicated))?;
        Ok(entry.place_after(0, &applied.place))
    }

    pub fn slot_of(&self, id: PartitionId) -> Result<usize, LiveError> {
        self.parts.find(id).ok_or_else(|| self.no_partition(id))
    }

    fn finish_entry(&self, id: PartitionId, bound: &BoundEntry) -> Result<(), LiveError> {
        let has_written = {
            let part = self.parts.at(bound.slot).lock();
            let applied = part.applied.as_ref();
            applied.is_some_and(|applied| bound.is_last_in(&applied.place))
        };
        match has_written {
            true => Ok(()),
            false => self.move_unwritten(bound.slot, id, &bound.entry, bound.number),
        }
    }

    /// Moves a partition's place where nothing was written.
    fn move_unwritten(
        &self,
        slot: usize,
        id: PartitionId,
        entry: &DecidedEntry,
        number: u32,
    ) -> Result<(), LiveError> {
        let mut part = self.parts.at(slot).lock();
        if !part.is_here() {
            return Err(self.no_partition(id));
        }
        let next = part.expect_next(entry, number);
        next.map_err(|source| self.entry_error(id, source))?;
        let Some(applied) = &mut part.applied else {
            return Ok(());
        };
        applied.place = entry.place_after(number, &applied.place);
        applied.unwritten += 1;
        let is_due = applied.unwritten == MOVED_PROPOSALS;
        drop(part);
        if is_due {
            self.notify(|progress| progress.freeze_asked = true);
        }
        Ok(())
    }

    #[cold]
    pub fn entry_error(&self, partition: PartitionId, source: EntryError) -> LiveError {
        LiveError::Entry {
            table: self.shape.table.clone(),
            partition,
            source,
        }
    }

    /// Refuses what is written to a replicated table beside the logs of its groups.
    pub fn refuse_replicated(&self, what: &str) -> Result<(), LiveError> {
        match self.options.replication {
            None => Ok(()),
            Some(_) => Err(LiveError::Replicated {
                table: self.shape.table.clone(),
                what: what.to_owned(),
            }),
        }
    }

    /// Whether a write that came to this locked partition may be done: by whoever is bound to the
    /// proposal that comes next, where the table is replicated, and by anybody else where not.
    #[inline]
    pub fn admit(
        &self,
        part: &LivePart,
        slot: usize,
        bound: Option<&BoundEntry>,
    ) -> Result<(), LiveError> {
        match part.applied.is_none() && bound.is_none() {
            true => Ok(()),
            false => self.admit_to_replica(part, slot, bound),
        }
    }

    /// Apart, so that it takes no registers from those who have no replicas.
    #[inline(never)]
    fn admit_to_replica(
        &self,
        part: &LivePart,
        slot: usize,
        bound: Option<&BoundEntry>,
    ) -> Result<(), LiveError> {
        let Some(bound) = bound else {
            return self.refuse_replicated("a write outside of the log of its group");
        };
        let admitted = admitted(part.applied.as_deref(), slot, bound);
        admitted.map_err(|source| self.entry_error(self.parts.id_at(slot), source))
    }
}

fn admitted(
    applied: Option<&AppliedPosition>,
    slot: usize,
    bound: &BoundEntry,
) -> Result<(), EntryError> {
    let applied = applied.ok_or(EntryError::NotReplicated)?;
    if bound.slot != slot {
        return Err(EntryError::Elsewhere);
    }
    match bound.entry.follows(&applied.place, bound.number) {
        true => Ok(()),
        false if bound.is_last_in(&applied.place) => Err(EntryError::SecondWrite {
            index: bound.entry.place.index,
            number: bound.number,
        }),
        false => Err(out_of_order(&bound.entry, bound.number, &applied.place)),
    }
}

fn out_of_order(entry: &DecidedEntry, number: u32, applied: &AppliedPlace) -> EntryError {
    EntryError::OutOfOrder {
        index: entry.place.index,
        number,
        applied: applied.index,
        done: applied.done,
    }
}

impl BoundEntry {
    /// Whether the state at a place is that just behind the proposal.
    fn is_last_in(&self, applied: &AppliedPlace) -> bool {
        let index = self.entry.place.index;
        let behind = match self.number + 1 < self.entry.proposals {
            true => (index.saturating_sub(1), self.number + 1),
            false => (index, 0),
        };
        applied.position() == behind
    }
}

impl LivePart {
    fn expect_next(&self, entry: &DecidedEntry, number: u32) -> Result<(), EntryError> {
        let applied = self.applied.as_ref().ok_or(EntryError::NotReplicated)?;
        match entry.follows(&applied.place, number) {
            true => Ok(()),
            false => Err(out_of_order(entry, number, &applied.place)),
        }
    }

    /// Moves the place along with a write. REQUIRES: it was admitted under this hold of the lock.
    #[inline]
    pub fn wrote(&mut self, bound: Option<&BoundEntry>) {
        if let Some(bound) = bound {
            self.wrote_proposal(bound);
        }
    }

    #[inline(never)]
    fn wrote_proposal(&mut self, bound: &BoundEntry) {
        if let Some(applied) = &mut self.applied {
            applied.place = bound.entry.place_after(bound.number, &applied.place);
        }
    }
}
