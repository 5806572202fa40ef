//! Live tables: written at any time, one operation or batch at a time, while they are read.
//!
//! This is the engine of the HugeDB paper: writes never read. An operation (insert, update, delete,
//! delta) goes to the log and to memory. Memory is flushed to sorted runs from time to time. Runs
//! are merged by a factor in the background. Operations on a key are combined when the key is read
//! or its runs are merged.
//!
//! | module | content |
//! | --- | --- |
//! | `basics` | options, errors, shapes, manifests, ranges that were removed, limits |
//! | `memory` | the buffer that takes writes, sorted runs in memory, the runs that they become |
//! | `partition` | a partition's sources, locks and scans; the state that a table's threads share |
//! | `log` | the file in which writes are durable before they are in a run |
//! | `reading`, `writing` | the paths of reads and writes |
//! | `maintenance` | flushes and merges, and the pace and room for them |
//! | `replicas` | partitions that are placed, copied, split and released, as replicas are |
//! | `checkpoint`, `load` | a table's state as a store of its own; adding runs that were built elsewhere |
//! | `open`, `drop` | creating, opening and dropping tables |
//!
//! ```
//! use forebay_engine::TableName;
//! use forebay_engine::live::{Budget, Durability, LiveDraft};
//! use forebay_run::operation::DeltaKind;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! let store = forebay_engine::open(dir.path())?;
//! let budget = Budget::new(256 << 20);
//! let draft = LiveDraft::hashed()
//!     .delta(DeltaKind::AddI64)
//!     .durability(Durability::EveryMs(100));
//! let clicks = store.create_live(&TableName::new("clicks")?, draft, &budget)?;
//!
//! clicks.delta(b"page-7", &1i64.to_le_bytes())?.wait()?;
//! clicks.delta(b"page-7", &2i64.to_le_bytes())?.wait()?;
//! assert_eq!(clicks.get(b"page-7")?, Some(3i64.to_le_bytes().to_vec()));
//!
//! let moment = clicks.snapshot();
//! clicks.delete(b"page-7")?.wait()?;
//! assert!(moment.get(b"page-7")?.is_some());
//! # Ok(())
//! # }
//! ```

mod basics;
mod checkpoint;
mod drop;
mod load;
pub mod log;
mod maintenance;
mod memory;
mod open;
mod partition;
mod reading;
mod replicas;
#[cfg(test)]
mod tests;
mod writing;

use std::ops::Bound;
use std::sync::Arc;

use forebay_run::Order;
use forebay_run::format::RunOptions;
use forebay_run::hash::KeyHasher;
use forebay_run::operation::{CowOperation, Operation};
use forebay_run::scan::{Direction, ScanRange};

pub use self::checkpoint::*;
pub use self::load::{Load, LoadError, LoadOutcome, LoadTicket, LoadTurn, StagedLoad, StagedRun};
pub use self::log::{Durability, DurabilityError, LogError};
pub use crate::live::basics::applied::{AppliedPlace, DecidedEntry, EntryError};
pub use crate::live::basics::batch::Batch;
pub use crate::live::basics::content::{PartitionContent, PartitionRun};
pub use crate::live::basics::error::LiveError;
pub use crate::live::basics::expiry::{Expiry, Stored};
pub use crate::live::basics::options::{LiveDraft, LiveOptions, Replication};
pub use crate::live::basics::stored::LiveInfo;
pub use crate::live::basics::traffic::PartitionTraffic;
pub use crate::live::basics::watch::KeyWatch;
pub use crate::live::maintenance::room::{DiskRoom, FoundRoom};
pub use crate::live::maintenance::size::PartitionSize;
pub use crate::live::maintenance::stats::LiveStats;
pub use crate::live::partition::budget::Budget;
pub use crate::live::partition::entry::EntryWrite;
pub use crate::live::partition::parts::KeyRouting;
pub use crate::live::partition::scan::LiveScan;
pub use crate::live::reading::many::KeySnapshot;
pub use crate::live::reading::snapshot::{LiveLookup, Snapshot};
pub use crate::live::replicas::copies::PartitionCopy;
pub use crate::live::replicas::split::SplitChild;
pub use crate::live::writing::commit::{Commit, LogTicket};
pub use crate::live::writing::ingest::IngestRun;
pub use crate::live::writing::transact::LockedKeys;
pub use crate::live::writing::write::MAX_VALUE_BYTES;

use crate::keys::partition::{PartitionId, PartitionRange};
use crate::live::maintenance::background::Threads;
use crate::live::partition::access::{Wait, Writing};
use crate::live::partition::entry::BoundEntry;
use crate::live::partition::shared::LiveShared;
use crate::live::writing::removal::Removal;
use crate::name::TableName;
use crate::publishing::push::NewRun;

/// An open live table. Clones are handles to the same table, for any number of threads. Dropping
/// the last one closes it. A table is open in one process at a time.
#[derive(Debug, Clone)]
pub struct LiveTable {
    threads: Arc<Threads>,
    /// The proposal that this handle applies, if any.
    bound: Option<Arc<BoundEntry>>,
}

impl LiveTable {
    fn start(shared: Arc<LiveShared>) -> Self {
        let threads = Arc::new(Threads::start(shared));
        let bound = None;
        Self { threads, bound }
    }

    /// Returns a handle that applies a proposal.
    fn bound_to(&self, bound: Arc<BoundEntry>) -> Self {
        Self {
            threads: Arc::clone(&self.threads),
            bound: Some(bound),
        }
    }

    /// Returns a handle without a proposal.
    fn unbound(&self) -> Self {
        Self {
            threads: Arc::clone(&self.threads),
            bound: None,
        }
    }

    #[inline]
    fn bound(&self) -> Option<&BoundEntry> {
        self.bound.as_deref()
    }

    #[inline]
    fn writer(&self, wait: Wait) -> Writing<'_> {
        let bound = self.bound();
        Writing { wait, bound }
    }

    #[inline]
    fn shared(&self) -> &LiveShared {
        self.threads.shared()
    }

    pub fn name(&self) -> &TableName {
        &self.shared().shape.table
    }

    /// Returns the table's id: a random number from its creation.
    pub fn id(&self) -> u64 {
        self.shared().structure.lock().table_id
    }

    pub fn options(&self) -> &LiveOptions {
        &self.shared().options
    }

    pub fn order(&self) -> Order {
        self.shared().shape.order
    }

    /// Computes the hash64 of this table's keys.
    pub fn hasher(&self) -> &KeyHasher {
        &self.shared().shape.hasher
    }

    /// Returns the partition that has a key; `None` if this table does not hold it.
    pub fn partition_of(&self, key: &[u8]) -> Option<PartitionId> {
        self.routing().partition_of(key)
    }

    /// Returns the current routing of keys to partitions.
    pub fn routing(&self) -> KeyRouting<'_> {
        let shared = self.shared();
        KeyRouting::of(&shared.parts, &shared.shape)
    }

    /// Like [`LiveTable::partition_of`]. If the table does not hold the partition, returns the
    /// error of a write of the key.
    pub fn partition_holding(&self, key: &[u8]) -> Result<PartitionId, LiveError> {
        let here = self.partition_of(key);
        here.ok_or_else(|| self.shared().shape.not_here(key))
    }

    /// Returns the partitions that this table holds, in the table's order.
    pub fn partitions(&self) -> Vec<PartitionRange> {
        self.shared().parts.ranges()
    }

    /// Releases a partition: from one moment on, operations on its keys fail with
    /// [`LiveError::NotHere`]. Snapshots taken before can still read it. Its runs are removed.
    /// Writes to it wait while memory is flushed.
    pub fn release(&self, id: PartitionId) -> Result<(), LiveError> {
        self.shared().release(id)
    }

    /// Adopts a partition, with runs that were written for this table, see [`LiveTable::new_run`].
    /// Runs of another store's table first get ids of this table. The partition's id and bounds
    /// must differ from those that the table holds. If the table held it before, its epoch must not
    /// be earlier. After an error it was not adopted, and the runs' files are removed.
    pub fn adopt(&self, partition: PartitionContent) -> Result<(), LiveError> {
        self.shared().adopt(partition)
    }

    /// Splits a partition in two at a bound within it. It keeps the keys before the bound. A new
    /// partition gets the rest, with an id that no partition of this table has or had. Both get the
    /// next epoch. Nothing is copied: both share the runs, and each sees its part of them, until it
    /// merges them. Writes to the partition wait while memory is flushed. Reads do not wait, and
    /// find each key at every moment.
    pub fn split(
        &self,
        id: PartitionId,
        at: &crate::Bound,
        right: PartitionId,
    ) -> Result<(), LiveError> {
        self.shared().split(id, at, right)
    }

    /// Returns a partition's content on the disk, if the table holds it. Merges may remove the
    /// files at any time; those of a checkpoint stay: see
    /// [`Store::live_info`](crate::Store::live_info).
    pub fn content(&self, id: PartitionId) -> Option<PartitionContent> {
        self.shared().content(id)
    }

    /// Sets a key's value if the key is absent.
    pub fn insert(&self, key: &[u8], value: &[u8]) -> Result<Commit<'_>, LiveError> {
        self.write_one(key, Operation::Insert(value))
    }

    /// Sets a key's value.
    pub fn update(&self, key: &[u8], value: &[u8]) -> Result<Commit<'_>, LiveError> {
        self.write_one(key, Operation::Update(value))
    }

    pub fn delete(&self, key: &[u8]) -> Result<Commit<'_>, LiveError> {
        self.write_one(key, Operation::Delete)
    }

    /// Adds to a key's value, by the table's kind of deltas. An absent key gets the delta as its
    /// value.
    pub fn delta(&self, key: &[u8], delta: &[u8]) -> Result<Commit<'_>, LiveError> {
        self.write_one(key, Operation::Delta(delta))
    }

    #[inline]
    fn write_one(&self, key: &[u8], operation: Operation<'_>) -> Result<Commit<'_>, LiveError> {
        self.shared().write_one(key, operation, self.bound())
    }

    /// Does all operations of a batch at once. All keys must be in one partition.
    pub fn write(&self, batch: &Batch) -> Result<Commit<'_>, LiveError> {
        let by = self.writer(Wait::AsNeeded);
        self.shared().write_batch_waiting(batch, by)
    }

    /// Refuses a key or an operation that this table cannot store, without writing it.
    pub fn check(&self, key: &[u8], operation: Operation<'_>) -> Result<(), LiveError> {
        self.shared().check(key, &operation)
    }

    /// Does the operations of a batch one after the other, in any partitions. The commit is that of
    /// the last one, and covers all. After an error, the operations before the refused one are
    /// done. A handle of a proposal does all of it at once, as it writes once.
    pub fn write_each(&self, batch: &Batch) -> Result<Commit<'_>, LiveError> {
        if self.bound().is_some() {
            return self.write(batch);
        }
        let mut last = Commit::nothing(self.shared());
        for (key, operation) in batch.records() {
            self.pause(last);
            last = self.write_one(key, operation)?;
        }
        Ok(last)
    }

    /// [`LiveTable::write`] from a thread that must not wait. Returns `None`, and does nothing, if
    /// it would have to.
    pub fn try_write(&self, batch: &Batch) -> Result<Option<Commit<'_>>, LiveError> {
        self.shared().write_batch(batch, self.writer(Wait::Never))
    }

    /// Returns the commit that a ticket of this table names.
    pub fn commit(&self, ticket: LogTicket) -> Commit<'_> {
        Commit::again(self.shared(), ticket)
    }

    /// Reads a key and writes the operation that `decide` makes of its value, with no other write
    /// between. Unlike other writes, this reads: use it if the new value depends on the old one.
    /// The second value of `decide` is returned beside the commit. Without an operation nothing is
    /// written.
    pub fn modify<R>(
        &self,
        key: &[u8],
        decide: impl FnOnce(Option<&[u8]>) -> (Option<CowOperation<'static>>, R),
    ) -> Result<(Commit<'_>, R), LiveError> {
        let by = self.writer(Wait::AsNeeded);
        self.shared().transact_waiting(&[key], by, |values| {
            let value = values.first().and_then(Option::as_ref);
            let (operation, outcome) = decide(value.map(|stored| &stored.value[..]));
            let mut batch = Batch::new();
            if let Some(operation) = operation {
                batch.push(key, operation.borrow());
            }
            (batch, outcome)
        })
    }

    /// [`LiveTable::modify`] for several keys of one partition. Reads them, and does the batch that
    /// `decide` makes of their values, with no other write to the partition between.
    pub fn transact<R>(
        &self,
        keys: &[&[u8]],
        decide: impl FnOnce(Vec<Option<Stored>>) -> (Batch, R),
    ) -> Result<(Commit<'_>, R), LiveError> {
        let by = self.writer(Wait::AsNeeded);
        self.shared().transact_waiting(keys, by, decide)
    }

    /// [`LiveTable::transact`] from a thread that must not wait. Returns `None`, and does nothing,
    /// if it would have to.
    pub fn try_transact<R>(
        &self,
        keys: &[&[u8]],
        decide: impl FnOnce(Vec<Option<Stored>>) -> (Batch, R),
    ) -> Result<Option<(Commit<'_>, R)>, LiveError> {
        self.shared()
            .transact(keys, self.writer(Wait::Never), decide)
    }

    /// Returns the value of a key. Waits for the device when it must.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, LiveError> {
        self.shared().get(key)
    }

    /// Returns when a key's value expires, in milliseconds since 1970-01-01 UTC: `u64::MAX` is
    /// never. `None` if there is no value.
    pub fn expires_ms(&self, key: &[u8]) -> Result<Option<u64>, LiveError> {
        Ok(self.shared().expires_ms(key, true)?.flatten())
    }

    /// [`LiveTable::expires_ms`] from a thread that must not wait: `None` if it would have to.
    pub fn try_expires_ms(&self, key: &[u8]) -> Result<Option<Option<u64>>, LiveError> {
        self.shared().expires_ms(key, false)
    }

    /// Returns the value of a key, without waiting for the device.
    #[inline]
    pub fn try_get(&self, key: &[u8]) -> Result<LiveLookup, LiveError> {
        self.shared().try_get(key)
    }

    /// Returns the values of many keys, in their order. Those of one partition are of one moment.
    /// For one moment of all keys use a [`Snapshot`].
    pub fn get_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Vec<u8>>>, LiveError> {
        self.shared().get_many(keys)
    }

    /// Returns some keys as they are now, those of one partition at one moment.
    pub fn snapshot_keys<'k>(&self, keys: &[&'k [u8]]) -> Result<KeySnapshot<'_, 'k>, LiveError> {
        let snapshot = self.shared().snapshot_keys(keys, true)?;
        snapshot.ok_or_else(|| self.shared().ended())
    }

    /// [`LiveTable::snapshot_keys`] from a thread that must not wait: `None` if it would have to.
    pub fn try_snapshot_keys<'k>(
        &self,
        keys: &[&'k [u8]],
    ) -> Result<Option<KeySnapshot<'_, 'k>>, LiveError> {
        self.shared().snapshot_keys(keys, false)
    }

    /// Watches a key from now on. `decide` of [`LiveTable::transact`] can rely on the result of the
    /// watch if the watched key is in the same partition as the transaction's keys.
    pub fn watch(&self, key: &[u8]) -> Result<KeyWatch, LiveError> {
        self.shared().watch(key)
    }

    /// Returns the table as it is now, to be read for any time. Runs that were merged away
    /// meanwhile keep their space until the last snapshot that reads them is dropped.
    pub fn snapshot(&self) -> Snapshot {
        self.shared().snapshot()
    }

    /// Walks the records between two keys as they are now. Only for ordered tables:
    /// [`LiveError::NoKeyOrder`].
    pub fn scan(
        &self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        direction: Direction,
    ) -> Result<LiveScan, LiveError> {
        self.snapshot().scan_keys(from, to, direction)
    }

    /// Walks the records whose keys begin with `prefix`, as they are now. Only for ordered tables.
    pub fn scan_prefix(&self, prefix: &[u8], direction: Direction) -> Result<LiveScan, LiveError> {
        let behind = ScanRange::behind_prefix(prefix);
        let behind = behind.as_ref().map(Vec::as_slice);
        self.scan(Bound::Included(prefix), behind, direction)
    }

    /// Walks all records as they are now, in the table's order.
    pub fn entries(&self) -> LiveScan {
        self.snapshot().scan(Direction::Forward)
    }

    /// Flushes all memory to runs, and returns when they are durable.
    pub fn flush(&self) -> Result<(), LiveError> {
        self.shared().flush()
    }

    /// Flushes, then merges each partition's runs into one. Writes made meanwhile are not in it.
    pub fn compact(&self) -> Result<(), LiveError> {
        self.shared().compact()
    }

    /// Deletes all keys between two at one moment, by one record: none is read or written. Only for
    /// ordered tables. Their space is freed when runs are merged.
    ///
    /// If a partition has a thousand such ranges that are not merged yet, its keys are deleted one
    /// by one instead: those that exist when this begins.
    pub fn delete_range(
        &self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
    ) -> Result<Commit<'_>, LiveError> {
        match self.shared().remove_keys(from, to, self.bound())? {
            Removal::Done(_, commit) => Ok(commit),
            Removal::TooMany => Ok(self.delete_each(from, to)?.1),
        }
    }

    /// Like [`LiveTable::delete_range`]; also returns how many keys there were. They are counted
    /// when they are deleted, so after a read error they are deleted, too.
    pub fn delete_range_counted(
        &self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
    ) -> Result<(u64, Commit<'_>), LiveError> {
        match self.shared().remove_keys(from, to, self.bound())? {
            Removal::Done(before, commit) => {
                let mut scan = match self.bound() {
                    None => before.scan_keys(from, to, Direction::Forward)?,
                    Some(_) => before.scan_range(ScanRange::keys(from, to), Direction::Forward),
                };
                let mut keys = 0;
                while scan.advance()? {
                    keys += u64::from(self.reaches(scan.key(), scan.hash()));
                }
                Ok((keys, commit))
            }
            Removal::TooMany => self.delete_each(from, to),
        }
    }

    /// Deletes all keys of the partitions that this table holds, at one moment, by one record.
    /// Their space is freed soon.
    pub fn delete_all(&self) -> Result<Commit<'_>, LiveError> {
        self.shared().remove_all(self.bound())
    }

    fn delete_each(
        &self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
    ) -> Result<(u64, Commit<'_>), LiveError> {
        if self.bound().is_some() {
            return self.delete_together(from, to);
        }
        let mut scan = self.scan(from, to, Direction::Forward)?;
        let mut deleted = 0;
        let mut last = Commit::nothing(self.shared());
        while scan.advance()? {
            self.pause(last);
            last = self.delete(scan.key())?;
            deleted += 1;
        }
        Ok((deleted, last))
    }

    /// Returns whether this handle may write to the partition of a key.
    fn reaches(&self, key: &[u8], hash: u64) -> bool {
        let place = self.shared().parts.place_of(hash, key);
        let bound = self.bound();
        bound.is_none_or(|bound| place == Some(bound.slot))
    }

    /// Deletes the keys of a range in the partition that this handle is bound to, in one write.
    fn delete_together(
        &self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
    ) -> Result<(u64, Commit<'_>), LiveError> {
        let range = ScanRange::keys(from, to);
        let mut scan = self.snapshot().scan_range(range, Direction::Forward);
        let (mut batch, mut deleted) = (Batch::new(), 0);
        while scan.advance()? {
            if self.reaches(scan.key(), scan.hash()) {
                batch.push(scan.key(), Operation::Delete);
                deleted += 1;
            }
        }
        Ok((deleted, self.write(&batch)?))
    }

    /// Pauses before the next of several writes.
    fn pause(&self, before: Commit<'_>) {
        let delay = before.delay();
        if !delay.is_zero() {
            self.shared().clock().sleep(delay);
        }
    }

    /// Returns an id and a path for a run to be written and then added by [`LiveTable::ingest`].
    pub fn new_run(&self) -> NewRun {
        self.shared().new_run()
    }

    /// Returns the options for such a run, of at most this many records, with this many bytes of
    /// keys and values; see also [`RunOptions::for_keys_of`].
    pub fn run_options(&self, records: u64, bytes: u64) -> RunOptions {
        self.shared().ingest_options(records, bytes)
    }

    /// Adds finished, synced runs to their partitions, all at one moment. Earlier writes are older
    /// than the runs, later writes are newer. Of several runs of a partition, later ones in the
    /// list are newer. Memory is flushed before. Only writes to these partitions wait, while the
    /// last writes are flushed. After an error none was added, and their files are removed.
    pub fn ingest(&self, runs: &[IngestRun]) -> Result<(), LiveError> {
        self.shared().ingest(runs)
    }

    /// Reads every run back from its device and checks it. Returns the damaged runs with their
    /// problems, and the number of runs. No merge runs meanwhile. `advance` gets the number of
    /// pages.
    pub fn verify(
        &self,
        advance: &mut dyn FnMut(u64),
    ) -> Result<(usize, Vec<LiveError>), LiveError> {
        self.shared().verify(advance)
    }

    pub fn stats(&self) -> LiveStats {
        self.shared().stats()
    }
}
