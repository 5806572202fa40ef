//! Several hosts, with a network between them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::channel;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use forebay_io::{Clock, SystemClock};
use forebay_replica::{GroupId, PeerId, Refusal, Start};
use parking_lot::Mutex;

use super::fakes::{MemoryLog, NoWatch, Sum, found};
use crate::effects::Answer;
use crate::environment::{MessageSender, NoPace, NodeKey};
use crate::group::{GroupFacts, ReadCallback};
use crate::host::{HostParts, NewReplica, ReplicaHost};
use crate::log_writer::TableLog;

/// A network that delivers frames at once, or not at all.
#[derive(Debug, Default)]
pub struct Net {
    hosts: Mutex<BTreeMap<NodeKey, Weak<ReplicaHost>>>,
}

#[derive(Debug)]
pub struct Port(pub Arc<Net>);

impl Net {
    pub fn enter(&self, node: NodeKey, host: &Arc<ReplicaHost>) {
        self.hosts.lock().insert(node, Arc::downgrade(host));
    }

    pub fn leave(&self, node: NodeKey) {
        self.hosts.lock().remove(&node);
    }
}

impl MessageSender for Port {
    fn send(&self, to: NodeKey, frame: Bytes) {
        let host = self.0.hosts.lock().get(&to).and_then(Weak::upgrade);
        if let Some(host) = host {
            host.receive(frame).unwrap();
        }
    }
}

/// The part of a node that survives restarts.
pub struct RingNode {
    pub log: Arc<MemoryLog>,
    pub states: BTreeMap<GroupId, Arc<Sum>>,
    pub host: Option<Arc<ReplicaHost>>,
    lives: u64,
}

/// Nodes, each with a replica of each group.
pub struct Ring {
    pub net: Arc<Net>,
    pub nodes: BTreeMap<NodeKey, RingNode>,
    groups: Vec<GroupId>,
}

fn peers(count: u32) -> Vec<PeerId> {
    (1..=u64::from(count)).map(PeerId).collect()
}

impl Ring {
    pub fn new(nodes: u32, groups: u64) -> Self {
        let mut ring = Self {
            net: Arc::default(),
            nodes: BTreeMap::new(),
            groups: (1..=groups).map(GroupId).collect(),
        };
        let peers = peers(nodes);
        let by_group: Vec<_> = ring.groups.iter().map(|_| Arc::default()).collect();
        for peer in &peers {
            let states = ring.groups.iter().zip(&by_group).map(|(group, others)| {
                let start = Start::founder(*group, *peer, &peers, 0);
                (*group, Sum::new(start.applied, *peer, others))
            });
            let states = states.collect();
            let log = Arc::<MemoryLog>::default();
            for group in &ring.groups {
                let start = Start::founder(*group, *peer, &peers, 0);
                let mut kept = log.groups.lock();
                let kept = kept.entry(*group).or_default();
                (kept.promise, kept.before) = (start.promise, start.before);
            }
            let node = RingNode {
                log,
                states,
                host: None,
                lives: 0,
            };
            ring.nodes.insert(NodeKey(peer.0 as u32), node);
        }
        for node in ring.nodes.keys().copied().collect::<Vec<_>>() {
            ring.start(node);
        }
        ring
    }

    pub fn start(&mut self, key: NodeKey) {
        let count = self.nodes.len() as u32;
        let node = self.nodes.get_mut(&key).unwrap();
        node.lives += 1;
        let port = Port(Arc::clone(&self.net));
        let clock = Arc::new(SystemClock);
        let host = ReplicaHost::start(HostParts {
            clock: clock.clone(),
            post: Arc::new(port),
            pace: Arc::new(NoPace),
            watch: Arc::new(NoWatch),
            appliers: 1,
            first_request: node.lives << 40,
        });
        let host = Arc::new(host.unwrap());
        let log = TableLog::start(Arc::clone(&node.log) as _, clock).unwrap();
        let me = PeerId(key.0.into());
        let peers: BTreeMap<_, _> = peers(count)
            .iter()
            .map(|peer| (*peer, NodeKey(peer.0 as u32)))
            .collect();
        for (group, state) in &node.states {
            state.restart();
            let seed = group.0 * 100 + me.0 * 10 + node.lives;
            let new = NewReplica {
                start: found(&node.log, state, *group, me, seed),
                log: Arc::clone(&log),
                state: Arc::clone(state) as _,
                nodes: peers.clone(),
            };
            host.add(new).unwrap();
        }
        self.net.enter(key, &host);
        node.host = Some(host);
    }

    pub fn stop(&mut self, key: NodeKey) {
        self.net.leave(key);
        self.nodes.get_mut(&key).unwrap().host = None;
    }

    pub fn facts(&self, node: NodeKey, group: GroupId) -> Option<GroupFacts> {
        self.nodes[&node].host.as_ref()?.facts(group)
    }

    /// Waits for a leader, and returns the node whose replica leads in the newest term.
    pub fn leader(&self, group: GroupId) -> NodeKey {
        let mut leader = None;
        wait_for("a leader", || {
            let facts = |node: &NodeKey| Some((self.facts(*node, group)?, *node));
            let leads = |(facts, _): &(GroupFacts, NodeKey)| facts.leader == Some(facts.me);
            let leaders = self.nodes.keys().filter_map(facts).filter(leads);
            leader = leaders.max_by_key(|(facts, _)| facts.term).map(|it| it.1);
            leader.is_some()
        });
        leader.unwrap()
    }

    /// Adds at the leader, again until it succeeds. Returns the sum then, and how often the outcome
    /// was uncertain.
    pub fn add(&self, group: GroupId, amount: u64) -> (u64, u64) {
        let mut uncertain = 0;
        for _ in 0..1000 {
            let leader = self.leader(group);
            match self.try_add(leader, group, amount) {
                Some(Ok(sum)) => return (sum, uncertain),
                Some(Err(Refusal::Uncertain)) => uncertain += 1,
                _ => {}
            }
            SystemClock.sleep(Duration::from_millis(10));
        }
        panic!("nothing was added for too long");
    }

    pub fn try_add(&self, node: NodeKey, group: GroupId, by: u64) -> Option<Result<u64, Refusal>> {
        self.try_write(node, group, Bytes::copy_from_slice(&by.to_le_bytes()))
    }

    pub fn try_write(
        &self,
        node: NodeKey,
        group: GroupId,
        effect: Bytes,
    ) -> Option<Result<u64, Refusal>> {
        let host = self.nodes[&node].host.clone()?;
        let (reported, answer) = channel();
        let done = Box::new(move |outcome: Result<Answer, Refusal>| {
            let _ = reported.send(outcome);
        });
        host.propose(group, effect, done);
        let outcome = answer.recv_timeout(Duration::from_secs(20)).ok()?;
        Some(outcome.map(|answer| match answer {
            Answer::Count(sum) => sum,
            answer => panic!("{answer:?} is no sum"),
        }))
    }

    /// Reads at a node; returns `None` if the read was refused, or its answer was not valid.
    pub fn read(&self, node: NodeKey, group: GroupId) -> Option<u64> {
        self.read_by(node, group, |host, done| host.read(group, done))
    }

    /// Reads data at a node that may be older by less than the bound.
    pub fn read_within(&self, node: NodeKey, group: GroupId, bound: Duration) -> Option<u64> {
        self.read_by(node, group, |host, done| {
            host.read_within(group, bound, done);
        })
    }

    fn read_by(
        &self,
        node: NodeKey,
        group: GroupId,
        ask: impl FnOnce(&ReplicaHost, ReadCallback),
    ) -> Option<u64> {
        let host = self.nodes[&node].host.clone()?;
        let (reported, answer) = channel();
        let done = Box::new(move |leave| drop(reported.send(leave)));
        ask(&host, done);
        let leave = answer.recv_timeout(Duration::from_secs(20)).ok()?.ok()?;
        let sum = self.nodes[&node].states[&group].now.lock().sum;
        leave.holds().then_some(sum)
    }

    /// Waits until all running replicas have the same sum.
    pub fn agree(&self, group: GroupId) -> u64 {
        let mut sums = BTreeSet::new();
        wait_for("one sum everywhere", || {
            let running = self.nodes.values().filter(|node| node.host.is_some());
            sums = running
                .map(|node| node.states[&group].now.lock().sum)
                .collect();
            sums.len() == 1
        });
        sums.pop_first().unwrap()
    }
}

pub fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..3000 {
        if holds() {
            return;
        }
        SystemClock.sleep(Duration::from_millis(10));
    }
    panic!("not within 30 s: {what}");
}
