//! Simulated time, the queue of events, and the run as a whole.

use forebay_io::sim::Rng;
use std::collections::BTreeMap;
use std::time::Duration;

use forebay_run::Order;

use super::checks::Checks;
use super::clients::Op;
use super::engine::{SimDiskState, SimProcess, Trouble};
use super::live::SimLive;
use super::net::SimNet;
use super::store::SimStore;
use super::{Outcome, Setup};
use crate::coordinator::CoordinatorSettings;
use crate::ids::{ClusterId, HostPort, NodeName, Zone};
use crate::message::{BeatReply, Introduction};
use crate::node::{Node, NodeEvent};
use crate::time::{Now, Timing};

pub const MS: u64 = 1000;
pub const SECOND: u64 = 1000 * MS;

/// How long the remaining work may take after all faults end, and how long the idle time is then.
const SETTLE_S: u64 = 150;
const IDLE_S: u64 = 100;

/// Node timeouts that random runs draw, mostly the default.
const NODE_TIMEOUTS_S: [u64; 4] = [3, 10, 10, 20];

/// Defects that a test plants outside of the machines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PlantedDefects {
    /// A restarted process serves its earlier versions before it knows the catalog.
    pub serves_at_once: bool,
    /// Heads are written unconditionally.
    pub overwrites: bool,
}

pub type Job = Box<dyn FnOnce(&mut World)>;

/// Moments of a push at which a test wants a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    Preparing,
    Verifying,
    Committing,
    Confirming,
    Reverting,
}

/// The random generator of the simulation.
#[derive(Debug)]
pub struct SimRng(Rng);

impl SimRng {
    pub fn draw(&mut self) -> u64 {
        self.0.next_u64()
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.draw() % bound.max(1)
    }

    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// Returns true in `per_mille` of a thousand calls.
    pub fn chance(&mut self, per_mille: u64) -> bool {
        self.below(1000) < per_mille
    }
}

/// A machine with one node on it.
#[derive(Debug)]
pub struct SimHost {
    pub name: NodeName,
    pub zone: Zone,
    pub peer: HostPort,
    /// Increases whenever its process starts or ends: events for an earlier process are lost.
    pub life: u64,
    pub process: Option<SimProcess>,
    pub disk: SimDiskState,
    pub trouble: Trouble,
    /// Its process is stopped (SIGSTOP), and events for it wait.
    pub paused: bool,
    pub backlog: Vec<NodeEvent>,
    /// The errors of its clocks: the drift in millionths, and the offset of the time of day.
    pub drift: i64,
    pub unix_offset_ms: i64,
    pub cut_off_ms: Option<u64>,
}

/// A process on a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Life {
    pub host: usize,
    pub life: u64,
}

pub struct World {
    pub now: u64,
    queue: BTreeMap<(u64, u64), Job>,
    queued: u64,
    pub rng: SimRng,
    trace: u64,
    pub cluster: ClusterId,
    pub hosts: Vec<SimHost>,
    pub store: SimStore,
    pub net: SimNet,
    pub checks: Checks,
    pub live: SimLive,
    pub ops: Vec<Op>,
    pub counts: BTreeMap<&'static str, u64>,
    /// The job to run at a moment of a push.
    pub hook: Option<(Moment, Job)>,
    /// Whether faults occur now.
    pub is_stormy: bool,
    /// Whether no fault ever occurs.
    pub is_faultless: bool,
    pub settings: CoordinatorSettings,
    /// The timing in the catalog from the first head on.
    pub timing: Timing,
    /// The defects that a test has planted outside of the machines.
    pub wrong: PlantedDefects,
}

impl World {
    pub fn new(seed: u64) -> Self {
        let mut rng = SimRng(Rng(seed));
        let cluster = ClusterId(rng.draw());
        Self {
            now: SECOND,
            queue: BTreeMap::new(),
            queued: 0,
            rng,
            trace: seed,
            cluster,
            hosts: Vec::new(),
            store: SimStore::new(cluster, Timing::default()),
            net: SimNet::default(),
            checks: Checks::default(),
            live: SimLive::default(),
            ops: Vec::new(),
            counts: BTreeMap::new(),
            hook: None,
            is_stormy: false,
            is_faultless: false,
            settings: CoordinatorSettings::default(),
            timing: Timing::default(),
            wrong: PlantedDefects::default(),
        }
    }

    /// Draws the node timeout. REQUIRES: nothing was built yet.
    pub fn draw_timing(&mut self, seed: u64) {
        // It uses its own random numbers, so that the seed determines all else as before.
        let drawn = Rng(!seed).next_u64() as usize % NODE_TIMEOUTS_S.len();
        self.timing = Timing::new(Duration::from_secs(NODE_TIMEOUTS_S[drawn])).unwrap();
        self.store = SimStore::new(self.cluster, self.timing);
    }

    /// Converts seconds of a cluster with a node timeout of 10 s to simulated time.
    fn scaled(&self, seconds: u64) -> u64 {
        let of_default = self.timing.node_timeout().as_secs_f64() / 10.0;
        (seconds as f64 * of_default.max(1.0)) as u64
    }

    /// Builds the machines, and starts their processes.
    pub fn build(&mut self, setup: &Setup) {
        for at in 0..setup.nodes {
            let name = NodeName::new(&format!("n{at}")).unwrap();
            let zone = Zone::new(&format!("z{}", at % setup.zones)).unwrap();
            let hour_ms = 3_700_000;
            let host = SimHost {
                name,
                zone,
                peer: HostPort::new(&format!("10.0.0.{at}"), 7400),
                life: 0,
                process: None,
                disk: SimDiskState::default(),
                trouble: Trouble::default(),
                paused: false,
                backlog: Vec::new(),
                drift: self.rng.below(10_001) as i64 - 5000,
                unix_offset_ms: [0, 0, hour_ms, -hour_ms][self.rng.below(4) as usize],
                cut_off_ms: self
                    .rng
                    .chance(200)
                    .then_some(self.timing.node_timeout().as_millis() as u64),
            };
            self.hosts.push(host);
            self.checks.add_host();
            let delay = SECOND + self.rng.below(500) * MS;
            self.after(delay, move |world| world.start(at));
        }
    }

    pub fn after(&mut self, delay: u64, job: impl FnOnce(&mut World) + 'static) {
        self.queued += 1;
        self.queue
            .insert((self.now + delay, self.queued), Box::new(job));
    }

    /// Runs until then, or until an invariant is violated.
    pub fn run_until(&mut self, end: u64) {
        while self.checks.violation.is_none() {
            let Some(entry) = self
                .queue
                .first_entry()
                .filter(|entry| entry.key().0 <= end)
            else {
                break;
            };
            let ((at, _), job) = entry.remove_entry();
            self.now = at;
            job(self);
        }
        self.now = self.now.max(end);
    }

    pub fn run_for_s(&mut self, seconds: u64) {
        self.run_until(self.now + seconds * SECOND);
    }

    pub fn trace(&mut self, word: u64) {
        self.trace = (self.trace.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
    }

    pub fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    /// Runs the job that waits for a moment, shortly after it.
    pub fn at_moment(&mut self, moment: Moment) {
        if let Some((_, job)) = self.hook.take_if(|(awaited, _)| *awaited == moment) {
            let pause = match moment {
                Moment::Committing => 0,
                _ => self.rng.below(40) * MS,
            };
            self.after(pause, job);
        }
    }

    pub fn clock(&self, host: usize) -> Now {
        let host = &self.hosts[host];
        let drift = self.now as i64 * host.drift / 1_000_000;
        let unix_ms = 1_700_000_000_000 + host.unix_offset_ms + (self.now / MS) as i64;
        Now {
            monotonic: Duration::from_micros(1000 * SECOND + (self.now as i64 + drift) as u64),
            unix_ms: unix_ms as u64,
        }
    }

    pub fn life(&self, host: usize) -> Life {
        let life = self.hosts[host].life;
        Life { host, life }
    }

    /// Returns the process, if it still lives.
    pub fn process(&mut self, life: Life) -> Option<&mut SimProcess> {
        let host = &mut self.hosts[life.host];
        host.process.as_mut().filter(|_| host.life == life.life)
    }

    pub fn start(&mut self, at: usize) {
        if self.hosts[at].process.is_some() {
            return;
        }
        self.count("starts");
        let incarnation = self.rng.draw();
        let seed = self.rng.draw();
        let now = self.clock(at);
        let host = &mut self.hosts[at];
        host.life += 1;
        host.paused = false;
        let who = Introduction {
            name: host.name.clone(),
            zone: host.zone.clone(),
            incarnation,
            listen: host.peer.at(7379),
            class_ports: Vec::new(),
            peer: host.peer.clone(),
            http: None,
            cut_off_ms: host.cut_off_ms,
            formats: crate::model::FORMATS,
            program: String::new(),
            key: None,
        };
        let mut node = Node::new(now, self.cluster, who, seed, self.settings.clone());
        let remembered = host.disk.remembered.as_ref();
        let revision = remembered.map_or(0, |(head, _)| head.revision);
        node.remember(revision, host.disk.tables.clone());
        host.process = Some(SimProcess::new(node, incarnation));
        self.checks.lives.insert(incarnation, host.life);
        self.restarted(at);
        let life = self.life(at);
        self.tick(life);
    }

    fn tick(&mut self, life: Life) {
        if self.process(life).is_none() {
            return;
        }
        self.notify(life, NodeEvent::Tick);
        self.read_at(life.host);
        self.run_replicas(life);
        let pause = self.rng.between(150, 250) * MS;
        self.after(pause, move |world| world.tick(life));
    }

    /// kill -9.
    pub fn kill(&mut self, at: usize) {
        self.count("kills");
        self.trace(at as u64);
        let host = &mut self.hosts[at];
        host.life += 1;
        (host.process, host.paused) = (None, false);
        host.backlog.clear();
    }

    pub fn pause(&mut self, at: usize) {
        if self.hosts[at].process.is_some() {
            self.count("pauses");
            self.hosts[at].paused = true;
        }
    }

    pub fn resume(&mut self, at: usize) {
        if !std::mem::take(&mut self.hosts[at].paused) {
            return;
        }
        // A client may be faster than all waiting events.
        self.read_at(at);
        let life = self.life(at);
        for event in std::mem::take(&mut self.hosts[at].backlog) {
            self.notify(life, event);
        }
    }

    /// Passes an event to a node's state machine, and carries out the resulting actions.
    pub fn notify(&mut self, life: Life, event: NodeEvent) {
        let now = self.clock(life.host);
        if self.process(life).is_none() {
            return;
        }
        if self.hosts[life.host].paused {
            // One waiting tick is enough.
            if !matches!(event, NodeEvent::Tick) {
                self.hosts[life.host].backlog.push(event);
            }
            return;
        }
        let code = event_code(&event);
        if let NodeEvent::Beat { token, beat } = &event
            && let Some(from) = self.net.asking_life(*token)
        {
            self.checks.beat_arrived(self.now, life, from, beat);
        }
        let Some(process) = self.process(life) else {
            return;
        };
        let was_coordinator = process.node.coordinator().is_some();
        let actions = process.node.handle(now, event);
        if process.node.coordinator().is_some() && !was_coordinator {
            process.terms_of += 1;
            self.count("coordinators");
        }
        self.trace(self.now ^ code << 40 ^ (life.host as u64) << 56 ^ (actions.len() as u64) << 48);
        for action in actions {
            self.perform(life, action);
        }
        self.check_node(life);
    }

    /// Ends all faults, then all work in progress; nothing happens after that.
    pub fn calm_down(&mut self) {
        self.heal();
        let settle_s = self.scaled(SETTLE_S);
        let end = self.now + settle_s * SECOND;
        while self.now < end && self.checks.violation.is_none() {
            self.run_for_s(2);
            if self.unsettled().is_none() {
                break;
            }
        }
        if self.checks.violation.is_none()
            && let Some(problem) = self.unsettled()
        {
            self.fail(format!("{settle_s} s after the last fault {problem}"));
        }
        self.run_for_s(self.scaled(15));
        let before = self.checks.costs();
        self.run_for_s(IDLE_S);
        self.check_idle(&before, IDLE_S);
        if self.checks.violation.is_none()
            && let Some(problem) = self.unsettled()
        {
            self.fail(format!("idle, and {problem}"));
        }
    }

    pub fn outcome(self) -> Outcome {
        Outcome {
            trace: self.trace,
            violation: self.checks.violation,
            counts: self.counts,
        }
    }
}

fn event_code(event: &NodeEvent) -> u64 {
    use crate::node::FollowerEvent;
    match event {
        NodeEvent::Tick => 1,
        NodeEvent::Follower(FollowerEvent::Reply { reply, .. }) => match **reply {
            BeatReply::Known { .. } => 2,
            _ => 3,
        },
        NodeEvent::Follower(_) => 4,
        NodeEvent::Lease(_) => 5,
        NodeEvent::Coordinator(_) => 6,
        NodeEvent::Beat { .. } => 7,
        NodeEvent::Notified => 8,
    }
}

/// The tables of every run.
pub fn table(at: u64) -> (forebay_engine::TableName, Order) {
    let (name, order) = [
        ("flights", Order::Hashed),
        ("hotels", Order::Hashed),
        ("words", Order::Ordered),
    ][at as usize % 3];
    (forebay_engine::TableName::new(name).unwrap(), order)
}
