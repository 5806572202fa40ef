//! An open version: every run of it, ready for look-ups.
//!
//! A version never changes. Whoever holds it reads on, even when it no longer serves and its files
//! are unlinked; the last handle closes it.

use std::borrow::Cow;
use std::sync::Arc;

use forebay_run::hash::KeyHasher;
use forebay_run::operation::{CowOperation, Operation};
use forebay_run::run::Run;
use forebay_run::{Found, Lookup as RunLookup, Order, RunError};

use crate::batch::Route;
use crate::error::{ReadError, StoreError};
use crate::layout::TableFiles;
use crate::manifest::{Manifest, RunRef};
use crate::name::TableName;
use crate::route::Router;
use forebay_run::io::Disk;

/// A value: borrowed from the mapped file where it lies there in one piece.
pub type Value<'a> = Cow<'a, [u8]>;

/// The answer of a look-up that must not wait for the device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lookup<'a> {
    Found(Value<'a>),
    Absent,
    /// Not known without reading the device: ask the waiting form, from a thread that may wait.
    NotResident,
}

/// See the module's text.
#[derive(Debug)]
pub struct Version {
    manifest: Manifest,
    /// The manifest's checksum; 0 before it is committed.
    sum: u64,
    pub(crate) router: Router,
    pub(crate) parts: Vec<Part>,
}

/// The open runs of a partition, oldest first.
#[derive(Debug)]
pub(crate) struct Part {
    pub runs: Box<[Arc<Run>]>,
}

impl Version {
    /// Opens every run: their footers and indexes are read and compared with the manifest, no page
    /// is.
    pub(crate) fn open(
        disk: &Arc<dyn Disk>,
        files: &TableFiles,
        manifest: Manifest,
        sum: u64,
    ) -> Result<Self, ReadError> {
        let router = Router::new(&manifest.table, manifest.order, manifest.lowers());
        let mut parts = Vec::with_capacity(manifest.partitions.len());
        for partition in &manifest.partitions {
            let mut runs = Vec::with_capacity(partition.runs.len());
            for reference in &partition.runs {
                let run = open_run(disk, files, &manifest, reference, &router, false)?;
                runs.push(Arc::new(run));
            }
            parts.push(Part { runs: runs.into() });
        }
        Ok(Self {
            manifest,
            sum,
            router,
            parts,
        })
    }

    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    pub fn table(&self) -> &TableName {
        &self.manifest.table
    }

    pub fn version(&self) -> u64 {
        self.manifest.version
    }

    /// Computes the hash64 of this table's keys.
    pub fn hasher(&self) -> &KeyHasher {
        self.router.hasher()
    }

    pub fn order(&self) -> Order {
        self.manifest.order
    }

    pub(crate) fn sum(&self) -> u64 {
        self.sum
    }

    pub(crate) fn is_same(&self, version: u64, sum: u64) -> bool {
        self.manifest.version == version && self.sum == sum && sum != 0
    }

    /// The value of a key. Waits for the device when it must.
    #[inline]
    pub fn get(&self, key: &[u8]) -> Result<Option<Value<'_>>, ReadError> {
        self.get_at(self.route(key), key)
    }

    #[inline]
    fn route(&self, key: &[u8]) -> Route<'static> {
        let hash = self.router.hash(key);
        Route {
            hash,
            partition: self.router.partition(hash, key),
            ahead: None,
        }
    }

    #[inline]
    fn get_at<'a>(&'a self, route: Route<'a>, key: &[u8]) -> Result<Option<Value<'a>>, ReadError> {
        let found = match &*self.parts[route.partition].runs {
            [run] => run
                .visit_from(route.ahead, route.hash, key, Found::into_value)
                .map(Option::flatten),
            runs => self.resolve(runs, |run| run.get(route.hash, key)),
        };
        found.map_err(|error| self.read_error(error))
    }

    /// The value of a key, without waiting for the device.
    #[inline]
    pub fn try_get(&self, key: &[u8]) -> Result<Lookup<'_>, ReadError> {
        self.try_get_at(self.route(key), key)
    }

    #[inline]
    fn try_get_at<'a>(&'a self, route: Route<'a>, key: &[u8]) -> Result<Lookup<'a>, ReadError> {
        match &*self.parts[route.partition].runs {
            [run] => match run.try_get_from(route.ahead, route.hash, key) {
                Ok(RunLookup::Found(found)) => Ok(found_or_absent(found.into_value())),
                Ok(RunLookup::Absent) => Ok(Lookup::Absent),
                Ok(RunLookup::NotResident) => Ok(Lookup::NotResident),
                Err(error) => Err(self.read_error(error)),
            },
            runs => self.try_resolve(runs, route.hash, key),
        }
    }

    /// Whether the key is there. Waits for the device when it must.
    #[inline]
    pub fn exists(&self, key: &[u8]) -> Result<bool, ReadError> {
        self.get(key).map(|value| value.is_some())
    }

    /// Looks up many keys, overlapping their waits for memory, over all partitions together; calls
    /// `answer` for each, in order. The first error ends it.
    pub fn get_many<'a, K: AsRef<[u8]>>(
        &'a self,
        keys: &[K],
        mut answer: impl FnMut(usize, Option<Value<'a>>),
    ) -> Result<(), ReadError> {
        self.in_batches(keys, |place, route, key| {
            self.get_at(route, key).map(|value| answer(place, value))
        })
    }

    /// [`Version::get_many`] that never waits for the device.
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

    /// Bytes held in memory beside the mapped files.
    pub fn memory_bytes(&self) -> usize {
        self.runs().map(|run| run.memory_bytes()).sum()
    }

    /// Takes note of pages that the system has dropped from memory, so that [`Version::try_get`] does
    /// not touch them; returns how many. About a millisecond a gigabyte: for a background thread,
    /// every second or so.
    pub fn forget_evicted(&self) -> usize {
        self.runs().map(|run| run.forget_evicted()).sum()
    }

    pub(crate) fn runs(&self) -> impl Iterator<Item = &Arc<Run>> {
        self.parts.iter().flat_map(|part| part.runs.iter())
    }

    /// The value that several runs make together: operations from the newest run back, until one
    /// settles it.
    #[inline(never)]
    fn resolve<'a>(
        &self,
        runs: &'a [Arc<Run>],
        mut look_up: impl FnMut(&'a Run) -> Result<Option<Found<'a>>, RunError>,
    ) -> Result<Option<Value<'a>>, RunError> {
        let mut composed: Option<CowOperation<'a>> = None;
        for run in runs.iter().rev() {
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
        Ok(composed.and_then(CowOperation::into_value))
    }

    fn try_resolve<'a>(
        &self,
        runs: &'a [Arc<Run>],
        hash: u64,
        key: &[u8],
    ) -> Result<Lookup<'a>, ReadError> {
        let mut waits = false;
        let value = self.resolve(runs, |run| {
            Ok(match run.try_get(hash, key)? {
                RunLookup::Found(found) => Some(found),
                RunLookup::Absent => None,
                RunLookup::NotResident => {
                    waits = true;
                    None
                }
            })
        });
        let value = value.map_err(|error| self.read_error(error))?;
        Ok(if waits {
            Lookup::NotResident
        } else {
            found_or_absent(value)
        })
    }

    fn compose(
        &self,
        run: &Run,
        older: Operation<'_>,
        newer: Operation<'_>,
    ) -> Result<CowOperation<'static>, RunError> {
        let refused = |what: String| RunError::refused(run.path(), what);
        let Some(kind) = self.manifest.delta else {
            return compose_plain(older, newer)
                .ok_or_else(|| refused("a delta in a table that has no kind of deltas".into()));
        };
        newer
            .after(&older, kind)
            .map_err(|error| refused(error.to_string()))
    }

    #[cold]
    pub(crate) fn read_error(&self, source: RunError) -> ReadError {
        let table = self.manifest.table.clone();
        ReadError::Run {
            table,
            version: self.manifest.version,
            source,
        }
    }
}

/// [`Operation::after`] where no delta is involved.
fn compose_plain(older: Operation<'_>, newer: Operation<'_>) -> Option<CowOperation<'static>> {
    use Operation::{Delete, Insert, Update};
    match (older, newer) {
        (_, Update(_) | Delete) => Some(newer.to_owned()),
        (Delete, Insert(value)) => Some(Update(value).to_owned()),
        (Update(_) | Insert(_), Insert(_)) => Some(older.to_owned()),
        _ => None,
    }
}

fn found_or_absent(value: Option<Value<'_>>) -> Lookup<'_> {
    value.map_or(Lookup::Absent, Lookup::Found)
}

/// Opens a run and compares it with what the manifest says of it; `uncached`: so that its pages are
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
    let problem = if run.order() != manifest.order {
        "it is sorted in the other order".to_owned()
    } else if *run.summary() != reference.summary {
        format!(
            "it holds {:?}, the manifest says {:?}",
            run.summary(),
            reference.summary
        )
    } else if run.order() == Order::Hashed && run.hasher() != router.hasher() {
        let prefix = String::from_utf8_lossy(run.hasher().prefix()).into_owned();
        format!("its keys were hashed for the prefix {prefix:?}, so look-ups would miss them")
    } else {
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
