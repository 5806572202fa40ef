//! The members of the cluster, and which of them are up.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::bugs::{Bug, is_planted};
use crate::formats::speaks_not;
use crate::ids::{NodeId, NodeName};
use crate::message::{Beat, BeatReply, Introduction, LeadersMark, NodeRoom, Readiness};
use crate::model::{Model, NodeEntry, NodeState, RolloutId};
use crate::time::Now;

use super::{Coordinator, CoordinatorAction, State, Step};

/// The last report of a node.
#[derive(Debug)]
pub struct NodeReport {
    pub incarnation: u64,
    pub at: Duration,
    pub serves: u64,
    pub holds: u64,
    pub rollouts: BTreeMap<RolloutId, Readiness>,
    pub moving: Option<Readiness>,
    pub room: NodeRoom,
    pub problems: Vec<String>,
    leaving: bool,
    seq: u64,
    /// The revision that the node knows.
    pub revision: u64,
    /// The newest revision that the coordinator sent to it. While the node still reads it, the
    /// coordinator does not send it again before the node's next heartbeat is due.
    reported_revision: u64,
    who: Introduction,
    /// The suspects that were sent to it.
    reported: BTreeSet<NodeId>,
    /// The number of groups with news that did not fit in the heartbeat.
    pub groups_left: usize,
    /// The last change of leaders that the node knows.
    leaders_known: LeadersMark,
    /// The heartbeat that waits for its answer, and since when.
    waiting: Option<(u64, Duration)>,
}

impl Coordinator {
    /// Returns the last report of each node, by its number.
    pub fn received(&self) -> &BTreeMap<NodeId, NodeReport> {
        &self.received
    }

    /// Returns whether most nodes have sent this coordinator no heartbeats for some time. Another
    /// node may receive more. A coordinator that was paused for a moment receives none at first.
    pub fn receives_few(&self, now: Now) -> bool {
        let since = self.receives_few_since;
        since.is_some_and(|since| now.since(since) >= self.timing().receives_few())
    }

    /// Answers all waiting heartbeats, when this coordinator's role has ended.
    pub fn dismiss(self) -> Vec<CoordinatorAction> {
        let mut actions = Vec::new();
        let waiting = self
            .received
            .values()
            .filter_map(|received| received.waiting);
        let strangers = self.strangers.iter().map(|(token, _)| *token);
        for token in waiting.map(|(token, _)| token).chain(strangers) {
            let nothing = BeatReply::NotCoordinator { coordinator: None };
            reply(&mut actions, token, nothing);
        }
        actions
    }

    /// Handles a heartbeat. Most heartbeats contain nothing new and cause no step.
    pub(super) fn receive(
        &mut self,
        now: Now,
        token: u64,
        beat: Beat,
        actions: &mut Vec<CoordinatorAction>,
    ) {
        let State::Standing(standing) = &self.state else {
            // The node asks again, and by then the catalog has been read.
            return reply(
                actions,
                token,
                BeatReply::NotCoordinator { coordinator: None },
            );
        };
        if beat.cluster != standing.head.cluster {
            let problem = format!(
                "this is cluster {}, and the node is of cluster {}: its --store, or its --cache, is that of \
                 another one",
                standing.head.cluster, beat.cluster
            );
            return reply(actions, token, BeatReply::Refused { problem });
        }
        if let Some(problem) = speaks_not(standing.head.forebay_head, &beat.who) {
            return reply(actions, token, BeatReply::Refused { problem });
        }
        let entry = self.ids.find(&standing.model, &beat.who.name);
        // A process never changes its introduction.
        let is_known = entry.is_some_and(|entry| entry.incarnation == beat.who.incarnation);
        if !is_known && let Some(problem) = fits_not(&standing.model, &beat.who) {
            return reply(actions, token, BeatReply::Refused { problem });
        }
        let Some(entry) = entry else {
            self.strangers
                .retain(|(_, other)| other.who.name != beat.who.name);
            self.is_due = true;
            return self.strangers.push((token, beat));
        };
        let id = entry.id;
        if let Some(problem) = self.is_taken(now, entry, &beat.who) {
            return reply(actions, token, BeatReply::Refused { problem });
        }
        let is_old_news = entry.incarnation == beat.who.incarnation
            && entry.is_up()
            && !beat.leaving
            && beat.rollouts.is_empty()
            && standing.model.work.moving().is_none();
        self.is_due |= !is_old_news;
        self.note(now, id, token, beat, actions);
        self.answer_one(now, id, actions);
    }

    /// Returns an error if another live process has the node's name.
    fn is_taken(&self, now: Now, entry: &NodeEntry, who: &Introduction) -> Option<String> {
        if entry.incarnation == who.incarnation {
            return None;
        }
        let received = self.received.get(&entry.id);
        let received = received.filter(|received| received.incarnation != who.incarnation);
        let timeout = self.timing().node_timeout();
        let is_alive =
            received.is_some_and(|received| !received.leaving && now.since(received.at) < timeout);
        // A process with the same address has replaced one that is gone.
        if !is_alive || entry.peer == who.peer {
            return None;
        }
        Some(format!(
            "node {} runs already, at {}: give this one another --node, or stop that one first",
            entry.name, entry.peer
        ))
    }

    fn note(
        &mut self,
        now: Now,
        id: NodeId,
        token: u64,
        beat: Beat,
        actions: &mut Vec<CoordinatorAction>,
    ) {
        let timeout = self.timing().node_timeout();
        let before = self.received.get_mut(&id);
        let is_overtaken = before.as_ref().is_some_and(|before| {
            let is_same = before.incarnation == beat.who.incarnation;
            let is_late = is_same || now.since(before.at) < timeout;
            before.seq >= beat.seq && is_late && (is_same || !is_planted(Bug::HearsStale))
        });
        let nothing = || BeatReply::NotCoordinator { coordinator: None };
        if is_overtaken {
            return reply(actions, token, nothing());
        }
        let reported_revision = before.as_ref().map_or(0, |before| {
            match before.incarnation == beat.who.incarnation {
                true => before.reported_revision,
                false => 0,
            }
        });
        let is_restarted =
            (before.as_ref()).is_none_or(|before| before.incarnation != beat.who.incarnation);
        // The node no longer waits for its previous heartbeat, but the waiting time continues from
        // there. So a node that always has news gets an answer too.
        let mut since = now.monotonic;
        if let Some((waiting, before)) = before.and_then(|before| before.waiting) {
            reply(actions, waiting, nothing());
            since = if is_restarted { since } else { before };
        }
        if is_restarted {
            self.groups.restarted(id);
            self.reads.restarted(id);
        }
        self.is_due |= self.groups.receive(now, id, &beat.groups);
        let room = beat.room();
        self.reads.receive(now, id, beat.reads);
        let received = NodeReport {
            incarnation: beat.who.incarnation,
            at: now.monotonic,
            serves: beat.serves,
            holds: beat.holds,
            rollouts: beat.rollouts,
            moving: beat.moving,
            room,
            problems: beat.problems,
            leaving: beat.leaving,
            seq: beat.seq,
            revision: beat.revision,
            reported_revision,
            who: beat.who,
            reported: beat.suspects,
            groups_left: beat.groups_left,
            leaders_known: beat.leaders_known,
            waiting: Some((token, since)),
        };
        self.received.insert(id, received);
    }

    /// Answers heartbeats for which there is news, and those that have waited long enough.
    pub(super) fn answer(&mut self, now: Now, actions: &mut Vec<CoordinatorAction>) {
        self.admit_strangers(now, actions);
        let State::Standing(standing) = &self.state else {
            return;
        };
        self.suspects = suspects(&standing.model, &self.received, self.took_over, now);
        let receives_few = receives_few(&standing.model, &self.received, now);
        self.receives_few_since = match receives_few {
            true => self.receives_few_since.or(Some(now.monotonic)),
            false => None,
        };
        for id in self.received.keys().copied().collect::<Vec<_>>() {
            self.answer_one(now, id, actions);
        }
    }

    fn answer_one(&mut self, now: Now, id: NodeId, actions: &mut Vec<CoordinatorAction>) {
        let State::Standing(standing) = &self.state else {
            return;
        };
        let Some(received) = self.received.get_mut(&id) else {
            return;
        };
        let Some((token, since)) = received.waiting else {
            return;
        };
        let is_known = standing.model.node(id).is_some_and(|node| {
            node.incarnation == received.incarnation && node.is_up() != received.leaving
        });
        let head = &standing.head;
        let is_news = received.revision < head.revision;
        let is_untold = is_news && received.reported_revision < head.revision;
        let is_due = is_untold || received.leaving || received.reported != self.suspects;
        // An answer contains nothing of an earlier term.
        if !standing.is_own_term
            || !is_known
            || !(is_due || now.since(since) >= standing.model.timing().heartbeat())
        {
            return;
        }
        received.waiting = None;
        received.reported.clone_from(&self.suspects);
        received.reported_revision = head.revision;
        let known = BeatReply::Known {
            node: id,
            term: head.term,
            head: is_news.then(|| Box::new(head.clone())),
            suspects: self.suspects.clone(),
            leaders: self.groups.news(received.leaders_known, head.term),
        };
        reply(actions, token, known);
    }

    /// Makes strangers that now have a number wait as nodes do.
    fn admit_strangers(&mut self, now: Now, actions: &mut Vec<CoordinatorAction>) {
        let State::Standing(standing) = &self.state else {
            return;
        };
        let strangers = std::mem::take(&mut self.strangers);
        let known = strangers.into_iter().map(|(token, beat)| {
            let id = standing
                .model
                .node_named(&beat.who.name)
                .map(|node| node.id);
            (token, beat, id)
        });
        for (token, beat, id) in known.collect::<Vec<_>>() {
            match id {
                Some(id) => self.note(now, id, token, beat, actions),
                None => self.strangers.push((token, beat)),
            }
        }
    }
}

/// Returns why a node cannot connect to the others: some nodes use certificates, and some do not.
pub fn fits_not(model: &Model, who: &Introduction) -> Option<String> {
    let is_other = |node: &&NodeEntry| {
        node.name != who.name && node.is_up() && node.key.is_some() != who.key.is_some()
    };
    let other = model.all_nodes().find(is_other)?;
    let (shows, does_not) = match who.key.is_some() {
        true => (&who.name, &other.name),
        false => (&other.name, &who.name),
    };
    Some(format!(
        "node {shows} shows other nodes a certificate and node {does_not} does not: give all nodes a --peer on \
         loopback, or none"
    ))
}

fn reply(actions: &mut Vec<CoordinatorAction>, token: u64, reply: BeatReply) {
    let reply = Box::new(reply);
    actions.push(CoordinatorAction::Reply { token, reply });
}

impl Step<'_> {
    /// Gives numbers to nodes that join, and stores changes of the others.
    pub fn admit(&mut self, strangers: &[(u64, Beat)]) {
        for (_, beat) in strangers {
            if self.model.node_named(&beat.who.name).is_none() {
                let id = self.model.work.edit().next_node();
                self.model.put_node(entry_of(id, &beat.who, NodeState::Up));
            }
        }
        let timeout = self.model.timing().node_timeout();
        let received = self.received.iter();
        let entries = received.filter_map(|(id, received)| {
            let before = self.model.node(*id)?;
            let state = state_of(before, received, self.now);
            let is_lost = self.now.since(received.at) >= timeout;
            if is_lost || is_entered(before, received, self.now) {
                return None;
            }
            let paused = before.paused_until_unix_ms;
            let paused = paused.filter(|until| *until > self.now.unix_ms);
            Some(NodeEntry {
                paused_until_unix_ms: paused,
                ..entry_of(*id, &received.who, state)
            })
        });
        for entry in entries.collect::<Vec<_>>() {
            self.model.put_node(entry);
        }
    }

    fn end_pauses(&mut self) {
        let now_ms = self.now.unix_ms;
        let is_over = |node: &&NodeEntry| {
            let until = node.paused_until_unix_ms;
            until.is_some_and(|until| until <= now_ms)
        };
        let over = self.model.all_nodes().filter(is_over);
        let over = over.map(|node| NodeEntry {
            paused_until_unix_ms: None,
            ..node.clone()
        });
        for entry in over.collect::<Vec<_>>() {
            self.model.put_node(entry);
        }
    }

    /// Marks nodes as down. A new coordinator first waits for one lease.
    pub fn expire(&mut self) {
        self.end_pauses();
        let timeout = self.model.timing().node_timeout();
        if self.now.since(self.took_over) < timeout {
            return;
        }
        let now = self.now;
        let is_lost = |entry: &NodeEntry| {
            let received = self.received.get(&entry.id);
            received.is_none_or(|received| now.since(received.at) >= timeout)
        };
        let up = self.model.all_nodes().filter(|entry| entry.is_up());
        let lost = up.filter(|entry| is_lost(entry));
        let down = lost.map(|entry| NodeEntry {
            state: NodeState::Down {
                since_unix_ms: now.unix_ms,
            },
            ..entry.clone()
        });
        for entry in down.collect::<Vec<_>>() {
            self.model.put_node(entry);
        }
    }

    /// Returns whether the node sends heartbeats, as far as this coordinator knows.
    pub fn is_alive(&self, node: NodeId) -> bool {
        self.model.node(node).is_some_and(NodeEntry::is_up)
    }
}

/// A cache of nodes' numbers by name. With thousands of heartbeats a second, each must not search
/// all nodes.
#[derive(Debug, Default)]
pub struct NodeIds(BTreeMap<NodeName, NodeId>);

impl NodeIds {
    fn find<'m>(&mut self, model: &'m Model, name: &NodeName) -> Option<&'m NodeEntry> {
        let known = self.0.get(name).and_then(|id| model.node(*id));
        if let Some(known) = known.filter(|node| node.name == *name) {
            return Some(known);
        }
        let found = model.node_named(name)?;
        self.0.insert(name.clone(), found.id);
        Some(found)
    }
}

/// Returns whether the catalog already has a node's introduction. Most heartbeats need no change,
/// and a process never changes its introduction.
fn is_entered(entry: &NodeEntry, received: &NodeReport, now: Now) -> bool {
    let paused = entry.paused_until_unix_ms;
    entry.incarnation == received.incarnation
        && entry.is_up()
        && !received.leaving
        && paused.is_none_or(|until| until > now.unix_ms)
}

fn state_of(before: &NodeEntry, received: &NodeReport, now: Now) -> NodeState {
    match (received.leaving, before.state) {
        (true, left @ NodeState::Left { .. }) => left,
        (true, _) => NodeState::Left {
            since_unix_ms: now.unix_ms,
        },
        (false, _) => NodeState::Up,
    }
}

/// Creates a node's entry from its introduction.
pub fn entry_of(id: NodeId, who: &Introduction, state: NodeState) -> NodeEntry {
    let who = who.clone();
    NodeEntry {
        id,
        name: who.name,
        zone: who.zone,
        incarnation: who.incarnation,
        state,
        paused_until_unix_ms: None,
        listen: who.listen,
        class_ports: who.class_ports,
        peer: who.peer,
        http: who.http,
        cut_off_ms: who.cut_off_ms,
        formats: who.formats,
        program: who.program,
        key: who.key,
    }
}

/// Returns the nodes to which no request should be routed: they send no heartbeats, or do not serve
/// yet. Nodes that the catalog calls down are included, because the receiver may not have read that
/// yet.
fn suspects(
    model: &Model,
    received: &BTreeMap<NodeId, NodeReport>,
    took_over: Duration,
    now: Now,
) -> BTreeSet<NodeId> {
    let lost = model.timing().heartbeat_lost();
    let unreachable = model
        .all_nodes()
        .filter(|node| match received.get(&node.id) {
            Some(received) => now.since(received.at) >= lost || received.serves == 0,
            // No coordinator receives heartbeats from a node that died with the coordinator before.
            None => now.since(took_over) >= lost,
        });
    unreachable.map(|node| node.id).collect()
}

/// Returns whether fewer than half of the nodes that have not left send heartbeats.
fn receives_few(model: &Model, received: &BTreeMap<NodeId, NodeReport>, now: Now) -> bool {
    let is_there = |node: &&NodeEntry| !matches!(node.state, NodeState::Left { .. });
    let lost = model.timing().heartbeat_lost();
    let is_received = |node: &NodeEntry| {
        let received = received.get(&node.id);
        received.is_some_and(|received| now.since(received.at) < lost)
    };
    let there = model.all_nodes().filter(is_there).map(is_received);
    let (all, received) = there.fold((0, 0), |(all, received), is_received| {
        (all + 1, received + usize::from(is_received))
    });
    2 * received < all
}

/// Returns since when a node is down or has left. `None`: it is up.
pub fn down_since(model: &Model, node: NodeId) -> Option<u64> {
    match model.node(node)?.state {
        NodeState::Down { since_unix_ms } | NodeState::Left { since_unix_ms } => {
            Some(since_unix_ms)
        }
        NodeState::Up => None,
    }
}
