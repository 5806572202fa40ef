//! Bringing one version here, and repairing what is here.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use forebay_engine::{
    Manifest, Pointer, ReadError, RunId, Store, StoreError, Table, TableName, VersionFile,
};
use parking_lot::Mutex;
use tracing::{info, warn};

use super::fetch::{VersionFetcher, forget};
use super::state::SharedState;
use super::throttle::PullThrottle;
use super::{PullError, PullOptions};
use crate::objects::{News, Objects};

/// How often a run that turns out damaged is brought anew.
const TRIES: usize = 3;
/// What is read here before the throttle is asked.
const READ_BYTES: u64 = 1 << 20;

#[derive(Debug)]
pub struct Bringer {
    pub objects: Objects,
    pub local: Store,
    pub state: Arc<SharedState>,
    options: PullOptions,
    pub throttle: Arc<PullThrottle>,
    /// One pull at a time; the others wait their turn. What is repaired does not.
    turn: Mutex<()>,
    /// Held by who writes a table's files.
    writing: Mutex<BTreeMap<TableName, Arc<Mutex<()>>>>,
}

/// A version that is here whole and verified, and may serve.
#[derive(Debug)]
pub struct Prepared {
    here: Table,
    version: u64,
    pointer: Pointer,
    /// Whether it had to be brought.
    came: bool,
    /// How many of the files were brought that the version serving here should have had: who has it
    /// open reads damaged ones.
    pub repaired: u64,
}

impl Prepared {
    pub fn table(&self) -> &TableName {
        self.here.name()
    }

    pub fn version(&self) -> u64 {
        self.version
    }
}

impl Bringer {
    pub fn new(
        objects: Objects,
        local: Store,
        options: PullOptions,
        state: Arc<SharedState>,
    ) -> Self {
        let throttle = Arc::new(PullThrottle::new(options.rate, Arc::clone(local.clock())));
        Self {
            objects,
            local,
            state,
            options,
            throttle,
            turn: Mutex::default(),
            writing: Mutex::default(),
        }
    }

    pub fn tables(&self) -> Result<Vec<TableName>, PullError> {
        // An empty or a wrong bucket is no store without tables.
        self.get("forebay.json")?;
        let names = self
            .objects
            .list("tables")
            .map_err(|source| PullError::Request {
                name: "tables".to_owned(),
                source,
            })?;
        Ok(names
            .iter()
            .filter_map(|name| TableName::new(name).ok())
            .collect())
    }

    /// Brings the version of a table that serves there.
    pub fn prepare_serving(&self, table: &TableName) -> Result<Prepared, PullError> {
        let nothing = || {
            PullError::Store(StoreError::NothingServes {
                table: table.clone(),
            })
        };
        let name = pointer_name(table);
        let pointer = match self.objects.news(&name, None) {
            Ok(News::Content(bytes, _)) => parse_pointer(&name, &bytes)?,
            Ok(_) => {
                return Err(StoreError::NoTable {
                    table: table.clone(),
                }
                .into());
            }
            Err(source) => return Err(PullError::Request { name, source }),
        };
        let prepared = self.prepare(table, &pointer, &AtomicBool::new(false))?;
        prepared.ok_or_else(nothing)
    }

    fn get(&self, name: &str) -> Result<Vec<u8>, PullError> {
        let got = self
            .objects
            .get(name)
            .map_err(|source| PullError::Request {
                name: name.to_owned(),
                source,
            })?;
        Ok(got.0.to_vec())
    }

    fn manifest(&self, table: &TableName, version: u64) -> Result<Vec<u8>, PullError> {
        self.get(&format!("tables/{table}/versions/{version}.manifest"))
    }

    /// The version that the pointer names, if it is here whole already.
    pub fn prepared(
        &self,
        table: &TableName,
        pointer: &Pointer,
    ) -> Result<Option<Prepared>, PullError> {
        let (Some(version), Ok(here)) = (pointer.serving, self.local.table(table)) else {
            return Ok(None);
        };
        let manifest = self.manifest(table, version)?;
        let is_here = here.has_installed(version, &manifest)?;
        Ok(is_here.then(|| Prepared {
            here,
            version,
            pointer: pointer.clone(),
            came: false,
            repaired: 0,
        }))
    }

    /// Brings the version that the pointer names, and verifies it. What serves here is not changed
    /// by that. `None`: it names none.
    pub fn prepare(
        &self,
        table: &TableName,
        pointer: &Pointer,
        cancelled: &AtomicBool,
    ) -> Result<Option<Prepared>, PullError> {
        let Some(version) = pointer.serving else {
            return Ok(None);
        };
        if let Some(prepared) = self.prepared(table, pointer)? {
            return Ok(Some(prepared));
        }
        let _turn = self.turn.lock();
        let writing = self.writing(table);
        let _writing = writing.lock();
        let _active = self.throttle.begin();
        let serving = self.local.table(table).ok();
        let serving = serving.and_then(|here| here.pointer().ok()?.serving);
        let manifest = self.manifest(table, version)?;
        let install = self.local.begin_install(table, &manifest)?;
        let files = install.files();
        let missing: Vec<&VersionFile> = files.iter().filter(|file| !self.is_here(file)).collect();
        let total: u64 = missing.iter().map(|file| file.len_bytes).sum();
        self.begin(table, "pulling", total);
        let repaired = if serving == Some(version) {
            missing.len() as u64
        } else {
            0
        };
        for file in missing {
            self.fetch(table, file, cancelled)?;
        }
        for tried in 1.. {
            self.state
                .table(table, |state| state.doing = Some("verifying"));
            let report = install.verify(&mut self.reading(install.manifest()))?;
            let Some(problem) = report.problems.first() else {
                break;
            };
            let unsound = unsound(install.manifest(), problem);
            if tried == TRIES || report.damaged.is_empty() {
                self.drop_files(&files, &report.damaged)?;
                return Err(unsound);
            }
            warn!(%table, version, %problem, "it is brought anew");
            self.bring_anew(table, &files, &report.damaged, cancelled)?;
        }
        let here = install.commit()?;
        info!(%table, version, bytes = total, "pulled");
        Ok(Some(Prepared {
            here,
            version,
            pointer: pointer.clone(),
            came: true,
            repaired,
        }))
    }

    /// Lets a version serve that was prepared.
    pub fn activate(&self, prepared: &Prepared) -> Result<(), PullError> {
        let (here, table) = (&prepared.here, prepared.here.name());
        here.point_as(&prepared.pointer)?;
        if prepared.came {
            self.state.table(table, |state| state.pulled += 1);
            if let Err(error) = here.retain(self.options.keep) {
                warn!(%table, %error, "old versions were not removed");
            }
        }
        Ok(())
    }

    /// Lets the version serve that the pointer names, if it is here whole, or it names none;
    /// returns whether.
    pub fn activate_if_here(
        &self,
        table: &TableName,
        pointer: &Pointer,
    ) -> Result<bool, PullError> {
        if pointer.serving.is_none() {
            return Ok(true);
        }
        match self.prepared(table, pointer)? {
            Some(prepared) => self.activate(&prepared).map(|()| true),
            None => Ok(false),
        }
    }

    /// Looks whether the serving version's files are there at their lengths, and with `whole` reads
    /// them; those cut, missing or damaged are brought anew. Returns how many were.
    pub fn repair(
        &self,
        table: &TableName,
        whole: bool,
        cancelled: &AtomicBool,
    ) -> Result<u64, PullError> {
        let Some((here, version)) = self.serving(table)? else {
            return Ok(0);
        };
        let files = here.files_of(&here.manifest(version)?);
        let absent = files.iter().filter(|file| !self.is_here(file));
        let mut bad: Vec<RunId> = absent.map(|file| file.run.clone()).collect();
        if bad.is_empty() && whole {
            self.state
                .table(table, |state| state.doing = Some("checking"));
            bad = here.verify_warm(version)?.damaged;
        }
        self.repair_runs(&here, version, bad, cancelled)
    }

    /// Brings runs of the serving version anew in which a reader met damage. Returns how many files
    /// they are; 0: another version serves by now.
    pub fn repair_met(
        &self,
        table: &TableName,
        (met, runs): (u64, Vec<RunId>),
        cancelled: &AtomicBool,
    ) -> Result<u64, PullError> {
        match self.serving(table)? {
            Some((here, version)) if version == met => {
                self.repair_runs(&here, version, runs, cancelled)
            }
            _ => Ok(0),
        }
    }

    fn serving(&self, table: &TableName) -> Result<Option<(Table, u64)>, PullError> {
        let Ok(here) = self.local.table(table) else {
            return Ok(None);
        };
        let version = here.pointer()?.serving;
        Ok(version.map(|version| (here, version)))
    }

    fn repair_runs(
        &self,
        here: &Table,
        version: u64,
        mut damaged: Vec<RunId>,
        cancelled: &AtomicBool,
    ) -> Result<u64, PullError> {
        if damaged.is_empty() {
            return Ok(0);
        }
        let table = here.name();
        let writing = self.writing(table);
        let _writing = writing.lock();
        let _active = self.throttle.begin();
        warn!(%table, version, runs = damaged.len(), "damaged here: brought anew");
        self.begin(table, "repairing", 0);
        let manifest = here.manifest(version)?;
        let files = here.files_of(&manifest);
        let concerned = files.iter().filter(|file| damaged.contains(&file.run));
        let repaired = concerned.count() as u64;
        for tried in 1.. {
            here.disprove(&damaged)?;
            self.bring_anew(table, &files, &damaged, cancelled)?;
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

    /// What the reading of a version that came is told of the pages read: it is held up where
    /// serving suffers from it.
    fn reading(&self, manifest: &Manifest) -> impl FnMut(u64) + '_ {
        let bytes: u64 = manifest.runs().map(|run| run.summary.file_bytes).sum();
        let page_bytes = bytes / manifest.pages().max(1);
        let mut unpaid = 0;
        move |pages| {
            unpaid += pages * page_bytes;
            if unpaid >= READ_BYTES {
                self.throttle.take_here(std::mem::take(&mut unpaid));
            }
        }
    }

    fn bring_anew(
        &self,
        table: &TableName,
        files: &[VersionFile],
        runs: &[RunId],
        cancelled: &AtomicBool,
    ) -> Result<(), PullError> {
        for file in files.iter().filter(|file| runs.contains(&file.run)) {
            forget(&**self.local.disk(), file).map_err(|source| PullError::Disk {
                name: file.name.clone(),
                source,
            })?;
            self.fetch(table, file, cancelled)?;
        }
        Ok(())
    }

    /// What stays damaged is brought whole when it is tried again.
    fn drop_files(&self, files: &[VersionFile], runs: &[RunId]) -> Result<(), PullError> {
        for file in files.iter().filter(|file| runs.contains(&file.run)) {
            match self.local.disk().remove(&file.path) {
                Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                    let name = file.name.clone();
                    return Err(PullError::Disk { name, source });
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn writing(&self, table: &TableName) -> Arc<Mutex<()>> {
        let mut writing = self.writing.lock();
        Arc::clone(writing.entry(table.clone()).or_default())
    }

    fn fetch(
        &self,
        table: &TableName,
        file: &VersionFile,
        cancelled: &AtomicBool,
    ) -> Result<(), PullError> {
        let fetcher = VersionFetcher {
            objects: &self.objects,
            disk: &**self.local.disk(),
            throttle: &self.throttle,
            cancelled,
            advance: &|bytes| self.state.received(table, bytes),
        };
        fetcher.fetch(&format!("tables/{table}/runs/{}", file.name), file)
    }

    fn is_here(&self, file: &VersionFile) -> bool {
        let found = self.local.disk().open(&file.path);
        found.is_ok_and(|found| found.len_bytes() == file.len_bytes)
    }

    fn begin(&self, table: &TableName, doing: &'static str, total_bytes: u64) {
        self.state.table(table, |state| {
            state.doing = Some(doing);
            (state.total_bytes, state.done_bytes) = (total_bytes, 0);
        });
    }
}

pub fn pointer_name(table: &TableName) -> String {
    format!("tables/{table}/current")
}

pub fn parse_pointer(name: &str, bytes: &[u8]) -> Result<Pointer, PullError> {
    Pointer::parse(bytes).map_err(|problem| PullError::Damaged {
        name: name.to_owned(),
        problem: problem.to_string(),
    })
}

fn unsound(manifest: &Manifest, problem: &ReadError) -> PullError {
    PullError::Unsound {
        table: manifest.table.clone(),
        version: manifest.version,
        problem: problem.to_string(),
    }
}
