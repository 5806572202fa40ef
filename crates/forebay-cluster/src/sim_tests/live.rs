//! Model groups: replicas on hosts, whose leaders follow the catalog.
//!
//! A majority of the replicas decides. The model knows a group's decided state and its
//! configuration at once; replicas lag. The replicas with the longest logs elect the leader. A
//! deposed leader believes for a while longer that it leads.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use forebay_engine::live::PartitionSize;
use forebay_replica::{
    Change, GroupId, Membership, PeerId, SplitEntry, Standing, SteeringStep, next_step,
};

use super::placed::traffic_of;
use super::world::{Life, MS, SECOND, SimHost, World};
use crate::measures::reports::{GroupReport, LeaderReport, LeaderlessReplica, ReplicaProblem};
use crate::node::FollowerEvent;
use crate::routing::live::{ReplicaOrder, ReplicaOrders};

pub type ReplicaPlace = (GroupId, PeerId);

/// How long a leader believes that it leads after it lost its majority.
const BELIEVES: u64 = 2 * SECOND;
/// The number of entries that a replica replicates from a leader's log at a time.
const STEP: u64 = 400;
/// A learner has caught up if no more than this number of entries is left.
const CLOSE: u64 = 100;

/// A replica on a host's disk.
#[derive(Debug, Clone, Default)]
pub struct SimReplica {
    /// The end of its log.
    pub matched: u64,
    pub is_damaged: bool,
    /// The newest load that it has added.
    pub loaded: u64,
    /// It waits for the run of a load, which will not arrive.
    pub has_missed: bool,
    /// For a replica from a split: the revision that names it first.
    pub planned_in: u64,
    /// It found damage, and continues as far as it can.
    pub is_unhealthy: bool,
}

/// The replicas of a process.
#[derive(Debug, Default)]
pub struct LiveProcess {
    pub orders: Rc<Vec<ReplicaOrder>>,
    /// Those of them that may run.
    running: BTreeSet<ReplicaPlace>,
    /// The local runs of loads.
    pub runs: BTreeSet<(ReplicaPlace, u64)>,
    is_from_memory: bool,
    /// The revision that ordered them.
    ordered_in: Option<u64>,
    /// Groups that it believes to lead: the term, the members, and since when without a majority.
    leads: BTreeMap<GroupId, Belief>,
}

#[derive(Debug, Clone)]
struct Belief {
    peer: PeerId,
    term: u64,
    members: Membership,
    lost: Option<u64>,
}

/// The decided state of a group.
#[derive(Debug, Default)]
pub struct SimGroup {
    pub members: Membership,
    pub term: u64,
    pub leader: Option<(Life, PeerId)>,
    /// The end of the decided log.
    pub entries: u64,
    /// Decided loads, and the end of the decided log at each.
    pub loads: BTreeMap<u64, u64>,
    pub(super) is_changing: bool,
    /// Decided splits: the index of the entry, and its content.
    pub(super) splits: Vec<(u64, Arc<SplitEntry>)>,
}

#[derive(Debug, Default)]
pub struct SimLive {
    pub groups: BTreeMap<GroupId, SimGroup>,
    /// Peers that have run, and their hosts: their promises count.
    pub ran: BTreeMap<ReplicaPlace, usize>,
}

impl World {
    /// Takes the orders from a node's state machine.
    pub fn take_orders(&mut self, by: Life, orders: ReplicaOrders) {
        let ReplicaOrders {
            is_from_memory,
            revision,
            replicas,
            gone,
            missing: _,
        } = orders;
        let is_ordered = |place: &ReplicaPlace| {
            let mut orders = replicas.iter();
            orders.any(|order| (order.group, order.peer) == *place)
        };
        if let Some(place) = gone.iter().find(|place| is_ordered(place)) {
            return self.fail(format!("{place:?} is ordered and to be removed at once"));
        }
        self.note_head(by, !replicas.is_empty());
        if let Some(process) = self.process(by) {
            let made = replicas.iter().filter(|order| !order.is_new);
            process.live.running = made.map(|order| (order.group, order.peer)).collect();
            process.live.orders = Rc::new(replicas);
            process.live.is_from_memory = is_from_memory;
            process.live.ordered_in = Some(revision);
        }
        self.remove_unordered(by.host);
    }

    /// Removes replicas that the process on this host was not ordered to have.
    pub fn remove_unordered(&mut self, host: usize) {
        let SimHost { process, disk, .. } = &self.hosts[host];
        let Some(live) = process.as_ref().map(|process| &process.live) else {
            return;
        };
        let Some(revision) = live.ordered_in.filter(|_| !live.is_from_memory) else {
            return;
        };
        let is_wanted = |place: &ReplicaPlace| {
            live.orders.iter().any(|order| {
                let inherited = order.inherits.map(|old| (old.group, old.peer));
                (order.group, order.peer) == *place || inherited == Some(*place)
            })
        };
        // The catalog of the orders may not know a new peer yet.
        let replicas = disk.replicas.iter();
        let unwanted: Vec<ReplicaPlace> = replicas
            .filter(|(place, replica)| !is_wanted(place) && replica.planned_in <= revision)
            .map(|(place, _)| *place)
            .collect();
        for place in unwanted {
            self.check_removed(host, place);
            self.count("replicas removed");
            self.hosts[host].disk.replicas.remove(&place);
        }
    }

    /// Saves the head of the orders, so that the node knows it after a restart.
    fn note_head(&mut self, by: Life, has_orders: bool) {
        let disk = &self.hosts[by.host].disk;
        if !has_orders && disk.replicas.is_empty() {
            return;
        }
        let process = self.hosts[by.host].process.as_ref();
        let known = process.and_then(|process| process.node.follower().known());
        let known = known.map(|(head, model)| (head.clone(), model.clone()));
        self.hosts[by.host].disk.remembered = known;
    }

    /// Lets the replicas of a process make progress.
    pub fn run_replicas(&mut self, by: Life) {
        let Some(process) = self.process(by) else {
            return;
        };
        let (orders, is_from_memory) =
            (Rc::clone(&process.live.orders), process.live.is_from_memory);
        if orders.is_empty() || self.hosts[by.host].paused {
            return;
        }
        for order in orders.iter() {
            let place = (order.group, order.peer);
            let is_there = self.hosts[by.host].disk.replicas.contains_key(&place);
            if !is_there && order.is_new && !is_from_memory {
                self.make_replica(by.host, order);
            }
            if !is_there && !order.is_new && !is_from_memory {
                self.make_missed(by.host, order);
            }
            if is_there && !order.is_new {
                self.live.ran.insert(place, by.host);
            }
            if self.is_running(by.host, order.group, order.peer) {
                self.run_replica(by, order);
                self.run_load(by, order);
            }
        }
        let reports = self.reports(by, &orders);
        let troubles = Vec::new();
        self.notify_follower(by, FollowerEvent::Replicas { reports, troubles });
    }

    fn make_replica(&mut self, host: usize, order: &ReplicaOrder) {
        let place = (order.group, order.peer);
        if self.live.ran.contains_key(&place) {
            return self.fail(format!("peer {place:?} has run, and is made again, empty"));
        }
        self.count("replicas made");
        let disk = &mut self.hosts[host].disk;
        let mut replica = SimReplica::default();
        if let Some(old) = order.inherits {
            // Without it the new peer reports that it forgot.
            let Some(inherited) = disk.replicas.remove(&(old.group, old.peer)) else {
                return;
            };
            replica = inherited;
            let loads = self.live.groups.get(&old.group);
            let loads = loads.map(|group| group.loads.clone()).unwrap_or_default();
            let group = self.live.groups.entry(order.group).or_default();
            group.entries = replica.matched;
            group.loads = loads;
            group.loads.retain(|_, end| *end <= replica.matched);
        }
        self.hosts[host].disk.replicas.insert(place, replica);
        if let Some(founders) = &order.founders {
            let group = self.live.groups.entry(order.group).or_default();
            if group.members.voters.is_empty() {
                group.members = Membership::founders(founders);
            }
        }
    }

    /// Returns the host of a peer that can answer.
    fn running_host(&self, group: GroupId, peer: PeerId) -> Option<usize> {
        (0..self.hosts.len()).find(|host| self.is_running(*host, group, peer))
    }

    fn is_running(&self, host: usize, group: GroupId, peer: PeerId) -> bool {
        let host = &self.hosts[host];
        let replica = host.disk.replicas.get(&(group, peer));
        let is_whole = replica.is_some_and(|replica| !replica.is_damaged);
        let process = host.process.as_ref().filter(|_| !host.paused && is_whole);
        process.is_some_and(|process| process.live.running.contains(&(group, peer)))
    }

    /// Returns the peers of a group that answer a host.
    pub(super) fn answering(
        &self,
        host: usize,
        group: GroupId,
        members: &Membership,
    ) -> Vec<PeerId> {
        let peers = members.voters.iter().chain(&members.learners).copied();
        let answers = |peer: &PeerId| {
            self.running_host(group, *peer).is_some_and(|there| {
                let cuts = &self.net.cuts;
                !cuts.contains(&(host, there)) && !cuts.contains(&(there, host))
            })
        };
        peers.filter(answers).collect()
    }

    fn run_replica(&mut self, by: Life, order: &ReplicaOrder) {
        let Some(group) = self.live.groups.get(&order.group) else {
            return;
        };
        let answering = self.answering(by.host, order.group, &group.members);
        let has_majority = is_majority(&answering, &group.members.voters);
        let is_voter = group.members.voters.contains(&order.peer);
        let leads = group.leader == Some((by, order.peer));
        let better = self.better_leader(order, &answering);
        if let Some(better) = better.filter(|_| leads && has_majority && is_voter) {
            return self.hand_over(order.group, better);
        }
        if leads && has_majority && is_voter {
            return self.lead(by, order, &answering);
        }
        let is_led = group.leader.is_some_and(|(life, peer)| {
            let is_there = self.hosts[life.host].life == life.life;
            is_there && self.is_running(life.host, order.group, peer) && answering.contains(&peer)
        });
        let matched = self.matched(order.group, order.peer);
        let has_most = matched >= group.entries;
        if leads {
            self.end_lead(order.group);
        } else if !is_led
            && has_majority
            && is_voter
            && has_most
            && better.is_none()
            && self.rng.chance(300)
        {
            self.elect(by, order.group, order.peer);
        }
    }

    /// An unhealthy replica leads only if no other replica with all entries can.
    fn better_leader(&self, order: &ReplicaOrder, answering: &[PeerId]) -> Option<PeerId> {
        let group = self.live.groups.get(&order.group)?;
        let is_unhealthy = |peer: PeerId| {
            let mut hosts = self.hosts.iter();
            let replica = hosts.find_map(|host| host.disk.replicas.get(&(order.group, peer)));
            replica.is_some_and(|replica| replica.is_unhealthy)
        };
        let mut others = answering.iter().copied().filter(|peer| *peer != order.peer);
        let is_better = |peer: &PeerId| {
            let has_most = self.matched(order.group, *peer) >= group.entries;
            group.members.voters.contains(peer) && has_most && !is_unhealthy(*peer)
        };
        is_unhealthy(order.peer)
            .then(|| others.find(is_better))
            .flatten()
    }

    fn hand_over(&mut self, group: GroupId, to: PeerId) {
        if let Some(host) = self.running_host(group, to) {
            self.count("leads handed over");
            let life = self.life(host);
            self.elect(life, group, to);
        }
    }

    pub fn matched(&self, group: GroupId, peer: PeerId) -> u64 {
        let mut hosts = self.hosts.iter();
        let replica = hosts.find_map(|host| host.disk.replicas.get(&(group, peer)));
        replica.map_or(0, |replica| replica.matched)
    }

    pub(super) fn catch_up(&mut self, group: GroupId, peer: PeerId) {
        let entries = self
            .live
            .groups
            .get(&group)
            .map_or(0, |group| group.entries);
        let mut hosts = self.hosts.iter_mut();
        let replica = hosts.find_map(|host| host.disk.replicas.get_mut(&(group, peer)));
        if let Some(replica) = replica {
            replica.matched = entries;
        }
    }

    fn end_lead(&mut self, group: GroupId) {
        if let Some(group) = self.live.groups.get_mut(&group) {
            group.leader = None;
        }
    }

    fn elect(&mut self, by: Life, id: GroupId, peer: PeerId) {
        self.count("elections");
        if let Some(group) = self.live.groups.get_mut(&id) {
            group.term += 1;
            group.leader = Some((by, peer));
        }
        self.believe(by, id, peer);
    }

    fn believe(&mut self, by: Life, id: GroupId, peer: PeerId) {
        let Some(group) = self.live.groups.get(&id) else {
            return;
        };
        let belief = Belief {
            peer,
            term: group.term,
            members: group.members.clone(),
            lost: None,
        };
        if let Some(process) = self.process(by) {
            process.live.leads.insert(id, belief);
        }
    }

    fn lead(&mut self, by: Life, order: &ReplicaOrder, answering: &[PeerId]) {
        let id = order.group;
        let written = self.rng.below(200);
        let Some(group) = self.live.groups.get_mut(&id) else {
            return;
        };
        group.entries += written;
        let (entries, members) = (group.entries, group.members.clone());
        for peer in answering {
            let place = (id, *peer);
            let mut hosts = self.hosts.iter_mut();
            let replica = hosts.find_map(|host| host.disk.replicas.get_mut(&place));
            if let Some(replica) = replica {
                let is_voter = members.voters.contains(peer);
                // Most of the log arrives as a copy.
                let step = if is_voter {
                    entries
                } else {
                    STEP + entries / 20
                };
                replica.matched = (replica.matched + step).min(entries);
            }
        }
        self.split_replicas(id);
        self.believe(by, id, order.peer);
        let now = self.clock(by.host);
        let may_steer = self
            .process(by)
            .is_some_and(|process| process.node.follower().may_steer(now));
        let is_changing = self.live.groups[&id].is_changing;
        if !may_steer || is_changing || !self.rng.chance(300) {
            return;
        }
        if let Some(split) = self.split_due(order, &members) {
            return self.propose_split(by, order, split);
        }
        let is_close = |peer: &PeerId| self.matched(id, *peer) + CLOSE >= entries;
        let standing = Standing {
            active: answering.to_vec(),
            close: answering.iter().copied().filter(is_close).collect(),
        };
        match next_step(order.peer, &order.wanted, &members, &standing) {
            Some(SteeringStep::Change(changes)) => self.propose(by, order, changes),
            Some(SteeringStep::HandOver(to)) => self.hand_over(id, to),
            None => {}
        }
    }

    /// Decides the changes a while later, if a majority of both sets of voters answers then.
    fn propose(&mut self, by: Life, order: &ReplicaOrder, changes: Vec<Change>) {
        let (id, leader) = (order.group, (by, order.peer));
        if let Some(group) = self.live.groups.get_mut(&id) {
            group.is_changing = true;
        }
        let pause = self.rng.between(20, 600) * MS;
        self.after(pause, move |world| {
            let Some(group) = world.live.groups.get_mut(&id) else {
                return;
            };
            group.is_changing = false;
            let is_leader = group.leader == Some(leader);
            let (before, term) = (group.members.clone(), group.term);
            let after = changed(&before, &changes);
            let answering = world.answering(by.host, id, &before);
            let is_decided =
                is_majority(&answering, &before.voters) && is_majority(&answering, &after.voters);
            if !is_leader || !is_decided || term == 0 {
                return;
            }
            world.count("changes");
            // It is a normal entry: peers that answer have all entries up to it.
            let has_it = after.voters.iter().filter(|peer| answering.contains(peer));
            for peer in has_it {
                world.catch_up(id, *peer);
            }
            if let Some(group) = world.live.groups.get_mut(&id) {
                group.members = after;
            }
            world.check_members(id, &before);
        });
    }

    /// Returns the reports of a process about its replicas.
    fn reports(&mut self, by: Life, orders: &[ReplicaOrder]) -> Vec<GroupReport> {
        let now = self.now;
        let mut reports = Vec::new();
        for order in orders {
            let place = (order.group, order.peer);
            let on_disk = self.hosts[by.host].disk.replicas.get(&place);
            let is_unhealthy = on_disk.is_some_and(|replica| replica.is_unhealthy);
            let problem = match on_disk {
                None if self.awaits_split(by.host, order, orders) => continue,
                None => Some(ReplicaProblem::Forgot),
                Some(replica) if replica.is_damaged => Some(ReplicaProblem::Damaged),
                Some(replica) if replica.has_missed => Some(ReplicaProblem::Missed),
                Some(_) => None,
            };
            let load = self.load_position(by, order);
            let group = self.live.groups.get(&order.group);
            let leaderless = group.and_then(|group| self.leaderless(group, order));
            let leads = group.is_some_and(|group| group.leader == Some((by, order.peer)));
            let term = group.map_or(0, |group| group.term);
            let Some(process) = self.process(by) else {
                return Vec::new();
            };
            let mut belief = process.live.leads.get(&order.group).cloned();
            belief = belief.filter(|belief| belief.peer == order.peer && problem.is_none());
            if let Some(belief) = &mut belief {
                belief.lost = match leads {
                    true => None,
                    false => belief.lost.or(Some(now)),
                };
                process.live.leads.insert(order.group, belief.clone());
            }
            let is_over = |lost: u64| now - lost >= BELIEVES;
            let belief = belief.filter(|belief| !belief.lost.is_some_and(is_over));
            let members = belief.as_ref().map(|belief| belief.members.clone());
            let lead = members.map(|members| self.reported_lead(by, order.group, members));
            reports.push(GroupReport {
                group: order.group,
                peer: order.peer,
                term: belief.map_or(term, |belief| belief.term),
                problem,
                is_unhealthy,
                leaderless: leaderless.filter(|_| lead.is_none() && problem.is_none()),
                leads: lead,
                load,
                traffic: traffic_of(order.group, leads),
            });
        }
        reports
    }

    /// Returns the report of a replica whose group has no leader.
    fn leaderless(&self, group: &SimGroup, order: &ReplicaOrder) -> Option<LeaderlessReplica> {
        let votes = group.members.voters.contains(&order.peer) && !order.is_new;
        let is_led = group.leader.is_some_and(|(life, peer)| {
            let is_there = self.hosts[life.host].life == life.life;
            is_there && self.is_running(life.host, order.group, peer)
        });
        let members = match votes {
            true => group.members.clone(),
            false => Membership::default(),
        };
        (!is_led).then(|| LeaderlessReplica {
            members,
            term: group.term,
            index: self.matched(order.group, order.peer),
            stamp_ms: 0,
        })
    }

    fn reported_lead(&self, by: Life, group: GroupId, members: Membership) -> LeaderReport {
        let entries = self
            .live
            .groups
            .get(&group)
            .map_or(0, |group| group.entries);
        let answering = self.answering(by.host, group, &members);
        let behind = answering.into_iter();
        let behind = behind.map(|peer| (peer, entries.saturating_sub(self.matched(group, peer))));
        LeaderReport {
            behind: behind.collect(),
            members,
            size: Some(PartitionSize {
                records: entries,
                bytes: entries * 100,
                split_points: Vec::new(),
            }),
        }
    }
}

pub(super) fn is_majority(answering: &[PeerId], voters: &[PeerId]) -> bool {
    let count = voters.iter().filter(|peer| answering.contains(peer));
    count.count() > voters.len() / 2
}

fn changed(members: &Membership, changes: &[Change]) -> Membership {
    let mut after = members.clone();
    for change in changes {
        let (Change::AddLearner(peer) | Change::Promote(peer) | Change::Remove(peer)) = change;
        after.learners.retain(|learner| learner != peer);
        after.voters.retain(|voter| voter != peer);
        match change {
            Change::AddLearner(peer) => after.learners.push(*peer),
            Change::Promote(peer) => after.voters.push(*peer),
            Change::Remove(_) => {}
        }
    }
    after.voters.sort_unstable();
    after
}
