//! Who leads a partition, as far as is known here, and how a command gets there.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use forebay_cluster::local::LocalReplicas;
use forebay_cluster::map::{ClusterMap, MapNode};
use forebay_cluster::{HostPort, NodeId};
use forebay_replica::GroupId;

use super::super::ask::{Requester, Unanswered};
use super::super::topology::primary_at;
use super::spot::LiveSpot;
use crate::port::Port;

/// Before it is asked again who leads: at first soon, as another one mostly leads at once, then
/// doubled with each try.
const FIRST_LEAD_PAUSE: Duration = Duration::from_millis(2);
const LEAD_PAUSE: Duration = Duration::from_millis(20);
/// Tries after which a pause is no longer doubled.
const MOST_DOUBLED: usize = 4;

/// Where a command on a partition is to go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandTarget {
    /// The replica here leads.
    Here,
    /// The client is to go there.
    Moved(HostPort),
    /// It is forwarded.
    Node(Box<MapNode>),
    /// Nobody is known who leads; why.
    Unknown(String),
    /// The same of a node that reaches no majority of nodes: the client is told so at once, and
    /// asks another node.
    CutOff(String),
}

impl Requester<'_> {
    /// Where a command goes: to who leads, as far as is known, and with each other attempt to
    /// another node that has the partition. One may lead by now, and who led before not know it.
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
                true => CommandTarget::CutOff(cut_off(&map)),
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
            // The partition may have a majority among the few; they are asked once.
            others.retain(|node| self.cluster.reaches(self.now(), *node));
            if attempt >= others.len() {
                return CommandTarget::CutOff(cut_off(&map));
            }
            at = attempt;
        }
        let Some(node) = others.get(at).and_then(|id| map.node(*id)) else {
            return CommandTarget::Unknown(
                "no other node has a replica of the partition".to_owned(),
            );
        };
        // A guess of a node that is to have a replica itself would lead the client in circles.
        let is_sound = known == Some(node.id) || !spot.nodes.contains(&map.me);
        let moves = may_move && is_sound && self.moves_clients();
        let slot = spot.slot.filter(|_| moves);
        match slot.and_then(|slot| primary_at(&map, node, slot)) {
            Some(address) => CommandTarget::Moved(address),
            None => CommandTarget::Node(Box::new(node.clone())),
        }
    }

    /// Other nodes that have the partition, the best to ask first. Those that did not answer a
    /// moment ago are asked where there is nobody else.
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

    /// Whether clients of the port are led to who leads. Those of a class's port came to where the
    /// list of all classes has led them: led on, they would ask for that list, and come back.
    fn moves_clients(&self) -> bool {
        let is_ordinary = self.work.client.port == Port::Cluster;
        is_ordinary && self.work.shared.config.default_table.is_none()
    }

    /// Whether a client that knows of other nodes is to ask one of them. Nothing was sent anywhere.
    /// Which nodes answer is looked at where there is reason to, or somebody looks already.
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

    /// Whether the client wants to read what follows, and that is here, and well.
    pub fn reads_follower(&self, group: GroupId) -> bool {
        let client = &self.work.client;
        let replicas = self.cluster.member().replicas();
        let is_here = || replicas.is_some_and(|replicas| replicas.host().may_follow(group));
        client.port.is_clustered() && client.reads_followers.load(Ordering::Relaxed) && is_here()
    }

    /// Whether a command is not taken any further than this node.
    pub fn is_last(&self) -> bool {
        self.work.client.port == Port::Peer
    }

    /// What another node is told that takes this one to lead.
    pub fn not_leading(&self) -> Unanswered {
        let words = "this node does not lead the key's partition";
        Unanswered::Told(self.work.shared.not_here(words))
    }

    /// Waits a little after so many tries before this one; `false`: too little time is left for
    /// another.
    pub async fn waits_for_lead(&self, attempt: usize) -> bool {
        let clock = Arc::clone(self.work.shared.store.clock());
        let doubled = FIRST_LEAD_PAUSE * 2_u32.pow(attempt.min(MOST_DOUBLED) as u32);
        clock.wait(doubled.min(LEAD_PAUSE).min(self.left())).await;
        self.left() >= LEAD_PAUSE
    }

    /// The map as it is now.
    pub fn map_now(&self) -> Arc<ClusterMap> {
        self.cluster.map()
    }
}

/// Which of so many nodes an attempt asks. Where the first is known to lead it is every other time:
/// it comes to do so soon, or another one does already.
fn turn(attempt: usize, leads_first: bool, nodes: usize) -> usize {
    match leads_first && nodes > 1 {
        true if attempt.is_multiple_of(2) => 0,
        true => 1 + attempt / 2 % (nodes - 1),
        false => attempt % nodes.max(1),
    }
}

/// What a client of a node that is cut off is told.
fn cut_off(map: &ClusterMap) -> String {
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
    fn who_is_known_to_lead_is_asked_every_other_time_and_all_others_in_turn() {
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
