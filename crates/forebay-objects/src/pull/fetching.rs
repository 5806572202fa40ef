//! The files of one version on their way: who is asked for each.
//!
//! First each file's peers are asked, then the store. Bytes cannot be judged one range at a time;
//! when a run turns out damaged, whoever sent some of it is asked for nothing of this version any
//! more. If something is damaged once more, only the store is asked.

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

/// What all pulls of a node share.
#[derive(Debug)]
pub struct PullShared {
    pub local: Store,
    pub runtime: Arc<Runtime>,
    pub state: SharedState,
    pub throttle: Arc<PullThrottle>,
    pub files: FileTurns,
}

/// See the module's text.
pub struct VersionFetch<'a> {
    shared: &'a PullShared,
    table: &'a TableName,
    origins: &'a Origins<'a>,
    cancelled: &'a AtomicBool,
    /// Who sent of which run, by their names.
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

    /// Brings a file, if nobody else has meanwhile.
    pub fn fetch(&mut self, file: &VersionFile) -> Result<(), PullError> {
        let shared = self.shared;
        let _turn = shared.files.wait(&file.path);
        match shared.local.is_here(file) {
            true => Ok(()),
            false => self.fetch_now(file),
        }
    }

    /// REQUIRES the file's turn.
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

    /// Brings damaged runs from others than those who sent them.
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

    /// Who is asked for a file, the store last.
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
