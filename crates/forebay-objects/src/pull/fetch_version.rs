//! Fetches a version into the local store, and repairs the files of local versions.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use forebay_engine::{
    Install, Manifest, PinnedVersion, Proof, ReadError, RunId, Store, StoreError, Table, TableName,
    VersionFile,
};
use forebay_io::give_way;
use parking_lot::Mutex;
use tokio::runtime::Runtime;
use tracing::{info, warn};

use super::PullError;
use super::fetch::{came_bytes, forget};
use super::fetching::{PullShared, VersionFetch};
use super::file_turns::FileTurns;
use super::origin::Origins;
use super::size_turns::SizeTurns;
use super::state::SharedState;
use super::throttle::{PullRate, PullThrottle};
use crate::objects::start_runtime;

/// How often damaged runs are fetched, including the first time.
const TRIES: usize = 4;
/// The bytes that are read locally between two calls of the throttle.
const READ_BYTES: u64 = 128 << 10;

/// A fetcher of versions into a local store, several at a time, at one shared rate. It does not
/// change what serves.
#[derive(Debug)]
pub struct Fetcher {
    pub(super) shared: PullShared,
    turns: SizeTurns,
    /// Held while a version of a table is prepared.
    preparing: Mutex<BTreeMap<TableName, Arc<Mutex<()>>>>,
}

/// A version that is complete and verified on this node, with all partitions of its store. While
/// this exists, the version is not removed as an old one.
#[derive(Debug)]
pub struct Prepared {
    here: Table,
    proof: Proof,
    came_bytes: u64,
    /// How many of the fetched files belong to the version that serves on this node. A reader that
    /// has it open reads damaged ones.
    pub(super) repaired: u64,
    _pin: PinnedVersion,
}

impl Prepared {
    pub fn table(&self) -> &TableName {
        self.here.name()
    }

    pub fn version(&self) -> u64 {
        self.proof.version
    }

    /// Returns the content of each partition of the store, as it was verified on this node, with
    /// the time of each verification.
    pub fn proof(&self) -> &Proof {
        &self.proof
    }

    /// Withdraws the verification: the next prepare verifies the version again.
    pub fn disprove(&self) -> Result<(), StoreError> {
        let manifest = self.here.manifest(self.version())?;
        let runs: Vec<RunId> = manifest.runs().map(|run| run.id.clone()).collect();
        self.here.disprove(&runs)
    }

    /// Returns the length of the fetched files; 0: the version was complete already.
    pub fn came_bytes(&self) -> u64 {
        self.came_bytes
    }
}

impl Fetcher {
    /// Creates a fetcher into a store, whose [`Store::holding`] says which partitions it has.
    pub fn new(local: Store, rate: PullRate) -> io::Result<Self> {
        Ok(Self::with(start_runtime()?, local, rate))
    }

    pub(super) fn with(runtime: Arc<Runtime>, local: Store, rate: PullRate) -> Self {
        let throttle = PullThrottle::new(rate, Arc::clone(local.clock()));
        Self {
            shared: PullShared {
                local,
                runtime,
                state: SharedState::default(),
                throttle: Arc::new(throttle),
                files: FileTurns::default(),
            },
            turns: SizeTurns::default(),
            preparing: Mutex::default(),
        }
    }

    /// Returns the store that versions are fetched into.
    pub fn local(&self) -> &Store {
        &self.shared.local
    }

    /// Returns the throttle of all fetches, for other fetches to this node.
    pub fn throttle(&self) -> &Arc<PullThrottle> {
        &self.shared.throttle
    }

    /// Fetches the missing files of a version's partitions that the store holds, and verifies what
    /// was not verified yet. If this fails or is `cancelled`, which returns
    /// [`PullError::Superseded`], fetched files stay, and the next call continues from there.
    /// Threads may prepare versions of several tables at once; those of one table are prepared one
    /// after the other. While the store is unreachable, a version that is complete and verified on
    /// this node counts as prepared: its proof names the manifest.
    pub fn prepare(
        &self,
        table: &TableName,
        version: u64,
        origins: &Origins<'_>,
        cancelled: &AtomicBool,
    ) -> Result<Prepared, PullError> {
        let bytes = match manifest_from(origins, table, version) {
            Err(away) if !away.is_absent() => {
                return self.prepared(table, version, None)?.ok_or(away);
            }
            bytes => bytes?,
        };
        let (manifest, sum) = parse_manifest(table, version, &bytes)?;
        if let Some(prepared) = self.prepared(table, version, Some(sum))? {
            return Ok(prepared);
        }
        let _turn = self.turns.wait(self.missing_bytes(&manifest), cancelled)?;
        let preparing = self.preparing(table);
        let _preparing = preparing.lock();
        // Another thread may have fetched it meanwhile.
        if let Some(prepared) = self.prepared(table, version, Some(sum))? {
            return Ok(prepared);
        }
        let _active = self.shared.throttle.begin();
        let done = self.fetch_version(table, &bytes, origins, cancelled);
        self.shared.state.table(table, |state| state.doing = None);
        done
    }

    /// Returns the version if it is complete and verified on this node. Does not ask the store.
    pub fn prepare_here(
        &self,
        table: &TableName,
        version: u64,
    ) -> Result<Option<Prepared>, PullError> {
        self.prepared(table, version, None)
    }

    fn fetch_version(
        &self,
        table: &TableName,
        manifest: &[u8],
        origins: &Origins<'_>,
        cancelled: &AtomicBool,
    ) -> Result<Prepared, PullError> {
        let install = self.shared.local.begin_install(table, manifest)?;
        let version = install.manifest().version;
        let missing = install.missing();
        let came_bytes = missing.iter().map(|file| file.len_bytes).sum();
        self.shared
            .state
            .table(table, |state| state.begin("pulling", came_bytes));
        let serving = self.shared.local.table(table).ok();
        let serving = serving.and_then(|here| here.pointer().ok()?.serving);
        let repaired = if serving == Some(version) {
            missing.len() as u64
        } else {
            0
        };
        let mut fetching = VersionFetch::new(&self.shared, table, origins, cancelled);
        for file in missing {
            fetching.fetch(file)?;
        }
        self.verify(&install, &mut fetching)?;
        let proof = install.proof();
        let here = install.commit()?;
        info!(%table, version, bytes = came_bytes, "pulled");
        Ok(Prepared {
            _pin: here.pin(version),
            here,
            proof,
            came_bytes,
            repaired,
        })
    }

    /// Verifies the fetched files, and has damaged ones fetched again.
    fn verify(&self, install: &Install, fetching: &mut VersionFetch<'_>) -> Result<(), PullError> {
        let (table, manifest) = (&install.manifest().table, install.manifest());
        let files = install.files();
        for tried in 1.. {
            self.shared
                .state
                .table(table, |state| state.doing = Some("verifying"));
            let report = install.verify(&mut self.reading(manifest))?;
            let Some(problem) = report.problems.first() else {
                break;
            };
            let unsound = unsound(manifest, problem);
            if tried == TRIES || report.damaged.is_empty() {
                self.drop_files(&files, &report.damaged)?;
                return Err(unsound);
            }
            warn!(%table, version = manifest.version, %problem, "damaged files are fetched again");
            fetching.fetch_again(&files, &report.damaged)?;
        }
        Ok(())
    }

    /// Returns the version if it is complete and verified on this node; with the manifest of this
    /// checksum, if one is given. Fetches nothing.
    fn prepared(
        &self,
        table: &TableName,
        version: u64,
        sum: Option<u64>,
    ) -> Result<Option<Prepared>, PullError> {
        let Ok(here) = self.shared.local.table(table) else {
            return Ok(None);
        };
        let pin = here.pin(version);
        let proof = here.proven(version)?;
        let proof = proof.filter(|proof| sum.is_none_or(|sum| proof.manifest_sum == sum));
        Ok(proof.map(|proof| Prepared {
            here,
            proof,
            came_bytes: 0,
            repaired: 0,
            _pin: pin,
        }))
    }

    /// Fetches files of runs of a table without versions to their given paths, at the shared rate.
    /// They are not verified. If this fails, fetched files stay, and the next call continues from
    /// there.
    pub fn fetch_files(
        &self,
        table: &TableName,
        files: &[VersionFile],
        origins: &Origins<'_>,
        cancelled: &AtomicBool,
    ) -> Result<(), PullError> {
        let _active = self.shared.throttle.begin();
        let mut fetching = VersionFetch::new(&self.shared, table, origins, cancelled);
        let mut files = files.iter();
        let done = files.try_for_each(|file| fetching.fetch(file));
        self.shared.state.forget(table);
        done
    }

    /// Returns how many bytes of files were fetched.
    pub fn come_bytes(&self, files: &[VersionFile]) -> u64 {
        let local = &self.shared.local;
        let come = files.iter().map(|file| match local.is_here(file) {
            true => file.len_bytes,
            false => came_bytes(&**local.disk(), file),
        });
        come.sum()
    }

    /// Removes what is local of files, including partly fetched ones.
    pub fn forget_files(&self, files: &[VersionFile]) -> io::Result<()> {
        let disk = &**self.shared.local.disk();
        files.iter().try_for_each(|file| {
            forget(disk, file)?;
            match disk.remove(&file.path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            }
        })
    }

    /// Returns how many bytes of the partitions that the store holds must be fetched.
    pub fn missing_bytes(&self, manifest: &Manifest) -> u64 {
        let files = self.shared.local.files_of(manifest);
        let missing = files.iter().filter(|file| !self.shared.local.is_here(file));
        let left = |file: &VersionFile| {
            let came = came_bytes(&**self.shared.local.disk(), file);
            file.len_bytes.saturating_sub(came)
        };
        missing.map(left).fold(0, u64::saturating_add)
    }

    /// Checks whether the serving version's files exist with their lengths, and with `whole` reads
    /// them. Truncated, missing or damaged files are fetched again, also while another version of
    /// the table is prepared. Returns how many were.
    pub fn repair(
        &self,
        table: &TableName,
        whole: bool,
        origins: &Origins<'_>,
        cancelled: &AtomicBool,
    ) -> Result<u64, PullError> {
        let Some((here, version)) = self.serving(table)? else {
            return Ok(0);
        };
        let files = here.files_of(&self.manifest_here(&here, version, origins)?);
        let absent = files.iter().filter(|file| !self.shared.local.is_here(file));
        let mut bad: Vec<RunId> = absent.map(|file| file.run.clone()).collect();
        if bad.is_empty() && whole {
            let verify = || here.verify_warm(version);
            bad = self.doing(table, "checking", verify)?.damaged;
        }
        self.repair_runs(&here, version, bad, origins, cancelled)
    }

    /// Fetches runs of the serving version again in which a reader found damage. Returns the number
    /// of files; 0: another version serves by now.
    pub fn repair_met(
        &self,
        table: &TableName,
        (met, runs): (u64, Vec<RunId>),
        origins: &Origins<'_>,
        cancelled: &AtomicBool,
    ) -> Result<u64, PullError> {
        match self.serving(table)? {
            Some((here, version)) if version == met => {
                self.repair_runs(&here, version, runs, origins, cancelled)
            }
            _ => Ok(0),
        }
    }

    /// Returns the manifest of the serving version, and fetches it again if it is lost or damaged.
    fn manifest_here(
        &self,
        here: &Table,
        version: u64,
        origins: &Origins<'_>,
    ) -> Result<Manifest, PullError> {
        match here.manifest(version) {
            Err(error @ (StoreError::NoVersion { .. } | StoreError::Damaged { .. })) => {
                warn!(table = %here.name(), version, %error, "the manifest is fetched again");
            }
            manifest => return Ok(manifest?),
        }
        let bytes = manifest_from(origins, here.name(), version)?;
        Ok(here.put_manifest(version, &bytes)?)
    }

    fn serving(&self, table: &TableName) -> Result<Option<(Table, u64)>, PullError> {
        let Ok(here) = self.shared.local.table(table) else {
            return Ok(None);
        };
        let version = here.pointer()?.serving;
        Ok(version.map(|version| (here, version)))
    }

    fn repair_runs(
        &self,
        here: &Table,
        version: u64,
        damaged: Vec<RunId>,
        origins: &Origins<'_>,
        cancelled: &AtomicBool,
    ) -> Result<u64, PullError> {
        if damaged.is_empty() {
            return Ok(0);
        }
        let table = here.name();
        warn!(%table, version, runs = damaged.len(), "damaged runs are fetched again");
        let fetch_again = || self.fetch_again(here, version, damaged, origins, cancelled);
        self.doing(table, "repairing", fetch_again)
    }

    fn fetch_again(
        &self,
        here: &Table,
        version: u64,
        mut damaged: Vec<RunId>,
        origins: &Origins<'_>,
        cancelled: &AtomicBool,
    ) -> Result<u64, PullError> {
        let _active = self.shared.throttle.begin();
        let table = here.name();
        let manifest = self.manifest_here(here, version, origins)?;
        let files = here.files_of(&manifest);
        let concerned = files.iter().filter(|file| damaged.contains(&file.run));
        let repaired = concerned.count() as u64;
        let mut fetching = VersionFetch::new(&self.shared, table, origins, cancelled);
        for tried in 1.. {
            here.disprove(&damaged)?;
            fetching.fetch_again(&files, &damaged)?;
            let report = here.verify_runs_of(version, &damaged)?;
            here.prove(&report)?;
            let Some(problem) = report.problems.first() else {
                break;
            };
            if tried == TRIES || report.damaged.is_empty() {
                return Err(unsound(&manifest, problem));
            }
            damaged = report.damaged;
        }
        Ok(repaired)
    }

    /// Returns a callback for the pages read while a fetched version is verified. It slows the
    /// reading if serving becomes slow.
    fn reading(&self, manifest: &Manifest) -> impl FnMut(u64) + '_ {
        let bytes: u64 = manifest.runs().map(|run| run.summary.file_bytes).sum();
        let page_bytes = bytes / manifest.pages().max(1);
        let mut unpaid = 0;
        move |pages| {
            give_way();
            unpaid += pages * page_bytes;
            if unpaid >= READ_BYTES {
                self.shared.throttle.take_here(std::mem::take(&mut unpaid));
            }
        }
    }

    /// Removes damaged files, so that a retry fetches them completely.
    fn drop_files(&self, files: &[VersionFile], runs: &[RunId]) -> Result<(), PullError> {
        for file in files.iter().filter(|file| runs.contains(&file.run)) {
            match self.shared.local.disk().remove(&file.path) {
                Err(source) if source.kind() != io::ErrorKind::NotFound => {
                    let name = file.name.clone();
                    return Err(PullError::Disk { name, source });
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn preparing(&self, table: &TableName) -> Arc<Mutex<()>> {
        let mut preparing = self.preparing.lock();
        Arc::clone(preparing.entry(table.clone()).or_default())
    }

    /// Reports what is being done, unless a version is being fetched: that is reported instead.
    fn doing<R>(&self, table: &TableName, doing: &'static str, work: impl FnOnce() -> R) -> R {
        self.shared.state.table(table, |state| {
            if state.doing.is_none() {
                state.begin(doing, 0);
            }
        });
        let done = work();
        self.shared.state.table(table, |state| {
            state.doing = state.doing.filter(|now| *now != doing);
        });
        done
    }
}

/// Returns the bytes of a manifest, as the store has it.
pub fn manifest_from(
    origins: &Origins<'_>,
    table: &TableName,
    version: u64,
) -> Result<Vec<u8>, PullError> {
    let name = format!("tables/{table}/versions/{version}.manifest");
    let got = origins.store().get(&name);
    let got = got.map_err(|source| PullError::Request { name, source })?;
    Ok(got.to_vec())
}

/// Parses a manifest, and returns it with its checksum.
fn parse_manifest(
    table: &TableName,
    version: u64,
    bytes: &[u8],
) -> Result<(Manifest, u64), PullError> {
    let damaged = |problem| PullError::Damaged {
        name: format!("tables/{table}/versions/{version}.manifest"),
        problem,
    };
    let (manifest, sum) = Manifest::parse(bytes).map_err(|error| damaged(error.to_string()))?;
    if manifest.table == *table && manifest.version == version {
        return Ok((manifest, sum));
    }
    let (table, version) = (&manifest.table, manifest.version);
    Err(damaged(format!(
        "it is that of version {version} of table {table}"
    )))
}

fn unsound(manifest: &Manifest, problem: &ReadError) -> PullError {
    PullError::Unsound {
        table: manifest.table.clone(),
        version: manifest.version,
        problem: problem.to_string(),
    }
}
