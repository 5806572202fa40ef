//! The checkpoints that a node keeps, by their ids: see `checkpoint_steps`.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use forebay_engine::live::{LiveError, PartCheckpoint};
use forebay_engine::{PartitionId, TableName};
use forebay_replica::GroupId;
use parking_lot::Mutex;
use thiserror::Error;

/// The time without reads after which a checkpoint ends.
const UNREAD: Duration = Duration::from_secs(120);
/// The maximum number of checkpoints at once: each keeps its files on the disk.
const MOST: usize = 16;

/// Why a step failed. Writes are not blocked then.
#[derive(Debug, Error)]
pub enum PartError {
    #[error("no replica of live table {0} is here")]
    NoTable(TableName),
    #[error("there is no checkpoint of that id here (any more): begin again")]
    NoCheckpoint,
    /// The client has to start over: another leader took over, a partition moved, or it took too
    /// long.
    #[error("the checkpoint was overtaken: {0}; begin again")]
    Overtaken(String),
    #[error("{MOST} checkpoints are kept here: end one, or wait some minutes")]
    TooMany,
    #[error(transparent)]
    Live(#[from] LiveError),
    #[error("a file cannot be read: {0}")]
    File(#[from] io::Error),
    #[error("the checkpoint cannot be put into words: {0}")]
    Document(#[from] forebay_engine::DocumentError),
}

/// The checkpoints of a node.
#[derive(Debug, Default)]
pub struct Checkpoints {
    all: Mutex<BTreeMap<String, NodeCheckpoint>>,
}

/// A checkpoint, with an id that the client chose.
#[derive(Debug)]
struct NodeCheckpoint {
    /// Clients without access to this table cannot reach the checkpoint.
    table: TableName,
    groups: Vec<GroupId>,
    state: CheckpointState,
    touched: Duration,
}

#[derive(Debug)]
pub enum CheckpointState {
    Held(Vec<HeldGroup>),
    Taken(Arc<PartCheckpoint>),
}

/// A group whose writes are blocked on this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeldGroup {
    pub group: GroupId,
    pub partition: PartitionId,
    pub term: u64,
}

impl Checkpoints {
    pub fn put(
        &self,
        (table, id): (&TableName, &str),
        now: Duration,
        held: &[HeldGroup],
        state: CheckpointState,
    ) -> Result<(), PartError> {
        self.tidy(now);
        let mut all = self.all.lock();
        let known = all.get(id);
        if known.is_some_and(|known| known.table != *table) {
            return Err(PartError::NoCheckpoint);
        }
        if all.len() >= MOST && known.is_none() {
            return Err(PartError::TooMany);
        }
        let checkpoint = NodeCheckpoint {
            table: table.clone(),
            groups: held.iter().map(|held| held.group).collect(),
            state,
            touched: now,
        };
        all.insert(id.to_owned(), checkpoint);
        Ok(())
    }

    pub fn held(&self, table: &TableName, id: &str) -> Result<Vec<HeldGroup>, PartError> {
        let all = self.all.lock();
        let found = all.get(id).filter(|found| found.table == *table);
        match found.map(|found| &found.state) {
            Some(CheckpointState::Held(groups)) => Ok(groups.clone()),
            _ => Err(PartError::NoCheckpoint),
        }
    }

    pub fn taken(
        &self,
        (table, id): (&TableName, &str),
        now: Duration,
    ) -> Result<Arc<PartCheckpoint>, PartError> {
        let mut all = self.all.lock();
        let found = all.get_mut(id).filter(|found| found.table == *table);
        let found = found.ok_or(PartError::NoCheckpoint)?;
        found.touched = now;
        match &found.state {
            CheckpointState::Taken(part) => Ok(Arc::clone(part)),
            CheckpointState::Held(_) => Err(PartError::NoCheckpoint),
        }
    }

    pub fn end(&self, table: &TableName, id: &str) {
        let mut all = self.all.lock();
        let is_its = all.get(id).is_some_and(|found| found.table == *table);
        let ended = is_its.then(|| all.remove(id));
        drop(all);
        // Drop it without the lock: this may delete files.
        drop(ended);
    }

    /// Ends checkpoints that were not read for too long.
    pub fn tidy(&self, now: Duration) {
        self.end_where(|checkpoint| now.saturating_sub(checkpoint.touched) >= UNREAD);
    }

    /// Ends checkpoints that hold a group which ends on this node. A checkpoint already taken has
    /// its files.
    pub fn end_held(&self, group: GroupId) {
        self.end_where(|checkpoint| {
            let is_held = matches!(checkpoint.state, CheckpointState::Held(_));
            is_held && checkpoint.groups.contains(&group)
        });
    }

    /// Ends all checkpoints of a table that is being removed.
    pub fn end_of_table(&self, table: &TableName) {
        self.end_where(|checkpoint| checkpoint.table == *table);
    }

    fn end_where(&self, is_past: impl Fn(&NodeCheckpoint) -> bool) {
        let mut all = self.all.lock();
        let split = std::mem::take(&mut *all).into_iter();
        let (past, kept): (BTreeMap<_, _>, _) = split.partition(|(_, one)| is_past(one));
        *all = kept;
        drop(all);
        // Drop them without the lock: this may delete files.
        drop(past);
    }
}
