//! Partitions of live tables whose replicas have lost their majority, and the remaining replicas.

use std::collections::BTreeSet;

use forebay_engine::{PartitionId, TableName};
use forebay_replica::{GroupId, Membership, PeerId};
use serde::{Deserialize, Serialize};

use crate::coordinator::GroupWatch;
use crate::ids::NodeId;
use crate::measures::reports::LeaderlessReplica;
use crate::model::{GroupEntry, Model, NodeState, PeerEntry, PeerState};

/// A partition of which no majority answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostPartition {
    pub table: TableName,
    pub partition: PartitionId,
    pub group: GroupId,
    /// Voters that do not answer, and why.
    pub gone: Vec<GoneReplica>,
    /// Voters that answer, the one with the longest log first.
    pub remaining: Vec<RemainingReplica>,
    /// Nodes that are up and have not reported the state of their replicas yet.
    pub waits_for: BTreeSet<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GoneReplica {
    pub node: String,
    pub peer: PeerId,
    pub why: String,
    /// Its node is not up. If it is started again, the data of the replica may come back.
    #[serde(default)]
    pub may_return: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemainingReplica {
    pub node: String,
    pub peer: PeerId,
    /// The term of the last entry of its log.
    pub term: u64,
    pub index: u64,
    /// The partition's time as of its last applied entry, in milliseconds since 1970-01-01 UTC.
    pub stamp_ms: u64,
}

/// A group under examination.
struct LostLook<'a> {
    model: &'a Model,
    watch: &'a GroupWatch,
    group: &'a GroupEntry,
}

impl LostPartition {
    /// Returns `None` if a majority is on nodes that are up and have kept their files.
    pub fn of(
        model: &Model,
        watch: &GroupWatch,
        table: &TableName,
        group: &GroupEntry,
    ) -> Option<Self> {
        let look = LostLook {
            model,
            watch,
            group,
        };
        if look.is_led() {
            return None;
        }
        let members = look.members();
        let is_lost = |peers: &[PeerId]| {
            let answers = peers.iter().filter(|peer| look.why_gone(**peer).is_none());
            !peers.is_empty() && answers.count() <= peers.len() / 2
        };
        if !is_lost(&members.voters) && !is_lost(&members.outgoing) {
            return None;
        }
        let voters = members.voters.iter().chain(&members.outgoing);
        let voters: BTreeSet<PeerId> = voters.copied().collect();
        let gone = voters.iter().filter_map(|peer| look.gone(*peer));
        Some(Self {
            table: table.clone(),
            partition: group.partition,
            group: group.group,
            gone: gone.collect(),
            remaining: look.remaining(),
            waits_for: look.waits_for(&voters),
        })
    }

    /// Describes the data that is lost with the missing replicas.
    pub fn words(&self) -> String {
        let gone = self
            .gone
            .iter()
            .map(|gone| format!("{} ({})", gone.node, gone.why));
        let gone: Vec<String> = gone.collect();
        let Some(best) = self.remaining.first() else {
            return format!("no replica answers; unavailable: {}", gone.join(", "));
        };
        let has = |one: &RemainingReplica| {
            format!(
                "{} up to entry {} of term {}",
                one.node, one.index, one.term
            )
        };
        let remaining: Vec<String> = self.remaining.iter().map(has).collect();
        format!(
            "unavailable: {}; remaining: {}; it would continue from {}",
            gone.join(", "),
            remaining.join(", "),
            best.node
        )
    }
}

impl LostLook<'_> {
    fn is_up(&self, node: NodeId) -> bool {
        self.model.node(node).is_some_and(|node| node.is_up())
    }

    fn name(&self, node: NodeId) -> String {
        let entry = self.model.node(node);
        entry.map_or_else(|| format!("node {node}"), |entry| entry.name.to_string())
    }

    /// Returns whether a node that is up reports that its replica leads. Without a majority it
    /// would not lead.
    fn is_led(&self) -> bool {
        let leading = self.watch.leading(self.group.group);
        leading.is_some_and(|leading| self.is_up(leading.node))
    }

    /// Returns the replicas that answer, and the position of each.
    fn leaderless(&self) -> impl Iterator<Item = (&PeerEntry, &LeaderlessReplica)> {
        let peers = self.group.peers.iter();
        peers.filter_map(|peer| {
            let report = self.watch.report(self.group.group, peer)?;
            let answers = self.why_gone(peer.peer).is_none() && report.problem.is_none();
            Some((peer, report.leaderless.as_ref().filter(|_| answers)?))
        })
    }

    /// Returns those of them that vote.
    fn voters(&self) -> impl Iterator<Item = (&PeerEntry, &LeaderlessReplica)> {
        self.leaderless()
            .filter(|(entry, leaderless)| leaderless.votes(entry.peer))
    }

    /// Returns the group's members according to the replica with the longest log.
    fn members(&self) -> Membership {
        let newest = self.voters().map(|(_, leaderless)| leaderless);
        let newest = newest.max_by_key(|leaderless| (leaderless.term, leaderless.index));
        let leading = self.watch.leading(self.group.group);
        let known = newest.map(|leaderless| &leaderless.members);
        let known = known.or_else(|| leading.map(|leading| &leading.lead.members));
        // A new peer votes only if it founds the group.
        let is_new = |peer: &&PeerEntry| peer.state == PeerState::New && self.group.term > 0;
        let named = self.group.peers.iter().filter(|peer| !is_new(peer));
        let named = || named.map(|peer| peer.peer).collect();
        known.cloned().unwrap_or_else(|| Membership {
            voters: named(),
            ..Membership::default()
        })
    }

    fn why_gone(&self, peer: PeerId) -> Option<&'static str> {
        let Some(entry) = self.group.peer(peer) else {
            return Some("it is not a replica any more");
        };
        match self.model.node(entry.node).map(|node| &node.state) {
            _ if entry.state == PeerState::Lost => Some("what it had is lost"),
            None => Some("the node was removed"),
            Some(NodeState::Left { .. }) => Some("the node was stopped"),
            Some(NodeState::Down { .. }) => Some("the node is down"),
            Some(NodeState::Up) => None,
        }
    }

    fn gone(&self, peer: PeerId) -> Option<GoneReplica> {
        let why = self.why_gone(peer)?.to_owned();
        let entry = self.group.peer(peer);
        let node = entry.map_or_else(|| format!("peer {peer}"), |entry| self.name(entry.node));
        let has_files = |entry: &&PeerEntry| entry.state != PeerState::Lost;
        let entry = entry.filter(has_files);
        let may_return = entry.is_some_and(|entry| self.model.node(entry.node).is_some());
        Some(GoneReplica {
            node,
            peer,
            why,
            may_return,
        })
    }

    fn remaining(&self) -> Vec<RemainingReplica> {
        let remaining = self.voters().map(|(entry, leaderless)| RemainingReplica {
            node: self.name(entry.node),
            peer: entry.peer,
            term: leaderless.term,
            index: leaderless.index,
            stamp_ms: leaderless.stamp_ms,
        });
        let mut remaining: Vec<RemainingReplica> = remaining.collect();
        remaining.sort_by_key(|one| std::cmp::Reverse((one.term, one.index, one.peer)));
        remaining
    }

    fn waits_for(&self, voters: &BTreeSet<PeerId>) -> BTreeSet<String> {
        let reported: BTreeSet<PeerId> = self.leaderless().map(|(entry, _)| entry.peer).collect();
        let up = voters.iter().filter(|peer| self.why_gone(**peer).is_none());
        let unreachable = up.filter(|peer| !reported.contains(peer));
        let nodes = unreachable.filter_map(|peer| self.group.peer(*peer));
        nodes.map(|entry| self.name(entry.node)).collect()
    }
}
