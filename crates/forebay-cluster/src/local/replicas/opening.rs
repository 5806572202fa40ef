//! A live table that is open on this node with the log of its replicas.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use forebay_engine::live::{
    Budget, Durability, LiveDraft, LiveError, LiveOptions, LiveTable, Replication,
};
use forebay_engine::replica_log::{ReplicaLog, ReplicaLogError, ReplicaLogOptions, SEGMENT_BYTES};
use forebay_engine::{Store, TableName};
use forebay_host::{
    EngineLog, ForceRecoverError, FoundReplica, OpenError, StateError, TableLog, open_replicas,
};
use forebay_replica::{GroupId, Start};
use thiserror::Error;
use tracing::warn;

use super::peers_file::{PeersFile, SavedPeer, SavedPeers, log_dir};
use crate::measures::reports::ReplicaProblem;

/// Why replicas cannot be kept now.
#[derive(Debug, Error)]
pub enum KeepError {
    /// The worker tries again.
    #[error("{0}")]
    Passes(String),
    /// The table takes no writes until it is reopened.
    #[error("{0}")]
    Reopens(String),
    /// The replicas of the table are lost.
    #[error("{1}")]
    Lasts(ReplicaProblem, String),
}

/// An open table, its log, and its peers on this node.
#[derive(Debug)]
pub struct HeldTable {
    pub table: LiveTable,
    pub engine_log: Arc<EngineLog>,
    pub log: Arc<TableLog>,
    pub note: Arc<SavedPeers>,
    /// The initial states of replicas that do not run yet.
    pub starts: BTreeMap<GroupId, Start>,
    /// The replicas that run.
    pub running: BTreeSet<GroupId>,
}

/// The parts with which tables are opened.
#[derive(Debug)]
pub struct TableOpener {
    pub cache: Store,
    pub budget: Arc<Budget>,
    pub boot_id: u128,
    /// The number of bytes of each log to keep for lagging peers.
    pub log_retention_bytes: u64,
}

impl From<LiveError> for KeepError {
    fn from(error: LiveError) -> Self {
        use forebay_engine::StoreError::{Damaged, Io};
        let text = error.to_string();
        match &error {
            error if error.is_final() => Self::Reopens(text),
            LiveError::Run { .. } | LiveError::Store(Damaged { .. }) if !error.may_pass() => {
                Self::Lasts(ReplicaProblem::Damaged, text)
            }
            // A device that does not return its data is as bad as one that lost the data.
            LiveError::Store(Io { .. }) if !error.may_pass() => {
                Self::Lasts(ReplicaProblem::Damaged, text)
            }
            _ => Self::Passes(text),
        }
    }
}

impl From<ReplicaLogError> for KeepError {
    fn from(error: ReplicaLogError) -> Self {
        match error.is_damage() {
            true => Self::Lasts(ReplicaProblem::Damaged, error.to_string()),
            false => Self::Passes(error.to_string()),
        }
    }
}

impl From<OpenError> for KeepError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Forgot(forgot) => Self::Lasts(ReplicaProblem::Forgot, forgot.to_string()),
            OpenError::Group { .. } => Self::Passes(error.to_string()),
            OpenError::Log(error) => error.into(),
            OpenError::Table(error) => error.into(),
        }
    }
}

impl From<ForceRecoverError> for KeepError {
    fn from(error: ForceRecoverError) -> Self {
        match error {
            ForceRecoverError::Open(OpenError::Group { .. })
            | ForceRecoverError::State(StateError::Never(_) | StateError::Damaged(_)) => {
                Self::Lasts(ReplicaProblem::Damaged, error.to_string())
            }
            ForceRecoverError::State(error @ (StateError::Later(_) | StateError::Waits)) => {
                Self::Passes(error.to_string())
            }
            ForceRecoverError::Open(error) => error.into(),
            ForceRecoverError::Table(error) => error.into(),
            ForceRecoverError::Log(error) => error.into(),
        }
    }
}

impl From<io::Error> for KeepError {
    fn from(error: io::Error) -> Self {
        Self::Passes(error.to_string())
    }
}

impl From<forebay_engine::StoreError> for KeepError {
    fn from(error: forebay_engine::StoreError) -> Self {
        match error {
            // Only this process opens tables of the cache.
            forebay_engine::StoreError::InUse { .. } => {
                Self::Passes("an earlier table of its name is still being read here".to_owned())
            }
            error => Self::Passes(error.to_string()),
        }
    }
}

impl From<forebay_host::WriteError> for KeepError {
    fn from(error: forebay_host::WriteError) -> Self {
        Self::Passes(error.to_string())
    }
}

impl TableOpener {
    /// Creates a table without partitions. Removes the remains of an earlier table of the same name
    /// first.
    pub fn make(&self, name: &TableName, options: &LiveOptions) -> Result<HeldTable, KeepError> {
        self.remove(name)?;
        let draft = LiveDraft {
            options: replicated(options),
            partitions: Vec::new(),
        };
        let table = self.cache.create_live(name, draft, &self.budget)?;
        self.with_log(table, PeersFile::default())
    }

    pub fn open(&self, name: &TableName) -> Result<HeldTable, KeepError> {
        let note = PeersFile::read(&self.cache, name)?;
        let table = self.cache.live_table(name, &self.budget)?;
        self.with_log(table, note)
    }

    /// Records that the replicas of a table are lost, whatever is left of their partitions.
    pub fn forget_replicas(&self, name: &TableName) -> io::Result<()> {
        PeersFile::remove(&self.cache, name)?;
        let dir = log_dir(&self.cache, name);
        let disk = &**self.cache.disk();
        match dir.parent() {
            Some(parent) if disk.exists(parent)? => ReplicaLog::remove(disk, &dir),
            _ => Ok(()),
        }
    }

    /// Removes all of a table that is not open on this node.
    pub fn remove(&self, name: &TableName) -> Result<(), KeepError> {
        use forebay_engine::StoreError::NoTable;
        let is_live = self.cache.is_live(name)?;
        // Batch tables of that name must not be removed, nor tables that were never ordered.
        if !is_live && self.cache.table(name).is_ok() {
            return Ok(());
        }
        if is_live && let Ok(info) = self.cache.live_info(name) {
            let is_ours = info.options.replication.is_some();
            let alien = || {
                KeepError::Passes(
                    "this node has a table of that name, which is not replicated".to_owned(),
                )
            };
            is_ours.then_some(()).ok_or_else(alien)?;
        }
        self.forget_replicas(name)?;
        match self.cache.drop_table(name) {
            Err(NoTable { .. }) => Ok(()),
            dropped => Ok(dropped?),
        }
    }

    fn with_log(&self, table: LiveTable, mut note: PeersFile) -> Result<HeldTable, KeepError> {
        let here: BTreeSet<_> = table.partitions().iter().map(|range| range.id).collect();
        note.peers.retain(|peer| here.contains(&peer.partition));
        let (engine_log, starts) = self.open_log(&table, &mut note)?;
        engine_log.keep_for_peers(self.log_retention_bytes);
        let clock = Arc::clone(self.cache.clock());
        let log = TableLog::start(Arc::clone(&engine_log) as _, clock)?;
        let note = SavedPeers::new(self.cache.clone(), table.name().clone(), note);
        Ok(HeldTable {
            table,
            engine_log,
            log,
            note: Arc::new(note),
            starts,
            running: BTreeSet::new(),
        })
    }

    /// Opens the log. Removes replicas that the log does not remember from the note.
    fn open_log(
        &self,
        table: &LiveTable,
        note: &mut PeersFile,
    ) -> Result<(Arc<EngineLog>, BTreeMap<GroupId, Start>), KeepError> {
        let durability = durability_of(table.options());
        loop {
            let opened = ReplicaLog::open(
                Arc::clone(self.cache.disk()),
                Arc::clone(self.cache.clock()),
                &log_dir(&self.cache, table.name()),
                self.log_options(table),
            )?;
            let found: Vec<FoundReplica> = note.peers.iter().map(found).collect();
            let opened = open_replicas(table, opened, durability, self.boot_id, &found);
            match opened {
                Ok(opened) => return Ok((opened.log, opened.starts)),
                Err(OpenError::Group { group, problem })
                    if note.peers.iter().any(|peer| peer.group.0 == group) =>
                {
                    warn!(table = %table.name(), group, problem, "a replica was lost");
                    note.peers.retain(|peer| peer.group.0 != group);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn log_options(&self, table: &LiveTable) -> ReplicaLogOptions {
        ReplicaLogOptions {
            table: table.name().clone(),
            table_id: table.id(),
            durability: table.options().durability.unwrap_or(Durability::Os),
            boot_id: self.boot_id,
            segment_bytes: SEGMENT_BYTES,
        }
    }
}

impl HeldTable {
    pub fn name(&self) -> &TableName {
        self.table.name()
    }

    /// Returns why decided entries cannot be logged, or flushed.
    pub fn trouble(&self) -> Option<String> {
        if let Some(problem) = self.log.no_room() {
            return Some(format!(
                "{problem}: its replicas on this node acknowledge nothing until there is room; \
                 then they continue automatically"
            ));
        }
        let stats = self.table.stats();
        let problem = stats.refuses.or(stats.flush_problem)?;
        Some(format!("what is in memory cannot be written: {problem}"))
    }

    /// Flushes memtables, and marks the log as cleanly closed. REQUIRES: no replica of it runs.
    pub fn close(&self) -> Result<(), KeepError> {
        let flushed = self.table.flush();
        self.engine_log.close()?;
        Ok(flushed?)
    }
}

/// Returns the options with which a replicated table is created.
pub fn replicated(options: &LiveOptions) -> LiveOptions {
    LiveOptions {
        replication: Some(Replication::Leader),
        ..options.clone()
    }
}

pub fn found(peer: &SavedPeer) -> FoundReplica {
    FoundReplica {
        partition: peer.partition,
        group: peer.group,
        peer: peer.peer,
        is_new: false,
        seed: 0,
    }
}

fn durability_of(options: &LiveOptions) -> forebay_replica::Durability {
    use forebay_replica::Durability as Kept;
    match options.durability {
        Some(Durability::Sync) => Kept::Sync,
        Some(Durability::EveryMs(ms)) => Kept::EveryMs(ms),
        Some(Durability::Os) | None => Kept::Os,
    }
}
