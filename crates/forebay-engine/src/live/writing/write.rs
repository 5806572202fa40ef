//! Writes: to the log and to memory, without reading what is stored.
//!
//! 1. The operation is checked: key, value, delta.
//! 2. Under the partition's lock it is appended to the log and added to the active buffer. So the
//!    log has the operations on a key in the order in which readers see them.
//! 3. A full buffer is sorted into a run in memory. When there are many of those they are merged,
//!    without the lock. When the memory of all tables has reached its share, the generation is
//!    frozen.

use std::collections::HashMap;
use std::sync::Arc;

use forebay_run::format::MAX_KEY_BYTES;
use forebay_run::operation::{CowOperation, DeltaKind, Operation};
use parking_lot::MutexGuard;
use tracing::warn;

use crate::keys::key_text::show_key;
use crate::keys::route::Router;
use crate::live::basics::batch::Batch;
use crate::live::basics::error::LiveError;
use crate::live::basics::expiry::{Expiry, Stored};
use crate::live::basics::record;
use crate::live::basics::shape::{KeyPlace, Shape};
use crate::live::basics::traffic::operand_bytes;
use crate::live::log::{LogError, Lsn};
use crate::live::partition::access::{Attempt, Wait, Writing};
use crate::live::partition::entry::BoundEntry;
use crate::live::partition::part::{Access, LivePart};
use crate::live::partition::shared::{GATE_FULL, LiveShared};
use crate::live::writing::commit::Commit;
use crate::live::writing::settle::settle;

/// The longest value, in bytes, and the most bytes of a batch.
pub const MAX_VALUE_BYTES: usize = 512 << 20;
const MAX_BATCH_BYTES: usize = 1 << 30;
/// The log is at most about this many times as long as the memory of a generation may be.
const LOG_FACTOR: u64 = 4;

/// The values of some keys.
type Values = Vec<Option<Stored>>;

/// A key, its position, and the place of its partition. Computed once, as hashing is the largest
/// cost of a write of one key.
#[derive(Debug, Clone, Copy)]
pub(in crate::live) struct LocatedKey<'k> {
    key: &'k [u8],
    place: KeyPlace,
    pub partition: usize,
}

impl LocatedKey<'_> {
    /// Returns the position of a key, which may be this one.
    #[inline]
    fn place_of(&self, shape: &Shape, key: &[u8]) -> KeyPlace {
        match key == self.key {
            true => self.place,
            false => shape.place(key),
        }
    }
}

impl LiveShared {
    /// Writes one operation. Waits as needed.
    pub fn write_one(
        &self,
        key: &[u8],
        operation: Operation<'_>,
        bound: Option<&BoundEntry>,
    ) -> Result<Commit<'_>, LiveError> {
        if self.changes(&operation) {
            let mut batch = Batch::new();
            batch.push(key, operation);
            let wait = Wait::AsNeeded;
            return self.write_batch_waiting(&batch, Writing { wait, bound });
        }
        self.check(key, &operation)?;
        let place = self.shape.place(key);
        let (partition, mut part) = self.lock_key(place, key, bound)?;
        debug_assert!(
            part.access == Access::Open,
            "partition at {partition} is written to, and is {:?}",
            part.access
        );
        let lsn = match &self.log {
            None => None,
            Some(log) => {
                let mut bytes = std::mem::take(&mut part.scratch);
                bytes.clear();
                record::append(&mut bytes, key, operation);
                let appended = log.append(&bytes);
                part.scratch = bytes;
                Some(appended.map_err(|source| self.log_error(source))?)
            }
        };
        part.memtable.add(&self.shape, place, key, operation)?;
        part.traffic.wrote(1, key.len() + operand_bytes(operation));
        part.watchers.written(key);
        part.wrote(bound);
        self.finish_write(part, partition, lsn)
    }

    /// Writes a batch. REQUIRES: the writer may wait.
    pub fn write_batch_waiting(
        &self,
        batch: &Batch,
        by: Writing<'_>,
    ) -> Result<Commit<'_>, LiveError> {
        let written = self.write_batch(batch, by)?;
        written.ok_or_else(|| self.ended())
    }

    /// Writes a batch; `None` if it would have to wait and may not.
    pub fn write_batch(
        &self,
        batch: &Batch,
        by: Writing<'_>,
    ) -> Result<Option<Commit<'_>>, LiveError> {
        loop {
            let Some(first) = self.check_batch(batch, None)? else {
                return Ok(Some(Commit::nothing(self)));
            };
            if self.must_settle(batch) {
                return self.write_settled(batch, by);
            }
            match self.lock_to_write(first.partition, by)? {
                Attempt::Done(part) => {
                    return self.apply_batch(part, first, batch, by.bound).map(Some);
                }
                Attempt::Moved => {}
                Attempt::Waits => return Ok(None),
            }
        }
    }

    /// Checks a batch. Returns its first key, whose partition is that of all; `None` if it is
    /// empty. `known` may be one of them: its partition is locked.
    fn check_batch<'k>(
        &self,
        batch: &'k Batch,
        known: Option<LocatedKey<'k>>,
    ) -> Result<Option<LocatedKey<'k>>, LiveError> {
        let mut router = None;
        let mut first: Option<LocatedKey<'_>> = None;
        for (key, operation) in batch.records() {
            self.check(key, &operation)?;
            let located = match known.filter(|known| known.key == key) {
                Some(known) => known,
                None => {
                    let router = router.get_or_insert_with(|| self.parts.routing());
                    self.locate(router, key)?
                }
            };
            match first {
                None => first = Some(located),
                Some(first) if first.partition != located.partition => {
                    return Err(self.across(first.key, key));
                }
                Some(_) => {}
            }
        }
        if batch.bytes().len() > MAX_BATCH_BYTES {
            let key = first.map_or(&[][..], |first| first.key);
            return Err(self.too_large(key, batch.bytes().len(), MAX_BATCH_BYTES));
        }
        Ok(first)
    }

    fn locate<'k>(&self, router: &Router, key: &'k [u8]) -> Result<LocatedKey<'k>, LiveError> {
        let place = self.shape.place(key);
        let partition = self.partition_by(router, place, key)?;
        Ok(LocatedKey {
            key,
            place,
            partition,
        })
    }

    fn across(&self, first: &[u8], second: &[u8]) -> LiveError {
        LiveError::AcrossPartitions {
            table: self.shape.table.clone(),
            first: show_key(first),
            second: show_key(second),
        }
    }

    /// Applies a batch. REQUIRES: it passed [`LiveShared::check_batch`], which found this first
    /// key.
    fn apply_batch<'a>(
        &'a self,
        mut part: MutexGuard<'_, LivePart>,
        first: LocatedKey<'_>,
        batch: &Batch,
        bound: Option<&BoundEntry>,
    ) -> Result<Commit<'a>, LiveError> {
        debug_assert!(
            part.access == Access::Open,
            "partition at {} is written to, and is {:?}",
            first.partition,
            part.access
        );
        debug_assert!(
            !self.must_settle(batch),
            "an insert into a table whose records expire was not settled"
        );
        let stamped = self.stamped_batch(batch, part.time());
        debug_assert!(
            stamped
                .as_ref()
                .is_none_or(|stamped| stamped.len() == batch.len()),
            "{} operations became others as they were given times",
            batch.len()
        );
        let batch = stamped.as_ref().unwrap_or(batch);
        let lsn = match &self.log {
            None => None,
            Some(log) => Some(
                log.append(batch.bytes())
                    .map_err(|source| self.log_error(source))?,
            ),
        };
        let mut freeze = None;
        for (key, operation) in batch.records() {
            let place = first.place_of(&self.shape, key);
            part.memtable.add(&self.shape, place, key, operation)?;
            part.watchers.written(key);
            if part.memtable.is_full() {
                freeze = Some(part.seal(&self.memory) | freeze.unwrap_or(false));
            }
        }
        part.traffic.wrote(batch.len() as u64, batch.bytes().len());
        part.wrote(bound);
        if let Some(grown) = part.count_buffer(&self.memory) {
            freeze = Some(grown | freeze.unwrap_or(false));
        }
        let Some(freeze) = freeze.or_else(|| self.log_is_long(lsn).then_some(true)) else {
            return Ok(Commit::new(self, lsn));
        };
        drop(part);
        self.after_seal(first.partition, freeze, batch.bytes().len());
        Ok(Commit::new(self, lsn))
    }

    /// Writes a batch with its inserts settled. REQUIRES: all its keys are of one partition.
    fn write_settled(
        &self,
        batch: &Batch,
        by: Writing<'_>,
    ) -> Result<Option<Commit<'_>>, LiveError> {
        let keys: Vec<&[u8]> = batch.records().map(|(key, _)| key).collect();
        let written = self.transact(&keys, by, |_| (batch.clone(), ()))?;
        Ok(written.map(|(commit, ())| commit))
    }

    /// Reads keys of one partition, then writes the batch that `decide` makes of their values, with
    /// no other write between. REQUIRES: the writer may wait.
    pub fn transact_waiting<R>(
        &self,
        keys: &[&[u8]],
        by: Writing<'_>,
        decide: impl FnOnce(Vec<Option<Stored>>) -> (Batch, R),
    ) -> Result<(Commit<'_>, R), LiveError> {
        let done = self.transact(keys, by, decide)?;
        done.ok_or_else(|| self.ended())
    }

    /// Like the above; `None` if it would have to wait and may not. Without a key there is nothing
    /// to lock: the batch is written as any other.
    pub fn transact<R>(
        &self,
        keys: &[&[u8]],
        by: Writing<'_>,
        decide: impl FnOnce(Vec<Option<Stored>>) -> (Batch, R),
    ) -> Result<Option<(Commit<'_>, R)>, LiveError> {
        let Some(&first) = keys.first() else {
            let (batch, outcome) = decide(Vec::new());
            let written = self.write_batch(&batch, by)?;
            return Ok(written.map(|commit| (commit, outcome)));
        };
        let (located, (part, values)) = loop {
            let (located, places) = self.locate_all(first, keys)?;
            match self.lock_and_read(located.partition, &places, keys, by)? {
                Attempt::Done(read) => break (located, read),
                Attempt::Moved => {}
                Attempt::Waits => return Ok(None),
            }
        };
        let present = match self.settles() {
            true => keys
                .iter()
                .copied()
                .zip(values.iter().map(Option::is_some))
                .collect(),
            false => Vec::new(),
        };
        let (batch, outcome) = decide(values);
        let commit = self.write_decided(part, located, &present, (&batch, by.bound))?;
        Ok(Some((commit, outcome)))
    }

    /// Returns the positions of keys of one partition, of which `first` is the first.
    pub(in crate::live) fn locate_all<'k>(
        &self,
        first: &'k [u8],
        keys: &[&[u8]],
    ) -> Result<(LocatedKey<'k>, Vec<KeyPlace>), LiveError> {
        let router = self.parts.routing();
        let located = self.locate(&router, first)?;
        let mut places = Vec::with_capacity(keys.len());
        for &key in keys {
            if key == first {
                places.push(located.place);
                continue;
            }
            let other = self.locate(&router, key)?;
            if other.partition != located.partition {
                return Err(self.across(first, key));
            }
            places.push(other.place);
        }
        Ok((located, places))
    }

    /// Writes a decided batch with the partition of a key locked. `present` says which of the read
    /// keys exist, if inserts are settled.
    pub(in crate::live) fn write_decided<'a>(
        &'a self,
        part: MutexGuard<'_, LivePart>,
        located: LocatedKey<'_>,
        present: &[(&[u8], bool)],
        (batch, bound): (&Batch, Option<&BoundEntry>),
    ) -> Result<Commit<'a>, LiveError> {
        match self.check_batch(batch, Some(located))? {
            None => Ok(Commit::nothing(self)),
            Some(first) if first.partition != located.partition => {
                Err(self.across(located.key, first.key))
            }
            Some(first) => {
                let settled = self.settled_batch(&part, present, batch)?;
                let batch = settled.as_ref().unwrap_or(batch);
                match batch.is_empty() {
                    true => Ok(Commit::nothing(self)),
                    false => self.apply_batch(part, first, batch, bound),
                }
            }
        }
    }

    /// Settles the inserts of a batch by the state under the lock; `None` if it has none that must
    /// be. Keys that were not read before are read now, however long that takes.
    fn settled_batch<'k>(
        &self,
        part: &LivePart,
        present: &[(&'k [u8], bool)],
        batch: &'k Batch,
    ) -> Result<Option<Batch>, LiveError> {
        if !self.must_settle(batch) {
            return Ok(None);
        }
        let mut present: HashMap<&[u8], bool> = present.iter().copied().collect();
        let time = part.time();
        for (key, _) in batch.records() {
            if !present.contains_key(key) {
                let place = self.shape.place(key);
                let newest = part.memtable.get(place, key).map(|found| found.to_owned());
                let shape = (&*self.shape, time);
                let stored = part.view.stored(shape, place, key, newest, true)?;
                present.insert(key, matches!(stored, Some(Some(_))));
            }
        }
        let now_ms = self.shape.now_ms(time);
        Ok(Some(settle(batch, &mut present, now_ms)))
    }

    /// Locks the partition and reads values under its lock. A few times, pages are read into memory
    /// without the lock first. If they are gone each time, it reads them while it holds the lock.
    fn lock_and_read(
        &self,
        partition: usize,
        places: &[KeyPlace],
        keys: &[&[u8]],
        by: Writing<'_>,
    ) -> Result<Attempt<(MutexGuard<'_, LivePart>, Values)>, LiveError> {
        const TRIES: usize = 3;
        for attempt in 0..=TRIES {
            let mut part = match self.lock_to_write(partition, by)? {
                Attempt::Done(part) => part,
                Attempt::Moved => return Ok(Attempt::Moved),
                Attempt::Waits => return Ok(Attempt::Waits),
            };
            part.memtable.note_look();
            let shape = (&*self.shape, part.time());
            let mut values = Vec::with_capacity(keys.len());
            for (&place, key) in places.iter().zip(keys) {
                let newest = part.memtable.get(place, key).map(|found| found.to_owned());
                let may_wait = attempt == TRIES && by.wait == Wait::AsNeeded;
                match part.view.stored(shape, place, key, newest, may_wait)? {
                    Some(stored) => values.push(stored),
                    None => break,
                }
            }
            if values.len() == keys.len() {
                return Ok(Attempt::Done((part, values)));
            }
            if by.wait == Wait::Never {
                return Ok(Attempt::Waits);
            }
            let view = Arc::clone(&part.view);
            drop(part);
            for (&place, key) in places.iter().zip(keys) {
                view.get(shape, place, key, None::<CowOperation<'_>>, true)?;
            }
        }
        // Not reached: the last attempt waits for what it needs.
        Err(self.ended())
    }

    /// Releases the lock. Handles memory if a buffer is full or has grown.
    #[inline]
    fn finish_write<'a>(
        &'a self,
        mut part: MutexGuard<'_, LivePart>,
        partition: usize,
        lsn: Option<Lsn>,
    ) -> Result<Commit<'a>, LiveError> {
        let bytes = part.memtable.bytes();
        let freeze = match part.memtable.is_full() {
            true => Some(part.seal(&self.memory)),
            false => part.count_buffer(&self.memory),
        };
        let Some(freeze) = freeze.or_else(|| self.log_is_long(lsn).then_some(true)) else {
            return Ok(Commit::new(self, lsn));
        };
        drop(part);
        self.after_seal(partition, freeze, bytes);
        Ok(Commit::new(self, lsn))
    }

    /// Handles a write of this many bytes that filled a buffer, or made it grow. Memory is merged,
    /// and frozen if it is this table's turn. Writers may have to pause.
    fn after_seal(&self, partition: usize, freeze: bool, bytes: usize) {
        if let Err(error) = self.compact_memory(partition) {
            // The runs in memory stay as they are, and can still be read.
            warn!(table = %self.shape.table, %error, "runs in memory were not merged");
        }
        if freeze {
            self.freeze();
        }
        if self.budget().write_pressure() >= 1.0 {
            self.gate.close(GATE_FULL);
        }
        self.owe(bytes);
    }

    /// Returns whether the log is too long for the memory that it covers, or is about to fill the
    /// disk. The log grows faster than memory where operations on one key are combined. The disk
    /// must have room for runs. Checked now and then.
    #[inline]
    pub fn log_is_long(&self, lsn: Option<Lsn>) -> bool {
        match (&self.log, lsn) {
            (Some(log), Some(lsn)) => log.has_grown(lsn) && self.log_exceeds(log.size_bytes()),
            _ => false,
        }
    }

    fn log_exceeds(&self, log_bytes: u64) -> bool {
        {
            let progress = self.progress.lock();
            if progress.flushed < progress.frozen {
                return false;
            }
        }
        let most = LOG_FACTOR * self.budget().memtable_share() as u64;
        let free = || self.disk().free_bytes(&self.files.dir);
        log_bytes > most || matches!(free(), Ok(Some(free)) if log_bytes > free / 4)
    }

    /// Refuses an operation that no table, or not this one, can store.
    #[inline]
    pub(in crate::live) fn check(
        &self,
        key: &[u8],
        operation: &Operation<'_>,
    ) -> Result<(), LiveError> {
        if key.is_empty() || key.len() > MAX_KEY_BYTES {
            return Err(LiveError::Key {
                table: self.shape.table.clone(),
                bytes: key.len(),
                limit: MAX_KEY_BYTES,
            });
        }
        if self.options.expiry == Expiry::Never && matches!(operation, Operation::Timed(_)) {
            return Err(LiveError::NoExpiry {
                table: self.shape.table.clone(),
            });
        }
        let check = |operand: &[u8], is_delta: bool| self.check_operand(key, operand, is_delta);
        match operation.plain() {
            Operation::Delete | Operation::Timed(_) => Ok(()),
            Operation::Update(value) | Operation::Insert(value) => check(value, false),
            Operation::Delta(delta) => check(delta, true),
            Operation::InsertDelta { value, delta } => {
                check(value, false)?;
                check(delta, true)
            }
        }
    }

    #[inline]
    fn check_operand(&self, key: &[u8], operand: &[u8], is_delta: bool) -> Result<(), LiveError> {
        if operand.len() > MAX_VALUE_BYTES {
            return Err(self.too_large(key, operand.len(), MAX_VALUE_BYTES));
        }
        match self.shape.delta {
            None | Some(DeltaKind::Append) if !is_delta => Ok(()),
            None => Err(LiveError::NoDelta {
                table: self.shape.table.clone(),
            }),
            Some(kind) => {
                let checked = kind.check(operand);
                checked.map_err(|source| self.shape.operand(key, source))
            }
        }
    }

    fn too_large(&self, key: &[u8], bytes: usize, limit: usize) -> LiveError {
        LiveError::Value {
            table: self.shape.table.clone(),
            key: show_key(key),
            bytes,
            limit,
        }
    }

    /// Converts an error of the log. A closed log ends the table's writes, including those of runs.
    pub fn log_error(&self, source: LogError) -> LiveError {
        if let LogError::Closed {
            action,
            path,
            source,
            ..
        } = &source
        {
            self.fail(&format!("could not {action} {}: {source}", path.display()));
        }
        if let LogError::Full { .. } = &source {
            warn!(table = %self.shape.table, problem = %source, "writes are refused: the log has no room");
            self.notify(|progress| progress.no_room = Some(source.to_string()));
        }
        LiveError::Log(source)
    }
}
