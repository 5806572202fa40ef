//! A node as it follows the catalog.
//!
//! It sends heartbeats to the coordinator, whose answers tell of new heads. What a head wants of it
//! is brought, verified and opened; what a head says is to serve, serves, for all tables at one
//! moment. A version that serves no longer is never answered from once the head that says so is
//! known: where the new one is not here, the node answers nothing of that table.

mod activation;
mod replicas;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use forebay_engine::TableName;

use super::alarm::Alarm;
use super::copies::{Copies, VersionPlace, WantedVersion, places_of};
use super::events::{Activation, FollowerAction, FollowerEvent, Serve};
use super::said::{ReportedState, is_news};
use super::suspicions::{RoutingChanged, Suspicions};
use crate::ids::{ClusterId, HostPort, NodeId};
use crate::message::{Beat, BeatReply, Introduction, NodeRoom};
use crate::model::{Head, Model, Phase};
use crate::reads::ReadsReport;
use crate::reporting::ReportQueue;
use crate::time::{Now, Timing};
use replicas::Replicas;

/// Between two heartbeats for what replicas did, while somebody waits for them: so long for each
/// node of the cluster, so that the coordinator hears a thousand a second at most.
const NEWS_PAUSE_A_NODE: Duration = Duration::from_millis(1);
const LEAST_NEWS_PAUSE: Duration = Duration::from_millis(20);

/// See the module's text.
#[derive(Debug)]
pub struct Follower {
    cluster: ClusterId,
    who: Introduction,
    id: Option<NodeId>,
    known: Option<(Head, Model)>,
    alarm: Alarm,
    /// The head whose model is being read.
    loading: Option<Head>,
    /// Nothing is read before that: it has failed.
    load_from: Duration,
    /// What is to be here, by the head of this stamp, as this node.
    wanted: BTreeMap<VersionPlace, WantedVersion>,
    wanted_of: Option<(u64, NodeId)>,
    copies: Copies,
    /// Tables that were dropped and made anew: what is here of them is of other tables, and goes
    /// before anything else of them comes.
    remade: BTreeSet<TableName>,
    /// Tables with versions in the cache, serving or not, until they are dropped there.
    cached: BTreeSet<TableName>,
    tries: BTreeMap<VersionPlace, u32>,
    active: BTreeMap<TableName, Serve>,
    activating: Option<Activation>,
    /// What was to serve last: the same is tried again after a pause only.
    tried: BTreeMap<TableName, Serve>,
    /// Tables that could not be let serve, and why.
    refused: BTreeMap<TableName, String>,
    retry_at: Duration,
    pub(crate) serves: u64,
    coordinator: Option<HostPort>,
    seq: u64,
    /// The heartbeat that waits for its answer, since when, and what it said.
    waiting: Option<(u64, Duration, ReportedState)>,
    next_beat: Duration,
    /// When a heartbeat last reported what replicas did.
    reported_at: Duration,
    looking: bool,
    looked: Duration,
    /// When the catalog was heard of last, by whatever way.
    pub(crate) received: Duration,
    started: Duration,
    remembering: bool,
    /// It serves nothing.
    pub(crate) cut_off: bool,
    /// The coordinator does not take this node: another process has its name, or the formats
    /// differ.
    is_refused: bool,
    /// This node is the coordinator: it knows the head by having written it.
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
            // Above that of the process before, whose last heartbeats may arrive late.
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

    /// Whether what is known is what this node noted before it started.
    pub fn is_from_memory(&self) -> bool {
        self.replicas.is_from_memory
    }

    /// As the head that is known says.
    pub fn timing(&self) -> Timing {
        let known = self.known.as_ref();
        known.map(|(_, model)| model.timing()).unwrap_or_default()
    }

    /// Says which revision this node knew before it started.
    pub fn remember(&mut self, revision: u64, cached: BTreeSet<TableName>) {
        self.alarm.expect(revision);
        self.cached = cached;
    }

    /// What is wrong with the catalog itself.
    pub fn alarm(&self) -> &Alarm {
        &self.alarm
    }

    /// What serves here.
    pub fn active(&self) -> &BTreeMap<TableName, Serve> {
        &self.active
    }

    /// Whether the coordinator has been silent for so long that a new one is wanted.
    pub fn is_alone(&self, now: Now) -> bool {
        now.since(self.received) >= self.timing().heartbeat_lost() || self.coordinator.is_none()
    }

    /// Says whether this node is the coordinator.
    pub fn coordinate(&mut self, coordinates: bool) {
        self.coordinates = coordinates;
    }

    /// Whom to pass over.
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
            FollowerEvent::Told(head) => {
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

    /// What became of a version that is brought.
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

    /// The coordinator was silent: requests of clients pass its node over, too.
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
                // Who does not know better may be the coordinator itself, and still reading.
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

    /// Takes note of a head, which is read when it is newer.
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
        // Whom the cluster does not take hears of no commit, and none waits for it.
        let cut_off =
            self.is_refused || limit.is_some_and(|limit| now.since(self.received) >= limit);
        if cut_off != self.cut_off {
            self.cut_off = cut_off;
            actions.push(FollowerAction::OnIsolation(cut_off));
        }
    }

    /// Where nobody could take this node in for so long, because the store takes no writes, the
    /// catalog says by the node's name which one it is.
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
        let said = self.said();
        let is_due = match &self.waiting {
            None => now.monotonic >= self.next_beat && !self.left,
            // Progress alone waits for the next one.
            Some((_, _, before)) => is_news(before, &said) || self.replicas_are_news(now),
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
            revision: said.revision,
            serves: said.serves,
            holds: said.holds,
            rollouts: said.rollouts.clone(),
            moving: said.moving.clone(),
            leaving: said.leaving,
            free_bytes: self.room.free_bytes,
            fetched_bytes_per_s: self.room.fetched_bytes_per_s,
            problems,
            suspects: self.suspicions.reported().clone(),
            groups,
            groups_left,
            reads,
            leaders_known: self.replicas.mark,
        };
        self.waiting = Some((self.seq, now.monotonic, said));
        actions.push(FollowerAction::Beat {
            to: coordinator,
            beat: Box::new(beat),
        });
    }

    /// Whether to report at once what replicas here did: a plan, a load, or a split waits for it.
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

    fn said(&self) -> ReportedState {
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

    /// Whether what is here of what serves answers.
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
