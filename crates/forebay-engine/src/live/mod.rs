//! Live tables: written at any time, one operation or batch at a time, while they are read.
//!
//! The engine of the HugeDB paper: writes never read. An operation (insert, update, delete, delta)
//! goes to the log and to memory; memory is written to sorted runs now and then, runs are merged by
//! a factor in the background, and what several operations on a key amount to is worked out when
//! the key is read or its runs are merged.
//!
//! | module       | what                                                                    |
//! |--------------|-------------------------------------------------------------------------|
//! | `options`, `manifest`, `content`, `stored` | what a table is made with and consists of   |
//! | `open`, `drop`   | its way                                                             |
//! | `memtable`, `mini`, `cursor`, `record` | the buffer that takes writes, sorted runs in memory |
//! | `part`, `run` | a partition: its buffer, and the lists of what lies below; a run, of whose file it may see a part |
//! | `parts`, `holding`, `split` | the partitions that are here; giving one up, taking one in, cutting one in two |
//! | `access`         | getting at a partition that may be given up meanwhile                   |
//! | `write`, `transact`, `batch`, `commit`, `log` | the way of a write                      |
//! | `applied`, `entry`, `entry_load`, `copies` | partitions as replicas: applying what was decided, copies |
//! | `removal`, `removed` | deleting ranges of keys by one record                         |
//! | `snapshot`, `many`, `scan`, `routing` | reading, and where keys lie |
//! | `watch`, `traffic` | hearing of writes; counting both |
//! | `memory_compaction`, `freeze`, `flush`, `compaction`, `levels`, `background` | merging in memory, from memory to runs, merging those |
//! | `pause`, `ingest`, `load` | holding up the writes to some partitions; adding runs that were built elsewhere, by another process too       |
//! | `checkpoint`     | a moment of a table as a store of its own, for other processes too  |
//! | `budget`, `turns`, `pace`, `sweep`, `room`, `promised_files` | memory, keeping writers within it, room and files to write it |
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

mod access;
mod applied;
mod background;
mod batch;
mod budget;
mod checkpoint;
mod commit;
mod compaction;
mod content;
mod copies;
mod cursor;
mod damage;
mod drop;
mod entry;
mod entry_load;
mod error;
mod expiry;
mod flush;
mod freeze;
mod holding;
mod ingest;
mod levels;
mod load;
pub mod log;
mod manifest;
mod many;
mod memory_compaction;
mod memtable;
mod mini;
mod open;
mod options;
mod pace;
mod part;
mod parts;
mod pause;
mod place_copy;
mod promised_files;
mod record;
mod removal;
mod removed;
mod room;
mod routing;
mod run;
mod scan;
mod settle;
mod shape;
mod shared;
mod size;
mod snapshot;
mod split;
mod stats;
mod stored;
mod sweep;
#[cfg(test)]
mod tests;
mod traffic;
mod transact;
mod turns;
mod watch;
mod write;

use std::ops::Bound;
use std::sync::Arc;

use forebay_run::Order;
use forebay_run::format::RunOptions;
use forebay_run::hash::KeyHasher;
use forebay_run::operation::{CowOperation, Operation};
use forebay_run::scan::{Direction, ScanRange};

pub use self::applied::{AppliedPlace, DecidedEntry, EntryError};
pub use self::batch::Batch;
pub use self::budget::Budget;
pub use self::checkpoint::*;
pub use self::commit::{Commit, LogTicket};
pub use self::content::{PartitionContent, PartitionRun};
pub use self::copies::PartitionCopy;
pub use self::entry::EntryWrite;
pub use self::error::LiveError;
pub use self::expiry::{Expiry, Stored};
pub use self::ingest::IngestRun;
pub use self::load::{Load, LoadError, LoadOutcome, LoadTicket, LoadTurn, StagedLoad, StagedRun};
pub use self::log::{Durability, DurabilityError, LogError};
pub use self::many::KeySnapshot;
pub use self::options::{LiveDraft, LiveOptions, Replication};
pub use self::room::{DiskRoom, FoundRoom};
pub use self::routing::KeyRouting;
pub use self::scan::LiveScan;
pub use self::size::PartitionSize;
pub use self::snapshot::{LiveLookup, Snapshot};
pub use self::split::SplitChild;
pub use self::stats::LiveStats;
pub use self::stored::LiveInfo;
pub use self::traffic::PartitionTraffic;
pub use self::transact::LockedKeys;
pub use self::watch::KeyWatch;
pub use self::write::MAX_VALUE_BYTES;

use self::access::{Wait, Writing};
use self::background::Threads;
use self::entry::BoundEntry;
use self::removal::Removal;
use self::shared::LiveShared;
use crate::name::TableName;
use crate::partition::{PartitionId, PartitionRange};
use crate::push::NewRun;

/// An open live table. Clones are handles to the same table, for any number of threads; the last
/// one dropped closes it. A table is open in one process at a time.
#[derive(Debug, Clone)]
pub struct LiveTable {
    threads: Arc<Threads>,
    /// The proposal whose command has this handle.
    bound: Option<Arc<BoundEntry>>,
}

impl LiveTable {
    fn start(shared: Arc<LiveShared>) -> Self {
        let threads = Arc::new(Threads::start(shared));
        let bound = None;
        Self { threads, bound }
    }

    /// A handle by which a proposal is applied.
    fn bound_to(&self, bound: Arc<BoundEntry>) -> Self {
        Self {
            threads: Arc::clone(&self.threads),
            bound: Some(bound),
        }
    }

    /// A handle like any other.
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

    /// Random, from when it is made.
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

    /// The partition that a key lies in; `None`: it is not here.
    pub fn partition_of(&self, key: &[u8]) -> Option<PartitionId> {
        self.routing().partition_of(key)
    }

    /// Where keys lie now.
    pub fn routing(&self) -> KeyRouting<'_> {
        KeyRouting::of(self.shared())
    }

    /// As [`LiveTable::partition_of`]; where it is not here, the error that a write of the key ends
    /// with.
    pub fn partition_holding(&self, key: &[u8]) -> Result<PartitionId, LiveError> {
        let here = self.partition_of(key);
        here.ok_or_else(|| self.shared().shape.not_here(key))
    }

    /// The partitions that are here, in the table's order.
    pub fn partitions(&self) -> Vec<PartitionRange> {
        self.shared().parts.ranges()
    }

    /// Gives a partition up: from one moment on its keys are [`LiveError::NotHere`]. What was
    /// written before can be read in snapshots taken before; its runs are removed. Writes to it
    /// wait while memory is flushed.
    pub fn release(&self, id: PartitionId) -> Result<(), LiveError> {
        self.shared().release(id)
    }

    /// Takes a partition in, with runs that were written for this table, see
    /// [`LiveTable::new_run`]; those of another store's table get ids of here first. Its id and
    /// bounds must be apart from those that are here. Where it was here before, it comes back in
    /// no earlier epoch. After an error it was not taken in, and the runs' files are removed.
    pub fn adopt(&self, partition: PartitionContent) -> Result<(), LiveError> {
        self.shared().adopt(partition)
    }

    /// Cuts a partition in two at a bound that lies within it: it keeps what comes before, and a
    /// new partition has the rest, whose id no partition here has or had. Both are in the next
    /// epoch. Nothing is copied: the runs become those of both, each of which sees its part of
    /// them, until it merges them. Writes to the partition wait while memory is flushed; no read
    /// does, and none meets a moment at which a key is not here.
    pub fn split(
        &self,
        id: PartitionId,
        at: &crate::Bound,
        right: PartitionId,
    ) -> Result<(), LiveError> {
        self.shared().split(id, at, right)
    }

    /// What a partition consists of on the disk, where it is here. Merges may remove the files at
    /// any time; those of a checkpoint stay: see [`Store::live_info`](crate::Store::live_info).
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

    /// Adds to a key's value, by the table's kind of deltas; an absent key becomes the delta.
    pub fn delta(&self, key: &[u8], delta: &[u8]) -> Result<Commit<'_>, LiveError> {
        self.write_one(key, Operation::Delta(delta))
    }

    #[inline]
    fn write_one(&self, key: &[u8], operation: Operation<'_>) -> Result<Commit<'_>, LiveError> {
        self.shared().write_one(key, operation, self.bound())
    }

    /// Does all operations of a batch at once. All keys must lie in one partition.
    pub fn write(&self, batch: &Batch) -> Result<Commit<'_>, LiveError> {
        let by = self.writer(Wait::AsNeeded);
        self.shared().write_batch_waiting(batch, by)
    }

    /// Does the operations of a batch one after the other, whichever partitions their keys lie in.
    /// The commit is that of the last one, and covers all. After an error those before the refused
    /// one are done. A handle of a proposal does all of it at once, as it writes once.
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

    /// [`LiveTable::write`] from a thread that must not wait: `None`, and nothing is done, where it
    /// would have to.
    pub fn try_write(&self, batch: &Batch) -> Result<Option<Commit<'_>>, LiveError> {
        self.shared().write_batch(batch, self.writer(Wait::Never))
    }

    /// The commit that a ticket of this table names.
    pub fn commit(&self, ticket: LogTicket) -> Commit<'_> {
        Commit::again(self.shared(), ticket)
    }

    /// Reads a key and writes what `decide` makes of its value, with no other write between. This
    /// reads, as no other write does: use it where what is written depends on what is there.
    /// `decide` also returns what this returns beside the commit; without an operation nothing is
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

    /// [`LiveTable::modify`] for several keys of one partition: reads them, and does the batch that
    /// `decide` makes of what they hold, with no other write to the partition between.
    pub fn transact<R>(
        &self,
        keys: &[&[u8]],
        decide: impl FnOnce(Vec<Option<Stored>>) -> (Batch, R),
    ) -> Result<(Commit<'_>, R), LiveError> {
        let by = self.writer(Wait::AsNeeded);
        self.shared().transact_waiting(keys, by, decide)
    }

    /// [`LiveTable::transact`] from a thread that must not wait: `None`, and nothing is done, where
    /// it would have to.
    pub fn try_transact<R>(
        &self,
        keys: &[&[u8]],
        decide: impl FnOnce(Vec<Option<Stored>>) -> (Batch, R),
    ) -> Result<Option<(Commit<'_>, R)>, LiveError> {
        self.shared()
            .transact(keys, self.writer(Wait::Never), decide)
    }

    /// The value of a key. Waits for the device when it must.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, LiveError> {
        self.shared().get(key)
    }

    /// When a key's value expires, in milliseconds since 1970-01-01 UTC: `u64::MAX` is never.
    /// `None` when there is none.
    pub fn expires_ms(&self, key: &[u8]) -> Result<Option<u64>, LiveError> {
        Ok(self.shared().expires_ms(key, true)?.flatten())
    }

    /// [`LiveTable::expires_ms`] from a thread that must not wait: `None` where it would have to.
    pub fn try_expires_ms(&self, key: &[u8]) -> Result<Option<Option<u64>>, LiveError> {
        self.shared().expires_ms(key, false)
    }

    /// The value of a key, without waiting for the device.
    #[inline]
    pub fn try_get(&self, key: &[u8]) -> Result<LiveLookup, LiveError> {
        self.shared().try_get(key)
    }

    /// The values of many keys, in their order. Those of one partition are of one moment; for one
    /// moment of all of them take a [`Snapshot`].
    pub fn get_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Vec<u8>>>, LiveError> {
        self.shared().get_many(keys)
    }

    /// Some keys as they are now, those of one partition at one moment.
    pub fn snapshot_keys<'k>(&self, keys: &[&'k [u8]]) -> Result<KeySnapshot<'_, 'k>, LiveError> {
        let snapshot = self.shared().snapshot_keys(keys, true)?;
        snapshot.ok_or_else(|| self.shared().ended())
    }

    /// [`LiveTable::snapshot_keys`] that must not wait: `None` where it would have to.
    pub fn try_snapshot_keys<'k>(
        &self,
        keys: &[&'k [u8]],
    ) -> Result<Option<KeySnapshot<'_, 'k>>, LiveError> {
        self.shared().snapshot_keys(keys, false)
    }

    /// Watches a key from now on. Whether it was written to is known for certain in what
    /// [`LiveTable::transact`] is to decide, where its partition is that of the keys there.
    pub fn watch(&self, key: &[u8]) -> Result<KeyWatch, LiveError> {
        self.shared().watch(key)
    }

    /// The table as it is now, to be read for as long as wanted. Runs that were merged away
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

    /// Writes all that is in memory to runs, and returns when they are durable.
    pub fn flush(&self) -> Result<(), LiveError> {
        self.shared().flush()
    }

    /// Flushes, then merges each partition's runs into one. What is written meanwhile is not in it.
    pub fn compact(&self) -> Result<(), LiveError> {
        self.shared().compact()
    }

    /// Deletes all keys between two at one moment, by one record: none is read or written. Only for
    /// ordered tables. The space that they take comes back when runs are merged.
    ///
    /// A partition with a thousand such ranges that no merge has come to yet has its keys deleted
    /// one by one instead, those that are there when this begins.
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

    /// [`LiveTable::delete_range`], and how many keys those were. They are counted when they are
    /// deleted: after an error of reading they are, too.
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

    /// Deletes all keys of the partitions that are here, at one moment, by one record. The space
    /// that they take comes back soon.
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

    /// Whether the partition of a key is one that this handle may write to.
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

    /// Before the next write of several.
    fn pause(&self, before: Commit<'_>) {
        let delay = before.delay();
        if !delay.is_zero() {
            self.shared().clock().sleep(delay);
        }
    }

    /// An id and a path for a run to be written and then added by [`LiveTable::ingest`].
    pub fn new_run(&self) -> NewRun {
        self.shared().new_run()
    }

    /// How to write such a run, of at most so many records, with so many bytes of keys and values;
    /// see also [`RunOptions::for_keys_of`].
    pub fn run_options(&self, records: u64, bytes: u64) -> RunOptions {
        self.shared().ingest_options(records, bytes)
    }

    /// Adds finished, synced runs to their partitions, all at one moment. What was written before
    /// is older than they are, what is written after is newer; of several runs of a partition those
    /// given later are newer. Memory is flushed before. Writes to these partitions, and to no
    /// other, wait for as long as it takes to flush what came in last. After an error none was
    /// added, and their files are removed.
    pub fn ingest(&self, runs: &[IngestRun]) -> Result<(), LiveError> {
        self.shared().ingest(runs)
    }

    /// Reads every run back from its device and checks it; returns what is wrong with which, and
    /// how many there are. No merge goes on meanwhile. `advance` is told of pages.
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
