//! Versions on a node: fetches, verifies, opens and serves them from the node's cache.

mod held;
mod origin;
mod replicas;
mod traffic;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use bytes::Bytes;
use forebay_engine::live::PartitionTraffic;
use forebay_engine::{
    ActivateError, Bound, Manifest, Next, PartitionReads, Pointer, ReleaseReport, RunId, Serving,
    Store, StoreError, Table, TableName, VersionFile,
};
use forebay_io::start_within;
use forebay_objects::{Fetcher, Origin, Origins, Prepared, PullError, PullRate};
use parking_lot::Mutex;
use tracing::{info, warn};

use crate::ids::HostPort;
use crate::measures::reads::{ReadsPlace, ReadsReport, reads_place};
use crate::model::Proof;
use crate::node::{Serve, VersionPlace};
pub use crate::routing::version::SPARE_BYTES;
use crate::routing::version::VersionSummary;
use crate::versions::{VersionFetch, VersionSummaries, Versions};

pub use forebay_host::KEPT_BYTES as LOG_RETENTION_BYTES;
pub use held::HeldRanges;
use origin::{NOT_THERE, PeerOrigin};
pub use replicas::{
    LocalReplicas, OpenLiveTables, PartError, ReplicaParts, ReplicaWatch, StagedFiles, boot_id,
};
use traffic::{CountedTraffic, TrafficSeen};

/// The time between two progress reports.
const REPORT: Duration = Duration::from_millis(200);
/// The maximum number of bytes of a file that another node gets in one answer.
const MOST_READ_BYTES: u64 = 64 << 20;

/// The versions in a node's cache.
#[derive(Debug)]
pub struct LocalVersions {
    fetcher: Fetcher,
    serving: Arc<Serving>,
    origin: Arc<dyn Origin>,
    /// The open ranges, and below the wanted ones. While the node fetches more, the open ranges
    /// serve.
    open: Arc<HeldRanges>,
    wanted: Arc<HeldRanges>,
    /// Tables that may have files on this node that are no longer wanted.
    to_release: Mutex<BTreeSet<TableName>>,
    /// Wanted local versions: they are not removed as old versions.
    kept: Mutex<BTreeMap<VersionPlace, Prepared>>,
    active: Mutex<BTreeMap<TableName, Serve>>,
    is_cut_off: AtomicBool,
    /// Serializes activations.
    activating: Mutex<()>,
    reads: TrafficSeen<ReadsPlace>,
}

impl LocalVersions {
    /// Uses a cache of which `serving` opens the ranges in `open`; `origin` is the cluster's store.
    pub fn new(
        cache: Store,
        open: Arc<HeldRanges>,
        serving: Arc<Serving>,
        origin: Arc<dyn Origin>,
        rate: PullRate,
    ) -> io::Result<Self> {
        let wanted = Arc::new(HeldRanges::default());
        Ok(Self {
            fetcher: Fetcher::new(cache.holding(wanted.clone()), rate)?,
            serving,
            origin,
            open,
            wanted,
            to_release: Mutex::default(),
            kept: Mutex::default(),
            active: Mutex::default(),
            is_cut_off: AtomicBool::new(false),
            activating: Mutex::default(),
            reads: TrafficSeen::default(),
        })
    }

    pub fn fetcher(&self) -> &Fetcher {
        &self.fetcher
    }

    fn cache(&self) -> &Store {
        self.fetcher.local()
    }

    fn manifest(&self, place: &VersionPlace) -> io::Result<Manifest> {
        let (table, version) = place;
        let bytes = self
            .origin
            .get(&format!("tables/{table}/versions/{version}.manifest"))?;
        let (manifest, _) = Manifest::parse(&bytes).map_err(io::Error::other)?;
        Ok(manifest)
    }

    fn fetch_all(&self, what: &VersionFetch) -> Result<Prepared, String> {
        let (table, version) = &what.place;
        if what.from_memory {
            let here = self.fetcher.prepare_here(table, *version);
            if let Some(prepared) = here.map_err(|error| error.to_string())? {
                return Ok(prepared);
            }
        }
        let manifest = self.manifest(&what.place).map_err(|error| {
            format!("the manifest of version {version} of table {table}: {error}")
        })?;
        let peers = peers_of_runs(what, &manifest);
        let clock = self.cache().clock();
        let origins_of = |file: &VersionFile| -> Vec<Arc<dyn Origin>> {
            let peer = peers.get(&file.run).cloned();
            let origin = |peer| PeerOrigin {
                peer,
                by: Arc::clone(&what.by),
                clock: Arc::clone(clock),
                patience: what.patience,
            };
            let origin = peer.map(|peer| Arc::new(origin(peer)) as Arc<dyn Origin>);
            origin.into_iter().collect()
        };
        let origins = Origins::of(Arc::clone(&self.origin)).after(&origins_of);
        let missing_bytes = self.fetcher.missing_bytes(&manifest);
        if let Some(free) = Versions::free_bytes(self)
            && missing_bytes > 0
            && missing_bytes.saturating_add(SPARE_BYTES) > free
        {
            return Err(format!(
                "version {version} of table {table} takes {missing_bytes} bytes here, {free} are free, and {SPARE_BYTES} are to be \
                 left: make room, or give the cluster more nodes"
            ));
        }
        let prepared = self
            .fetcher
            .prepare(table, *version, &origins, &what.cancelled);
        prepared.map_err(|error| error.to_string())
    }

    /// Reports progress while work fetches data.
    fn reporting<R: Send>(
        &self,
        table: &TableName,
        advance: &(dyn Fn(u64, u64) + Sync),
        work: impl FnOnce() -> R + Send,
    ) -> R {
        std::thread::scope(|scope| {
            let (working, is_done) = channel::<()>();
            let report = move || {
                while is_done.recv_timeout(REPORT) == Err(RecvTimeoutError::Timeout) {
                    if let Some(pull) = self.fetcher.state().tables.get(table) {
                        // A repair may have fetched some files meanwhile.
                        advance(pull.done_bytes.min(pull.total_bytes), pull.total_bytes);
                    }
                }
            };
            // Without a thread there are no reports.
            let reporter = start_within(scope, "forebay-report", report);
            let result = work();
            drop((working, reporter));
            result
        })
    }

    /// Opens the fetched version. If that fails, open versions stay open.
    fn open(&self, what: &VersionFetch) -> Result<(), String> {
        let (table, version) = &what.place;
        let before = self.open.set(&what.place, &what.ranges);
        let serves = self.active.lock().get(table).map(|serve| serve.version);
        let opened = match serves == Some(*version) || !what.open {
            // The same version with other ranges, if it is open.
            true => self.serving.rehold(std::slice::from_ref(table)),
            false => self.serving.open_ahead(table, *version).map(drop),
        };
        opened.map_err(|error| {
            match before {
                Some(before) => drop(self.open.set(&what.place, &before)),
                None => self.open.forget(&what.place),
            }
            error.to_string()
        })
    }

    /// Returns whether exactly the wanted ranges of a version are open.
    fn has_come(&self, place: &VersionPlace) -> bool {
        self.wanted.get(place) == self.open.get(place)
    }

    /// Returns whether this is true of all versions of a table.
    fn is_settled(&self, table: &TableName) -> bool {
        self.wanted.of_table(table) == self.open.of_table(table)
    }

    /// Returns whether all local versions are wanted. After a start the wanted versions become
    /// known one by one.
    fn are_all_wanted(&self, table: &Table) -> bool {
        let wanted = self.wanted.of_table(table.name());
        let versions = table.version_numbers();
        versions.is_ok_and(|versions| versions.iter().all(|one| wanted.contains_key(one)))
    }

    /// Removes the files of partitions that are no longer wanted.
    fn release(&self) {
        // A fetch that runs meanwhile adds its table again.
        let tables = std::mem::take(&mut *self.to_release.lock());
        let left = tables.into_iter().filter(|name| !self.has_released(name));
        let left: Vec<TableName> = left.collect();
        self.to_release.lock().extend(left);
    }

    /// Returns whether the node has removed all unwanted files of a table.
    fn has_released(&self, name: &TableName) -> bool {
        let Ok(table) = self.cache().table(name) else {
            return true;
        };
        self.tidy(name);
        if !self.is_settled(name) || !self.are_all_wanted(&table) {
            return false;
        }
        match table.release() {
            Ok(released) => {
                if released.files > 0 {
                    let ReleaseReport { files, bytes } = released;
                    info!(table = %name, files, bytes, "removed: other nodes hold it now");
                }
                true
            }
            // A fetch is running: try again later.
            Err(StoreError::PushRuns { .. }) => false,
            Err(error) => {
                warn!(table = %name, %error, "what is not held any more stays for now");
                false
            }
        }
    }

    fn next(
        &self,
        tables: &BTreeMap<TableName, Serve>,
        dropped: &BTreeSet<TableName>,
    ) -> NextSteps {
        let mut next = NextSteps::new();
        for (table, serve) in tables {
            let mut pointer = Pointer::unset();
            pointer.serving = Some(serve.version);
            pointer.history.clone_from(&serve.history);
            next.insert(table.clone(), Next::Serve(pointer));
        }
        for table in self.active.lock().keys().chain(dropped) {
            let ended = match dropped.contains(table) {
                true => Next::Dropped,
                false => Next::Nothing,
            };
            next.entry(table.clone()).or_insert(ended);
        }
        next
    }

    /// Keeps the previously serving versions open, even if no rollback would go to them. Nodes that
    /// do not know the change yet still ask for them.
    fn keep_open(&self, before: &BTreeMap<TableName, Serve>, now: &BTreeMap<TableName, Serve>) {
        for (table, old) in before {
            let Some(new) = now.get(table) else {
                continue;
            };
            let is_open = new.version == old.version || new.history.last() == Some(&old.version);
            let place = (table.clone(), old.version);
            if is_open || !self.kept.lock().contains_key(&place) {
                continue;
            }
            if let Err(error) = self.serving.open_ahead(table, old.version) {
                warn!(%table, version = old.version, %error, "what served before is not open");
            }
        }
    }

    /// Removes the files of versions that are no longer needed.
    fn tidy(&self, table: &TableName) {
        let removed = match self.cache().table(table) {
            Ok(table) => table.retain(0).map(drop),
            Err(StoreError::NoTable { .. }) => Ok(()),
            Err(error) => Err(error),
        };
        let swept = removed.and_then(|()| self.cache().remove_leftovers(table));
        // A table that was dropped meanwhile has no files.
        let is_there = || self.cache().table(table).is_ok();
        if let Err(error) = swept
            && is_there()
        {
            warn!(%table, %error, "old versions stay for now");
        }
    }
}

type NextSteps = BTreeMap<TableName, Next>;

impl Versions for LocalVersions {
    fn fetch_copy(
        &self,
        what: &VersionFetch,
        advance: &(dyn Fn(u64, u64) + Sync),
    ) -> Result<Proof, String> {
        self.wanted.set(&what.place, &what.ranges);
        let table = &what.place.0;
        self.to_release.lock().insert(table.clone());
        let prepared = self.reporting(table, advance, || self.fetch_all(what))?;
        let mut proof = Proof::default();
        for partition in &prepared.proof().partitions {
            proof.partitions += 1;
            proof.rows = proof.rows.saturating_add(partition.records);
            proof.content += partition.records_content;
        }
        self.open(what).inspect_err(|_| {
            // The version verified earlier: the next try reads it again, and fetches damaged parts.
            if let Err(error) = prepared.disprove() {
                warn!(%table, %error, "what cannot be opened is still taken for sound");
            }
        })?;
        self.kept.lock().insert(what.place.clone(), prepared);
        Ok(proof)
    }

    fn tables(&self) -> BTreeSet<TableName> {
        let tables = self.cache().tables().unwrap_or_else(|error| {
            warn!(%error, "the tables in the cache cannot be listed; removed ones stay");
            Vec::new()
        });
        tables.into_iter().collect()
    }

    fn activate(
        &self,
        tables: &BTreeMap<TableName, Serve>,
        dropped: &BTreeSet<TableName>,
    ) -> BTreeMap<TableName, String> {
        let _activating = self.activating.lock();
        let mut problems = BTreeMap::new();
        let mut next = self.next(tables, dropped);
        if self.is_cut_off.load(Ordering::Relaxed) {
            next.values_mut()
                .filter(|next| matches!(next, Next::Serve(_)))
                .for_each(|next| *next = Next::Nothing);
        }
        let mut opened = BTreeSet::new();
        loop {
            let list: Vec<(TableName, Next)> = next.clone().into_iter().collect();
            match self.serving.activate(&list) {
                Ok(()) => break,
                // Another version was opened ahead since: only one can be.
                Err(ActivateError::NotOpen { table, version })
                    if opened.insert(table.clone())
                        && self.serving.open_ahead(&table, version).is_ok() => {}
                Err(ActivateError::NotOpen { table, version }) => {
                    problems.insert(table.clone(), format!("version {version} is not open"));
                    next.insert(table, Next::Nothing);
                }
                // The engine drops no table while a version of it is copied. Such a table stops
                // serving now, and the next activation drops it.
                Err(ActivateError::Refused(error))
                    if next.values().any(|next| *next == Next::Dropped) =>
                {
                    let text = error.to_string();
                    for (table, next) in &mut next {
                        if *next == Next::Dropped {
                            *next = Next::Nothing;
                            problems.insert(table.clone(), text.clone());
                        }
                    }
                }
                Err(ActivateError::Refused(error)) => {
                    let text = error.to_string();
                    let all = tables.keys().chain(dropped);
                    return all.map(|table| (table.clone(), text.clone())).collect();
                }
                // The serving versions are right, and after a restart the node asks the catalog.
                Err(error) => {
                    warn!(%error, "the versions serve");
                    break;
                }
            }
        }
        let before = std::mem::replace(&mut *self.active.lock(), tables.clone());
        self.keep_open(&before, tables);
        for table in dropped {
            self.open.forget_table(table);
            self.wanted.forget_table(table);
            self.kept.lock().retain(|(other, _), _| other != table);
        }
        problems
    }

    fn read(&self, table: &TableName, file: &str, range: Range<u64>) -> io::Result<Bytes> {
        let wrong = |text: &str| io::Error::new(io::ErrorKind::InvalidInput, text.to_owned());
        let name = file
            .strip_suffix(".run")
            .or_else(|| file.strip_suffix(".ext"));
        if name.is_none_or(|name| RunId::new(name).is_err()) {
            return Err(wrong("no file of a run"));
        }
        let path = self.cache().root().join("tables").join(table.as_str());
        let opened = self.cache().disk().open(&path.join("runs").join(file));
        let opened = opened.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => io::Error::new(io::ErrorKind::NotFound, NOT_THERE),
            _ => error,
        })?;
        let length = range.end.checked_sub(range.start);
        let length = length.filter(|_| range.end <= opened.len_bytes());
        let length = length.filter(|length| *length <= MOST_READ_BYTES);
        let length =
            length.ok_or_else(|| wrong("the file is not that long, or it is too much at once"))?;
        let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
        opened.read_exact_at(&mut bytes, range.start)?;
        Ok(bytes.into())
    }

    fn forget(&self, place: &VersionPlace) {
        self.kept.lock().remove(place);
        self.open.forget(place);
        self.wanted.forget(place);
        let table = &place.0;
        let ahead = self.serving.states();
        let state = ahead.tables.iter().find(|(name, _)| name == table);
        if state.is_some_and(|(_, state)| state.ahead == Some(place.1)) {
            self.serving.close_ahead(table);
        }
        self.tidy(table);
    }

    fn cut_off(&self, cut_off: bool) {
        self.is_cut_off.store(cut_off, Ordering::Relaxed);
        let active = self.active.lock().clone();
        self.activate(&active, &BTreeSet::new());
    }

    fn look_after(&self, whole: bool) {
        let origins = Origins::of(Arc::clone(&self.origin));
        let goes_on = AtomicBool::new(false);
        let met = self.serving.damaged().into_iter();
        let met: BTreeMap<TableName, (u64, Vec<RunId>)> = met
            .map(|(table, version, runs)| (table, (version, runs)))
            .collect();
        let active = self.active.lock().clone();
        for (table, serve) in active {
            // A version that is being fetched is missing, not lost.
            if !self.has_come(&(table.clone(), serve.version)) {
                continue;
            }
            let repaired = match met.get(&table) {
                Some(met) => self
                    .fetcher
                    .repair_met(&table, met.clone(), &origins, &goes_on),
                None => self.fetcher.repair(&table, whole, &origins, &goes_on),
            };
            match repaired {
                Ok(0) => {}
                Ok(files) => {
                    warn!(%table, files, "damaged files were fetched again");
                    self.serving.reopen(&table);
                }
                Err(error) => warn!(%table, %error, "what is damaged here stays so for now"),
            }
        }
        self.release();
    }

    fn free_bytes(&self) -> Option<u64> {
        let cache = self.cache();
        cache.disk().free_bytes(cache.root()).ok().flatten()
    }

    fn fetched_bytes_per_s(&self) -> Option<u64> {
        self.fetcher.throttle().measured_bytes_per_s()
    }

    fn reads(&self) -> Vec<ReadsReport> {
        let tables = self.serving.load();
        let tables: Vec<_> = tables
            .iter()
            .map(|(name, version)| (name.clone(), version.version(), version.reads()))
            .collect();
        let now = self.cache().clock().monotonic();
        self.reads.look(now, || counted(&tables));
        let reports = tables.iter().flat_map(|(name, version, parts)| {
            parts.iter().filter_map(|part| {
                let traffic = self.reads.of(&reads_place(name, &part.bounds))?;
                Some(ReadsReport {
                    table: name.clone(),
                    version: *version,
                    bounds: part.bounds.clone(),
                    traffic,
                })
            })
        });
        reports.collect()
    }
}

fn counted(tables: &[(TableName, u64, Vec<PartitionReads>)]) -> Vec<CountedTraffic<ReadsPlace>> {
    let all = tables.iter().flat_map(|(name, _, parts)| {
        parts.iter().map(|part| CountedTraffic {
            of: reads_place(name, &part.bounds),
            counted: PartitionTraffic {
                reads: part.reads,
                read_bytes: part.bytes,
                ..PartitionTraffic::default()
            },
            is_there: true,
        })
    });
    all.collect()
}

impl StagedFiles for LocalVersions {
    fn document(&self, name: &str) -> io::Result<Bytes> {
        self.origin.get(name)
    }

    fn fetch_copy(
        &self,
        table: &TableName,
        files: &[VersionFile],
        is_over: &AtomicBool,
    ) -> io::Result<()> {
        let origins = Origins::of(Arc::clone(&self.origin));
        let fetched = self.fetcher.fetch_files(table, files, &origins, is_over);
        fetched.map_err(|error| match error {
            PullError::Request { name, source } => {
                io::Error::new(source.kind(), format!("{name}: {source}"))
            }
            error => io::Error::other(error),
        })
    }

    fn came_bytes(&self, files: &[VersionFile]) -> u64 {
        self.fetcher.come_bytes(files)
    }

    fn forget(&self, files: &[VersionFile]) -> io::Result<()> {
        self.fetcher.forget_files(files)
    }

    fn free_bytes(&self) -> Option<u64> {
        Versions::free_bytes(self)
    }
}

impl VersionSummaries for LocalVersions {
    fn summary(&self, place: &VersionPlace) -> io::Result<VersionSummary> {
        Ok(VersionSummary::of(&self.manifest(place)?))
    }
}

/// Returns the node from which to fetch each run, if that is not the store.
fn peers_of_runs(what: &VersionFetch, manifest: &Manifest) -> HashMap<RunId, HostPort> {
    let peer_of = |place: &Bound| {
        let at = what.passed_on.partition_point(|(lower, _)| lower <= place);
        what.passed_on.get(at.checked_sub(1)?)?.1.clone()
    };
    let partitions = manifest.partitions.iter();
    let runs = partitions.filter_map(|partition| {
        let peer = peer_of(&partition.bounds.lower)?;
        let runs = partition.runs.iter();
        Some(runs.map(move |run| (run.id.clone(), peer.clone())))
    });
    runs.flatten().collect()
}
