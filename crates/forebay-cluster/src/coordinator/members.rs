//! Who is a node, and who is up.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::bugs::{Bug, is_planted};
use crate::formats::speaks_not;
use crate::ids::{NodeId, NodeName};
use crate::message::{Beat, BeatReply, Introduction, LeadersMark, NodeRoom, Readiness};
use crate::model::{Model, NodeEntry, NodeState, RolloutId};
use crate::time::Now;

use super::{Coordinator, CoordinatorAction, State, Step};

/// What a node said last.
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
    /// The revision that it knows.
    pub revision: u64,
    /// The newest revision that it was told of. A node that was told, and is still reading, is not
    /// told again before its next heartbeat is due.
    reported_revision: u64,
    who: Introduction,
    /// Whom it was told to be suspected.
    reported: BTreeSet<NodeId>,
    /// How many groups it has news of that did not go into the heartbeat.
    pub groups_left: usize,
    /// Up to where it knows who leads.
    leaders_known: LeadersMark,
    /// The heartbeat that waits for its answer, and since when.
    waiting: Option<(u64, Duration)>,
}

impl Coordinator {
    /// What nodes said last, by their numbers.
    pub fn received(&self) -> &BTreeMap<NodeId, NodeReport> {
        &self.received
    }

    /// Whether most nodes have been silent to it for some time: another node may hear more of them.
    /// A coordinator that was stopped for a moment hears of nobody at first.
    pub fn receives_few(&self, now: Now) -> bool {
        let since = self.receives_few_since;
        since.is_some_and(|since| now.since(since) >= self.timing().receives_few())
    }

    /// The answers to all who wait, of a coordinator that is none any more.
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

    /// Takes a heartbeat in. Most of them say nothing new: those cost no step.
    pub(super) fn receive(
        &mut self,
        now: Now,
        token: u64,
        beat: Beat,
        actions: &mut Vec<CoordinatorAction>,
    ) {
        let State::Standing(standing) = &self.state else {
            // It asks again, and by then the catalog has been read.
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
        // What a process says of itself does not change.
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

    /// Whether another process has the node's name, and lives.
    fn is_taken(&self, now: Now, entry: &NodeEntry, who: &Introduction) -> Option<String> {
        if entry.incarnation == who.incarnation {
            return None;
        }
        let received = self.received.get(&entry.id);
        let received = received.filter(|received| received.incarnation != who.incarnation);
        let timeout = self.timing().node_timeout();
        let is_alive =
            received.is_some_and(|received| !received.leaving && now.since(received.at) < timeout);
        // Who has the same address has taken it from a process that is gone.
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
        // The node does not wait for the one before any more, whose time goes on: who has news
        // without an end is answered, too.
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

    /// Answers heartbeats for which there are news, and those that waited long enough.
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
        // Nothing of an earlier term is told on.
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

    /// Strangers that have a number by now wait as nodes do.
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

/// Why a node cannot talk to the others: some show certificates and some do not.
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
    /// Gives numbers to nodes that come for the first time, and enters what is new of the others.
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

    /// Notes who is down. A new coordinator has to hear of nobody for a lease.
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

    /// Whether the node sends heartbeats, as far as is known.
    pub fn is_alive(&self, node: NodeId) -> bool {
        self.model.node(node).is_some_and(NodeEntry::is_up)
    }
}

/// The numbers of nodes by their names, as they were found: thousands of heartbeats a second are
/// not to look through all nodes.
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

/// Whether the catalog says already what a node said of itself: most do, and cost nothing then.
/// What a process says of itself does not change.
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

/// A node's entry, by what it says of itself.
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

/// Nodes that are not to be led to: they are silent, or serve nothing yet. Also those that the
/// catalog calls down: who hears of this may not have read that.
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
            // Who died with the coordinator before is heard of by nobody.
            None => now.since(took_over) >= lost,
        });
    unreachable.map(|node| node.id).collect()
}

/// Whether fewer than half of the nodes send heartbeats, of those that have not left.
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

/// Nodes that do not take part, and when they are known to be that.
pub fn down_since(model: &Model, node: NodeId) -> Option<u64> {
    match model.node(node)?.state {
        NodeState::Down { since_unix_ms } | NodeState::Left { since_unix_ms } => {
            Some(since_unix_ms)
        }
        NodeState::Up => None,
    }
}
