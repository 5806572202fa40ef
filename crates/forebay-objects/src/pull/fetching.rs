//! Fetches the files of one version, and chooses the origins of each.
//!
//! First each file's peers are asked, then the store. One range cannot be verified alone. If a run
//! turns out damaged, every origin that sent some of it is asked for nothing more of this version.
//! If something is damaged again, only the store is asked.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use forebay_engine::{RunId, Store, TableName, VersionFile};
use tokio::runtime::Runtime;
use tracing::warn;

use super::PullError;
use super::fetch::{VersionFetcher, forget};
use super::file_turns::FileTurns;
use super::origin::{Origin, Origins};
use super::state::SharedState;
use super::throttle::PullThrottle;

/// The state that all pulls of a node share.
#[derive(Debug)]
pub struct PullShared {
    pub local: Store,
    pub runtime: Arc<Runtime>,
    pub state: SharedState,
    pub throttle: Arc<PullThrottle>,
    pub files: FileTurns,
}

/// The fetch of one version.
pub struct VersionFetch<'a> {
    shared: &'a PullShared,
    table: &'a TableName,
    origins: &'a Origins<'a>,
    cancelled: &'a AtomicBool,
    /// The origins that sent some of each run, by name.
    senders: BTreeMap<RunId, BTreeSet<String>>,
    refused: BTreeSet<String>,
    /// How often something was damaged.
    damages: u32,
}

impl<'a> VersionFetch<'a> {
    pub fn new(
        shared: &'a PullShared,
        table: &'a TableName,
        origins: &'a Origins<'a>,
        cancelled: &'a AtomicBool,
    ) -> Self {
        Self {
            shared,
            table,
            origins,
            cancelled,
            senders: BTreeMap::new(),
            refused: BTreeSet::new(),
            damages: 0,
        }
    }

    /// Fetches a file, unless another thread has done so meanwhile.
    pub fn fetch(&mut self, file: &VersionFile) -> Result<(), PullError> {
        let shared = self.shared;
        let _turn = shared.files.wait(&file.path);
        match shared.local.is_here(file) {
            true => Ok(()),
            false => self.fetch_now(file),
        }
    }

    /// Fetches a file. REQUIRES the file's turn.
    fn fetch_now(&mut self, file: &VersionFile) -> Result<(), PullError> {
        let (shared, table) = (self.shared, self.table);
        let origins = self.asked(file);
        let fetcher = VersionFetcher {
            origins: &origins,
            runtime: &shared.runtime,
            clock: &**shared.local.clock(),
            disk: &**shared.local.disk(),
            throttle: &shared.throttle,
            cancelled: self.cancelled,
            advance: &|bytes| shared.state.received(table, bytes),
        };
        let senders = fetcher.fetch(&format!("tables/{table}/runs/{}", file.name), file)?;
        let names = senders.into_iter().map(|place| origins[place].name());
        let known = self.senders.entry(file.run.clone()).or_default();
        known.extend(names);
        Ok(())
    }

    /// Fetches damaged runs from other origins than those that sent them.
    pub fn fetch_again(&mut self, files: &[VersionFile], runs: &[RunId]) -> Result<(), PullError> {
        self.damages += 1;
        for sender in runs
            .iter()
            .filter_map(|run| self.senders.remove(run))
            .flatten()
        {
            if self.refused.insert(sender.clone()) {
                warn!(table = %self.table, origin = sender, "it sent what is damaged");
            }
        }
        for file in files.iter().filter(|file| runs.contains(&file.run)) {
            let shared = self.shared;
            let _turn = shared.files.wait(&file.path);
            let removed = forget(&**self.shared.local.disk(), file);
            removed.map_err(|source| PullError::Disk {
                name: file.name.clone(),
                source,
            })?;
            self.fetch_now(file)?;
        }
        Ok(())
    }

    /// Returns the origins of a file, the store last.
    fn asked(&self, file: &VersionFile) -> Vec<Arc<dyn Origin>> {
        let mut asked = match self.damages {
            0 | 1 => self.origins.peers(file),
            _ => Vec::new(),
        };
        asked.retain(|origin| !self.refused.contains(&origin.name()));
        asked.push(Arc::clone(self.origins.store()));
        asked
    }
}
