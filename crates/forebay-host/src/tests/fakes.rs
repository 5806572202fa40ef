//! A log and a state in memory that survive their host, as files would.

use std::collections::BTreeMap;
use std::sync::Arc;

use forebay_engine::{PartitionId, RunId, TableName};
use forebay_replica::{
    Committed, Content, GroupId, LogEntry, OlderEntries, PeerId, Place, Promise, SnapshotFacts,
    Start,
};
use parking_lot::Mutex;

use crate::effects::{Answer, LoadedRuns};
use crate::environment::{
    Acknowledged, FoundEntries, GroupLog, GroupState, NoEntries, StandingWatch, StateError,
    WriteError, Writing,
};

/// A watch that does nothing.
#[derive(Debug)]
pub struct NoWatch;

impl StandingWatch for NoWatch {
    fn changed(&self) {}
}

#[derive(Debug, Default)]
pub struct MemoryLog {
    pub groups: Mutex<BTreeMap<GroupId, LoggedGroup>>,
    pub is_full: Mutex<bool>,
    pub is_broken: Mutex<bool>,
    /// Whether nothing is trimmed.
    pub keeps_all: Mutex<bool>,
    /// The number of reads of entries for a peer.
    pub tail_reads: Mutex<u64>,
    /// The number of writes to the log, and of groups' writes in them.
    pub counts: Mutex<(u64, u64)>,
}

/// The log's content of a group.
#[derive(Debug, Clone, Default)]
pub struct LoggedGroup {
    pub promise: Promise,
    pub before: Place,
    pub entries: Vec<LogEntry>,
}

impl GroupLog for MemoryLog {
    fn write(&self, all: &[Writing<'_>], then: Acknowledged) -> Result<(), WriteError> {
        if *self.is_full.lock() {
            return Err(WriteError::Full("no space left".to_owned()));
        }
        if *self.is_broken.lock() {
            return Err(WriteError::Broken("the device failed".to_owned()));
        }
        let mut groups = self.groups.lock();
        for writing in all {
            let kept = groups.entry(writing.group).or_default();
            if let Some(facts) = &writing.persist.snapshot {
                (kept.before, kept.entries) = (facts.place, Vec::new());
            }
            if let Some(first) = writing.persist.entries.first() {
                let left = first.place.index - kept.before.index - 1;
                kept.entries.truncate(left as usize);
                kept.entries.extend(writing.persist.entries.iter().cloned());
            }
            kept.promise = writing.persist.promise.unwrap_or(kept.promise);
        }
        drop(groups);
        let mut counts = self.counts.lock();
        *counts = (counts.0 + 1, counts.1 + all.len() as u64);
        drop(counts);
        then(Ok(()));
        Ok(())
    }

    fn entries(
        &self,
        group: GroupId,
        (from, to): (u64, u64),
        most_bytes: u64,
    ) -> Result<FoundEntries, NoEntries> {
        let groups = self.groups.lock();
        let kept = groups.get(&group).ok_or(NoEntries { through: from })?;
        let skip = from.checked_sub(kept.before.index + 1);
        let skip = skip.ok_or(NoEntries {
            through: kept.before.index,
        })?;
        let asked = kept.entries.iter().skip(skip as usize);
        let mut found = FoundEntries::default();
        for entry in asked.take_while(|entry| entry.place.index < to) {
            found.bytes += entry.content.to_bytes().len() as u64;
            found.entries.push(entry.clone());
            if found.bytes >= most_bytes {
                break;
            }
        }
        *self.tail_reads.lock() += 1;
        Ok(found)
    }

    fn trim(&self, group: GroupId, through: u64) -> bool {
        if *self.keeps_all.lock() {
            return false;
        }
        let mut groups = self.groups.lock();
        let kept = groups.entry(group).or_default();
        let is_old = |entry: &&LogEntry| entry.place.index <= through;
        let count = kept.entries.iter().take_while(is_old).count();
        if let Some(last) = kept.entries.drain(..count).next_back() {
            kept.before = last.place;
        }
        kept.entries.len() > MANY_ENTRIES
    }
}

/// A log with more entries is too long.
const MANY_ENTRIES: usize = 40;

/// A state that adds each proposal's first eight bytes to a sum, and answers the sum.
#[derive(Debug)]
pub struct Sum {
    pub now: Mutex<Snapshot>,
    /// The state "on the disk": a restart begins with it.
    pub kept: Mutex<Snapshot>,
    staged: Mutex<Option<Snapshot>>,
    /// The states of all replicas of the group, to fetch copies from.
    peers: Arc<Mutex<BTreeMap<PeerId, Arc<Sum>>>>,
    pub is_full: Mutex<bool>,
}

#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    pub sum: u64,
    pub facts: SnapshotFacts,
}

impl Sum {
    pub fn new(
        facts: SnapshotFacts,
        me: PeerId,
        peers: &Arc<Mutex<BTreeMap<PeerId, Arc<Sum>>>>,
    ) -> Arc<Self> {
        let snapshot = Snapshot { sum: 0, facts };
        let sum = Arc::new(Self {
            now: Mutex::new(snapshot.clone()),
            kept: Mutex::new(snapshot),
            staged: Mutex::default(),
            peers: Arc::clone(peers),
            is_full: Mutex::default(),
        });
        peers.lock().insert(me, Arc::clone(&sum));
        sum
    }

    /// Restarts as a process would: what was not persisted is lost.
    pub fn restart(&self) {
        *self.now.lock() = self.kept.lock().clone();
    }
}

impl GroupState for Sum {
    fn apply(&self, committed: &Committed, _: bool) -> Result<Vec<Answer>, StateError> {
        if *self.is_full.lock() {
            return Err(StateError::Later("no space left".to_owned()));
        }
        let mut now = self.now.lock();
        assert_eq!(committed.entry.place.index, now.facts.place.index + 1);
        let mut answers = Vec::new();
        if let Content::Batch { proposals, .. } = &committed.entry.content {
            for proposal in proposals {
                let bytes = proposal.effect[..8].try_into();
                now.sum += u64::from_le_bytes(bytes.unwrap());
                answers.push(Answer::Count(now.sum));
            }
        }
        now.facts = committed.facts.clone();
        Ok(answers)
    }

    fn fetch_copy(&self, from: PeerId, at_least: Place) -> Result<SnapshotFacts, StateError> {
        let peer = self.peers.lock().get(&from).cloned();
        let copy = peer.map(|peer| peer.now.lock().clone());
        let copy = copy.filter(|copy| copy.facts.place.index >= at_least.index);
        let copy = copy.ok_or_else(|| StateError::Later("no copy yet".to_owned()))?;
        *self.staged.lock() = Some(copy.clone());
        Ok(copy.facts)
    }

    fn install(&self, facts: &SnapshotFacts) -> Result<(), StateError> {
        let staged = self.staged.lock().take();
        let staged = staged.filter(|staged| staged.facts == *facts);
        let staged = staged.ok_or_else(|| StateError::Never("no copy was fetched".to_owned()))?;
        *self.kept.lock() = staged.clone();
        *self.now.lock() = staged;
        Ok(())
    }

    fn drop_copy(&self) {
        *self.staged.lock() = None;
    }

    fn kept_through(&self) -> u64 {
        self.kept.lock().facts.place.index
    }

    fn keep(&self) -> Result<(), StateError> {
        *self.kept.lock() = self.now.lock().clone();
        Ok(())
    }
}

/// Returns what a restarted process begins with.
pub fn found(log: &MemoryLog, sum: &Sum, group: GroupId, me: PeerId, seed: u64) -> Start {
    let mut kept = log.groups.lock().get(&group).cloned().unwrap_or_default();
    let mut older = OlderEntries::none(kept.before);
    let applied = sum.kept.lock().facts.place.index;
    let is_older = |entry: &&LogEntry| entry.place.index <= applied;
    let count = kept.entries.iter().take_while(is_older).count();
    for entry in kept.entries.drain(..count) {
        older.push(entry.place);
        kept.before = entry.place;
    }
    Start {
        group,
        me,
        promise: kept.promise,
        applied: sum.kept.lock().facts.clone(),
        older,
        before: kept.before,
        entries: kept.entries,
        seed,
    }
}

/// The runs of loads on a replica: at most one of each number.
#[derive(Debug, Default)]
pub struct FakeLoads(pub Mutex<BTreeMap<u64, RunId>>);

impl LoadedRuns for FakeLoads {
    fn find(&self, _: &TableName, _: PartitionId, load: u64) -> Option<RunId> {
        self.0.lock().get(&load).cloned()
    }

    fn taken(&self, _: &TableName, _: PartitionId, load: u64) {
        self.0.lock().remove(&load);
    }
}

impl FakeLoads {
    pub fn put(&self, load: u64, run: RunId) {
        self.0.lock().insert(load, run);
    }
}
