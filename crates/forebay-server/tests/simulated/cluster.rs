//! A simulated cluster.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use forebay_cluster::ClusterId;
use forebay_cluster::catalog::Documented;
use forebay_cluster::client::{ClusterClient, ClusterPointers, RequestEnd};
use forebay_cluster::model::{
    EndedLoad, Identity, LiveEntry, Model, NEWEST_FORMAT, Replication, Rollout,
};
use forebay_cluster::request::Request;
use forebay_cluster::status::Status;
use forebay_cluster::time::Timing;
use forebay_engine::live::LiveDraft;
use forebay_engine::{Bound, Store, TableName};
use forebay_io::sim::{IdleClock, SeededRandom, SimDisk, SimNet};
use forebay_io::{Clock, Random, start_thread};
use forebay_run::Order;

use super::common::{Pairs, bytes, push_partitioned};
use super::node::{STORE, SimNode, SimWorld};

/// The start time of all clusters.
const BEGIN_MS: u64 = 1_700_000_000_000;
/// How long anything may take, by the simulated clock.
const PATIENCE: Duration = Duration::from_secs(600);
/// How long its threads and tasks may run after the end of a cluster, by the machine's clock.
const LEFT_OVER: Duration = Duration::from_secs(300);
const LOOK: Duration = Duration::from_millis(50);
/// Which node timeouts a seed draws from, in seconds.
const NODE_TIMEOUTS_S: [u64; 3] = [3, 10, 20];

/// One at a time: see [`IdleClock`].
static ALONE: Mutex<()> = Mutex::new(());

/// Nodes of one process with a store, a network and a clock in common.
pub struct SimCluster {
    pub nodes: Vec<SimNode>,
    pub pointers: Arc<ClusterPointers>,
    /// The cluster's store, as commands have it.
    pub store: Store,
    pub world: SimWorld,
    pub timing: Timing,
    pub seed: u64,
    /// The last field: it waits for the end of the others.
    _alone: SoleTurn,
}

/// The turn of a cluster, which lasts until no thread has its clock.
struct SoleTurn {
    clock: Weak<dyn Clock>,
    _turn: MutexGuard<'static, ()>,
}

/// The seed of a test: FOREBAY_TEST_SEED, or else one from the current time.
pub fn seed() -> u64 {
    let given = std::env::var("FOREBAY_TEST_SEED").ok();
    let given = given.and_then(|text| text.parse().ok());
    let seed = given.unwrap_or_else(|| forebay_io::SystemRandom.next_u64() % 1_000_000);
    println!("FOREBAY_TEST_SEED={seed}");
    seed
}

pub fn name(table: &str) -> TableName {
    TableName::new(table).expect("a name")
}

impl SimCluster {
    /// A cluster of this many running nodes in three zones.
    pub fn of(count: u8) -> Self {
        let mut cluster = Self::made(seed());
        for number in 1..=count {
            cluster.add(number).start();
        }
        cluster.until_all_up();
        cluster
    }

    /// A cluster without nodes.
    pub fn made(seed: u64) -> Self {
        let turn = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let world = SimWorld {
            clock: Arc::new(IdleClock::at(BEGIN_MS).expect("a thread")),
            random: Arc::new(SeededRandom::new(seed)),
            net: SimNet::new(),
            disk: SimDisk::new(),
        };
        let weak = Arc::downgrade(&world.clock);
        let disk = || Arc::new(world.disk.clone());
        let (clock, random) = (|| Arc::clone(&world.clock), || Arc::clone(&world.random));
        let root = Path::new(STORE);
        let made = Store::open_or_create(disk(), clock(), random(), root).expect("a store");
        let catalog = world.catalog();
        let identity = Identity {
            forebay_cluster: NEWEST_FORMAT,
            id: ClusterId(world.random.next_u64()),
            name: "simulated".to_owned(),
            created_unix_ms: world.clock.unix_ms(),
        };
        let drawn = NODE_TIMEOUTS_S[(seed % 3) as usize];
        println!("the node timeout is {drawn} s");
        let timing = Timing::new(Duration::from_secs(drawn)).expect("a timing");
        let created = Documented(&*catalog).create(&identity, timing);
        created.expect("a catalog");
        made.give_to_cluster().expect("given");
        let client = ClusterClient::open(catalog, clock(), random()).expect("a client");
        let pointers = Arc::new(ClusterPointers::new(client));
        let moved = Some(Arc::clone(&pointers) as _);
        let store = Store::open_with(disk(), clock(), random(), root, moved).expect("a store");
        Self {
            nodes: Vec::new(),
            pointers,
            store,
            world,
            timing,
            seed,
            _alone: SoleTurn {
                clock: weak,
                _turn: turn,
            },
        }
    }

    /// Adds a node, which does not run yet.
    pub fn add(&mut self, number: u8) -> &mut SimNode {
        let zone = format!("z{}", (number - 1) % 3 + 1);
        self.nodes.push(SimNode::new(number, &zone, &self.world));
        self.node(number)
    }

    pub fn node(&mut self, number: u8) -> &mut SimNode {
        let mut nodes = self.nodes.iter_mut();
        nodes.find(|node| node.number == number).expect("a node")
    }

    pub fn client(&self) -> &ClusterClient {
        self.pointers.client()
    }

    pub fn model(&self) -> Model {
        self.client().model().expect("a model").1
    }

    pub fn now(&self) -> Duration {
        self.world.clock.monotonic()
    }

    pub fn sleep(&self, time: Duration) {
        self.world.clock.sleep(time);
    }

    /// Polls until there is a result; fails after ten minutes of the clock.
    pub fn until<T>(&self, what: &str, look: impl Fn(&Self) -> Option<T>) -> T {
        let end = self.now() + PATIENCE;
        loop {
            if let Some(found) = look(self) {
                return found;
            }
            assert!(self.now() < end, "{what}: {:#?}", self.received());
            self.sleep(LOOK);
        }
    }

    /// The coordinator's state, from the first node that returns it.
    pub fn received(&self) -> Option<Status> {
        let running = self.nodes.iter().filter(|node| node.is_running());
        let reported = running.filter_map(|node| node.page("/v1/cluster"));
        let reported = reported.filter(|(status, _)| *status == 200);
        let mut reported =
            reported.filter_map(|(_, body)| serde_json::from_str::<Status>(&body).ok());
        reported.find(|status| status.coordinator.is_some())
    }

    /// The number of the node that is the coordinator.
    pub fn coordinator(&self) -> u8 {
        let name = self.until("a coordinator", |cluster| cluster.received()?.coordinator);
        name[1..].parse().expect("a number")
    }

    /// Waits until the coordinator knows that all running nodes are up, and the others are not.
    pub fn until_all_up(&self) {
        self.until("all are up", |cluster| {
            let status = cluster.received()?;
            let is_so = |node: &SimNode| {
                let mut found = status.nodes.iter();
                let found = found.find(|one| one.name == node.name());
                let is_up = found.is_some_and(|one| one.state == "up");
                is_up == node.is_running()
            };
            cluster.nodes.iter().all(is_so).then_some(())
        });
    }

    /// Writes a version, partitioned as the cluster divides its table.
    pub fn push_only(&self, table: &str, order: Order, rows: Pairs) -> u64 {
        let model = self.model();
        let entry = model.table(&name(table));
        let of_table = entry.map(|entry| entry.layout.clone());
        let layout = model
            .layouts
            .get(&of_table.unwrap_or(forebay_cluster::model::LayoutName::Main));
        let ranges = layout.into_iter().flat_map(|layout| layout.ranges());
        let mut lowers: Vec<Bound> = ranges.map(|range| range.lower.clone()).collect();
        if lowers.is_empty() {
            lowers = (0..4).map(|part| Bound::Slot(part * 4096)).collect();
        }
        push_partitioned(&self.store, table, order, bytes(), (rows, lowers))
    }

    /// Pushes rows whose values name `version`, and has them rolled out.
    pub fn push(&self, table: &str, rows: u32, version: u32) -> Rollout {
        let row = |n: u32| (key(n).into_bytes(), value(n, version).into_bytes());
        let pairs = (0..rows).map(row).collect();
        let number = self.push_only(table, Order::Hashed, pairs);
        let to = BTreeMap::from([(name(table), number)]);
        self.pointers.swap(&to).expect("rolled out")
    }

    /// Pushes and rolls out in a separate thread.
    pub fn pusher(&self, table: &str, rows: u32, version: u32) -> JoinHandle<Rollout> {
        let row = |n: u32| (key(n).into_bytes(), value(n, version).into_bytes());
        let number = self.push_only(table, Order::Hashed, (0..rows).map(row).collect());
        let to = BTreeMap::from([(name(table), number)]);
        let pointers = Arc::clone(&self.pointers);
        let push = move || pointers.swap(&to).expect("rolled out");
        start_thread("pushing", push).expect("a thread")
    }

    /// Creates a live table of three replicas, and waits until all its partitions have known
    /// leaders.
    pub fn make_live(&self, table: &str, draft: LiveDraft) {
        let lowers = draft.partitions.iter();
        let request = Request::MakeLive {
            table: name(table),
            live: Box::new(LiveEntry {
                options: draft.options.clone(),
                replication: Replication::Leader,
                last_load: EndedLoad::default(),
            }),
            lowers: lowers.map(|range| range.bounds.lower.clone()).collect(),
            replicas: None,
        };
        self.carry_out(&request);
        self.until("all partitions are led", |cluster| {
            let (head, model) = cluster.client().model().ok()?;
            let table = name(table);
            let mut groups = model.all_groups().filter(|(of, _)| **of == table);
            groups.all(|(_, group)| group.term > 0).then_some(())?;
            let status = cluster.received()?;
            let known = |serves: Option<u64>| serves.is_some_and(|serves| serves >= head.revision);
            let mut up = status.nodes.iter().filter(|node| node.state == "up");
            up.all(|node| known(node.serves)).then_some(())
        });
    }

    pub fn carry_out(&self, request: &Request) -> RequestEnd {
        self.client().carry_out(request).expect("carried out")
    }

    /// Blocks all traffic between a node and all others.
    pub fn cut_off(&self, number: u8) {
        let hosts: Vec<IpAddr> = self.nodes.iter().map(SimNode::host).collect();
        let host = IpAddr::from([127, 0, 0, number]);
        let others = hosts.into_iter().filter(|other| *other != host);
        others.for_each(|other| self.world.net.cut(host, other));
    }
}

impl Drop for SimCluster {
    fn drop(&mut self) {
        // All at once: each takes its time.
        self.nodes.iter_mut().for_each(SimNode::kill);
        self.nodes.clear();
    }
}

impl Drop for SoleTurn {
    /// Tasks of killed nodes wait for moments that this clock reaches soon, unless another one runs
    /// beside it.
    fn drop(&mut self) {
        let clock = forebay_io::SystemClock;
        let end = clock.monotonic() + LEFT_OVER;
        while self.clock.strong_count() > 0 {
            if clock.monotonic() > end && !std::thread::panicking() {
                panic!("threads or tasks of the cluster have not ended after {LEFT_OVER:?}");
            }
            clock.sleep(Duration::from_millis(1));
        }
    }
}

pub fn key(n: u32) -> String {
    format!("k{n:04}")
}

pub fn value(n: u32, version: u32) -> String {
    format!("value {n} of {version}")
}

/// Prints the duration of a part of a test, by the machine's clock and by the simulated one.
pub struct TestTimer<'a> {
    what: &'static str,
    cluster: &'a SimCluster,
    begun: [Duration; 2],
}

impl<'a> TestTimer<'a> {
    pub fn new(what: &'static str, cluster: &'a SimCluster) -> Self {
        let begun = [forebay_io::SystemClock.monotonic(), cluster.now()];
        Self {
            what,
            cluster,
            begun,
        }
    }
}

impl Drop for TestTimer<'_> {
    fn drop(&mut self) {
        let now = [forebay_io::SystemClock.monotonic(), self.cluster.now()];
        let [real, simulated] = [0, 1].map(|at| (now[at] - self.begun[at]).as_millis());
        println!("{}: {real} ms, {simulated} ms simulated", self.what);
    }
}
