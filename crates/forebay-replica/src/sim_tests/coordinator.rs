//! The simulated coordinator: makes sure that the desired hosts have the group.

use super::world::{MS, World};
use crate::events::Event;
use crate::ids::PeerId;
use crate::membership::Membership;
use crate::start::FOUNDED;
use crate::steering::{SteeringStep, WantedPeer, WantedPeers, next_step};

impl World {
    pub fn start_coordinator(&mut self) {
        self.after(400 * MS, |world| {
            world.coordinate();
            world.start_coordinator();
        });
    }

    /// Returns the host whose replica leads in the newest term.
    pub fn leader(&self) -> Option<usize> {
        let leaders = (0..self.hosts.len()).filter_map(|at| {
            let replica = &self.hosts[at].process.as_ref()?.replica;
            replica.is_leader().then(|| (replica.term(), at))
        });
        leaders.max().map(|(_, at)| at)
    }

    fn coordinate(&mut self) {
        let missing = |at: &&usize| self.hosts[**at].disk.is_none();
        if let Some(at) = self.wanted.iter().find(missing).copied() {
            self.join(at);
        }
        let Some(leader) = self.leader().filter(|at| !self.hosts[*at].is_paused) else {
            return;
        };
        let Some(process) = &self.hosts[leader].process else {
            return;
        };
        let members = process.replica.membership().clone();
        let standing = process.replica.standing().unwrap_or_default();
        let wanted = self.wanted_peers();
        let Some(me) = self.peer_of(leader) else {
            return;
        };
        let stays = wanted.peers.iter().any(|peer| peer.peer == me);
        let event = match next_step(me, &wanted, &members, &standing) {
            Some(SteeringStep::Change(changes)) => Some(Event::Change(changes)),
            // A leader that stays keeps leading: the simulation changes leaders at random.
            Some(SteeringStep::HandOver(to)) if !stays => Some(Event::Transfer { to }),
            _ => None,
        };
        if let Some(event) = event {
            let life = self.life(leader);
            self.notify(life, event);
        }
        self.check_voters(&members);
        self.clear_unwanted(&members);
    }

    /// Checks that each voter has the group's initial state or more: a write that a majority has
    /// must not be on fewer replicas.
    fn check_voters(&mut self, members: &Membership) {
        let is_empty = |voter: &&PeerId| {
            let host = self.peers.get(voter);
            let host = host.filter(|host| self.peer_of(**host) == Some(**voter));
            let process = host.and_then(|host| self.hosts[*host].process.as_ref());
            process.is_some_and(|process| process.replica.last().index < FOUNDED.index)
        };
        if let Some(voter) = members.voters.iter().find(is_empty).copied() {
            self.fail(format!("voter {voter:?} has no state"));
        }
    }

    fn wanted_peers(&self) -> WantedPeers {
        let peers = self.wanted.iter().filter_map(|at| self.peer_of(*at));
        let ready = |peer| WantedPeer {
            peer,
            is_ready: true,
            may_lead: true,
        };
        let last = self.peers.keys().last().map_or(0, |peer| peer.0);
        WantedPeers {
            peers: peers.map(ready).collect(),
            replicas: self.wanted.len(),
            next_peer: PeerId(last + 1),
        }
    }

    /// Removes a replica that has left, once the group has continued without it.
    fn clear_unwanted(&mut self, members: &Membership) {
        for at in 0..self.hosts.len() {
            let peer = self.peer_of(at);
            let has_left = peer.is_some_and(|peer| !members.contains(peer));
            if has_left && !self.wanted.contains(&at) && !members.is_joint() {
                self.end(at);
                self.hosts[at].disk = None;
            }
        }
    }

    /// Returns whether all voters of all groups that a replica knows still have their promises, and
    /// the group is not changing.
    pub fn may_forget(&self, at: usize) -> bool {
        let processes = self.hosts.iter().filter_map(|host| host.process.as_ref());
        let mut known: Vec<_> = processes
            .map(|process| process.replica.membership())
            .collect();
        known.retain(|members| !members.voters.is_empty());
        let has_all = |members: &Membership| {
            // A host that is down may be about to return without its log.
            let runs = |host: usize| host == at || self.hosts[host].process.is_some();
            let is_there = |peer: &PeerId| {
                let host = self.peers.get(peer);
                host.is_some_and(|host| self.peer_of(*host) == Some(*peer) && runs(*host))
            };
            // One voter, or two of which one is leaving, have no majority without each.
            let are_few = members.voters.len() < 3;
            !members.is_joint() && !are_few && members.voters.iter().all(is_there)
        };
        let others = self.wanted.iter().filter(|other| **other != at);
        let are_well = others.clone().all(|at| self.hosts[*at].process.is_some());
        let first = known.first();
        first.is_some()
            && are_well
            && known
                .iter()
                .all(|members| has_all(members) && Some(members) == first)
    }
}
