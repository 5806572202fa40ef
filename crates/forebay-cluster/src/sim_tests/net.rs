//! The network between nodes: messages that are lost, late, duplicated, or reordered.

use std::collections::{BTreeMap, BTreeSet};

use super::world::{Life, MS, World};
use crate::ids::{HostPort, NodeName};
use crate::message::{Beat, BeatReply};
use crate::node::{FollowerEvent, NodeEvent};

#[derive(Debug, Default)]
pub struct SimNet {
    /// Links from, to, on which nothing arrives.
    pub cuts: BTreeSet<(usize, usize)>,
    /// Of a thousand messages, the numbers that are lost, duplicated, or late.
    pub loss: u64,
    pub doubles: u64,
    pub late: u64,
    asked: BTreeMap<u64, PendingBeat>,
    tokens: u64,
}

/// A heartbeat that waits for its answer.
#[derive(Debug, Clone, Copy)]
struct PendingBeat {
    by: Life,
    seq: u64,
}

impl SimNet {
    /// Returns the life of the process whose heartbeat waits for this answer.
    pub fn asking_life(&self, token: u64) -> Option<u64> {
        self.asked.get(&token).map(|asked| asked.by.life)
    }
}

impl World {
    /// Draws the transit time of a message; `None` if it does not arrive. The protocols rely on no
    /// message being in transit for longer than the node timeout. Otherwise a coordinator could
    /// hear from an earlier process of a node again.
    pub fn transit(&mut self, from: usize, to: usize) -> Option<u64> {
        if self.net.cuts.contains(&(from, to)) || self.rng.chance(self.net.loss) {
            return None;
        }
        let late = self.rng.chance(self.net.late);
        let latest = self.timing.node_timeout().as_micros() as u64 / 10 * 8;
        let most = if late { latest } else { 4 * MS };
        Some(200 + self.rng.below(most))
    }

    pub fn send_beat(&mut self, by: Life, to: &HostPort, beat: Box<Beat>) {
        self.checks.beats[by.host] += 1;
        let seq = beat.seq;
        self.check_beat(by, &beat);
        if let Some(process) = self.process(by) {
            process.unanswered.insert(seq);
        }
        let timeout = self.timing.heartbeat_lost().as_micros() as u64;
        self.after(timeout, move |world| world.beat_lost(by, seq));
        let Some(target) = self.hosts.iter().position(|host| host.peer == *to) else {
            return self.fail(format!("a heartbeat to {to}, which is no node"));
        };
        let copies = 1 + u64::from(self.rng.chance(self.net.doubles));
        for _ in 0..copies {
            if let Some(delay) = self.transit(by.host, target) {
                let beat = beat.clone();
                self.after(delay, move |world| world.beat_arrives(by, target, beat));
            }
        }
    }

    fn beat_lost(&mut self, by: Life, seq: u64) {
        let process = self.process(by);
        if process.is_some_and(|process| process.unanswered.remove(&seq)) {
            self.notify(by, NodeEvent::Follower(FollowerEvent::Lost { seq }));
        }
    }

    fn beat_arrives(&mut self, by: Life, target: usize, beat: Box<Beat>) {
        let seq = beat.seq;
        let life = self.life(target);
        if self.hosts[target].process.is_none() {
            // The connection is refused.
            if let Some(delay) = self.transit(target, by.host) {
                self.after(delay, move |world| world.beat_lost(by, seq));
            }
            return;
        }
        self.net.tokens += 1;
        let token = self.net.tokens;
        self.net.asked.insert(token, PendingBeat { by, seq });
        let who = (beat.who.name.clone(), beat.who.incarnation);
        let before = self.received_incarnation(target, &who.0);
        self.notify(life, NodeEvent::Beat { token, beat });
        // Of two processes that have ended, the later one may have reported to the coordinator.
        let before = before.and_then(|incarnation| self.checks.lives.get(&incarnation));
        let is_late = before.is_some_and(|life| *life > by.life);
        if is_late && self.received_incarnation(target, &who.0) == Some(who.1) {
            let name = who.0;
            self.fail(format!("a heartbeat of an ended process of {name} counts"));
        }
    }

    pub fn reply(&mut self, from: Life, token: u64, reply: Box<BeatReply>) {
        let Some(PendingBeat { by, seq }) = self.net.asked.remove(&token) else {
            return self.fail(format!("heartbeat {token} was answered twice"));
        };
        if let BeatReply::Refused { problem } = &*reply {
            return self.fail(format!(
                "{} was refused: {problem}",
                self.hosts[by.host].name
            ));
        }
        let Some(delay) = self.transit(from.host, by.host) else {
            return;
        };
        self.after(delay, move |world| {
            // The sender stops waiting after a while.
            let process = world.process(by);
            if process.is_some_and(|process| process.unanswered.remove(&seq)) {
                let event = FollowerEvent::Reply { seq, reply };
                world.notify(by, NodeEvent::Follower(event));
            }
        });
    }

    /// Returns the process of a node whose heartbeat a coordinator received last.
    fn received_incarnation(&self, at: usize, name: &NodeName) -> Option<u64> {
        let process = self.hosts[at].process.as_ref()?;
        let coordinator = process.node.coordinator()?;
        let (_, model) = coordinator.standing()?;
        let received = coordinator.received().get(&model.node_named(name)?.id)?;
        Some(received.incarnation)
    }

    /// Cuts a node off from all others for this time, seldom together with another one, and mostly
    /// from the store.
    pub fn isolate_for(&mut self, at: usize, long: u64) {
        let with = self.rng.below(self.hosts.len() as u64) as usize;
        let few = if self.rng.chance(300) {
            vec![at, with]
        } else {
            vec![at]
        };
        few.iter().for_each(|one| self.isolate(*one));
        for one in &few {
            few.iter().for_each(|other| {
                self.net.cuts.remove(&(*one, *other));
            });
        }
        if self.rng.chance(600) {
            self.store.cut.extend(few.iter().copied());
        }
        self.after(long, move |world| {
            let ends = |at: &usize| few.contains(at);
            world.net.cuts.retain(|(from, to)| !ends(from) && !ends(to));
            world.store.cut.retain(|at| !ends(at));
        });
    }

    /// Cuts a node off from all others.
    pub fn isolate(&mut self, at: usize) {
        for other in (0..self.hosts.len()).filter(|other| *other != at) {
            self.net.cuts.extend([(at, other), (other, at)]);
        }
    }
}
