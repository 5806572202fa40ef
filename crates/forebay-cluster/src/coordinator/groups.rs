//! Keeps the membership of live tables' groups in step with the desired replicas.
//!
//! If a node is to have a partition and has no peer of its group, it gets a peer, which joins. A
//! peer on a node that is not to have the partition leaves. A peer that lost its files or is
//! damaged leaves too, and its node gets a new peer. Group leaders read the desired membership from
//! the catalog and change their groups themselves.
//!
//! A peer that has left is removed from the catalog, and its node removes the files, once no node
//! can add it again. First all available nodes with peers of the group must know that it leaves.
//! Then the group must have continued without it for a while. A node that cannot read the catalog
//! proposes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use forebay_replica::{GroupId, PeerId};

use super::Step;
use super::members::NodeReport;
use crate::bugs::{Bug, is_planted};
use crate::ids::NodeId;
use crate::measures::reports::{GroupReport, LeaderReport, ReplicaProblem};
use crate::message::{LeadersMark, LeadersReport};
use crate::model::{GroupEntry, Model, PeerEntry, PeerState, TableGroups};
use crate::time::Now;

/// The most peers of one node that join groups at the same time.
const MOST_JOINERS: usize = 4;
/// The most groups whose leaders one answer names.
const MOST_LEADERS: usize = 256;

/// What the coordinator knows of groups beyond the catalog.
#[derive(Debug, Default)]
pub struct GroupWatch {
    said: BTreeMap<GroupId, BTreeMap<PeerId, PeerReport>>,
    /// Groups that have ever reported a problem. Nearly all groups need no check.
    troubled: BTreeSet<GroupId>,
    departing: BTreeMap<(GroupId, PeerId), DepartingPeer>,
    /// The node that leads each group, and the number of that change of leader.
    leaders: BTreeMap<GroupId, (NodeId, u64)>,
    by_number: BTreeMap<u64, GroupId>,
    number: u64,
    /// When each group was last reported to have a leader.
    led: BTreeMap<GroupId, Duration>,
}

/// The last report of a node about its replica.
#[derive(Debug)]
struct PeerReport {
    node: NodeId,
    report: GroupReport,
}

/// A peer that is to leave its group.
#[derive(Debug)]
struct DepartingPeer {
    /// The first revision of the catalog in which the peer leaves.
    revision: u64,
    /// Since when all nodes have known that revision.
    known_since: Option<Duration>,
}

/// The leader of a group, as last reported.
#[derive(Debug, Clone, Copy)]
pub struct KnownLeader<'a> {
    pub node: NodeId,
    pub term: u64,
    pub lead: &'a LeaderReport,
}

impl GroupWatch {
    /// Stores a node's reports. Returns whether any of them is new.
    pub fn receive(&mut self, now: Now, node: NodeId, reports: &[GroupReport]) -> bool {
        let mut is_news = false;
        for report in reports {
            if report.leads.is_some() {
                self.lead(now, node, report);
            }
            if report.is_troubled() {
                self.troubled.insert(report.group);
            }
            let said = self.said.entry(report.group).or_default();
            let known = said.get(&report.peer);
            // The replica led until just now, however long ago it reported that.
            if known.is_some_and(|known| known.report.leads.is_some()) {
                self.led.insert(report.group, now.monotonic);
            }
            is_news |= known.is_none_or(|known| known.node != node || known.report != *report);
            let report = report.clone();
            said.insert(report.peer, PeerReport { node, report });
        }
        is_news
    }

    fn lead(&mut self, now: Now, node: NodeId, report: &GroupReport) {
        let newest = self.leading(report.group).map(|leading| leading.term);
        if newest.is_some_and(|newest| newest > report.term) {
            return;
        }
        self.led.insert(report.group, now.monotonic);
        let known = self.leaders.get(&report.group).copied();
        if known.is_some_and(|(known, _)| known == node) {
            return;
        }
        if let Some((_, number)) = known {
            self.by_number.remove(&number);
        }
        self.number += 1;
        self.leaders.insert(report.group, (node, self.number));
        self.by_number.insert(self.number, report.group);
        debug_assert_eq!(
            self.leaders.len(),
            self.by_number.len(),
            "of the leaders some have no number, or two"
        );
    }

    /// Forgets the reports of a node's previous process.
    pub fn restarted(&mut self, node: NodeId) {
        for said in self.said.values_mut() {
            said.retain(|_, said| said.node != node);
        }
    }

    /// Returns when a replica was last reported to lead the group.
    pub fn led(&self, group: GroupId) -> Option<Duration> {
        self.led.get(&group).copied()
    }

    /// Returns the leader with the highest reported term.
    pub fn leading(&self, group: GroupId) -> Option<KnownLeader<'_>> {
        let said = self.said.get(&group)?.values();
        let leading = said.filter_map(|said| {
            Some(KnownLeader {
                node: said.node,
                term: said.report.term,
                lead: said.report.leads.as_ref()?,
            })
        });
        leading.max_by_key(|leading| leading.term)
    }

    /// Returns the last report of a peer's node about it.
    pub fn report(&self, group: GroupId, peer: &PeerEntry) -> Option<&GroupReport> {
        let said = self.said.get(&group)?.get(&peer.peer)?;
        (said.node == peer.node).then_some(&said.report)
    }

    /// Returns the changes of leaders since the mark that a node knows.
    pub fn news(&self, known: LeadersMark, term: u64) -> LeadersReport {
        let from = match known.term == term {
            true => known.number + 1,
            false => 0,
        };
        let mut mark = LeadersMark {
            term,
            number: self.number,
        };
        let mut leaders = Vec::new();
        for (number, group) in self.by_number.range(from..).take(MOST_LEADERS) {
            mark.number = *number;
            leaders.extend(self.leaders.get(group).map(|(node, _)| (*group, *node)));
        }
        if leaders.len() < MOST_LEADERS {
            mark.number = self.number;
        }
        LeadersReport { mark, leaders }
    }

    /// Forgets groups that no longer exist.
    fn forget(&mut self, model: &Model) {
        let all = model.groups.values().map(TableGroups::count);
        if self.said.len() + self.leaders.len() + self.led.len() <= 3 * all.sum::<usize>() {
            return;
        }
        let groups = model.group_ids();
        self.said.retain(|group, _| groups.contains(group));
        self.troubled.retain(|group| groups.contains(group));
        self.leaders.retain(|group, _| groups.contains(group));
        self.by_number.retain(|_, group| groups.contains(group));
        self.led.retain(|group, _| groups.contains(group));
        self.departing
            .retain(|(group, _), _| groups.contains(group));
    }

    /// Returns whether the group's own configuration has replicas on exactly these nodes.
    pub fn is_there(&self, group: &GroupEntry, wanted: &[NodeId]) -> bool {
        let Some(leading) = self.leading(group.group) else {
            return false;
        };
        let staying: BTreeSet<PeerId> = group.staying().map(|peer| peer.peer).collect();
        let members = &leading.lead.members;
        let voters: BTreeSet<PeerId> = members.voters.iter().copied().collect();
        let is_settled = !members.is_joint() && members.learners.is_empty();
        leading.term >= group.term && is_settled && voters == staying && has_peers(group, wanted)
    }
}

/// Returns whether each of these nodes, and no other, has a peer that is made.
fn has_peers(group: &GroupEntry, wanted: &[NodeId]) -> bool {
    let is_made = |node: &NodeId| {
        let mut peers = group.peers.iter();
        peers.any(|peer| peer.node == *node && peer.state == PeerState::Made)
    };
    group.staying().count() == wanted.len() && wanted.iter().all(is_made)
}

impl Step<'_> {
    /// Advances the membership of all groups as far as possible now.
    pub fn keep_groups(&mut self) {
        if self.model.groups.is_empty() {
            return;
        }
        self.groups.forget(&self.model);
        let mut changed = Vec::new();
        let mut joiners = None;
        for table in self.model.groups.keys() {
            for (group, wanted) in self.model.desired_groups(table) {
                let keeping = Keeping {
                    now: self.now,
                    term: self.term,
                    revision: self.revision - 1,
                    model: &self.model,
                    received: self.received,
                };
                // Until a partition is split, its peers stay those that the split names.
                if group.split.is_some() || keeping.is_kept(self.groups, group, wanted) {
                    continue;
                }
                let joiners = joiners.get_or_insert_with(|| joining(&self.model, self.groups));
                let mut kept = group.clone();
                keeping.keep(self.groups, joiners, &mut kept, wanted);
                if kept != *group {
                    let newest = self.groups.leading(kept.group);
                    kept.term = kept.term.max(newest.map_or(0, |leading| leading.term));
                    changed.push((table.clone(), kept));
                }
            }
        }
        for (table, group) in changed {
            self.model.put_group(&table, group);
        }
    }
}

/// Counts the peers of each node that are not voters yet.
fn joining(model: &Model, watch: &GroupWatch) -> BTreeMap<NodeId, usize> {
    let mut joining = BTreeMap::new();
    for (_, group) in model.all_groups() {
        let leading = watch.leading(group.group);
        let is_voter = |peer: &PeerId| {
            leading.is_some_and(|leading| leading.lead.members.voters.contains(peer))
                || group.founders.contains(peer)
        };
        for peer in group.staying().filter(|peer| !is_voter(&peer.peer)) {
            *joining.entry(peer.node).or_insert(0) += 1;
        }
    }
    joining
}

/// The state by which one group's membership is decided.
struct Keeping<'a> {
    now: Now,
    term: u64,
    /// The committed revision.
    revision: u64,
    model: &'a Model,
    received: &'a BTreeMap<NodeId, NodeReport>,
}

impl Keeping<'_> {
    /// Returns whether a group needs no change. Most groups need none.
    fn is_kept(&self, watch: &GroupWatch, group: &GroupEntry, wanted: &[NodeId]) -> bool {
        let is_looked_at = watch.troubled.contains(&group.group);
        let has_problem = |peer: &PeerEntry| {
            let report = || watch.report(group.group, peer);
            peer.is_unhealthy || (is_looked_at && report().is_some_and(GroupReport::is_troubled))
        };
        group.term > 0
            && group.peers.len() == wanted.len()
            && has_peers(group, wanted)
            && !group.peers.iter().any(has_problem)
    }

    fn keep(
        &self,
        watch: &mut GroupWatch,
        joiners: &mut BTreeMap<NodeId, usize>,
        group: &mut GroupEntry,
        wanted: &[NodeId],
    ) {
        self.remove_gone(watch, group);
        self.take_reports(watch, group);
        let leading = watch.leading(group.group);
        group.term = group.term.max(leading.map_or(0, |leading| leading.term));
        // Until the group is founded, it needs its founders, even if the desired replicas have
        // changed.
        if group.term == 0 {
            return;
        }
        for at in 0..group.peers.len() {
            let PeerEntry {
                peer, node, state, ..
            } = group.peers[at];
            let is_founder = group.founders.contains(&peer);
            let is_wanted = wanted.contains(&node);
            group.peers[at].state = match state {
                // A founder votes, even if no node has reported it yet.
                PeerState::New if !is_wanted && !is_founder => PeerState::Lost,
                PeerState::New if !is_wanted => PeerState::Leaving,
                PeerState::Made if !is_wanted => PeerState::Leaving,
                PeerState::Leaving if is_wanted && !stays_on(group, node) => PeerState::Made,
                state => state,
            };
        }
        for node in wanted {
            let joining = joiners.entry(*node).or_insert(0);
            let is_up = self.model.node(*node).is_some_and(|node| node.is_up());
            if is_up && !stays_on(group, *node) && *joining < MOST_JOINERS {
                *joining += 1;
                group.add_peer(*node, self.term);
            }
        }
    }

    /// Applies the nodes' reports about their peers.
    fn take_reports(&self, watch: &GroupWatch, group: &mut GroupEntry) {
        for at in 0..group.peers.len() {
            let peer = group.peers[at];
            let Some(report) = watch.report(group.group, &peer) else {
                continue;
            };
            group.peers[at].is_unhealthy = report.is_unhealthy;
            group.peers[at].state = match (report.problem, peer.state) {
                // The peer has the log, and votes as long as the group needs it.
                (Some(ReplicaProblem::Missed), state)
                    if !self.can_spare(watch, group, peer.peer) =>
                {
                    state
                }
                (Some(_), PeerState::Made) if is_planted(Bug::ReusesAPeer) => PeerState::New,
                (Some(_), _) => PeerState::Lost,
                (None, PeerState::Made)
                    if report.is_unhealthy && self.can_spare(watch, group, peer.peer) =>
                {
                    PeerState::Lost
                }
                (None, PeerState::New) => PeerState::Made,
                (None, state) => state,
            };
        }
    }

    /// Returns whether the group has a majority without a peer, by the report of its leader on
    /// another node.
    fn can_spare(&self, watch: &GroupWatch, group: &GroupEntry, spared: PeerId) -> bool {
        let Some(leading) = watch.leading(group.group) else {
            return false;
        };
        let received = self.received.get(&leading.node);
        let lost = self.model.timing().heartbeat_lost();
        let is_received = received.is_some_and(|received| self.now.since(received.at) < lost);
        let members = &leading.lead.members;
        if !is_received || leading.term < group.term || members.is_joint() {
            return false;
        }
        let behind = &leading.lead.behind;
        let answers = |voter: &&PeerId| {
            let entry = group.peer(**voter);
            let entry =
                entry.filter(|entry| entry.peer != spared && entry.state != PeerState::Lost);
            entry.is_some_and(|entry| {
                entry.node == leading.node || behind.iter().any(|(peer, _)| *peer == entry.peer)
            })
        };
        let answering = members.voters.iter().filter(answers).count();
        !members.voters.contains(&spared) || answering > members.voters.len() / 2
    }

    /// Removes peers that have left and that no leader can add again.
    fn remove_gone(&self, watch: &mut GroupWatch, group: &mut GroupEntry) {
        let place = |peer: &PeerEntry| (group.group, peer.peer);
        for peer in group.staying() {
            watch.departing.remove(&place(peer));
        }
        let mut gone = BTreeSet::new();
        for peer in group.peers.iter().filter(|peer| !peer.state.stays()) {
            let departing = watch.departing.entry(place(peer)).or_insert(DepartingPeer {
                revision: self.revision,
                known_since: None,
            });
            if !self.all_know(group, departing.revision) {
                departing.known_since = None;
                continue;
            }
            // This is longer than a node acts on its last knowledge of the catalog.
            let since = *departing.known_since.get_or_insert(self.now.monotonic);
            if self.now.since(since) >= self.model.timing().on_its_way()
                && self.has_left(watch, group, peer.peer)
            {
                gone.insert(peer.peer);
            }
        }
        for peer in &gone {
            watch.departing.remove(&(group.group, *peer));
        }
        group.peers.retain(|peer| !gone.contains(&peer.peer));
    }

    /// Returns whether all nodes that are up and have peers of the group know a revision.
    fn all_know(&self, group: &GroupEntry, revision: u64) -> bool {
        group.peers.iter().all(|peer| {
            let is_up = self.model.node(peer.node).is_some_and(|node| node.is_up());
            let received = self.received.get(&peer.node);
            !is_up || received.is_some_and(|received| received.revision >= revision)
        })
    }

    /// Returns whether the group's leader reports that a peer is no member. The leader's node must
    /// be sending heartbeats.
    fn has_left(&self, watch: &GroupWatch, group: &GroupEntry, peer: PeerId) -> bool {
        let Some(leading) = watch.leading(group.group) else {
            return false;
        };
        let received = self.received.get(&leading.node);
        let lost = self.model.timing().heartbeat_lost();
        let is_received = received.is_some_and(|received| {
            self.now.since(received.at) < lost && received.groups_left == 0
        });
        let members = &leading.lead.members;
        is_received && leading.term >= group.term && !members.is_joint() && !members.contains(peer)
    }
}

/// Returns whether a node has a peer that is to belong to the group.
pub fn stays_on(group: &GroupEntry, node: NodeId) -> bool {
    group.staying().any(|peer| peer.node == node)
}
