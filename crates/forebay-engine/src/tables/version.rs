//! An open version: all of its runs, ready for look-ups.
//!
//! A version never changes. A holder can keep reading after another version serves and the files
//! are unlinked. The last handle closes it.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use forebay_run::filter::filter_hash;
use forebay_run::hash::KeyHasher;
use forebay_run::operation::{CowOperation, DeltaKind, Operation};
use forebay_run::run::Run;
use forebay_run::{FoundRecord, Lookup as RunLookup, Order, RunError};

use crate::documents::layout::{TableFiles, run_of};
use crate::documents::manifest::{Manifest, RunRef};
use crate::documents::run_description::RunDescription;
use crate::error::{ReadError, StoreError};
use crate::keys::key_text::show_key;
use crate::keys::partition::{Bounds, OpenPartitions, PartitionRange};
use crate::keys::reads::{PartReads, PartitionReads};
use crate::keys::route::{Route, Router};
use crate::name::{RunId, TableName};
use crate::tables::store::Store;
use forebay_io::{Clock, Disk};
use parking_lot::Mutex;

/// A value, borrowed from the mapped file if it is contiguous there.
pub type Value<'a> = Cow<'a, [u8]>;

/// The result of a look-up that must not wait for the device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lookup<'a> {
    Found(Value<'a>),
    Absent,
    /// The device must be read: use the waiting form, on a thread that may wait.
    NotResident,
}

/// An open version of a batch table.
#[derive(Debug)]
pub struct Version {
    manifest: Manifest,
    /// The manifest's checksum; 0 before it is committed.
    sum: u64,
    held: OpenPartitions,
    pub(crate) router: Router,
    pub(crate) parts: Vec<VersionPart>,
    /// The clock that decides which records have expired.
    clock: Arc<dyn Clock>,
    /// Runs in which a reader found damage.
    damaged: Mutex<BTreeSet<RunId>>,
}

/// The open runs of a partition, oldest first; none if it is not held.
#[derive(Debug)]
pub(crate) struct VersionPart {
    pub runs: Box<[Arc<Run>]>,
    reads: PartReads,
}

impl Version {
    /// Opens every run of the partitions `held`. Reads their footers and indexes and compares them
    /// with the manifest, but reads no page. Shares runs that one of `known`, versions of the same
    /// table, has open, and their page states.
    pub(crate) fn open(
        store: &Store,
        files: &TableFiles,
        manifest: Manifest,
        sum: u64,
        held: &OpenPartitions,
        known: &[&Version],
    ) -> Result<Self, ReadError> {
        let disk = store.disk();
        let router = manifest.router(held);
        let mut parts = Vec::with_capacity(manifest.partitions.len());
        for (at, partition) in manifest.partitions.iter().enumerate() {
            let named = match held.holds(partition.id) {
                true => &partition.runs[..],
                false => &[],
            };
            let mut runs = Vec::with_capacity(named.len());
            for reference in named {
                runs.push(
                    match known.iter().find_map(|known| known.shared(at, reference)) {
                        Some(run) => run,
                        None => {
                            Arc::new(open_run(disk, files, &manifest, reference, &router, false)?)
                        }
                    },
                );
            }
            parts.push(VersionPart {
                runs: runs.into(),
                reads: PartReads::default(),
            });
        }
        Ok(Self {
            manifest,
            sum,
            held: held.clone(),
            router,
            parts,
            clock: Arc::clone(store.clock()),
            damaged: Mutex::default(),
        })
    }

    /// Returns the open run of this reference, if the version has it in this partition.
    fn shared(&self, partition: usize, reference: &RunRef) -> Option<Arc<Run>> {
        let named = &self.manifest.partitions.get(partition)?.runs;
        let place = named.iter().position(|named| named == reference)?;
        self.parts[partition].runs.get(place).map(Arc::clone)
    }

    /// Returns the time that decides which records have expired.
    pub(crate) fn now_ms(&self) -> u64 {
        self.clock.unix_ms()
    }

    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    pub(crate) fn manifest_and_sum(&self) -> (Manifest, u64) {
        (self.manifest.clone(), self.sum)
    }

    pub fn table(&self) -> &TableName {
        &self.manifest.table
    }

    pub fn version(&self) -> u64 {
        self.manifest.version
    }

    /// Returns the open partitions, in the table's order.
    pub fn partitions(&self) -> Vec<PartitionRange> {
        let open = self.manifest.held(&self.held);
        let range = |(place, bounds): (usize, &Bounds)| PartitionRange {
            id: self.manifest.partitions[place].id,
            bounds: bounds.clone(),
        };
        open.map(range).collect()
    }

    /// Returns the number of look-ups of each open partition, in the table's order. Walks, and
    /// reads of other processes, are not counted.
    pub fn reads(&self) -> Vec<PartitionReads> {
        let open = self.manifest.held(&self.held);
        let reported = open.map(|(place, bounds)| self.parts[place].reads.reported(bounds));
        reported.collect()
    }

    /// Returns the hasher of this table's keys.
    pub fn hasher(&self) -> &KeyHasher {
        self.router.hasher()
    }

    pub fn order(&self) -> Order {
        self.manifest.order
    }

    /// Returns whether it is the version of that manifest and checksum, with the partitions `held`.
    pub(crate) fn is_same(&self, (manifest, sum): &(Manifest, u64), held: &OpenPartitions) -> bool {
        let is_manifest =
            self.manifest.version == manifest.version && self.sum == *sum && *sum != 0;
        is_manifest && self.has_just(held)
    }

    /// Returns whether exactly the partitions `held` are open.
    pub(crate) fn has_just(&self, held: &OpenPartitions) -> bool {
        let mut ids = self
            .manifest
            .partitions
            .iter()
            .map(|partition| partition.id);
        self.held == *held || ids.all(|id| self.held.holds(id) == held.holds(id))
    }

    /// Returns the length of the open files.
    pub(crate) fn file_bytes(&self) -> u64 {
        let runs = self.manifest.runs_held(&self.held);
        let bytes = runs.flat_map(|run| [run.summary.file_bytes, run.summary.ext_bytes]);
        bytes.fold(0, u64::saturating_add)
    }

    /// Returns the value of a key. Waits for the device if it must.
    #[inline]
    pub fn get(&self, key: &[u8]) -> Result<Option<Value<'_>>, ReadError> {
        self.get_at(self.route(key)?, key)
    }

    /// Returns the index in the manifest of a key's partition; `None` if it is not open.
    pub fn partition_of(&self, key: &[u8]) -> Option<usize> {
        self.router.partition(self.router.hash(key), key)
    }

    #[inline]
    pub(crate) fn find_route(&self, key: &[u8]) -> Option<Route<'static>> {
        let hash = self.router.hash(key);
        let partition = self.router.partition(hash, key)?;
        Some(Route {
            hash,
            partition,
            ahead: None,
        })
    }

    #[inline]
    fn route(&self, key: &[u8]) -> Result<Route<'static>, ReadError> {
        self.find_route(key).ok_or_else(|| self.not_here(key))
    }

    #[cold]
    pub(crate) fn not_here(&self, key: &[u8]) -> ReadError {
        ReadError::NotHere {
            table: self.manifest.table.clone(),
            version: self.manifest.version,
            key: show_key(key),
        }
    }

    #[inline]
    fn get_at<'a>(&'a self, route: Route<'a>, key: &[u8]) -> Result<Option<Value<'a>>, ReadError> {
        let part = &self.parts[route.partition];
        let found = match &*part.runs {
            [run] => run
                .visit_from(route.ahead, route.hash, key, |found| {
                    found.into_value(|| self.now_ms())
                })
                .map(Option::flatten),
            runs => self
                .resolve(runs, route.hash, key, |run| run.get(route.hash, key))
                .map(|found| found.and_then(|found| found.into_value(|| self.now_ms()))),
        };
        let value = found.map_err(|error| self.read_error(error))?;
        part.reads
            .count(value.as_ref().map_or(0, |value| value.len()));
        Ok(value)
    }

    /// Returns the value of a key, without waiting for the device.
    #[inline]
    pub fn try_get(&self, key: &[u8]) -> Result<Lookup<'_>, ReadError> {
        self.try_get_at(self.route(key)?, key)
    }

    #[inline]
    fn try_get_at<'a>(&'a self, route: Route<'a>, key: &[u8]) -> Result<Lookup<'a>, ReadError> {
        let part = &self.parts[route.partition];
        let found = match &*part.runs {
            [run] => match run.try_get_from(route.ahead, route.hash, key) {
                Ok(RunLookup::Found(found)) => found_or_absent(found.into_value(|| self.now_ms())),
                Ok(RunLookup::Absent) => Lookup::Absent,
                Ok(RunLookup::NotResident) => Lookup::NotResident,
                Err(error) => return Err(self.read_error(error)),
            },
            runs => self.try_resolve(runs, route.hash, key)?,
        };
        match &found {
            Lookup::Found(value) => part.reads.count(value.len()),
            Lookup::Absent => part.reads.count(0),
            // The caller asks again, from a thread that may wait.
            Lookup::NotResident => {}
        }
        Ok(found)
    }

    /// Returns the expiry time of a key, in milliseconds since 1970-01-01 UTC; `u64::MAX` is never.
    /// `None` if the key is missing. Waits for the device if it must.
    pub fn expires_ms(&self, key: &[u8]) -> Result<Option<u64>, ReadError> {
        let Route {
            hash, partition, ..
        } = self.route(key)?;
        let runs = &self.parts[partition].runs;
        let found = self.resolve(runs, hash, key, |run| run.get(hash, key));
        let found = found.map_err(|error| self.read_error(error))?;
        let value = found
            .as_ref()
            .and_then(|operation| operation.borrow().value());
        Ok(value
            .map(|(_, expires_ms)| expires_ms)
            .filter(|expires_ms| self.now_ms() < *expires_ms))
    }

    /// Returns whether the key exists. Waits for the device if it must.
    #[inline]
    pub fn exists(&self, key: &[u8]) -> Result<bool, ReadError> {
        self.get(key).map(|value| value.is_some())
    }

    /// Looks up many keys of all partitions together, so that their waits for memory overlap. Calls
    /// `answer` for each, in order. Stops at the first error.
    pub fn get_many<'a, K: AsRef<[u8]>>(
        &'a self,
        keys: &[K],
        mut answer: impl FnMut(usize, Option<Value<'a>>),
    ) -> Result<(), ReadError> {
        self.in_batches(keys, |place, route, key| {
            self.get_at(route, key).map(|value| answer(place, value))
        })
    }

    /// Does [`Version::get_many`] without ever waiting for the device.
    pub fn try_get_many<'a, K: AsRef<[u8]>>(
        &'a self,
        keys: &[K],
        mut answer: impl FnMut(usize, Lookup<'a>),
    ) -> Result<(), ReadError> {
        self.in_batches(keys, |place, route, key| {
            self.try_get_at(route, key)
                .map(|found| answer(place, found))
        })
    }

    /// Returns the memory in bytes in addition to the mapped files.
    pub fn memory_bytes(&self) -> usize {
        self.runs().map(|run| run.memory_bytes()).sum()
    }

    /// Marks pages that the system has dropped from memory, so that [`Version::try_get`] does not
    /// touch them; returns their number. Takes about a millisecond per gigabyte: call it from a
    /// background thread, every second or so.
    pub fn forget_evicted(&self) -> usize {
        self.runs().map(|run| run.forget_evicted()).sum()
    }

    pub(crate) fn runs(&self) -> impl Iterator<Item = &Arc<Run>> {
        self.parts.iter().flat_map(|part| part.runs.iter())
    }

    /// Composes the operations of several runs on a key, from the newest run back, until one is
    /// final. Skips runs whose filters exclude the key.
    #[inline(never)]
    fn resolve<'a>(
        &self,
        runs: &'a [Arc<Run>],
        hash: u64,
        key: &[u8],
        mut look_up: impl FnMut(&'a Run) -> Result<Option<FoundRecord<'a>>, RunError>,
    ) -> Result<Option<CowOperation<'a>>, RunError> {
        let sought = match self.order() {
            Order::Hashed => hash,
            Order::Ordered => filter_hash(key),
        };
        let mut composed: Option<CowOperation<'a>> = None;
        for run in runs.iter().rev().filter(|run| run.may_hold(sought)) {
            let Some(found) = look_up(run)? else { continue };
            let older = found.into_operation();
            composed = Some(match composed {
                None => older,
                Some(newer) => self.compose(run, older.borrow(), newer.borrow())?,
            });
            if composed
                .as_ref()
                .is_some_and(|operation| operation.borrow().is_final())
            {
                break;
            }
        }
        Ok(composed)
    }

    fn try_resolve<'a>(
        &self,
        runs: &'a [Arc<Run>],
        hash: u64,
        key: &[u8],
    ) -> Result<Lookup<'a>, ReadError> {
        let mut waits = false;
        let found = self.resolve(runs, hash, key, |run| {
            Ok(match run.try_get(hash, key)? {
                RunLookup::Found(found) => Some(found),
                RunLookup::Absent => None,
                RunLookup::NotResident => {
                    waits = true;
                    None
                }
            })
        });
        let found = found.map_err(|error| self.read_error(error))?;
        Ok(if waits {
            Lookup::NotResident
        } else {
            found_or_absent(found.and_then(|found| found.into_value(|| self.now_ms())))
        })
    }

    fn compose(
        &self,
        run: &Run,
        older: Operation<'_>,
        newer: Operation<'_>,
    ) -> Result<CowOperation<'static>, RunError> {
        let refused = |what: String| RunError::refused(run.path(), what);
        let is_delta = |operation: Operation<'_>| {
            matches!(
                operation.plain(),
                Operation::Delta(_) | Operation::InsertDelta { .. }
            )
        };
        if self.manifest.delta.is_none() && (is_delta(older) || is_delta(newer)) {
            return Err(refused(
                "a delta in a table that has no kind of deltas".into(),
            ));
        }
        newer
            .after(&older, self.manifest.delta.unwrap_or(DeltaKind::Append))
            .map_err(|error| refused(error.to_string()))
    }

    /// Returns the runs in which readers found damage since the version was opened.
    pub fn damaged(&self) -> Vec<RunId> {
        self.damaged.lock().iter().cloned().collect()
    }

    #[cold]
    pub(crate) fn read_error(&self, source: RunError) -> ReadError {
        if source.is_damage()
            && let Some(run) = source.path().and_then(run_of)
        {
            self.damaged.lock().insert(run);
        }
        let table = self.manifest.table.clone();
        ReadError::Run {
            table,
            version: self.manifest.version,
            source,
        }
    }
}

fn found_or_absent(value: Option<Value<'_>>) -> Lookup<'_> {
    value.map_or(Lookup::Absent, Lookup::Found)
}

/// Opens a run and compares it with its description in the manifest. With `uncached`, its pages are
/// read from the device.
pub(crate) fn open_run(
    disk: &Arc<dyn Disk>,
    files: &TableFiles,
    manifest: &Manifest,
    reference: &RunRef,
    router: &Router,
    uncached: bool,
) -> Result<Run, ReadError> {
    let (table, version) = (manifest.table.clone(), manifest.version);
    let path = files.run(&reference.id);
    let opened = if uncached {
        Run::open_uncached(&**disk, &path)
    } else {
        Run::open(&**disk, &path)
    };
    let run = match opened {
        Ok(run) => run,
        Err(source) => {
            return Err(ReadError::Run {
                table,
                version,
                source,
            });
        }
    };
    let described = RunDescription {
        summary: &reference.summary,
        order: manifest.order,
        hasher: router.hasher(),
    };
    let Some(problem) = described.differs(&run) else {
        return Ok(run);
    };
    let problem = format!("run {} is not the one described: {problem}", reference.id);
    Err(StoreError::Incomplete {
        table,
        version,
        problem,
    }
    .into())
}
