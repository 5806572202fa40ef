//! Runs a node's state machine, with threads for blocking work, and handles others' messages.
//!
//! One thread passes events to the state machine and begins the actions that it requests. Other
//! threads do slow work, and report the results as events.

mod catalog_work;
mod changes;
mod known;
mod live_work;
mod maintenance;
mod old_documents;
mod peers_work;
mod place_turns;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use arc_swap::ArcSwap;
use forebay_io::{Clock, Inbox, InboxSender, Random, Receipt, inbox, start_thread};
use parking_lot::Mutex;
use tokio::sync::{oneshot, watch};
use tracing::{info, warn};

use crate::catalog::Catalog;
use crate::coordinator::{CoordinatorAction, CoordinatorSettings};
use crate::ids::NodeId;
use crate::link::{Peers, Trusted};
use crate::local::LocalReplicas;
use crate::message::{BeatReply, Introduction};
use crate::model::{Identity, Model};
use crate::node::{
    Activation, FollowerAction, FollowerEvent, Node, NodeAction, NodeEvent, VersionPlace,
};
use crate::routing::live_places::LivePlaces;
use crate::routing::map::ClusterMap;
use crate::status::Status;
use crate::time::{Now, Timing};
use crate::versions::{VersionFetch, VersionSummaries, Versions};
use place_turns::PlaceTurns;

pub use known::SavedCatalog;
use maintenance::Maintenance;

/// The time between two progress reports.
const ADVANCE: Duration = Duration::from_millis(200);

/// The parts from which a node is built.
#[derive(Debug)]
pub struct NodeParts {
    pub identity: Identity,
    pub who: Introduction,
    pub settings: CoordinatorSettings,
    pub catalog: Arc<dyn Catalog>,
    pub peers: Arc<dyn Peers>,
    pub versions: Arc<dyn Versions>,
    pub versions_at: Arc<dyn VersionSummaries>,
    pub trusted: Arc<dyn Trusted>,
    pub remembered: SavedCatalog,
    /// None if the node runs no replicas of live tables.
    pub replicas: Option<Arc<LocalReplicas>>,
    /// When the store was first asked, by the monotonic clock.
    pub asked_at: Duration,
    pub clock: Arc<dyn Clock>,
    pub random: Arc<dyn Random>,
}

/// A running node. Dropping it stops it as a kill would; see [`NodeHandle::leave`].
#[derive(Debug)]
pub struct NodeHandle {
    shell: Arc<Shell>,
    inbox: Option<Inbox<NodeEvent>>,
    thread: Option<JoinHandle<()>>,
}

/// State that the threads of a node share.
#[derive(Debug)]
pub(crate) struct Shell {
    parts: NodeParts,
    node: Mutex<Node>,
    map: ArcSwap<ClusterMap>,
    live: ArcSwap<LivePlaces>,
    /// The revision of the head from which the map was built.
    revision: watch::Sender<u64>,
    events: InboxSender<NodeEvent>,
    /// Heartbeats of other nodes that wait for their answers.
    waiting: Mutex<BTreeMap<u64, oneshot::Sender<BeatReply>>>,
    tokens: AtomicU64,
    known: known::KnownDocuments,
    old_documents: Mutex<old_documents::OldDocuments>,
    /// The fetches in progress.
    fetching: Mutex<BTreeMap<VersionPlace, Arc<AtomicBool>>>,
    turns: PlaceTurns,
    replica_orders: live_work::WaitingOrders,
    runtime: tokio::runtime::Runtime,
    stop: AtomicBool,
    has_left: AtomicBool,
    refused: Mutex<Option<String>>,
    logged: Mutex<changes::LoggedState>,
}

impl NodeHandle {
    /// Creates a node that does nothing yet.
    pub fn new(parts: NodeParts) -> io::Result<Self> {
        let now = Now {
            monotonic: parts.asked_at,
            ..now(&*parts.clock)
        };
        let (cluster, seed) = (parts.identity.id, parts.random.next_u64());
        let mut node = Node::new(
            now,
            cluster,
            parts.who.clone(),
            seed,
            parts.settings.clone(),
        );
        node.remember(parts.remembered.revision(cluster), parts.versions.tables());
        let map = ClusterMap::new(cluster, 0, NodeId(u32::MAX), &Model::default(), &[].into());
        let (events, inbox) = inbox();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("forebay-peers")
            .enable_all()
            .build()?;
        let shell = Arc::new(Shell {
            node: Mutex::new(node),
            map: ArcSwap::from_pointee(map),
            live: ArcSwap::default(),
            revision: watch::Sender::new(0),
            events,
            waiting: Mutex::default(),
            tokens: AtomicU64::new(1),
            known: known::KnownDocuments::default(),
            old_documents: Mutex::default(),
            fetching: Mutex::default(),
            turns: PlaceTurns::default(),
            replica_orders: live_work::WaitingOrders::default(),
            runtime,
            stop: AtomicBool::new(false),
            has_left: AtomicBool::new(false),
            refused: Mutex::new(None),
            logged: Mutex::default(),
            parts,
        });
        shell.watch_replicas();
        Ok(Self {
            shell,
            inbox: Some(inbox),
            thread: None,
        })
    }

    /// Starts the node. It serves nothing before it knows the catalog.
    pub fn start(&mut self) -> io::Result<()> {
        if let Some(inbox) = self.inbox.take() {
            let driven = Arc::clone(&self.shell);
            let thread = start_thread("forebay-node", move || driven.drive(&inbox))?;
            self.thread = Some(thread);
        }
        Ok(())
    }

    /// Returns the interface through which a server uses the node.
    pub fn member(&self) -> Arc<dyn crate::member::Member> {
        Arc::new(peers_work::NodeMember(Arc::clone(&self.shell)))
    }

    /// Takes the node out of the map. Returns when the other nodes know that, or after `within`.
    pub fn leave(&self, within: Duration) {
        self.shell
            .deliver(NodeEvent::Follower(FollowerEvent::Leave));
        let end = self.shell.parts.clock.monotonic() + within;
        while !self.shell.has_left.load(Ordering::Relaxed)
            && self.shell.parts.clock.monotonic() < end
        {
            self.shell.parts.clock.sleep(self.shell.timing().tick());
        }
    }

    /// Makes the coordinator look for requests, whichever node it is.
    pub fn notify(&self) {
        self.shell.notify();
    }

    /// Returns whether the node has a number and knows the catalog.
    pub fn is_known(&self) -> bool {
        let node = self.shell.node.lock();
        node.follower().id().is_some() && node.follower().known().is_some()
    }

    /// Returns why the cluster refuses the node.
    pub fn refusal(&self) -> Option<String> {
        self.shell.refused.lock().clone()
    }
}

impl Drop for NodeHandle {
    fn drop(&mut self) {
        self.shell.stop.store(true, Ordering::Relaxed);
        self.shell.deliver(NodeEvent::Tick);
        if let Some(thread) = self.thread.take() {
            // The thread has reported its own panic.
            let _ = thread.join();
        }
        // No answer will come to them.
        self.shell.waiting.lock().clear();
        for cancelled in self.shell.fetching.lock().values() {
            cancelled.store(true, Ordering::Relaxed);
        }
    }
}

fn now(clock: &dyn Clock) -> Now {
    Now {
        monotonic: clock.monotonic(),
        unix_ms: clock.unix_ms(),
    }
}

impl Shell {
    fn now(&self) -> Now {
        now(&*self.parts.clock)
    }

    /// Returns the waiting times of the catalog, as far as this node knows it.
    pub(crate) fn timing(&self) -> Timing {
        self.node.lock().follower().timing()
    }

    /// Passes an event to the state machine. Returns whether it still runs.
    pub(crate) fn deliver(&self, event: NodeEvent) -> bool {
        self.events.send(event)
    }

    fn drive(self: &Arc<Self>, inbox: &Inbox<NodeEvent>) {
        let mut next_tick = Duration::ZERO;
        let mut maintenance = Maintenance::default();
        while !self.stop.load(Ordering::Relaxed) {
            self.do_maintenance(&mut maintenance);
            let now = self.now();
            if now.monotonic >= next_tick {
                next_tick = now.monotonic + self.timing().tick();
                self.handle(NodeEvent::Tick);
            }
            let until_tick = next_tick.saturating_sub(self.now().monotonic);
            match inbox.receive(&*self.parts.clock, until_tick) {
                Receipt::One(event) => self.handle(event),
                Receipt::Nothing => {}
                Receipt::Ended => return,
            }
        }
    }

    fn handle(self: &Arc<Self>, event: NodeEvent) {
        let is_of_lease = matches!(event, NodeEvent::Lease(_));
        let actions = {
            let mut node = self.node.lock();
            let actions = node.handle(self.now(), event);
            if is_of_lease {
                self.log_coordinator(&node);
            }
            actions
        };
        for action in actions {
            match action {
                NodeAction::Follower(action) => self.follow(action),
                NodeAction::Lease(action) => self.sit(action),
                NodeAction::Coordinator(CoordinatorAction::Reply { token, reply }) => {
                    if let Some(waiting) = self.waiting.lock().remove(&token) {
                        // The node that asked may have given up.
                        let _ = waiting.send(*reply);
                    }
                }
                NodeAction::Coordinator(action) => self.coordinate(action),
            }
        }
    }

    fn follow(self: &Arc<Self>, action: FollowerAction) {
        match action {
            FollowerAction::Beat { to, beat } => self.beat(to, *beat),
            FollowerAction::ReadHead => self.read_head(),
            FollowerAction::Load { head } => self.load(*head),
            FollowerAction::Remember => self.remember(),
            FollowerAction::Prepare {
                place,
                ranges,
                open,
            } => self.fetch_copy(VersionFetch {
                passed_on: self.map.load().passed_on(&place.0),
                place,
                ranges,
                open,
                by: Arc::clone(&self.parts.peers),
                patience: self.timing().file_patience(),
                cancelled: Arc::default(),
                from_memory: self.node.lock().follower().is_from_memory(),
            }),
            FollowerAction::Forget { place } => {
                if let Some(cancelled) = self.fetching.lock().remove(&place) {
                    cancelled.store(true, Ordering::Relaxed);
                }
                let turn = self.turns.line_up(&place);
                self.background("forebay-forget", move |shell| {
                    let forget = || shell.parts.versions.forget(&place);
                    shell.turns.in_turn(&turn, forget);
                });
            }
            FollowerAction::Activate(activating) => self.activate(activating),
            FollowerAction::Route => self.route(),
            FollowerAction::Replicas(orders) => self.order_replicas(*orders),
            FollowerAction::OnIsolation(cut_off) => {
                match cut_off {
                    true => {
                        warn!(
                            "the cluster does not take this node, or nothing was heard of it for too long: nothing is answered"
                        )
                    }
                    false => info!("the cluster was heard of again"),
                }
                self.parts.versions.cut_off(cut_off);
            }
            FollowerAction::Alarm(Some(problem)) => warn!("{problem}"),
            FollowerAction::Alarm(None) => info!("the catalog is there again, and whole"),
            FollowerAction::Left => self.has_left.store(true, Ordering::Relaxed),
            FollowerAction::Refused { problem } => {
                let mut refused = self.refused.lock();
                if refused.as_ref() != Some(&problem) {
                    warn!(problem, "the cluster does not take this node");
                    *refused = Some(problem);
                }
            }
        }
    }

    fn activate(self: &Arc<Self>, activating: Activation) {
        self.background("forebay-activate", move |shell| {
            let Activation {
                revision,
                tables,
                dropped,
            } = activating;
            let problems = shell.parts.versions.activate(&tables, &dropped);
            for (table, problem) in &problems {
                match tables.contains_key(table) {
                    true => warn!(%table, problem, "it does not serve here"),
                    false => info!(%table, problem, "it is dropped here later"),
                }
            }
            let event = FollowerEvent::Activated { revision, problems };
            shell.deliver(NodeEvent::Follower(event));
        });
    }

    /// Returns the cluster's model as this node knows it.
    fn known_model(&self) -> Model {
        let node = self.node.lock();
        let known = node.follower().known();
        known.map(|(_, model)| model.clone()).unwrap_or_default()
    }

    /// Returns whether the catalog names this node's certificate.
    fn is_let_in(&self) -> bool {
        let node = self.node.lock();
        let known = node.follower().known();
        let entry = known.and_then(|(_, model)| model.node_named(&self.parts.who.name));
        entry.is_some_and(|entry| entry.key == self.parts.who.key)
    }

    fn route(&self) {
        let node = self.node.lock();
        let follower = node.follower();
        if let Some((_, model)) = follower.known() {
            let keys = model.all_nodes().filter_map(|node| node.key.clone());
            self.parts.trusted.trust(keys.collect());
        }
        let (Some((head, model)), Some(me)) = (follower.known(), follower.id()) else {
            return;
        };
        *self.refused.lock() = None;
        self.log_changes(head, model, follower.leaders());
        let suspects = follower.suspects();
        let map = ClusterMap::new(self.parts.identity.id, head.revision, me, model, &suspects);
        // A reader of the map finds the live tables of it, or newer ones.
        let live = LivePlaces::new(model, follower.leaders());
        self.live.store(Arc::new(live));
        self.map.store(Arc::new(map));
        let before = self.revision.send_replace(head.revision);
        debug_assert!(
            before <= head.revision,
            "the head of revision {} follows that of {before}",
            head.revision
        );
    }

    fn fetch_copy(self: &Arc<Self>, what: VersionFetch) {
        let place = what.place.clone();
        let before = self
            .fetching
            .lock()
            .insert(place, Arc::clone(&what.cancelled));
        if let Some(before) = before {
            before.store(true, Ordering::Relaxed);
        }
        let turn = self.turns.line_up(&what.place);
        self.background("forebay-fetch", move |shell| {
            shell.turns.in_turn(&turn, || shell.fetch_now(&what));
        });
    }

    fn fetch_now(&self, what: &VersionFetch) {
        let reported = Mutex::new(Duration::ZERO);
        let advance = |done_bytes, total_bytes| {
            let now = self.now().monotonic;
            let mut reported = reported.lock();
            if now.saturating_sub(*reported) >= ADVANCE {
                *reported = now;
                let place = what.place.clone();
                let event = FollowerEvent::Advanced {
                    place,
                    done_bytes,
                    total_bytes,
                };
                self.deliver(NodeEvent::Follower(event));
            }
        };
        let fetched = self.parts.versions.fetch_copy(what, &advance);
        if what.cancelled.load(Ordering::Relaxed) {
            // Fetched parts do no harm, unless the version is being fetched again.
            if !self.fetching.lock().contains_key(&what.place) {
                self.parts.versions.forget(&what.place);
            }
            return;
        }
        let (place, ranges) = (what.place.clone(), what.ranges.clone());
        self.deliver(NodeEvent::Follower(match fetched {
            Ok(proof) => FollowerEvent::Came {
                place,
                ranges,
                proof,
            },
            Err(problem) => {
                warn!(table = %place.0, version = place.1, problem, "a version was not fetched");
                FollowerEvent::Failed {
                    place,
                    ranges,
                    problem,
                }
            }
        }));
    }

    /// Returns the state of the cluster, if this node is the coordinator.
    pub(crate) fn status(&self) -> Option<Status> {
        let now = self.now();
        let node = self.node.lock();
        let coordinator = node.coordinator()?;
        let (head, model) = coordinator.standing()?;
        let reported = Some((coordinator, now));
        let mut status = Status::of(&self.parts.identity, head, model, reported);
        status.coordinator = Some(self.parts.who.name.to_string());
        node.alarm()
            .into_iter()
            .for_each(|alarm| status.alarm(alarm));
        Some(status)
    }

    /// Returns what this node itself knows of the cluster, if anything, and the problem of the
    /// catalog.
    fn own_status(&self) -> Option<Status> {
        let node = self.node.lock();
        let (head, model) = node.follower().known()?;
        let mut status = Status::of(&self.parts.identity, head, model, None);
        status.by_node(self.parts.who.name.as_str(), node.alarm());
        Some(status)
    }

    /// Runs work on its own thread. If the system starts no thread, runs it on this one, which is
    /// slower.
    fn background(self: &Arc<Self>, name: &str, work: impl FnOnce(&Arc<Self>) + Send + 'static) {
        let work = Arc::new(Mutex::new(Some(work)));
        let (shell, taken) = (Arc::clone(self), Arc::clone(&work));
        let started = start_thread(name, move || {
            let work = taken.lock().take();
            if let Some(work) = work {
                work(&shell);
            }
        });
        if let Err(error) = started {
            warn!(%error, name, "no thread: the node is slow");
            let work = work.lock().take();
            if let Some(work) = work {
                work(self);
            }
        }
    }
}
