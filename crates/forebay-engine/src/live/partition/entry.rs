//! Applies the decided entries of a partition's log.
//!
//! An entry has proposals. Each proposal is one command that writes at most once, to the one
//! partition. To the command, a handle bound to a proposal is a table like any other. Its write
//! moves the partition's place under the same lock that changes the memory, so that no freeze comes
//! between. The command decides by the entry's stamp, which is the partition's time from then on.
//! So all replicas reach the same state.

use std::ops::Deref;
use std::sync::Arc;

use crate::keys::partition::{Bounds, PartitionId};
use crate::live::LiveTable;
use crate::live::basics::applied::{AppliedPlace, DecidedEntry, EntryError};
use crate::live::basics::error::LiveError;
use crate::live::basics::expiry::Stored;
use crate::live::partition::part::{AppliedPosition, LivePart};
use crate::live::partition::shared::LiveShared;

/// After this many entries without a write, a manifest is written for them alone: they keep the log
/// from being shortened.
pub(crate) const MOVED_PROPOSALS: u64 = 1 << 16;

/// A proposal that is being applied, for the code that has the partition locked.
#[derive(Debug)]
pub(crate) struct BoundEntry {
    /// The place of its partition among the table's.
    pub slot: usize,
    entry: DecidedEntry,
    number: u32,
}

/// A table as one proposal of an entry sees it: it writes at most once, to its partition. Made by
/// [`LiveTable::entry`]; its reads and decisions use the entry's stamp.
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
    /// Ends the proposal. If it wrote nothing, this moves the partition's place. An error is
    /// [`LiveError::Entry`], and means that it was not applied in order.
    pub fn finish(self) -> Result<(), LiveError> {
        let Some(bound) = self.table.bound() else {
            return Ok(());
        };
        self.table.shared().finish_entry(self.id, bound)
    }
}

impl LiveTable {
    /// Returns the place up to which a partition of a replicated table has applied its log.
    pub fn applied(&self, id: PartitionId) -> Result<AppliedPlace, LiveError> {
        let shared = self.shared();
        let part = shared.parts.at(shared.slot_of(id)?).lock();
        let applied = part.applied.as_ref().map(|applied| applied.place.clone());
        applied.ok_or_else(|| shared.entry_error(id, EntryError::NotReplicated))
    }

    /// Returns the place up to which a partition's runs have the log. The entries after it are
    /// applied again after a crash, and must be kept until then.
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

    /// Returns a handle for the proposal of that number, counted from 0, of a decided entry. From
    /// then on the partition's time is the entry's stamp. Proposals are applied in order: those of
    /// an entry, then those of the next. Others are refused: [`LiveError::Entry`]. After
    /// [`EntryWrite::finish`] the next one follows.
    ///
    /// If a write of the handle fails, the proposal is not applied, and may be tried again.
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

    /// Applies an entry without operations: a leader's first, a change of members, or an entry that
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

    /// For a handle of a proposal: returns whether a key is in the partition that it writes to.
    pub fn is_of_entry(&self, key: &[u8]) -> bool {
        let (shared, bound) = (self.shared(), self.bound());
        let place = shared.parts.place_of(shared.shape.place(key).hash, key);
        bound.is_some_and(|bound| place == Some(bound.slot))
    }

    /// For a handle of a proposal: returns the bounds of the partition that it writes to.
    pub fn entry_bounds(&self) -> Option<Bounds> {
        let id = self.shared().parts.id_at(self.bound()?.slot);
        let mut ranges = self.partitions().into_iter();
        Some(ranges.find(|range| range.id == id)?.bounds)
    }

    /// Returns the time of a key's partition, in milliseconds since 1970-01-01 UTC. It decides
    /// which records have expired. If the table is not replicated, it is the machine's time.
    pub fn time_of(&self, key: &[u8]) -> Result<u64, LiveError> {
        self.shared().time_of(key)
    }

    /// Returns the value of a key and when it expires, `u64::MAX` being never; `None` if there is
    /// none. Without `wait` it does not wait for the device, and returns an outer `None` if it
    /// would have to.
    pub fn stored(&self, key: &[u8], wait: bool) -> Result<Option<Option<Stored>>, LiveError> {
        self.shared().stored(key, wait)
    }

    /// Returns whether a key exists by its partition's time and has expired at `now_ms`, so that
    /// the answer would change with that time. Waits for the device when it must.
    pub fn would_expire(&self, key: &[u8], now_ms: u64) -> Result<bool, LiveError> {
        let expires_ms = self.expires_ms(key)?;
        Ok(expires_ms.is_some_and(|expires_ms| expires_ms <= now_ms))
    }

    /// [`LiveTable::would_expire`] from a thread that must not wait: `None` if it would have to.
    pub fn try_would_expire(&self, key: &[u8], now_ms: u64) -> Result<Option<bool>, LiveError> {
        let expires_ms = self.try_expires_ms(key)?;
        Ok(expires_ms.map(|found| found.is_some_and(|expires_ms| expires_ms <= now_ms)))
    }
}

impl LiveShared {
    /// Moves the partition's time to an entry's stamp, if the proposal is the next one.
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

    /// Returns a partition's place after an entry without operations, if the entry is the next one.
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

    /// Moves a partition's place without a write.
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

    /// Refuses a write to a replicated table that is not an entry of its groups' logs.
    pub fn refuse_replicated(&self, what: &str) -> Result<(), LiveError> {
        match self.options.replication {
            None => Ok(()),
            Some(_) => Err(LiveError::Replicated {
                table: self.shape.table.clone(),
                what: what.to_owned(),
            }),
        }
    }

    /// Returns whether a write may proceed in this locked partition. In a replicated table only the
    /// writer that is bound to the next proposal may write. Otherwise any writer may.
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

    /// A separate function, so that it takes no registers from tables without replicas.
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
    /// Returns whether the state at a place is the one right after the proposal.
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

    /// Moves the place along with a write. REQUIRES: the write was admitted while this lock was
    /// held.
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
