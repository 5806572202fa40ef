//! A cluster in one process, for tests.
//!
//! Its nodes share one store, and each holds its partitions. The network is in memory, and the map
//! changes only when a test sets it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use forebay_cluster::map::ClusterMap;
use forebay_cluster::model::{
    Layout, LayoutName, Model, NodeEntry, NodeState, RangeEntry, TableEntry,
};
use forebay_cluster::{
    ClusterId, DeferredAnswer, HostPort, LivePlaces, Member, NodeFacts, NodeId, NodeName, Zone,
};
use forebay_engine::{Bound, Holding, Manifest, OpenPartitions, TableName};
use forebay_io::sim::{SimClient, SimDisk, SimNet, Wire};
use forebay_io::{Disk, SystemClock};
use forebay_run::Order;
use forebay_run::hash::KeyHasher;
use forebay_server::{ClusterConfig, ForwardLimits, Handle, Server, ServerConfig};

use super::{Client, Fixture, Pairs, bytes};

pub const NODES: [u32; 3] = [1, 2, 3];
pub const LISTEN: u16 = 7379;
pub const GATEWAY: u16 = 7378;
pub const PEER: u16 = 7400;
pub const CLASS_PORTS: [u16; 2] = [7381, 7382];
/// The starts of the classes, and their holders.
pub const CLASSES: [(u16, [u32; 2]); 3] = [(0, [1, 2]), (4096, [2, 3]), (9000, [3, 1])];
/// The starts and holders of the ordered table `log`.
pub const RANGES: [(&[u8], [u32; 2]); 3] = [(b"", [2, 1]), (b"k0100", [3, 2]), (b"k0200", [1, 3])];
pub const ROWS: u32 = 300;

/// A node that follows no catalog.
#[derive(Debug)]
pub struct StandIn {
    me: NodeId,
    reported: Mutex<MapView>,
}

#[derive(Debug)]
struct MapView {
    model: Model,
    revision: u64,
    suspects: BTreeSet<NodeId>,
    suspected: Vec<NodeId>,
    trusted: Vec<NodeId>,
    /// `None`: the next lookup creates it again.
    map: Option<Arc<ClusterMap>>,
}

impl StandIn {
    pub fn new(me: u32, model: Model) -> Self {
        let reported = MapView {
            model,
            revision: 5,
            suspects: BTreeSet::new(),
            suspected: Vec::new(),
            trusted: Vec::new(),
            map: None,
        };
        Self {
            me: NodeId(me),
            reported: Mutex::new(reported),
        }
    }

    pub fn change(&self, change: impl FnOnce(&mut Model)) {
        let mut reported = self.reported.lock().expect("not poisoned");
        change(&mut reported.model);
        reported.revision += 1;
        reported.map = None;
    }

    /// Changes the model without a new revision.
    pub fn change_quietly(&self, change: impl FnOnce(&mut Model)) {
        let mut reported = self.reported.lock().expect("not poisoned");
        change(&mut reported.model);
        reported.map = None;
    }

    /// The nodes that the server reported as suspected, and as trusted again.
    pub fn reported_of(&self) -> (Vec<u32>, Vec<u32>) {
        let reported = self.reported.lock().expect("not poisoned");
        let numbers = |nodes: &[NodeId]| nodes.iter().map(|node| node.0).collect();
        (numbers(&reported.suspected), numbers(&reported.trusted))
    }
}

impl Member for StandIn {
    fn live(&self) -> Arc<LivePlaces> {
        let reported = self.reported.lock().expect("not poisoned");
        Arc::new(LivePlaces::new(&reported.model, &BTreeMap::new()))
    }

    fn replicas(&self) -> Option<Arc<forebay_cluster::local::LocalReplicas>> {
        None
    }

    fn map(&self) -> Arc<ClusterMap> {
        let mut reported = self.reported.lock().expect("not poisoned");
        let MapView {
            model,
            revision,
            suspects,
            map,
            ..
        } = &mut *reported;
        let make = || {
            Arc::new(ClusterMap::new(
                ClusterId(7),
                *revision,
                self.me,
                model,
                suspects,
            ))
        };
        Arc::clone(map.get_or_insert_with(make))
    }

    fn facts(&self) -> NodeFacts {
        NodeFacts::default()
    }

    fn newer_head(&self, _: u64) -> DeferredAnswer<()> {
        Box::pin(std::future::pending())
    }

    fn answer(&self, message: Bytes) -> DeferredAnswer<io::Result<Bytes>> {
        let me = self.me;
        Box::pin(async move {
            match &message[..] {
                b"fail" => Err(io::Error::other("failed as requested")),
                _ => Ok(Bytes::from(
                    [b"to ", me.to_string().as_bytes(), b": ", &message].concat(),
                )),
            }
        })
    }

    fn fetch(
        &self,
        table: &TableName,
        file: &str,
        range: Range<u64>,
    ) -> DeferredAnswer<io::Result<Bytes>> {
        let text = format!("{table}/{file} {}..{}", range.start, range.end);
        Box::pin(async move { Ok(Bytes::from(text)) })
    }

    fn suspect(&self, node: NodeId) {
        let mut reported = self.reported.lock().expect("not poisoned");
        reported.suspects.insert(node);
        reported.map = None;
        reported.suspected.push(node);
    }

    fn trust(&self, node: NodeId) {
        let mut reported = self.reported.lock().expect("not poisoned");
        reported.suspects.remove(&node);
        reported.map = None;
        reported.trusted.push(node);
    }
}

/// The partitions that a node holds, as the test set them.
#[derive(Debug)]
struct ModelHolding {
    member: Arc<StandIn>,
}

impl Holding for ModelHolding {
    fn held(&self, manifest: &Manifest) -> OpenPartitions {
        let model = self
            .member
            .reported
            .lock()
            .expect("not poisoned")
            .model
            .clone();
        let me = self.member.me;
        let Some(table) = model.table(&manifest.table) else {
            return OpenPartitions::Only(BTreeSet::new());
        };
        let layout = model.layout_of(table).expect("a layout");
        let is_held = |lower: &Bound| {
            let range = layout.ranges().filter(|range| range.lower <= *lower).last();
            let list = range.map_or(&[][..], |range| &range.list);
            list.iter().take(table.replicas).any(|node| *node == me)
        };
        let held = manifest.partitions.iter();
        let held = held.filter(|partition| is_held(&partition.bounds.lower));
        OpenPartitions::Only(held.map(|partition| partition.id).collect())
    }
}

pub fn host(id: u32) -> String {
    format!("127.0.0.{id}")
}

pub fn at(id: u32, port: u16) -> SocketAddr {
    SocketAddr::new(host(id).parse().expect("an address"), port)
}

pub fn node(id: u32) -> NodeEntry {
    let address = |port| HostPort::new(&host(id), port);
    NodeEntry {
        id: NodeId(id),
        name: NodeName::new(&format!("n{id}")).expect("a name"),
        zone: Zone::new(["a", "b"][id as usize % 2]).expect("a name"),
        incarnation: 1,
        state: NodeState::Up,
        paused_until_unix_ms: None,
        listen: address(LISTEN),
        class_ports: CLASS_PORTS.to_vec(),
        peer: address(PEER),
        http: None,
        cut_off_ms: None,
        formats: forebay_cluster::model::FORMATS,
        program: String::new(),
        key: None,
    }
}

pub fn range(lower: Bound, list: &[u32]) -> RangeEntry {
    RangeEntry::new(lower, list.iter().copied().map(NodeId).collect())
}

/// Three nodes; the hashed tables `words` (two replicas) and `few` (one), the ordered table `log`.
pub fn model() -> Model {
    let mut model = Model::default();
    NODES.iter().for_each(|id| model.put_node(node(*id)));
    let main = CLASSES.map(|(slot, list)| range(Bound::Slot(slot), &list));
    let main = Layout::new(Order::Hashed, main.to_vec());
    model.layouts.insert(LayoutName::Main, main);
    let log = TableName::new("log").expect("a name");
    let ranges = RANGES.map(|(lower, list)| range(Bound::Key(lower.to_vec()), &list));
    let name = LayoutName::Table(log.clone());
    let layout = Layout::new(Order::Ordered, ranges.to_vec());
    model.layouts.insert(name.clone(), layout);
    let entry = |order, layout, replicas| TableEntry {
        serving: Some(1),
        ..TableEntry::new(order, layout, replicas)
    };
    model.put_table(&log, entry(Order::Ordered, name, 2));
    for (table, replicas) in [("words", 2), ("few", 1)] {
        let entry = entry(Order::Hashed, LayoutName::Main, replicas);
        model.put_table(&TableName::new(table).expect("a name"), entry);
    }
    model
}

/// A cluster of nodes in one process.
pub struct InOneProcess {
    pub fixture: Fixture,
    pub net: SimNet,
    pub members: Vec<Arc<StandIn>>,
    pub servers: Vec<Option<Handle>>,
}

impl InOneProcess {
    pub fn new() -> Self {
        Self::changed(|_, _| {})
    }

    /// Calls `change` with each node's number.
    pub fn changed(change: impl Fn(u32, &mut ServerConfig)) -> Self {
        Self::on(Arc::new(SimDisk::new()), change)
    }

    pub fn on(disk: Arc<dyn Disk>, change: impl Fn(u32, &mut ServerConfig)) -> Self {
        let fixture = Fixture::store_on(disk, Arc::new(SystemClock));
        for table in ["words", "few"] {
            push(&fixture, table, Order::Hashed, 0);
        }
        push(&fixture, "log", Order::Ordered, 0);
        let mut cluster = Self {
            fixture,
            net: SimNet::new(),
            members: Vec::new(),
            servers: Vec::new(),
        };
        for id in NODES {
            cluster.members.push(Arc::new(StandIn::new(id, model())));
            let server = cluster.start(id, &change);
            cluster.servers.push(Some(server));
        }
        cluster
    }

    fn start(&self, id: u32, change: &dyn Fn(u32, &mut ServerConfig)) -> Handle {
        let member = Arc::clone(&self.members[id as usize - 1]);
        let mut config = ServerConfig {
            resp: at(id, LISTEN),
            http: Some(at(id, 7380)),
            threads: 1,
            net: Arc::new(self.net.clone()),
            cluster: Some(ClusterConfig {
                member,
                gateway: Some(at(id, GATEWAY)),
                class_ports: CLASS_PORTS.to_vec(),
                peer: at(id, PEER),
                peer_tls: None,
                forward: ForwardLimits {
                    hop_time: Duration::from_millis(500),
                    total_time: Duration::from_secs(5),
                },
                reach: Arc::default(),
                max_staleness: None,
            }),
            ..ServerConfig::default()
        };
        change(id, &mut config);
        let store = self.fixture.store.clone();
        let member = Arc::clone(&self.members[id as usize - 1]);
        let store = store.holding(Arc::new(ModelHolding { member }));
        Server::start(config, store).expect("a server")
    }

    pub fn restart(&mut self, id: u32) {
        let server = self.start(id, &|_, _| {});
        self.servers[id as usize - 1] = Some(server);
    }

    pub fn stop(&mut self, id: u32) {
        if let Some(server) = self.servers[id as usize - 1].take() {
            server.shutdown();
        }
    }

    pub fn client(&self, id: u32, port: u16) -> Client<SimClient> {
        Client::new(
            self.net
                .connect(at(id, port), Wire::default())
                .expect("connected"),
        )
    }

    pub fn member(&self, id: u32) -> &StandIn {
        &self.members[id as usize - 1]
    }
}

/// Pushes a version whose values name `version`, partitioned as the layout is.
pub fn push(fixture: &Fixture, table: &str, order: Order, version: u32) {
    let number = push_only(fixture, table, order, version);
    let name = TableName::new(table).expect("a name");
    let swapped = fixture
        .store
        .table(&name)
        .and_then(|table| table.swap(number));
    swapped.expect("swapped");
}

pub fn push_only(fixture: &Fixture, table: &str, order: Order, version: u32) -> u64 {
    let row = |n: u32| (key(n).into_bytes(), value(n, version).into_bytes());
    let rows: Pairs = (0..ROWS).map(row).collect();
    let lowers = match order {
        Order::Hashed => CLASSES.map(|(slot, _)| Bound::Slot(slot)),
        Order::Ordered => RANGES.map(|(lower, _)| Bound::Key(lower.to_vec())),
    };
    fixture.push_partitioned(table, order, bytes(), rows, lowers.to_vec())
}

pub fn key(n: u32) -> String {
    format!("k{n:04}")
}

pub fn value(n: u32, version: u32) -> String {
    format!("value {n} of {version}")
}

pub fn slot(wire: &str) -> u16 {
    KeyHasher::new(b"").slot(wire.as_bytes())
}

/// The place of a wire key's class.
pub fn class(wire: &str) -> usize {
    let slot = slot(wire);
    CLASSES.iter().filter(|(first, _)| *first <= slot).count() - 1
}

/// Returns the holders of a wire key of a hashed table of two replicas, the primary first.
pub fn holders(wire: &str) -> [u32; 2] {
    CLASSES[class(wire)].1
}

/// Returns a key of `table` in that class.
pub fn key_in(table: &str, wanted: usize) -> String {
    let keys = (0..ROWS).map(|n| format!("{table}:{}", key(n)));
    keys.into_iter()
        .find(|wire| class(wire) == wanted)
        .expect("a key")
}
