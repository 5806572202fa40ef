//! A node of a simulated cluster, which can be killed and restarted repeatedly.

use std::io::Read;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use forebay_cluster::catalog::{Catalog, DirectoryCatalog, Documented};
use forebay_cluster::coordinator::CoordinatorSettings;
use forebay_cluster::local::{LOG_RETENTION_BYTES, LocalReplicas};
use forebay_cluster::message::Introduction;
use forebay_cluster::model::FORMATS;
use forebay_cluster::shell::SavedCatalog;
use forebay_cluster::{HostPort, NodeName, Trusted, Zone};
use forebay_engine::{Store, TableName};
use forebay_io::sim::{Fault, SimClient, SimDisk, SimNet, Wire};
use forebay_io::{Clock, Random, start_thread};
use forebay_objects::{DirectoryOrigin, PullRate};
use forebay_server::{ClusterNode, Handle, NodeSetup, Server, ServerConfig};

use super::common::Client;

pub const LISTEN: u16 = 7379;
pub const HTTP: u16 = 7380;
pub const GATEWAY: u16 = 7378;
pub const PEER: u16 = 7400;
pub const CLASS_PORTS: [u16; 2] = [7381, 7382];
/// Where the cluster's store is, on its disk, and where a node's cache is, on its own.
pub const STORE: &str = "/store";
pub const CACHE: &str = "/cache";
const LEAVE: Duration = Duration::from_secs(5);

/// The shared parts of all nodes.
#[derive(Clone)]
pub struct SimWorld {
    pub clock: Arc<dyn Clock>,
    pub random: Arc<dyn Random>,
    pub net: SimNet,
    /// The disk that has the cluster's store.
    pub disk: SimDisk,
}

pub struct SimNode {
    pub number: u8,
    zone: String,
    world: SimWorld,
    pub settings: CoordinatorSettings,
    pub disk: SimDisk,
    boot: u128,
    process: Option<Process>,
    /// The threads of its killed processes, which end by themselves.
    ending: Vec<JoinHandle<()>>,
}

struct Process {
    node: ClusterNode,
    server: Handle,
}

/// The nodes share no certificates: their connections are unencrypted.
#[derive(Debug)]
struct InTheClear;

impl Trusted for InTheClear {
    fn trust(&self, _: std::collections::BTreeSet<String>) {}
}

impl SimWorld {
    pub fn catalog(&self) -> Arc<dyn Catalog> {
        let (disk, clock) = (Arc::new(self.disk.clone()), Arc::clone(&self.clock));
        Arc::new(DirectoryCatalog::new(disk, clock, Path::new(STORE)))
    }
}

impl SimNode {
    pub fn new(number: u8, zone: &str, world: &SimWorld) -> Self {
        Self {
            number,
            zone: zone.to_owned(),
            world: world.clone(),
            settings: CoordinatorSettings::default(),
            disk: SimDisk::new(),
            boot: 1,
            process: None,
            ending: Vec::new(),
        }
    }

    pub fn name(&self) -> String {
        format!("n{}", self.number)
    }

    pub fn host(&self) -> IpAddr {
        IpAddr::from([127, 0, 0, self.number])
    }

    pub fn at(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.host(), port)
    }

    pub fn is_running(&self) -> bool {
        self.process.is_some()
    }

    /// REQUIRES: it runs.
    pub fn replicas(&self) -> Arc<LocalReplicas> {
        let process = self.process.as_ref().expect("a process");
        Arc::clone(&process.node.replicas)
    }

    /// Returns the live tables in its cache. REQUIRES: it runs.
    pub fn live_tables(&self) -> Vec<TableName> {
        let process = self.process.as_ref().expect("a process");
        process.node.store.live_tables().expect("its tables")
    }

    /// Starts its process on its disk's current content.
    pub fn start(&mut self) {
        assert!(!self.is_running(), "{} runs", self.name());
        for ending in self.ending.drain(..) {
            ending.join().expect("the process did not panic");
        }
        self.world.net.revive(self.host());
        let mut config = ServerConfig {
            resp: self.at(LISTEN),
            http: Some(self.at(HTTP)),
            threads: 1,
            net: Arc::new(self.world.net.of_host(self.host())),
            live_memory_bytes: 4 << 20,
            ..ServerConfig::default()
        };
        let setup = self.setup();
        let mut node = ClusterNode::new(setup, &mut config).expect("a node");
        let server = Server::start(config, node.store.clone()).expect("a server");
        node.handle.start().expect("a thread");
        self.process = Some(Process { node, server });
    }

    fn setup(&self) -> NodeSetup {
        let (clock, random) = (&self.world.clock, &self.world.random);
        let disk: Arc<dyn forebay_io::Disk> = Arc::new(self.disk.clone());
        let (cache, parts) = (Path::new(CACHE), (Arc::clone(clock), Arc::clone(random)));
        let store = Store::open_or_create(Arc::clone(&disk), parts.0, parts.1, cache);
        let dir = cache.join("cluster");
        let remembered = SavedCatalog { disk, dir };
        let catalog = self.world.catalog();
        let identity = Documented(&*catalog).identity();
        let identity = identity.unwrap_or_else(|_| remembered.identity().expect("a cluster"));
        remembered.note_identity(&identity).expect("noted");
        let store_disk = Arc::new(self.world.disk.clone());
        NodeSetup {
            identity,
            who: self.introduction(),
            settings: self.settings.clone(),
            catalog,
            asked_at: self.world.clock.monotonic(),
            cache: store.expect("a cache"),
            remembered,
            origin: Arc::new(DirectoryOrigin::new(store_disk, STORE.into())),
            rate: PullRate {
                ceiling_bytes: None,
                adaptive: false,
            },
            boot_id: self.boot,
            log_retention_bytes: LOG_RETENTION_BYTES,
            peer: self.at(PEER),
            gateway: Some(self.at(GATEWAY)),
            tls: None,
            trusted: Arc::new(InTheClear),
            max_staleness: None,
        }
    }

    fn introduction(&self) -> Introduction {
        let address = |port| HostPort::new(&self.host().to_string(), port);
        Introduction {
            name: NodeName::new(&self.name()).expect("a name"),
            zone: Zone::new(&self.zone).expect("a zone"),
            incarnation: self.world.random.next_u64(),
            listen: address(LISTEN),
            class_ports: CLASS_PORTS.to_vec(),
            peer: address(PEER),
            http: Some(address(HTTP)),
            cut_off_ms: None,
            formats: FORMATS,
            program: "simulated".to_owned(),
            key: None,
        }
    }

    /// Kills its process. Its writes remain, and it sends nothing more to other nodes.
    pub fn kill(&mut self) {
        let Some(process) = self.process.take() else {
            return;
        };
        self.world.net.kill(self.host());
        self.disk.plan(0, Fault::Dead);
        // Reaches the plan, which waits for a call.
        let reached = forebay_io::Disk::exists(&self.disk, Path::new(CACHE));
        assert!(reached.is_err(), "the disk is dead");
        self.disk = self.disk.after_kill();
        // Threads cannot be killed. They find a dead disk and no network, and end in their time.
        let name = format!("killed-{}", self.name());
        let ending = start_thread(name, move || drop(process)).expect("a thread");
        self.ending.push(ending);
    }

    /// Cuts the power: only a part of the unsynced data remains.
    pub fn cut_power(&mut self, seed: u64) {
        self.kill();
        self.disk = self.disk.after_power_cut(seed);
        self.boot += 1;
    }

    /// Stops it as an operator does.
    pub fn stop(&mut self) {
        if let Some(Process { node, server }) = self.process.take() {
            node.leave(LEAVE);
            let replicas = Arc::clone(&node.replicas);
            drop(node);
            server.shutdown();
            replicas.close();
        }
    }

    pub fn client(&self, port: u16) -> Client<SimClient> {
        self.try_client(port).expect("connected")
    }

    pub fn try_client(&self, port: u16) -> std::io::Result<Client<SimClient>> {
        let stream = self.world.net.connect(self.at(port), Wire::default())?;
        Ok(Client::new(stream))
    }

    /// Returns status and body of a page; `None` if there is no answer.
    pub fn page(&self, path: &str) -> Option<(u16, String)> {
        let mut client = self.try_client(HTTP).ok()?;
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        client.send(request.as_bytes());
        let mut answer = String::new();
        client.stream.read_to_string(&mut answer).ok()?;
        let status = answer.split(' ').nth(1)?.parse().ok()?;
        let (_, body) = answer.split_once("\r\n\r\n")?;
        Some((status, body.to_owned()))
    }
}

impl Drop for SimNode {
    fn drop(&mut self) {
        self.kill();
        for ending in self.ending.drain(..) {
            // A failure of the thread was reported there.
            let _ = ending.join();
        }
    }
}
