//! Finds the leader of a partition, as far as this node knows, and routes a command to it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use forebay_cluster::local::LocalReplicas;
use forebay_cluster::map::{ClusterMap, MapNode};
use forebay_cluster::{HostPort, NodeId};
use forebay_replica::GroupId;

use super::super::ask::{Requester, Unanswered};
use super::super::topology::primary_at;
use super::key_spot::LiveSpot;
use crate::port::Port;

/// The first pause before the leader is looked up again. It is short, because another replica
/// mostly leads at once; each attempt doubles it.
const FIRST_LEAD_PAUSE: Duration = Duration::from_millis(2);
const LEAD_PAUSE: Duration = Duration::from_millis(20);
/// The number of attempts after which the pause is no longer doubled.
const MOST_DOUBLED: usize = 4;

/// The target of a command on a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandTarget {
    /// This node's replica leads.
    Here,
    /// The client is redirected to this address.
    Moved(HostPort),
    /// The command is forwarded to this node.
    Node(Box<MapNode>),
    /// No leader is known; the reason.
    Unknown(String),
    /// No leader is known, and this node reaches no majority of nodes. The client gets the error at
    /// once and asks another node.
    Isolated(String),
}

impl Requester<'_> {
    /// Returns the target of a command: first the known leader, then with each attempt another node
    /// that has the partition. Another node may have become leader without this node's knowledge.
    pub fn lead(&self, spot: &LiveSpot, may_move: bool, attempt: usize) -> CommandTarget {
        let map = self.cluster.map();
        let replicas = self.cluster.member().replicas();
        let known = replicas
            .as_ref()
            .and_then(|replicas| replicas.leader(spot.group));
        if known == Some(map.me) {
            return CommandTarget::Here;
        }
        let known = known.filter(|leader| !self.cluster.is_silent(self.now(), *leader));
        let is_here = |replicas: &Arc<LocalReplicas>| replicas.host().runs(spot.group);
        if known.is_none() && replicas.as_ref().is_some_and(is_here) {
            let words =
                "no replica of the partition leads: they elect one once a majority is there";
            return match self.leads_away(spot, true) {
                true => CommandTarget::Isolated(isolated(&map)),
                false => CommandTarget::Unknown(words.to_owned()),
            };
        }
        let mut others = self.who_may_lead(spot, &map);
        if let Some(leader) = known {
            others.retain(|id| *id != leader);
            others.insert(0, leader);
        }
        let mut at = turn(attempt, known.is_some(), others.len());
        if self.leads_away(spot, attempt > 0) {
            // The partition may have a majority among the few reachable nodes; each is asked once.
            others.retain(|node| self.cluster.reaches(self.now(), *node));
            if attempt >= others.len() {
                return CommandTarget::Isolated(isolated(&map));
            }
            at = attempt;
        }
        let Some(node) = others.get(at).and_then(|id| map.node(*id)) else {
            return CommandTarget::Unknown(
                "no other node has a replica of the partition".to_owned(),
            );
        };
        // If this node is to have a replica itself, a redirect by a guess would send the client in
        // circles.
        let is_sound = known == Some(node.id) || !spot.nodes.contains(&map.me);
        let moves = may_move && is_sound && self.moves_clients();
        let slot = spot.slot.filter(|_| moves);
        match slot.and_then(|slot| primary_at(&map, node, slot)) {
            Some(address) => CommandTarget::Moved(address),
            None => CommandTarget::Node(Box::new(node.clone())),
        }
    }

    /// Returns the other nodes that have the partition, the best first. Nodes that did not answer a
    /// moment ago are asked only if there are no others.
    fn who_may_lead(&self, spot: &LiveSpot, map: &ClusterMap) -> Vec<NodeId> {
        let is_away = |id: &NodeId| !map.node(*id).is_some_and(|node| node.is_available);
        let others = spot.nodes.iter().copied().filter(|id| *id != map.me);
        let mut others: Vec<NodeId> = others.collect();
        others.sort_by_key(is_away);
        let is_silent = |id: &NodeId| self.cluster.is_silent(self.now(), *id);
        if !others.iter().all(is_silent) {
            others.retain(|id| !is_silent(id));
        }
        others
    }

    /// Returns whether clients of the port are redirected to the leader. Clients of a class port
    /// follow the list of all classes: redirected, they would fetch that list again and come back.
    fn moves_clients(&self) -> bool {
        let is_ordinary = self.work.client.port == Port::Cluster;
        is_ordinary && self.work.shared.config.default_table.is_none()
    }

    /// Returns whether a client that knows other nodes should ask one of them. Nothing was sent
    /// anywhere. Reachability is checked if there is reason to, or if a check is running already.
    fn leads_away(&self, spot: &LiveSpot, has_reason: bool) -> bool {
        let now = self.now();
        let others_may_lead = spot.nodes.len() > 1 || !spot.nodes.contains(&self.map.me);
        self.work.client.port.is_clustered()
            && others_may_lead
            && match has_reason {
                true => self.cluster.lacks_majority(now),
                false => self.cluster.is_known_to_lack_majority(now),
            }
    }

    pub fn now(&self) -> Duration {
        self.work.shared.store.clock().monotonic()
    }

    /// Returns whether the client accepts reads of followers and this node has a healthy one.
    pub fn reads_follower(&self, group: GroupId) -> bool {
        let client = &self.work.client;
        let replicas = self.cluster.member().replicas();
        let is_here = || replicas.is_some_and(|replicas| replicas.host().may_follow(group));
        client.port.is_clustered() && client.reads_followers.load(Ordering::Relaxed) && is_here()
    }

    /// Returns whether a command must not be forwarded further.
    pub fn is_last(&self) -> bool {
        self.work.client.port == Port::Peer
    }

    /// Returns the error for a node that takes this one for the leader.
    pub fn not_leading(&self) -> Unanswered {
        let words = "this node does not lead the key's partition";
        Unanswered::Reply(self.work.shared.not_here(words))
    }

    /// Waits after this many attempts. Returns `false` if too little time is left for another.
    pub async fn waits_for_lead(&self, attempt: usize) -> bool {
        let clock = Arc::clone(self.work.shared.store.clock());
        let doubled = FIRST_LEAD_PAUSE * 2_u32.pow(attempt.min(MOST_DOUBLED) as u32);
        clock.wait(doubled.min(LEAD_PAUSE).min(self.left())).await;
        self.left() >= LEAD_PAUSE
    }

    /// Returns the current map.
    pub fn map_now(&self) -> Arc<ClusterMap> {
        self.cluster.map()
    }
}

/// Returns which of the nodes an attempt asks. A known leader that is first gets every other
/// attempt: it may become leader soon, or another node may lead already.
fn turn(attempt: usize, leads_first: bool, nodes: usize) -> usize {
    match leads_first && nodes > 1 {
        true if attempt.is_multiple_of(2) => 0,
        true => 1 + attempt / 2 % (nodes - 1),
        false => attempt % nodes.max(1),
    }
}

/// Returns the error for a client of a node that reaches no majority.
fn isolated(map: &ClusterMap) -> String {
    let name = map.node(map.me).map_or("?", |node| node.name.as_str());
    format!(
        "CLUSTERDOWN nothing was written: node {name} reaches no majority of the cluster's nodes, and \
         nobody who leads the key's partition: ask another node"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_leader_is_asked_every_other_time_and_the_others_in_turn() {
        let turns = |leads_first, nodes| -> Vec<usize> {
            let turns = (0..6).map(|attempt| turn(attempt, leads_first, nodes));
            turns.collect()
        };
        assert_eq!(turns(true, 3), [0, 1, 0, 2, 0, 1]);
        assert_eq!(turns(true, 1), [0; 6]);
        assert_eq!(turns(false, 3), [0, 1, 2, 0, 1, 2]);
        assert_eq!(turns(false, 0), [0; 6]);
    }
}
