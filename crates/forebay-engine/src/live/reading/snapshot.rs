//! Reads: single keys, and a moment of the whole table.

use std::collections::HashSet;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use forebay_run::Order;
use forebay_run::operation::CowOperation;
use forebay_run::run::Run;
use forebay_run::scan::{Direction, ScanRange};
use parking_lot::MutexGuard;

use crate::keys::route::Router;
use crate::live::basics::error::LiveError;
use crate::live::basics::expiry::Stored;
use crate::live::basics::shape::{KeyPlace, PartTime, Shape};
use crate::live::basics::traffic::SampledRead;
use crate::live::basics::watch::KeyWatch;
use crate::live::partition::access::Attempt;
use crate::live::partition::part::{LivePart, PartFound, PartView, SnapshotPart};
use crate::live::partition::scan::LiveScan;
use crate::live::partition::shared::LiveShared;

/// The answer of a look-up that must not wait for the device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LiveLookup {
    Found(Vec<u8>),
    Absent,
    /// Not known without reading the device: use the waiting form, from a thread that may wait.
    NotResident,
}

/// A table as it was at one moment. Later writes do not change it. While it is held, it keeps the
/// memory and the files that it reads.
#[derive(Debug, Clone)]
pub struct Snapshot {
    pub(crate) shape: Arc<Shape>,
    pub(crate) router: Arc<Router>,
    /// By their places.
    pub(crate) parts: Arc<[SnapshotPart]>,
}

type NewestRecord = (Option<CowOperation<'static>>, Arc<PartView>, PartTime);

/// A [`NewestRecord`], and whether the read's length is to be counted.
type CountedNewest = (NewestRecord, Option<SampledRead>);

impl LiveShared {
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, LiveError> {
        match self.look_up(key, true)? {
            PartFound::Value(value) => Ok(value),
            PartFound::Waits => Ok(None),
        }
    }

    #[inline]
    pub fn try_get(&self, key: &[u8]) -> Result<LiveLookup, LiveError> {
        Ok(match self.look_up(key, false)? {
            PartFound::Value(Some(value)) => LiveLookup::Found(value),
            PartFound::Value(None) => LiveLookup::Absent,
            PartFound::Waits => LiveLookup::NotResident,
        })
    }

    #[inline]
    fn look_up(&self, key: &[u8], wait: bool) -> Result<PartFound, LiveError> {
        let place = self.shape.place(key);
        let Some(((newest, view, time), sampled)) = self.newest_or_wait(place, key, wait)? else {
            return Ok(PartFound::Waits);
        };
        let found = view.get((&self.shape, time), place, key, newest, wait)?;
        if let PartFound::Value(value) = &found {
            self.count_length(sampled, value.as_deref());
        }
        Ok(found)
    }

    /// See [`LiveTable::stored`](crate::live::LiveTable::stored).
    #[inline]
    pub fn stored(&self, key: &[u8], wait: bool) -> Result<Option<Option<Stored>>, LiveError> {
        let place = self.shape.place(key);
        let Some(((newest, view, time), sampled)) = self.newest_or_wait(place, key, wait)? else {
            return Ok(None);
        };
        let found = view.stored((&self.shape, time), place, key, newest, wait)?;
        if let Some(Some(stored)) = &found {
            self.count_length(sampled, Some(&stored.value));
        }
        Ok(found)
    }

    /// `None` if it would have to wait and may not.
    pub fn expires_ms(&self, key: &[u8], wait: bool) -> Result<Option<Option<u64>>, LiveError> {
        let place = self.shape.place(key);
        let Some(((newest, view, time), _)) = self.newest_or_wait(place, key, wait)? else {
            return Ok(None);
        };
        let resolved = view.resolve(&self.shape, place, key, newest, wait)?;
        let expires_ms = |operation: CowOperation<'_>| {
            let (_, expires_ms) = operation.borrow().value()?;
            (self.shape.now_ms(time) < expires_ms).then_some(expires_ms)
        };
        Ok(resolved.map(|operation| operation.and_then(expires_ms)))
    }

    /// See [`LiveTable::time_of`](crate::live::LiveTable::time_of).
    pub fn time_of(&self, key: &[u8]) -> Result<u64, LiveError> {
        let place = self.shape.place(key);
        loop {
            let partition = self.partition_at(place, key)?;
            if let Attempt::Done(part) = self.lock_to_read(partition, true) {
                return Ok(self.shape.now_ms(part.time()));
            }
        }
    }

    /// Returns the operation of the partition's buffer on a key, and the sources below it at the
    /// same moment; `None` if it may not wait and the partition stays locked.
    #[inline]
    fn newest_or_wait(
        &self,
        place: KeyPlace,
        key: &[u8],
        wait: bool,
    ) -> Result<Option<CountedNewest>, LiveError> {
        loop {
            let partition = self.partition_at(place, key)?;
            match self.lock_to_read(partition, wait) {
                Attempt::Done(mut part) => {
                    let sampled = part.traffic.read(partition);
                    return Ok(Some((self.newest_in(part, place, key), sampled)));
                }
                Attempt::Moved => {}
                Attempt::Waits => return Ok(None),
            }
        }
    }

    #[inline]
    fn newest_in(
        &self,
        part: MutexGuard<'_, LivePart>,
        place: KeyPlace,
        key: &[u8],
    ) -> NewestRecord {
        let newest = part.memtable.get(place, key).map(|found| found.to_owned());
        let (view, time) = (Arc::clone(&part.view), part.time());
        drop(part);
        if !self.counts.memory_is_read.load(Ordering::Relaxed) {
            self.memory_is_read(&view);
        }
        (newest, view, time)
    }

    /// Counts the length of the value of a sampled read. Does nothing while another thread has the
    /// partition, as the reader may be a thread that must not wait.
    #[inline]
    pub fn count_length(&self, sampled: Option<SampledRead>, value: Option<&[u8]>) {
        if let (Some(sampled), Some(value)) = (sampled, value)
            && let Some(mut part) = self.parts.at(sampled.place()).try_lock()
        {
            part.traffic.add_length(value.len());
        }
    }

    /// Records that the table is read: from now on sorted buffers are merged when they are full,
    /// and waiting ones soon.
    #[cold]
    pub fn memory_is_read(&self, view: &PartView) {
        self.counts.memory_is_read.store(true, Ordering::Relaxed);
        if view.due_buffers().is_some() {
            self.notify(|progress| progress.tidy_asked = true);
        }
    }

    /// See [`LiveTable::watch`](crate::live::LiveTable::watch).
    pub fn watch(&self, key: &[u8]) -> Result<KeyWatch, LiveError> {
        let place = self.shape.place(key);
        loop {
            let partition = self.partition_at(place, key)?;
            if let Attempt::Done(mut part) = self.lock_to_read(partition, true) {
                return Ok(part.watchers.add(key));
            }
        }
    }

    /// Takes a snapshot. Every partition's buffer is sorted and its view taken, with all of them
    /// locked: no write falls between two of them.
    pub fn snapshot(&self) -> Snapshot {
        let mut freeze = false;
        let mut parts = self.parts.lock_all();
        for part in &mut parts {
            freeze |= part.seal(&self.memory);
        }
        let snapshot = self.snapshot_of(&parts);
        drop(parts);
        if freeze {
            self.freeze();
        }
        self.compact_memory_after_snapshot();
        snapshot
    }

    /// Takes a snapshot of locked partitions. REQUIRES: all partitions' buffers are sorted.
    pub fn snapshot_of(&self, parts: &[MutexGuard<'_, LivePart>]) -> Snapshot {
        let router = self.parts.router();
        debug_assert!(
            (0..router.segments(&ScanRange::all()).end).all(|segment| router
                .owner(segment)
                .is_none_or(|owner| parts[owner].is_here())),
            "the router of a moment leads to a partition that is not here then"
        );
        Snapshot {
            shape: Arc::clone(&self.shape),
            router,
            parts: parts.iter().map(|part| part.moment()).collect(),
        }
    }
}

impl Snapshot {
    /// Returns the value of a key. Waits for the device when it must.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, LiveError> {
        let place = self.shape.place(key);
        let Some(partition) = self.router.partition(place.hash, key) else {
            return Err(self.shape.not_here(key));
        };
        let part = &self.parts[partition];
        let shape = (&*self.shape, part.time);
        match part.view.get(shape, place, key, None, true)? {
            PartFound::Value(value) => Ok(value),
            PartFound::Waits => Ok(None),
        }
    }

    /// Walks all records of the partitions that the table holds.
    pub fn scan(&self, direction: Direction) -> LiveScan {
        self.scan_range(ScanRange::all(), direction)
    }

    /// Walks the records between two keys. Only for ordered tables: [`LiveError::NoKeyOrder`]. The
    /// table must hold all partitions of the range: [`LiveError::NotHere`].
    pub fn scan_keys(
        &self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        direction: Direction,
    ) -> Result<LiveScan, LiveError> {
        match self.shape.order {
            Order::Ordered => {
                let range = ScanRange::keys(from, to);
                match self.router.gap_in(&range) {
                    Some(key) => Err(self.shape.not_here(&key)),
                    None => Ok(self.scan_range(range, direction)),
                }
            }
            Order::Hashed => Err(LiveError::NoKeyOrder {
                table: self.shape.table.clone(),
            }),
        }
    }

    /// Returns the files of runs that it reads, besides memory; a file that partitions share only
    /// once.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Arc<Run>> {
        let mut seen = HashSet::new();
        let runs = self.parts.iter().flat_map(|part| part.view.runs.iter());
        let runs = runs.map(|live| &live.run);
        runs.filter(move |run| seen.insert(Arc::as_ptr(run)))
    }

    /// Walks the records of a range of positions in the table's own order, in the partitions that
    /// the table holds.
    pub fn scan_range(&self, range: ScanRange, direction: Direction) -> LiveScan {
        let (shape, router) = (Arc::clone(&self.shape), Arc::clone(&self.router));
        LiveScan::new(shape, router, Arc::clone(&self.parts), range, direction)
    }
}
