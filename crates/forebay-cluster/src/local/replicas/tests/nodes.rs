//! Nodes with the replicas of one group, and the network between them.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use forebay_engine::live::{Batch, Durability, LiveDraft, LiveOptions};
use forebay_engine::{PartitionRange, TableName, VersionFile};
use forebay_host::{Effect, KEPT_BYTES};
use forebay_io::{Clock, Disk, OsDisk, SystemClock, replace_file};
use forebay_objects::{PullRate, PullThrottle};
use forebay_replica::{GroupId, PeerId, WantedPeer, WantedPeers};
use parking_lot::Mutex;
use tempfile::TempDir;

use super::super::StagedFiles;
use super::super::{LocalReplicas, ReplicaParts, ReplicaWatch};
use crate::ids::{HostPort, NodeId};
use crate::link::{DeferredAnswer, Peers};
use crate::measures::reports::{GroupReport, ReplicaProblem};
use crate::model::EndedLoad;
use crate::routing::live::{OrderedLoad, OrderedPeer, ReplicaOrder, ReplicaOrders};

pub const GROUP: GroupId = GroupId(7);

pub fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = SystemClock.monotonic() + Duration::from_secs(60);
    while !is_so() {
        assert!(
            SystemClock.monotonic() < end,
            "timed out waiting for {what}"
        );
        SystemClock.sleep(Duration::from_millis(10));
    }
}

pub fn table_name() -> TableName {
    TableName::new("t").unwrap()
}

/// A network that delivers every message to running nodes at once.
#[derive(Debug, Default)]
pub struct TestNet(Mutex<BTreeMap<HostPort, Weak<LocalReplicas>>>);

#[derive(Debug)]
struct TestPeers(Arc<TestNet>);

impl TestPeers {
    fn get(&self, peer: &HostPort) -> Option<Arc<LocalReplicas>> {
        self.0.0.lock().get(peer).and_then(Weak::upgrade)
    }
}

impl Peers for TestPeers {
    fn ask(&self, _: &HostPort, _: Bytes, _: Duration) -> DeferredAnswer<io::Result<Bytes>> {
        Box::pin(async { Err(io::Error::other("this network carries no requests")) })
    }

    fn fetch(
        &self,
        _: &HostPort,
        _: &TableName,
        _: &str,
        _: Range<u64>,
        _: Duration,
    ) -> DeferredAnswer<io::Result<Bytes>> {
        Box::pin(async { Err(io::Error::other("this network carries no files")) })
    }

    fn post(&self, peer: &HostPort, frame: Bytes) {
        if let Some(replicas) = self.get(peer) {
            replicas.receive(frame).unwrap();
        }
    }

    fn copy(
        &self,
        peer: &HostPort,
        message: Bytes,
        _: Duration,
    ) -> DeferredAnswer<io::Result<Bytes>> {
        match self.get(peer) {
            Some(replicas) => replicas.answer_copy(message),
            None => Box::pin(async { Err(io::Error::other("the node is down")) }),
        }
    }
}

/// The cluster's store with its staged loads.
#[derive(Debug, Default)]
pub struct TestStore {
    pub root: Mutex<PathBuf>,
    /// Nodes that cannot reach it.
    pub away_from: Mutex<BTreeSet<usize>>,
}

#[derive(Debug)]
struct TestStaged(Arc<TestStore>, usize);

impl TestStaged {
    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        match self.0.away_from.lock().contains(&self.1) {
            true => Err(io::Error::other("the store is unreachable")),
            false => OsDisk::default().read(&self.0.root.lock().join(name)),
        }
    }
}

impl StagedFiles for TestStaged {
    fn document(&self, name: &str) -> io::Result<Bytes> {
        self.read(name).map(Bytes::from)
    }

    fn fetch_copy(
        &self,
        table: &TableName,
        files: &[VersionFile],
        _: &AtomicBool,
    ) -> io::Result<()> {
        files.iter().try_for_each(|file| {
            let bytes = self.read(&format!("tables/{table}/runs/{}", file.name))?;
            replace_file(&OsDisk::default(), &file.path, &bytes)
        })
    }

    fn came_bytes(&self, _: &[VersionFile]) -> u64 {
        0
    }

    fn forget(&self, files: &[VersionFile]) -> io::Result<()> {
        let disk = OsDisk::default();
        files.iter().try_for_each(|file| disk.remove(&file.path))
    }

    fn free_bytes(&self) -> Option<u64> {
        None
    }
}

/// A watch that always allows leaders to propose.
#[derive(Debug, Default)]
pub(super) struct Steers {
    reports: Mutex<Vec<GroupReport>>,
    /// All reports ever made of replicas with a problem.
    unhealthy: Mutex<Vec<GroupReport>>,
    troubles: Mutex<Vec<String>>,
}

impl ReplicaWatch for Steers {
    fn may_steer(&self) -> bool {
        true
    }

    fn replicas_stand(&self, reports: Vec<GroupReport>, troubles: Vec<String>) {
        let unhealthy = reports.iter().filter(|report| report.problem.is_some());
        self.unhealthy.lock().extend(unhealthy.cloned());
        *self.reports.lock() = reports;
        *self.troubles.lock() = troubles;
    }
}

pub struct TestNode {
    pub dir: TempDir,
    pub replicas: Option<Arc<LocalReplicas>>,
    pub throttle: Arc<PullThrottle>,
    pub log_retention_bytes: u64,
    pub watch: Arc<Steers>,
}

pub struct TestNodes {
    net: Arc<TestNet>,
    pub store: Arc<TestStore>,
    pub load: Option<OrderedLoad>,
    pub last_load: EndedLoad,
    pub nodes: Vec<TestNode>,
    pub boot_id: u128,
    pub options: LiveOptions,
}

impl Default for TestNode {
    fn default() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            replicas: None,
            throttle: throttle(None),
            log_retention_bytes: KEPT_BYTES,
            watch: Arc::default(),
        }
    }
}

/// Limits the rate to this number of bytes a second.
pub fn throttle(ceiling_bytes: Option<u64>) -> Arc<PullThrottle> {
    let rate = PullRate {
        ceiling_bytes,
        adaptive: true,
    };
    Arc::new(PullThrottle::new(rate, Arc::new(SystemClock)))
}

/// The peers of the group, by the nodes that have them.
pub type GroupPeers<'a> = &'a [(usize, u64, bool)];

fn address(at: usize) -> HostPort {
    HostPort::new("node", 1000 + at as u16)
}

impl TestNodes {
    pub fn new(durability: Durability) -> Self {
        let draft = LiveDraft::hashed().durability(durability);
        let mut nodes = Self {
            net: Arc::default(),
            store: Arc::default(),
            load: None,
            last_load: EndedLoad::default(),
            nodes: Vec::new(),
            boot_id: 1,
            options: draft.options,
        };
        for at in 0..3 {
            nodes.nodes.push(TestNode::default());
            nodes.start(at);
        }
        nodes
    }

    pub fn start(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        let replicas = LocalReplicas::new(ReplicaParts {
            cache: forebay_engine::open(node.dir.path()).unwrap(),
            peers: Arc::new(TestPeers(Arc::clone(&self.net))),
            memory_bytes: 4 << 20,
            boot_id: self.boot_id,
            appliers: 2,
            staged: Arc::new(TestStaged(Arc::clone(&self.store), at)),
            log_retention_bytes: node.log_retention_bytes,
            throttle: Arc::clone(&node.throttle),
        });
        let replicas = Arc::new(replicas.unwrap());
        replicas.watched_by(Arc::clone(&node.watch) as _);
        self.net
            .0
            .lock()
            .insert(address(at), Arc::downgrade(&replicas));
        node.replicas = Some(replicas);
    }

    /// Ends a node about as a kill would.
    pub fn stop(&mut self, at: usize) {
        self.net.0.lock().remove(&address(at));
        let weak = self.nodes[at]
            .replicas
            .take()
            .map(|replicas| Arc::downgrade(&replicas));
        wait_for("its end", || {
            weak.as_ref().is_none_or(|weak| weak.strong_count() == 0)
        });
        self.nodes[at].watch.reports.lock().clear();
    }

    pub fn replicas(&self, at: usize) -> &LocalReplicas {
        self.nodes[at].replicas.as_ref().unwrap()
    }

    /// Returns the catalog's orders for a node with these peers; the third field marks new ones.
    pub fn orders(&self, at: usize, peers: GroupPeers<'_>, founders: &[u64]) -> ReplicaOrders {
        let founders: Vec<PeerId> = founders.iter().copied().map(PeerId).collect();
        let ordered = |(node, peer, _): &(usize, u64, bool)| OrderedPeer {
            peer: PeerId(*peer),
            node: NodeId(*node as u32),
            address: Some(address(*node)),
        };
        let wanted = |(_, peer, is_new): &(usize, u64, bool)| WantedPeer {
            peer: PeerId(*peer),
            is_ready: !is_new,
            may_lead: true,
        };
        let range: PartitionRange = LiveDraft::hashed().partitions(1).partitions.remove(0);
        let mine = peers.iter().filter(|(node, _, _)| *node == at);
        let orders = mine.map(|(_, peer, is_new)| ReplicaOrder {
            table: table_name(),
            options: Arc::new(self.options.clone()),
            partition: range.id,
            bounds: range.bounds.clone(),
            epoch: 1,
            group: GROUP,
            peer: PeerId(*peer),
            is_new: *is_new,
            inherits: None,
            split: None,
            comes_from: None,
            founders: founders.contains(&PeerId(*peer)).then(|| founders.clone()),
            peers: peers.iter().map(ordered).collect(),
            wanted: WantedPeers {
                peers: peers.iter().map(wanted).collect(),
                replicas: 3.min(peers.len()),
                next_peer: PeerId(100),
            },
            load: self.load.clone(),
            last_load: self.last_load,
        });
        ReplicaOrders {
            is_from_memory: false,
            revision: 1,
            replicas: orders.collect(),
            ..ReplicaOrders::default()
        }
    }

    pub fn order(&self, peers: GroupPeers<'_>) {
        for at in 0..self.nodes.len() {
            if let Some(replicas) = &self.nodes[at].replicas {
                replicas.carry_out(self.orders(at, peers, &[1, 2, 3]));
            }
        }
    }

    pub fn report(&self, at: usize) -> Option<GroupReport> {
        self.nodes[at].watch.reports.lock().first().cloned()
    }

    /// Returns why tables of a node are not in their ordered state.
    pub fn troubles(&self, at: usize) -> Vec<String> {
        self.nodes[at].watch.troubles.lock().clone()
    }

    /// Returns the number of replicas in a node's last report.
    pub fn reported(&self, at: usize) -> usize {
        self.nodes[at].watch.reports.lock().len()
    }

    /// Returns all reports of a node about replicas with a problem.
    pub fn unhealthy(&self, at: usize) -> Vec<GroupReport> {
        self.nodes[at].watch.unhealthy.lock().clone()
    }

    /// Waits until a node reports this of its replica.
    pub fn wait_report(&self, at: usize, peer: u64, problem: Option<ReplicaProblem>) {
        wait_for("a report", || {
            let report = self.report(at);
            report.is_some_and(|report| report.peer == PeerId(peer) && report.problem == problem)
        });
    }

    /// Founds the group with three peers, and runs it.
    pub fn found(&self) {
        self.order(&[(0, 1, true), (1, 2, true), (2, 3, true)]);
        (0..3).for_each(|at| self.wait_report(at, at as u64 + 1, None));
        self.order(&[(0, 1, false), (1, 2, false), (2, 3, false)]);
    }

    pub fn leader(&self) -> Option<usize> {
        (0..self.nodes.len()).find(|at| {
            let replicas = self.nodes[*at].replicas.as_ref();
            let facts = replicas.and_then(|replicas| replicas.host().facts(GROUP));
            facts.is_some_and(|facts| facts.leader == Some(facts.me))
        })
    }

    /// Writes until it succeeds.
    pub fn set(&self, key: &[u8], value: &[u8]) {
        let mut batch = Batch::new();
        batch.update(key, value);
        let effect = Effect::Operations(batch).encode();
        wait_for("a write", || {
            let Some(leader) = self.leader() else {
                return false;
            };
            let (reported, outcome) = std::sync::mpsc::channel();
            let done = Box::new(move |outcome| drop(reported.send(outcome)));
            let host = self.replicas(leader).host();
            host.propose(GROUP, effect.clone(), done);
            matches!(outcome.recv_timeout(Duration::from_secs(20)), Ok(Ok(_)))
        });
    }

    pub fn has(&self, at: usize, key: &[u8], value: &[u8]) -> bool {
        let tables = self.replicas(at).tables().load();
        let table = tables.get(&table_name());
        let got = table.and_then(|table| table.get(key).ok().flatten());
        got.as_deref() == Some(value)
    }

    pub fn wait_value(&self, at: usize, key: &[u8], value: &[u8]) {
        wait_for("a value", || self.has(at, key, value));
    }
}
