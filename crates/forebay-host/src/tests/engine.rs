//! Replicas whose states are partitions of the engine, and whose logs are files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use forebay_engine::live::{
    Batch, Budget, LiveDraft, LiveTable, PartitionContent, Replication, Stored,
};
use forebay_engine::replica_log::{OpenedLog, ReplicaLog, ReplicaLogOptions, SEGMENT_BYTES};
use forebay_engine::{OpenPartitions, PartitionId, PartitionRange, TableName};
use forebay_io::{Clock, Disk, OsDisk, SystemClock, replace_file};
use forebay_replica::{Durability, GroupId, PeerId, Pending, PendingValue, Place, Refusal, Start};
use parking_lot::Mutex;
use tempfile::TempDir;

use super::fakes::{FakeLoads, NoWatch};
use super::ring::{Net, Port, wait_for};
use crate::effects::{Answer, Effect};
use crate::environment::{NoPace, NodeKey};
use crate::host::{HostParts, NewReplica, ReplicaHost};
use crate::leader_state::{EvaluationResult, ProposeOutcome};
use crate::log_writer::TableLog;
use crate::opening::{FoundReplica, OpenError, open_replicas};
use crate::partition_state::{CopyFetcher, PartitionState, StateParts, place_of};
use crate::replica_log::{EngineLog, KEPT_BYTES};

const BOOT: u128 = 7;

type States = Mutex<BTreeMap<(GroupId, PeerId), Weak<PartitionState>>>;

/// A fetcher that copies files from directory to directory.
#[derive(Debug)]
struct Files {
    states: Arc<States>,
    to: LiveTable,
}

impl CopyFetcher for Files {
    fn fetch_copy(
        &self,
        group: GroupId,
        from: PeerId,
        at_least: Place,
    ) -> Result<PartitionContent, String> {
        let peer = self
            .states
            .lock()
            .get(&(group, from))
            .and_then(Weak::upgrade);
        let copy = peer.ok_or("the peer is down")?.copy();
        let copy = copy.map_err(|error| error.to_string())?;
        let mut content = copy.content().clone();
        assert!(content.applied.as_ref().unwrap().index >= at_least.index);
        for run in &mut content.runs {
            let new = self.to.new_run();
            let bytes = OsDisk::default().read(&copy.run_file(&run.id)).unwrap();
            replace_file(&OsDisk::default(), &new.path, &bytes).unwrap();
            run.id = new.id;
        }
        Ok(content)
    }
}

fn open_log(dir: &Path) -> (ReplicaLog, OpenedLog) {
    let options = ReplicaLogOptions {
        table: TableName::new("t").unwrap(),
        table_id: 1,
        durability: forebay_engine::live::Durability::Os,
        boot_id: BOOT,
        segment_bytes: SEGMENT_BYTES,
    };
    let (disk, clock) = (Arc::new(OsDisk::default()), Arc::new(SystemClock));
    ReplicaLog::open(disk, clock, &dir.join("replicas"), options).unwrap()
}

struct Node {
    dir: TempDir,
    me: PeerId,
    running: Option<Running>,
    starts: u64,
}

struct Running {
    host: Arc<ReplicaHost>,
    log: Arc<EngineLog>,
    table: LiveTable,
    states: Vec<Arc<PartitionState>>,
}

struct Nodes {
    net: Arc<Net>,
    states: Arc<States>,
    nodes: Vec<Node>,
    parts: Vec<PartitionRange>,
    /// The bytes of each log that are retained for peers.
    kept_bytes: u64,
}

fn group_of(id: PartitionId) -> GroupId {
    GroupId(100 + u64::from(id.0))
}

fn peers() -> Vec<PeerId> {
    (1..=3).map(PeerId).collect()
}

impl Nodes {
    fn new(kept_bytes: u64) -> Self {
        let mut nodes = Self {
            kept_bytes,
            net: Arc::default(),
            states: Arc::default(),
            nodes: Vec::new(),
            parts: LiveDraft::hashed().partitions,
        };
        for me in peers() {
            nodes.nodes.push(Node {
                dir: tempfile::tempdir().unwrap(),
                me,
                running: None,
                starts: 0,
            });
        }
        (0..3).for_each(|at| nodes.start(at));
        nodes
    }

    fn open_table(dir: &Path, parts: &[PartitionRange], me: PeerId) -> LiveTable {
        let (name, budget) = (TableName::new("t").unwrap(), Budget::new(4 << 20));
        let store = forebay_engine::open(dir).unwrap();
        if store.is_live(&name).unwrap() {
            let mut table = None;
            // Work in progress at the end of the process releases the table.
            wait_for("the table is closed", || {
                table = store.live_table(&name, &budget).ok();
                table.is_some()
            });
            return table.unwrap();
        }
        let draft = LiveDraft::hashed().replicated(Replication::Leader);
        let draft = draft.holding(&OpenPartitions::Only(BTreeSet::new()));
        let table = store.create_live(&name, draft, &budget).unwrap();
        for range in parts {
            let founder = Start::founder(group_of(range.id), me, &peers(), 0);
            let empty = PartitionContent::empty(range.clone());
            let applied = Some(place_of(&founder.applied));
            table
                .install(PartitionContent { applied, ..empty })
                .unwrap();
        }
        table
    }

    fn start(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        node.starts += 1;
        let table = Self::open_table(node.dir.path(), &self.parts, node.me);
        let clock = Arc::new(SystemClock);
        let log = open_log(node.dir.path());
        let (me, starts) = (node.me, node.starts);
        let replicas = self.parts.iter().map(|range| FoundReplica {
            partition: range.id,
            group: group_of(range.id),
            peer: me,
            is_new: starts == 1,
            seed: u64::from(range.id.0) * 1000 + me.0 * 100 + starts,
        });
        let replicas: Vec<_> = replicas.collect();
        let found = open_replicas(&table, log, Durability::Os, BOOT, &replicas).unwrap();
        let key = NodeKey(me.0 as u32);
        let host = Arc::new(
            ReplicaHost::start(HostParts {
                clock: clock.clone(),
                post: Arc::new(Port(Arc::clone(&self.net))),
                pace: Arc::new(NoPace),
                watch: Arc::new(NoWatch),
                appliers: 1,
                first_request: starts << 40,
            })
            .unwrap(),
        );
        found.log.keep_for_peers(self.kept_bytes);
        let engine_log = Arc::clone(&found.log);
        let log = TableLog::start(found.log, clock).unwrap();
        let mut states = Vec::new();
        for (replica, start) in replicas.iter().zip(found.starts.into_values()) {
            let copy_fetcher = Files {
                states: Arc::clone(&self.states),
                to: table.clone(),
            };
            let state = Arc::new(PartitionState::new(
                table.clone(),
                replica.partition,
                replica.group,
                StateParts {
                    copy_fetcher: Arc::new(copy_fetcher),
                    loads: Arc::<FakeLoads>::default(),
                },
            ));
            let place = (replica.group, me);
            self.states.lock().insert(place, Arc::downgrade(&state));
            states.push(Arc::clone(&state));
            host.add(NewReplica {
                start,
                log: Arc::clone(&log),
                state,
                nodes: peers()
                    .into_iter()
                    .map(|peer| (peer, NodeKey(peer.0 as u32)))
                    .collect(),
            })
            .unwrap();
        }
        self.net.enter(key, &host);
        node.running = Some(Running {
            host,
            log: engine_log,
            table,
            states,
        });
    }

    /// Ends the process, approximately: memory is lost, and files stay as they are.
    fn stop(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        self.net.leave(NodeKey(node.me.0 as u32));
        if let Some(running) = node.running.take() {
            drop(running.host);
            drop(running.states);
            drop(running.table);
        }
    }

    fn group(&self, key: &[u8]) -> GroupId {
        let running = self.nodes.iter().find_map(|node| node.running.as_ref());
        group_of(running.unwrap().table.partition_of(key).unwrap())
    }

    fn leader(&self, group: GroupId) -> Option<&Running> {
        let running = self.nodes.iter().filter_map(|node| node.running.as_ref());
        let leads = |running: &&Running| {
            let facts = running.host.facts(group);
            facts.is_some_and(|facts| facts.leader == Some(facts.me))
        };
        running.filter(leads).max_by_key(|running| {
            let facts = running.host.facts(group);
            facts.map(|facts| facts.term)
        })
    }

    /// Adds at least once; returns how often the outcome was uncertain.
    fn add(&self, key: &[u8], by: u64, padding: &[u8]) -> u64 {
        let (group, mut uncertain) = (self.group(key), 0);
        let mut is_done = false;
        wait_for("a write", || {
            let Some(leader) = self.leader(group) else {
                return false;
            };
            match leader.add(group, key, by, padding) {
                Some(Ok(answer)) => {
                    assert_eq!(answer, Answer::Done);
                    is_done = true;
                }
                Some(Err(Refusal::Uncertain)) => uncertain += 1,
                _ => {}
            }
            is_done
        });
        uncertain
    }

    fn value(&self, at: usize, key: &[u8]) -> u64 {
        let table = &self.nodes[at].running.as_ref().unwrap().table;
        let value = table.get(key).unwrap();
        value.map_or(0, |value| number(&value))
    }
}

/// Returns the number that a value begins with.
fn number(value: &[u8]) -> u64 {
    u64::from_le_bytes(value[..8].try_into().unwrap())
}

impl Running {
    /// Adds to a number, by an evaluation on the newest state. `None` if another attempt may
    /// succeed.
    fn add(
        &self,
        group: GroupId,
        key: &[u8],
        by: u64,
        padding: &[u8],
    ) -> Option<Result<Answer, Refusal>> {
        let (done, outcome) = std::sync::mpsc::channel();
        let (wake, woken) = std::sync::mpsc::channel();
        let decide = |pending: &Pending<Stored>| {
            let before = match pending.get(key) {
                Some(PendingValue::Present(stored)) => number(&stored.value),
                Some(PendingValue::Absent) => 0,
                Some(PendingValue::Unknown) => return EvaluationResult::Waits,
                None => self
                    .table
                    .get(key)
                    .unwrap()
                    .map_or(0, |value| number(&value)),
            };
            let mut batch = Batch::new();
            batch.update(key, &(before + by).to_le_bytes());
            // Longer values would be in files of their own.
            let names = (0_u32..).map(u32::to_le_bytes);
            let partition = self.table.partition_of(key);
            let its = names.filter(|name| self.table.partition_of(name) == partition);
            for (name, part) in its.zip(padding.chunks(10_000)) {
                batch.update(&name, part);
            }
            let done = Box::new(move |outcome| drop(done.send(outcome)));
            EvaluationResult::Effect(Effect::Operations(batch), done)
        };
        let limit = Duration::from_secs(20);
        let wake = Box::new(move || {
            let _ = wake.send(());
        });
        match self.host.evaluate(group, decide, wake) {
            ProposeOutcome::Proposed => outcome.recv_timeout(limit).ok(),
            ProposeOutcome::Waits => {
                woken.recv_timeout(limit).unwrap();
                None
            }
            ProposeOutcome::NotLeader | ProposeOutcome::NotProposed => None,
        }
    }
}

#[test]
fn concurrent_evaluations_see_each_others_effects() {
    let nodes = Nodes::new(KEPT_BYTES);
    nodes.add(b"a", 1, b"");
    let leader = nodes.leader(nodes.group(b"a")).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..100 {
                    nodes.add(b"a", 1, b"");
                }
            });
        }
    });
    let value = leader.table.get(b"a").unwrap().unwrap();
    assert_eq!(number(&value), 401);
}

#[test]
fn a_proposal_without_a_known_value_holds_up_its_readers_until_it_is_applied() {
    let nodes = Nodes::new(KEPT_BYTES);
    let group = nodes.group(b"a");
    nodes.add(b"a", 1, b"");
    let leader = nodes.leader(group).unwrap();
    let (done, outcome) = std::sync::mpsc::channel();
    // An insert keeps a value that is there: the effect alone does not show it.
    let insert = |_: &Pending<Stored>| {
        let mut batch = Batch::new();
        batch.insert(b"a", &[9; 8]);
        let done = Box::new(move |outcome| drop(done.send(outcome)));
        EvaluationResult::Effect(Effect::Operations(batch), done)
    };
    let evaluated = leader.host.evaluate(group, insert, Box::new(|| ()));
    assert_eq!(evaluated, ProposeOutcome::Proposed);
    // It is applied already, or waited for: the sum is right in either case.
    nodes.add(b"a", 1, b"");
    assert_eq!(outcome.recv().unwrap(), Ok(Answer::Done));
    let value = leader.table.get(b"a").unwrap().unwrap();
    assert_eq!(number(&value), 2);
}

#[test]
fn partitions_recover_from_their_logs_without_lost_or_repeated_writes() {
    let mut nodes = Nodes::new(KEPT_BYTES);
    let keys: Vec<Vec<u8>> = (0..12).map(|key| format!("k{key}").into_bytes()).collect();
    let (mut least, mut most) = (vec![0; 12], vec![0; 12]);
    for round in 0..4_usize {
        for (at, key) in keys.iter().enumerate() {
            let by = 1 + at as u64;
            let uncertain = nodes.add(key, by, b"");
            (least[at], most[at]) = (least[at] + by, most[at] + by * (1 + uncertain));
        }
        let gone = round % 3;
        if round % 2 == 0 {
            let table = &nodes.nodes[gone].running.as_ref().unwrap().table;
            table.flush().unwrap();
        }
        nodes.stop(gone);
        for (at, key) in keys.iter().enumerate() {
            let uncertain = nodes.add(key, 1, b"");
            (least[at], most[at]) = (least[at] + 1, most[at] + 1 + uncertain);
        }
        nodes.start(gone);
        for (at, key) in keys.iter().enumerate() {
            wait_for("equal values on all nodes", || {
                let values = [0, 1, 2].map(|node| nodes.value(node, key));
                values.iter().all(|value| *value == values[0])
            });
            let value = nodes.value(0, key);
            assert!(
                (least[at]..=most[at]).contains(&value),
                "round {round}: {value}"
            );
        }
    }
}

/// Returns how often a node installed copies, and how many bytes the others read for it.
fn fetched(nodes: &Nodes, at: usize) -> (u64, u64) {
    let running = nodes.nodes.iter().enumerate();
    let running = running.filter_map(|(at, node)| Some((at, node.running.as_ref()?)));
    let (mut copies, mut tail_bytes) = (0, 0);
    for (other, running) in running {
        let counts = running.host.counts();
        match other == at {
            true => copies = counts.copies.load(Ordering::Relaxed),
            false => tail_bytes += counts.tail_bytes.load(Ordering::Relaxed),
        }
    }
    (copies, tail_bytes)
}

/// Adds until memory has only the last entries; returns the sum.
fn add_much(nodes: &Nodes) -> u64 {
    let padding = vec![0; 100 << 10];
    let uncertain: u64 = (0..200).map(|_| nodes.add(b"a", 1, &padding)).sum();
    assert_eq!(uncertain, 0);
    let group = nodes.group(b"a");
    let leader = nodes.leader(group).unwrap();
    wait_for("the writes are in runs", || {
        leader.table.flush().unwrap();
        leader.log.size_bytes().0 < 1 << 20
    });
    // Memory drops it within two checks.
    SystemClock.sleep(Duration::from_millis(2200));
    200
}

#[test]
fn a_replica_that_was_down_gets_the_tail_of_the_log_from_files() {
    let mut nodes = Nodes::new(KEPT_BYTES);
    nodes.add(b"a", 5, b"");
    nodes.stop(2);
    let sum = 5 + add_much(&nodes);
    nodes.start(2);
    wait_for("the tail", || {
        let r = nodes.nodes[2].running.as_ref().unwrap();
        eprintln!(
            "{} {sum} {:?}",
            nodes.value(2, b"a"),
            r.host.facts(nodes.group(b"a"))
        );
        SystemClock.sleep(Duration::from_millis(500));
        nodes.value(2, b"a") == sum
    });
    let (copies, tail_bytes) = fetched(&nodes, 2);
    assert_eq!(copies, 0);
    assert!(tail_bytes > 10 << 20, "{tail_bytes}");
    // After a restart, any leader has the files, too.
    nodes.stop(1);
    let sum = sum + add_much(&nodes);
    nodes.stop(0);
    nodes.start(0);
    nodes.start(1);
    wait_for("the tail", || nodes.value(1, b"a") == sum);
    assert_eq!(fetched(&nodes, 1).0, 0);
}

#[test]
fn a_replica_that_was_down_for_long_gets_the_partitions_runs() {
    let mut nodes = Nodes::new(0);
    nodes.add(b"a", 5, b"");
    nodes.stop(2);
    let sum = 5 + add_much(&nodes);
    let leader = nodes.leader(nodes.group(b"a")).unwrap();
    wait_for("segments are gone", || {
        leader.table.flush().unwrap();
        leader.log.size_bytes().1 < 8 << 20
    });
    nodes.start(2);
    wait_for("the copy", || nodes.value(2, b"a") == sum);
    // The copy is counted once it is installed.
    wait_for("the copy is counted", || fetched(&nodes, 2).0 == 1);
    let table = &nodes.nodes[2].running.as_ref().unwrap().table;
    let runs = table
        .content(table.partition_of(b"a").unwrap())
        .unwrap()
        .runs;
    assert!(!runs.is_empty(), "the copy has runs");
    nodes.add(b"a", 1, b"");
    wait_for("the tail", || nodes.value(2, b"a") == sum + 1);
    nodes.stop(2);
    nodes.start(2);
    wait_for("after a restart", || nodes.value(2, b"a") == sum + 1);
}

#[test]
fn a_replica_whose_log_is_missing_is_not_opened_as_its_old_peer() {
    let mut nodes = Nodes::new(KEPT_BYTES);
    nodes.add(b"a", 5, b"");
    nodes.stop(0);
    let dir = nodes.nodes[0].dir.path();
    ReplicaLog::remove(&OsDisk::default(), &dir.join("replicas")).unwrap();
    let table = Nodes::open_table(dir, &nodes.parts, PeerId(1));
    let replica = FoundReplica {
        partition: nodes.parts[0].id,
        group: group_of(nodes.parts[0].id),
        peer: PeerId(1),
        is_new: false,
        seed: 1,
    };
    let found = open_replicas(&table, open_log(dir), Durability::Os, BOOT, &[replica]);
    assert!(matches!(found, Err(OpenError::Group { .. })), "{found:?}");
}
