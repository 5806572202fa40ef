//! A node as a follower of the catalog.
//!
//! It sends heartbeats to the coordinator, and learns of new heads from the answers. It fetches,
//! verifies and opens the versions that a head wants. It then makes the versions of all tables
//! serve in one step. Once the node knows a head, it never answers from a version that the head has
//! replaced. If the new version is not on the node, it answers nothing of that table.

mod activation;
mod replicas;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use forebay_engine::TableName;

use super::alarm::Alarm;
use super::copies::{Copies, VersionPlace, WantedVersion, places_of};
use super::events::{Activation, FollowerAction, FollowerEvent, Serve};
use super::reported_state::{ReportedState, is_news};
use super::suspicions::{RoutingChanged, Suspicions};
use crate::ids::{ClusterId, HostPort, NodeId};
use crate::measures::reads::ReadsReport;
use crate::measures::reporting::ReportQueue;
use crate::message::{Beat, BeatReply, Introduction, NodeRoom};
use crate::model::{Head, Model, Phase};
use crate::time::{Now, Timing};
use replicas::Replicas;

/// The time between two heartbeats with news of replicas while an operation waits for them. It
/// applies per node of the cluster, so that the coordinator gets a thousand a second at most.
const NEWS_PAUSE_A_NODE: Duration = Duration::from_millis(1);
const LEAST_NEWS_PAUSE: Duration = Duration::from_millis(20);

/// The follower's state machine.
#[derive(Debug)]
pub struct Follower {
    cluster: ClusterId,
    who: Introduction,
    id: Option<NodeId>,
    known: Option<(Head, Model)>,
    alarm: Alarm,
    /// The head whose model is being loaded.
    loading: Option<Head>,
    /// A load failed: no load starts before this time.
    load_from: Duration,
    /// The versions that this node has to have, and below, the stamp of the head and the node for
    /// which they were computed.
    wanted: BTreeMap<VersionPlace, WantedVersion>,
    wanted_of: Option<(u64, NodeId)>,
    copies: Copies,
    /// Tables that were dropped and created again. Their local data is of earlier tables, and is
    /// removed before anything of the new ones is fetched.
    remade: BTreeSet<TableName>,
    /// Tables with versions in the cache, serving or not, until the cache drops them.
    cached: BTreeSet<TableName>,
    tries: BTreeMap<VersionPlace, u32>,
    active: BTreeMap<TableName, Serve>,
    activating: Option<Activation>,
    /// The last activation tried. The same one is only tried again after a pause.
    tried: BTreeMap<TableName, Serve>,
    /// Tables that could not be made to serve, and why.
    refused: BTreeMap<TableName, String>,
    retry_at: Duration,
    pub(crate) serves: u64,
    coordinator: Option<HostPort>,
    seq: u64,
    /// The heartbeat that waits for its answer: its number, its time, and its content.
    waiting: Option<(u64, Duration, ReportedState)>,
    next_beat: Duration,
    /// When a heartbeat last reported the progress of replicas.
    reported_at: Duration,
    looking: bool,
    looked: Duration,
    /// When this node last received the catalog's head, from any source.
    pub(crate) received: Duration,
    started: Duration,
    remembering: bool,
    /// The node serves nothing.
    pub(crate) cut_off: bool,
    /// The coordinator does not accept this node: another process has its name, or the formats
    /// differ.
    is_refused: bool,
    /// This node is the coordinator: it knows the head because it wrote it.
    coordinates: bool,
    leaving: bool,
    left: bool,
    room: NodeRoom,
    reads: ReportQueue<ReadsReport>,
    suspicions: Suspicions,
    replicas: Replicas,
}

impl Follower {
    pub fn new(now: Now, cluster: ClusterId, who: Introduction) -> Self {
        Self {
            cluster,
            who,
            id: None,
            known: None,
            alarm: Alarm::new(cluster),
            loading: None,
            load_from: Duration::ZERO,
            wanted: BTreeMap::new(),
            wanted_of: None,
            copies: Copies::default(),
            remade: BTreeSet::new(),
            cached: BTreeSet::new(),
            tries: BTreeMap::new(),
            active: BTreeMap::new(),
            activating: None,
            tried: BTreeMap::new(),
            refused: BTreeMap::new(),
            retry_at: Duration::ZERO,
            serves: 0,
            coordinator: None,
            // Higher than the numbers of the previous process, whose last heartbeats may arrive
            // late.
            seq: now.unix_ms.saturating_mul(1000),
            waiting: None,
            next_beat: Duration::ZERO,
            reported_at: Duration::ZERO,
            looking: false,
            looked: Duration::ZERO,
            received: now.monotonic,
            started: now.monotonic,
            remembering: false,
            cut_off: false,
            is_refused: false,
            coordinates: false,
            leaving: false,
            left: false,
            room: NodeRoom::default(),
            reads: ReportQueue::default(),
            suspicions: Suspicions::default(),
            replicas: Replicas::default(),
        }
    }

    pub fn id(&self) -> Option<NodeId> {
        self.id
    }

    pub fn known(&self) -> Option<(&Head, &Model)> {
        self.known.as_ref().map(|(head, model)| (head, model))
    }

    /// Returns whether the known head is the one that this node saved before it started.
    pub fn is_from_memory(&self) -> bool {
        self.replicas.is_from_memory
    }

    /// Returns the waiting times of the known head.
    pub fn timing(&self) -> Timing {
        let known = self.known.as_ref();
        known.map(|(_, model)| model.timing()).unwrap_or_default()
    }

    /// Sets the revision that this node knew before it started.
    pub fn remember(&mut self, revision: u64, cached: BTreeSet<TableName>) {
        self.alarm.expect(revision);
        self.cached = cached;
    }

    /// Returns the problems of the catalog itself.
    pub fn alarm(&self) -> &Alarm {
        &self.alarm
    }

    /// Returns the versions that serve on this node.
    pub fn active(&self) -> &BTreeMap<TableName, Serve> {
        &self.active
    }

    /// Returns whether the coordinator has been silent for so long that a new one is needed.
    pub fn is_alone(&self, now: Now) -> bool {
        now.since(self.received) >= self.timing().heartbeat_lost() || self.coordinator.is_none()
    }

    /// Sets whether this node is the coordinator.
    pub fn coordinate(&mut self, coordinates: bool) {
        self.coordinates = coordinates;
    }

    /// Returns the nodes to avoid.
    pub fn suspects(&self) -> BTreeSet<NodeId> {
        self.suspicions.all()
    }

    pub fn handle(&mut self, now: Now, event: FollowerEvent) -> Vec<FollowerAction> {
        let mut actions = Vec::new();
        self.take(now, event, &mut actions);
        self.reconcile(now, &mut actions);
        self.activate(now, &mut actions);
        self.order_replicas(&mut actions);
        self.look(now, &mut actions);
        self.beat(now, &mut actions);
        actions
    }

    fn take(&mut self, now: Now, event: FollowerEvent, actions: &mut Vec<FollowerAction>) {
        match event {
            FollowerEvent::Tick => route_if(self.suspicions.forgive(now, self.timing()), actions),
            FollowerEvent::Reply { seq, reply } => self.answered(now, seq, *reply, actions),
            FollowerEvent::Lost { seq } => {
                if self
                    .waiting
                    .as_ref()
                    .is_some_and(|(waiting, ..)| *waiting == seq)
                {
                    self.waiting = None;
                    self.next_beat = now.monotonic + self.timing().heartbeat();
                    self.suspect_coordinator(now, actions);
                }
            }
            FollowerEvent::Coordinator(peer) => {
                if self.coordinator.as_ref() != Some(&peer) {
                    self.coordinator = Some(peer);
                    (self.waiting, self.next_beat) = (None, now.monotonic);
                }
            }
            FollowerEvent::Loaded {
                head,
                model,
                remembered,
            } => {
                self.remembering = false;
                self.loaded(*head, *model, remembered, actions);
            }
            FollowerEvent::NotLoaded => {
                (self.loading, self.remembering) = (None, false);
                self.load_from = now.monotonic + self.timing().retry();
            }
            FollowerEvent::Head(head) => {
                self.looking = false;
                self.sound(self.alarm.of(&head), actions);
                self.is_certain(now, Some(&head));
                self.received_of(now, *head, actions);
            }
            FollowerEvent::HeadReported(head) => {
                self.looking = false;
                self.received_of(now, *head, actions);
            }
            FollowerEvent::NoCatalog(problem) => self.sound(Some(problem), actions),
            FollowerEvent::NoHead => self.looking = false,
            FollowerEvent::Advanced { .. }
            | FollowerEvent::Came { .. }
            | FollowerEvent::Failed { .. } => self.take_copy(now, event),
            FollowerEvent::Activated { revision, problems } => {
                self.activated(now, revision, problems, actions);
            }
            FollowerEvent::Suspect(node) => route_if(self.suspicions.suspect(now, node), actions),
            FollowerEvent::Trust(node) => route_if(self.suspicions.trust(node), actions),
            FollowerEvent::Room(room) => self.room = room,
            FollowerEvent::Reads(reads) => self.reads.replace(reads),
            FollowerEvent::Replicas { reports, troubles } => {
                self.replicas.reporting.replace(reports);
                self.replicas.troubles = troubles;
            }
            FollowerEvent::Leave => self.leaving = true,
        }
    }

    /// Handles the outcome of a version's fetch.
    fn take_copy(&mut self, now: Now, event: FollowerEvent) {
        match event {
            FollowerEvent::Advanced {
                place,
                done_bytes,
                total_bytes,
            } => {
                self.copies.advanced(&place, done_bytes, total_bytes);
            }
            FollowerEvent::Came {
                place,
                ranges,
                proof,
            } => {
                self.tries.remove(&place);
                self.copies.came(&place, &ranges, proof);
            }
            FollowerEvent::Failed {
                place,
                ranges,
                problem,
            } => {
                let tries = self.tries.entry(place.clone()).or_default();
                self.copies.failed(now, &place, &ranges, problem, *tries);
                *tries += 1;
            }
            _ => {}
        }
    }

    fn coordinator_id(&self) -> Option<NodeId> {
        let mut nodes = self.known.iter().flat_map(|(_, model)| model.all_nodes());
        let node = nodes.find(|node| Some(&node.peer) == self.coordinator.as_ref());
        node.map(|node| node.id)
    }

    /// Suspects the silent coordinator's node, so that client requests avoid it, too.
    fn suspect_coordinator(&mut self, now: Now, actions: &mut Vec<FollowerAction>) {
        if let Some(lost) = self.coordinator_id() {
            let is_news = self.suspicions.suspect_coordinator(now, lost);
            route_if(is_news, actions);
        }
        self.coordinator = None;
    }

    fn answered(
        &mut self,
        now: Now,
        seq: u64,
        reply: BeatReply,
        actions: &mut Vec<FollowerAction>,
    ) {
        let is_last = self
            .waiting
            .as_ref()
            .is_some_and(|(waiting, ..)| *waiting == seq);
        if is_last {
            self.waiting = None;
            self.next_beat = now.monotonic;
        }
        match reply {
            BeatReply::Known {
                node,
                term,
                head,
                suspects,
                leaders,
            } => {
                (self.received, self.is_refused) = (now.monotonic, false);
                if is_last {
                    self.is_certain(now, head.as_deref());
                    self.replicas.reporting.noticed(now, seq, term);
                    self.reads.noticed(now, seq, term);
                    route_if(self.replicas.lead(leaders), actions);
                }
                let coordinator = self.coordinator_id();
                let is_news = self.suspicions.notify(suspects, coordinator);
                route_if(is_news || self.id != Some(node), actions);
                self.id = Some(node);
                if let Some(head) = head {
                    self.received_of(now, *head, actions);
                }
                if self.leaving && is_last && !self.left {
                    self.left = true;
                    actions.push(FollowerAction::Left);
                }
            }
            BeatReply::NotCoordinator { coordinator } if is_last => {
                self.next_beat = now.monotonic + self.timing().heartbeat() / 4;
                // A node that does not know another coordinator may be the coordinator itself,
                // still loading.
                self.coordinator = coordinator.or(self.coordinator.take());
            }
            BeatReply::NotCoordinator { .. } => {}
            BeatReply::Refused { problem } => {
                self.next_beat = now.monotonic + self.timing().heartbeat();
                self.is_refused = true;
                actions.push(FollowerAction::Refused { problem });
            }
        }
    }

    fn sound(&mut self, alarm: Option<String>, actions: &mut Vec<FollowerAction>) {
        if self.alarm.note(alarm.clone()) {
            actions.push(FollowerAction::Alarm(alarm));
        }
    }

    /// Records a head, and loads it if it is newer.
    fn received_of(&mut self, now: Now, head: Head, actions: &mut Vec<FollowerAction>) {
        if head.cluster != self.cluster {
            return;
        }
        self.received = now.monotonic;
        let newest = self
            .loading
            .as_ref()
            .or(self.known.as_ref().map(|(head, _)| head));
        let is_newer = newest.is_none_or(|newest| newest.revision < head.revision);
        if is_newer && head.revision >= self.alarm.newest() && now.monotonic >= self.load_from {
            debug_assert!(
                (self.known.as_ref()).is_none_or(|(known, _)| known.revision < head.revision),
                "revision {} is read, and a later one is known",
                head.revision
            );
            self.loading = Some(head.clone());
            let head = Box::new(head);
            actions.push(FollowerAction::Load { head });
        }
    }

    fn loaded(
        &mut self,
        head: Head,
        model: Model,
        remembered: bool,
        actions: &mut Vec<FollowerAction>,
    ) {
        if self
            .loading
            .as_ref()
            .is_some_and(|loading| loading.revision <= head.revision)
        {
            self.loading = None;
        }
        let is_newer = self
            .known
            .as_ref()
            .is_none_or(|(known, _)| known.revision < head.revision);
        if !is_newer {
            return;
        }
        if remembered {
            let me = model.node_named(&self.who.name);
            self.id = self.id.or(me.map(|node| node.id));
        }
        self.alarm.expect(head.revision);
        self.note_remade(&model);
        self.replicas.is_from_memory = remembered;
        if !remembered {
            self.is_certain_of(head.revision);
        }
        self.known = Some((head, model));
        actions.push(FollowerAction::Route);
    }

    fn look(&mut self, now: Now, actions: &mut Vec<FollowerAction>) {
        let is_alone = self.is_alone(now);
        let is_alarmed = self.alarm.problem().is_some();
        let timing = self.timing();
        let pause = match is_alone || is_alarmed {
            true => timing.head_look_alone(),
            false => timing.head_look(),
        };
        let is_due =
            now.since(self.looked) >= pause && (is_alone || is_alarmed || !self.coordinates);
        if !self.looking && is_due {
            (self.looking, self.looked) = (true, now.monotonic);
            self.alarm.look();
            actions.push(FollowerAction::ReadHead);
        }
        let is_lost = self.known.is_none() && now.since(self.started) >= timing.remember_after();
        if is_lost && !self.remembering && now.monotonic >= self.load_from {
            self.remembering = true;
            actions.push(FollowerAction::Remember);
        }
        self.name_alone(now, actions);
        let limit = self.who.cut_off_ms.map(Duration::from_millis);
        // A node that the cluster refuses receives no commits, and no commit waits for it.
        let cut_off =
            self.is_refused || limit.is_some_and(|limit| now.since(self.received) >= limit);
        if cut_off != self.cut_off {
            self.cut_off = cut_off;
            actions.push(FollowerAction::OnIsolation(cut_off));
        }
    }

    /// If no node could admit this node for so long, because the store takes no writes, finds its
    /// number in the catalog by its name.
    fn name_alone(&mut self, now: Now, actions: &mut Vec<FollowerAction>) {
        let is_time = now.since(self.started) >= self.timing().remember_after();
        let is_due = self.id.is_none() && !self.is_refused && is_time;
        if let (true, Some((_, model))) = (is_due, &self.known) {
            self.id = model.node_named(&self.who.name).map(|node| node.id);
            route_if(self.id.is_some(), actions);
        }
    }

    fn beat(&mut self, now: Now, actions: &mut Vec<FollowerAction>) {
        let Some(coordinator) = self.coordinator.clone() else {
            return;
        };
        let reported_state = self.reported_state();
        let is_due = match &self.waiting {
            None => now.monotonic >= self.next_beat && !self.left,
            // Progress alone waits for the next heartbeat.
            Some((_, _, before)) => is_news(before, &reported_state) || self.replicas_are_news(now),
        };
        if !is_due {
            return;
        }
        if self.replicas.reporting.has_news() {
            self.reported_at = now.monotonic;
        }
        self.seq += 1;
        let problems = self.problems();
        let (groups, groups_left) = self.replicas.reporting.next(now, self.seq);
        let (reads, _) = self.reads.next(now, self.seq);
        let beat = Beat {
            cluster: self.cluster,
            who: self.who.clone(),
            seq: self.seq,
            revision: reported_state.revision,
            serves: reported_state.serves,
            holds: reported_state.holds,
            rollouts: reported_state.rollouts.clone(),
            moving: reported_state.moving.clone(),
            leaving: reported_state.leaving,
            free_bytes: self.room.free_bytes,
            fetched_bytes_per_s: self.room.fetched_bytes_per_s,
            problems,
            suspects: self.suspicions.reported().clone(),
            groups,
            groups_left,
            reads,
            leaders_known: self.replicas.mark,
        };
        self.waiting = Some((self.seq, now.monotonic, reported_state));
        actions.push(FollowerAction::Beat {
            to: coordinator,
            beat: Box::new(beat),
        });
    }

    /// Returns whether to report the progress of local replicas at once: a plan, a load, or a split
    /// waits for it.
    fn replicas_are_news(&self, now: Now) -> bool {
        let Some((_, model)) = &self.known else {
            return false;
        };
        let nodes = model.all_nodes().count() as u32;
        let pause = (NEWS_PAUSE_A_NODE * nodes).max(LEAST_NEWS_PAUSE);
        now.since(self.reported_at) >= pause
            && self.replicas.reporting.has_news()
            && model.waits_for_replicas()
    }

    fn reported_state(&self) -> ReportedState {
        let Some((head, model)) = &self.known else {
            return ReportedState {
                revision: 0,
                serves: 0,
                holds: 0,
                leaving: self.leaving,
                rollouts: BTreeMap::new(),
                moving: None,
            };
        };
        debug_assert!(
            self.serves <= head.revision,
            "revision {} serves here, and {} is known",
            self.serves,
            head.revision
        );
        let rollouts = model.work.under_way();
        let rollouts = rollouts.filter(|rollout| rollout.phase < Phase::Committed);
        let rollouts = rollouts.map(|rollout| {
            let places = places_of(model, rollout.id);
            (rollout.id, self.copies.readiness(&places))
        });
        let moving = self.copies.moving(&self.wanted);
        let holds_all = self.id.is_some() && moving.is_none() && self.is_active(model);
        ReportedState {
            revision: head.revision,
            serves: self.serves,
            holds: if holds_all { head.revision } else { 0 },
            leaving: self.leaving,
            rollouts: rollouts.collect(),
            moving,
        }
    }

    /// Returns whether all local ranges of the serving versions answer.
    fn is_active(&self, model: &Model) -> bool {
        let mut serving = model
            .all_tables()
            .filter_map(|(table, entry)| Some((table, entry.serving?)));
        serving.all(|(table, version)| {
            let copy = self.copies.get(&(table.clone(), version));
            let active = self.active.get(table);
            let is_that = |serve: &Serve| {
                serve.version == version && copy.is_some_and(|copy| copy.ranges == serve.ranges)
            };
            active.is_some_and(is_that)
        })
    }

    fn problems(&self) -> Vec<String> {
        let copies = self.copies.problems();
        let copies =
            copies.map(|((table, version), problem)| format!("{table}@{version}: {problem}"));
        let refused = self.refused.iter();
        let refused = refused.map(|(table, problem)| format!("{table}: {problem}"));
        let alarm = self.alarm.problem().map(str::to_owned).into_iter();
        let troubles = self.replicas.troubles.iter().cloned();
        alarm.chain(copies).chain(refused).chain(troubles).collect()
    }
}

fn route_if(is_news: RoutingChanged, actions: &mut Vec<FollowerAction>) {
    actions.extend(is_news.then_some(FollowerAction::Route));
}
