//! A node as it follows the catalog.
//!
//! It sends heartbeats to the coordinator, whose answers tell of new heads. What a head wants of it
//! is brought, verified and opened; what a head says is to serve, serves, for all tables at one
//! moment. A version that serves no longer is never answered from once the head that says so is
//! known: where the new one is not here, the node answers nothing of that table.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use forebay_engine::{Bounds, TableName};

use super::copies::{Copies, CopyState, VersionPlace, kept, places_of, wanted};
use super::events::{FollowerAction, FollowerEvent, Serve};
use super::said::{Said, is_news};
use crate::bugs::{Bug, is_planted};
use crate::ids::{ClusterId, HostPort, NodeId};
use crate::message::{Beat, BeatReply, Introduction};
use crate::model::{Head, Model, Phase};
use crate::time::{BEAT, BEAT_LOST, LOOK, LOOK_ALONE, Now};

/// A node that hears of no catalog at all serves what it served before, after so long.
const REMEMBER_AFTER: Duration = Duration::from_secs(30);
/// After a failure here.
const RETRY: Duration = Duration::from_secs(1);
/// A node that was suspected is asked again after so long.
const SUSPECTED_FOR: Duration = Duration::from_secs(5);

/// See the module's text.
#[derive(Debug)]
pub struct Follower {
    cluster: ClusterId,
    who: Introduction,
    id: Option<NodeId>,
    known: Option<(Head, Model)>,
    /// The head whose model is being read.
    loading: Option<Head>,
    /// Nothing is read before that: it has failed.
    load_from: Duration,
    copies: Copies,
    tries: BTreeMap<VersionPlace, u32>,
    active: BTreeMap<TableName, Serve>,
    activating: Option<(u64, BTreeMap<TableName, Serve>)>,
    /// What was to serve last: the same is tried again after a pause only.
    tried: BTreeMap<TableName, Serve>,
    /// Tables that could not be let serve, and why.
    refused: BTreeMap<TableName, String>,
    retry_at: Duration,
    serves: u64,
    coordinator: Option<HostPort>,
    seq: u64,
    /// The heartbeat that waits for its answer, since when, and what it said.
    waiting: Option<(u64, Duration, Said)>,
    next_beat: Duration,
    looking: bool,
    looked: Duration,
    /// When the catalog was heard of last, by whatever way.
    heard: Duration,
    started: Duration,
    remembering: bool,
    cut_off: bool,
    /// This node is the coordinator: it knows the head by having written it.
    coordinates: bool,
    leaving: bool,
    left: bool,
    free_bytes: Option<u64>,
    /// As the coordinator has it, and as this node found out.
    suspects: BTreeSet<NodeId>,
    own_suspects: BTreeMap<NodeId, Duration>,
}

impl Follower {
    pub fn new(now: Now, cluster: ClusterId, who: Introduction) -> Self {
        Self {
            cluster,
            who,
            id: None,
            known: None,
            loading: None,
            load_from: Duration::ZERO,
            copies: Copies::default(),
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
            looking: false,
            looked: Duration::ZERO,
            heard: now.monotonic,
            started: now.monotonic,
            remembering: false,
            cut_off: false,
            coordinates: false,
            leaving: false,
            left: false,
            free_bytes: None,
            suspects: BTreeSet::new(),
            own_suspects: BTreeMap::new(),
        }
    }

    pub fn id(&self) -> Option<NodeId> {
        self.id
    }

    pub fn known(&self) -> Option<(&Head, &Model)> {
        self.known.as_ref().map(|(head, model)| (head, model))
    }

    /// What serves here.
    pub fn active(&self) -> &BTreeMap<TableName, Serve> {
        &self.active
    }

    /// Whether the coordinator has been silent for so long that a new one is wanted.
    pub fn is_alone(&self, now: Now) -> bool {
        now.since(self.heard) >= BEAT_LOST || self.coordinator.is_none()
    }

    /// Says whether this node is the coordinator.
    pub fn coordinate(&mut self, coordinates: bool) {
        self.coordinates = coordinates;
    }

    /// Whom to pass over.
    pub fn suspects(&self) -> BTreeSet<NodeId> {
        self.suspects
            .iter()
            .chain(self.own_suspects.keys())
            .copied()
            .collect()
    }

    pub fn handle(&mut self, now: Now, event: FollowerEvent) -> Vec<FollowerAction> {
        let mut actions = Vec::new();
        self.take(now, event, &mut actions);
        self.reconcile(now, &mut actions);
        self.activate(now, &mut actions);
        self.look(now, &mut actions);
        self.beat(now, &mut actions);
        actions
    }

    fn take(&mut self, now: Now, event: FollowerEvent, actions: &mut Vec<FollowerAction>) {
        match event {
            FollowerEvent::Tick => self.forgive(now, actions),
            FollowerEvent::Reply { seq, reply } => self.answered(now, seq, *reply, actions),
            FollowerEvent::Lost { seq } => {
                if self
                    .waiting
                    .as_ref()
                    .is_some_and(|(waiting, ..)| *waiting == seq)
                {
                    self.waiting = None;
                    self.next_beat = now.monotonic + BEAT;
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
                self.load_from = now.monotonic + RETRY;
            }
            FollowerEvent::Head(head) => {
                self.looking = false;
                self.heard_of(now, *head, actions);
            }
            FollowerEvent::NoHead => self.looking = false,
            FollowerEvent::Advanced { .. }
            | FollowerEvent::Came { .. }
            | FollowerEvent::Failed { .. } => self.take_copy(now, event),
            FollowerEvent::Activated { revision, problems } => {
                self.activated(now, revision, problems, actions);
            }
            FollowerEvent::Suspect(node) => {
                if self.own_suspects.insert(node, now.monotonic).is_none() {
                    actions.push(FollowerAction::Route);
                }
            }
            FollowerEvent::Trust(node) => {
                if self.own_suspects.remove(&node).is_some() {
                    actions.push(FollowerAction::Route);
                }
            }
            FollowerEvent::Free(bytes) => self.free_bytes = Some(bytes),
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

    /// Nodes that were suspected here may have come back.
    fn forgive(&mut self, now: Now, actions: &mut Vec<FollowerAction>) {
        let before = self.own_suspects.len();
        self.own_suspects
            .retain(|_, since| now.since(*since) < SUSPECTED_FOR);
        if self.own_suspects.len() != before {
            actions.push(FollowerAction::Route);
        }
    }

    /// The coordinator was silent: requests of clients pass its node over, too.
    fn suspect_coordinator(&mut self, now: Now, actions: &mut Vec<FollowerAction>) {
        let peer = self.coordinator.take();
        let mut nodes = self.known.iter().flat_map(|(_, model)| model.all_nodes());
        if let Some(node) = nodes.find(|node| Some(&node.peer) == peer.as_ref()) {
            self.own_suspects.insert(node.id, now.monotonic);
            actions.push(FollowerAction::Route);
        }
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
                head,
                suspects,
                ..
            } => {
                self.heard = now.monotonic;
                if self.id != Some(node) || self.suspects != suspects {
                    self.id = Some(node);
                    self.suspects = suspects;
                    actions.push(FollowerAction::Route);
                }
                if let Some(head) = head {
                    self.heard_of(now, *head, actions);
                }
                if self.leaving && is_last && !self.left {
                    self.left = true;
                    actions.push(FollowerAction::Left);
                }
            }
            BeatReply::NotCoordinator { coordinator } if is_last => {
                self.next_beat = now.monotonic + BEAT / 4;
                // Who does not know better may be the coordinator itself, and still reading.
                self.coordinator = coordinator.or(self.coordinator.take());
            }
            BeatReply::NotCoordinator { .. } => {}
            BeatReply::Refused { problem } => {
                self.next_beat = now.monotonic + BEAT;
                actions.push(FollowerAction::Refused { problem });
            }
        }
    }

    /// Takes note of a head, which is read when it is newer.
    fn heard_of(&mut self, now: Now, head: Head, actions: &mut Vec<FollowerAction>) {
        if head.cluster != self.cluster {
            return;
        }
        self.heard = now.monotonic;
        let newest = self
            .loading
            .as_ref()
            .or(self.known.as_ref().map(|(head, _)| head));
        let is_newer = newest.is_none_or(|newest| newest.revision < head.revision);
        if is_newer && now.monotonic >= self.load_from {
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
        self.known = Some((head, model));
        actions.push(FollowerAction::Route);
    }

    fn reconcile(&mut self, now: Now, actions: &mut Vec<FollowerAction>) {
        let (Some((_, model)), Some(me)) = (&self.known, self.id) else {
            return;
        };
        let wanted = wanted(model, me);
        let kept: BTreeSet<VersionPlace> = kept(model).collect();
        // What still serves here stays until the activation that ends it, and what is about to
        // serve until that has come about.
        let begun = self.activating.iter().flat_map(|(_, tables)| tables);
        let active = self.active.iter().chain(begun);
        let active = active.map(|(table, serve)| (table.clone(), serve.version));
        let kept = kept.into_iter().chain(active).collect();
        let work = self.copies.reconcile(now, &wanted, &kept);
        for place in work.forget {
            self.tries.remove(&place);
            actions.push(FollowerAction::Forget { place });
        }
        let prepare = work.prepare.into_iter();
        actions.extend(prepare.map(|(place, ranges)| FollowerAction::Prepare { place, ranges }));
    }

    fn activate(&mut self, now: Now, actions: &mut Vec<FollowerAction>) {
        let (Some((head, model)), Some(_)) = (&self.known, self.id) else {
            return;
        };
        if self.activating.is_some() {
            return;
        }
        let mut target = BTreeMap::new();
        for (table, entry) in model.all_tables() {
            let Some(version) = entry.serving else {
                continue;
            };
            let place = (table.clone(), version);
            let (history, copy) = (entry.history.clone(), self.copies.get(&place));
            let serve = |ranges: &Vec<Bounds>| Serve {
                version,
                history: history.clone(),
                ranges: ranges.clone(),
            };
            let before = self
                .active
                .get(table)
                .filter(|before| before.version == version);
            let next = match (copy, before) {
                (Some(copy), _) if matches!(copy.state, CopyState::Ready(_)) => serve(&copy.ranges),
                // Other ranges of it are being brought: what is here serves on.
                (_, Some(before)) => serve(&before.ranges),
                (_, None) if is_planted(Bug::AnswersFromOld) => match self.active.get(table) {
                    Some(old) => old.clone(),
                    None => continue,
                },
                (_, None) => continue,
            };
            target.insert(table.clone(), next);
        }
        let is_serving = target == self.active && self.refused.is_empty();
        if is_serving {
            if !lacks(model, &self.active) {
                self.serves = self.serves.max(head.revision);
            }
        } else if target != self.tried || now.monotonic >= self.retry_at {
            self.tried.clone_from(&target);
            let gone = |table: &&TableName| model.table(table).is_none();
            let dropped = self.active.keys().filter(gone).cloned().collect();
            self.activating = Some((head.revision, target.clone()));
            actions.push(FollowerAction::Activate {
                revision: head.revision,
                tables: target,
                dropped,
            });
        }
    }

    fn activated(
        &mut self,
        now: Now,
        revision: u64,
        problems: BTreeMap<TableName, String>,
        actions: &mut Vec<FollowerAction>,
    ) {
        let Some((activating, mut tables)) = self.activating.take() else {
            return;
        };
        if activating != revision {
            self.activating = Some((activating, tables));
            return;
        }
        tables.retain(|table, _| !problems.contains_key(table));
        self.active = tables;
        self.refused = problems;
        self.retry_at = now.monotonic + RETRY;
        let known = self.known.as_ref();
        if known.is_some_and(|(_, model)| !lacks(model, &self.active)) {
            self.serves = self.serves.max(revision);
        }
        actions.push(FollowerAction::Route);
    }

    fn look(&mut self, now: Now, actions: &mut Vec<FollowerAction>) {
        let is_alone = self.is_alone(now);
        let pause = if is_alone { LOOK_ALONE } else { LOOK };
        let is_due = now.since(self.looked) >= pause && (is_alone || !self.coordinates);
        if !self.looking && is_due {
            (self.looking, self.looked) = (true, now.monotonic);
            actions.push(FollowerAction::ReadHead);
        }
        let is_lost = self.known.is_none() && now.since(self.started) >= REMEMBER_AFTER;
        if is_lost && !self.remembering && now.monotonic >= self.load_from {
            self.remembering = true;
            actions.push(FollowerAction::Remember);
        }
        let limit = self.who.cut_off_ms.map(Duration::from_millis);
        let cut_off = limit.is_some_and(|limit| now.since(self.heard) >= limit);
        if cut_off != self.cut_off {
            self.cut_off = cut_off;
            actions.push(FollowerAction::CutOff(cut_off));
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
            Some((_, _, before)) => is_news(before, &said),
        };
        if !is_due {
            return;
        }
        self.seq += 1;
        let problems = self.problems();
        let beat = Beat {
            cluster: self.cluster,
            who: self.who.clone(),
            seq: self.seq,
            revision: said.revision,
            serves: said.serves,
            holds: said.holds,
            rollouts: said.rollouts.clone(),
            leaving: said.leaving,
            free_bytes: self.free_bytes,
            problems,
            suspects: self.suspects.clone(),
        };
        self.waiting = Some((self.seq, now.monotonic, said));
        actions.push(FollowerAction::Beat {
            to: coordinator,
            beat: Box::new(beat),
        });
    }

    fn said(&self) -> Said {
        let Some((head, model)) = &self.known else {
            return Said {
                revision: 0,
                serves: 0,
                holds: 0,
                leaving: self.leaving,
                rollouts: BTreeMap::new(),
            };
        };
        let rollouts = model.work.under_way();
        let rollouts = rollouts.filter(|rollout| rollout.phase < Phase::Committed);
        let rollouts = rollouts.map(|rollout| {
            let places = places_of(model, rollout.id);
            (rollout.id, self.copies.readiness(&places))
        });
        let me = self.id.unwrap_or_default();
        let wanted = wanted(model, me);
        let holds_all = self.id.is_some()
            && wanted.iter().all(|(place, ranges)| {
                let copy = self.copies.get(place);
                copy.is_some_and(|copy| {
                    copy.ranges == *ranges && matches!(copy.state, CopyState::Ready(_))
                })
            });
        Said {
            revision: head.revision,
            serves: self.serves,
            holds: if holds_all { head.revision } else { 0 },
            leaving: self.leaving,
            rollouts: rollouts.collect(),
        }
    }

    fn problems(&self) -> Vec<String> {
        let copies = self.copies.problems();
        let copies =
            copies.map(|((table, version), problem)| format!("{table}@{version}: {problem}"));
        let refused = self.refused.iter();
        let refused = refused.map(|(table, problem)| format!("{table}: {problem}"));
        copies.chain(refused).collect()
    }
}

/// Whether something does not serve here that a rollout waits for.
fn lacks(model: &Model, active: &BTreeMap<TableName, Serve>) -> bool {
    let rollouts = model.work.under_way();
    let mut tables = rollouts
        .filter(|rollout| matches!(rollout.phase, Phase::Committed | Phase::Reverting))
        .flat_map(|rollout| rollout.tables.keys());
    tables.any(|table| {
        let serving = model.table(table).and_then(|entry| entry.serving);
        serving != active.get(table).map(|serve| serve.version)
    })
}
