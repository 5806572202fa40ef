//! Decides what the leader of a group does next to reach the desired membership.
//!
//! The catalog names the desired peers of a group. The group's own configuration names its peers
//! now. The leader compares the two about once a second, and proposes one change at a time. A new
//! peer is a learner first. It becomes a voter in the same change in which an old one leaves. The
//! leader proposes no change after which no majority would answer.

use std::sync::Arc;

use crate::entry::MOST_CHANGES;
use crate::ids::PeerId;
use crate::membership::{Change, Membership};
use crate::replica::Replica;

/// The desired peers of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedPeers {
    /// The desired peers; the one that is to lead comes first.
    pub peers: Vec<WantedPeer>,
    /// The desired number of voters. No voter is removed without a replacement unless there are
    /// more.
    pub replicas: usize,
    /// The first peer number that this catalog does not know: peers from it on are left alone.
    pub next_peer: PeerId,
}

/// A desired peer of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WantedPeer {
    pub peer: PeerId,
    /// Whether its node has reported that it has the replica. Before that, the peer is not added.
    pub is_ready: bool,
    /// Whether its node may lead: not while it is being stopped, or is unreachable.
    pub may_lead: bool,
}

/// The state of a group's peers, as its leader knows it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Standing {
    /// The peers that answered within the last seconds, including the leader.
    pub active: Vec<PeerId>,
    /// The active peers that lack few of the decided entries, including the leader.
    pub close: Vec<PeerId>,
}

/// The state of a replica that steering acts on. While it is unchanged, there is nothing to do or
/// to report.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Outline {
    pub term: u64,
    pub leader: Option<PeerId>,
    /// The replica leads, and has applied an entry of its term.
    pub leads: bool,
    pub members: Arc<Membership>,
    /// If it leads: the number of learners that lack few of the decided entries.
    pub close_learners: usize,
}

impl WantedPeers {
    /// Returns the same peers, without this one as a possible leader.
    #[must_use]
    pub fn led_by_others(&self, than: PeerId) -> Self {
        let mut wanted = self.clone();
        let its = wanted.peers.iter_mut().filter(|wanted| wanted.peer == than);
        its.for_each(|wanted| wanted.may_lead = false);
        wanted
    }

    fn is_wanted(&self, peer: PeerId) -> bool {
        self.peers.iter().any(|wanted| wanted.peer == peer)
    }

    /// Returns whether the peer has to leave. Peers that a newer catalog named are unknown, and
    /// stay.
    fn is_old(&self, peer: PeerId) -> bool {
        !self.is_wanted(peer) && peer < self.next_peer
    }

    fn ready(&self) -> impl Iterator<Item = PeerId> {
        let ready = self.peers.iter().filter(|wanted| wanted.is_ready);
        ready.map(|wanted| wanted.peer)
    }

    /// Returns the peers that may lead, in order of preference.
    fn leading(&self) -> impl Iterator<Item = PeerId> {
        let leading = self.peers.iter().filter(|wanted| wanted.is_ready);
        let leading = leading.filter(|wanted| wanted.may_lead);
        leading.map(|wanted| wanted.peer)
    }

    fn may_lead(&self, peer: PeerId) -> bool {
        self.leading().any(|leading| leading == peer)
    }
}

impl Standing {
    /// Returns a peer that could replace the leader `me`: a voter that answers and has nearly all
    /// entries.
    pub fn forced_peer(&self, me: PeerId, members: &Membership) -> Option<PeerId> {
        let mut voters = members.voters.iter().copied();
        voters.find(|peer| *peer != me && self.active.contains(peer) && self.close.contains(peer))
    }

    fn has_majority_of(&self, voters: &[PeerId]) -> bool {
        let active = voters.iter().filter(|peer| self.active.contains(peer));
        active.count() > voters.len() / 2
    }
}

impl Replica {
    pub fn outline(&self) -> Outline {
        let (members, is_leader) = (self.membership(), self.is_leader());
        let is_close = |peer: &&PeerId| is_leader && self.is_close(**peer);
        Outline {
            term: self.term(),
            leader: self.leader(),
            leads: is_leader && self.applied().place.term == self.term(),
            close_learners: members.learners.iter().filter(is_close).count(),
            members: Arc::clone(members),
        }
    }

    /// Returns the state of its peers, or `None` if it does not lead.
    pub fn standing(&self) -> Option<Standing> {
        if !self.is_leader() {
            return None;
        }
        let members = self.membership();
        let lists = [&members.voters, &members.learners, &members.outgoing];
        let mut all: Vec<PeerId> = lists.into_iter().flatten().copied().collect();
        all.sort_unstable();
        all.dedup();
        let is_active = |peer: PeerId| {
            let progress = self.progress(peer);
            peer == self.me || progress.is_some_and(|progress| progress.is_active)
        };
        let is_close = |peer: PeerId| peer == self.me || self.is_close(peer);
        let those = |is_it: &dyn Fn(PeerId) -> bool| {
            let those = all.iter().copied().filter(|peer| is_it(*peer));
            those.collect()
        };
        Some(Standing {
            active: those(&is_active),
            close: those(&is_close),
        })
    }
}

/// A step of a leader toward the desired membership.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SteeringStep {
    /// Propose these changes.
    Change(Vec<Change>),
    HandOver(PeerId),
}

/// Returns the next step of the leader `me`, or `None` if there is none to take now. The caller
/// asks again with the new state until the group is as desired. A leader that has to leave hands
/// over leadership first if it can: a group whose leader has left waits for an election.
pub fn next_step(
    me: PeerId,
    wanted: &WantedPeers,
    members: &Membership,
    standing: &Standing,
) -> Option<SteeringStep> {
    let hand_over = next_leader(me, wanted, members, standing).map(SteeringStep::HandOver);
    let change = || next_change(wanted, members, standing).map(SteeringStep::Change);
    match wanted.is_old(me) {
        true => hand_over.or_else(change),
        false => change().or(hand_over),
    }
}

/// Returns the change that a leader proposes next.
fn next_change(
    wanted: &WantedPeers,
    members: &Membership,
    standing: &Standing,
) -> Option<Vec<Change>> {
    if members.is_joint() {
        return None;
    }
    let changes = promotion(wanted, members, standing)
        .or_else(|| removed_learner(wanted, members))
        .or_else(|| new_learner(wanted, members))
        .or_else(|| removal(wanted, members, standing))?;
    let voters = voters_after(members, &changes);
    debug_assert!(
        !voters.is_empty() && changes.len() <= MOST_CHANGES,
        "{changes:?} leave the voters {voters:?} of {members:?}"
    );
    debug_assert!(
        voters
            .iter()
            .filter(|peer| !members.voters.contains(peer))
            .count()
            <= 1,
        "{changes:?} promote several peers of {members:?}"
    );
    let is_same = voters == members.voters;
    (is_same || standing.has_majority_of(&voters)).then_some(changes)
}

/// Returns the peer to which the leader `me` hands over. It is the first desired voter, if that is
/// close. A leader that may not lead hands over to any voter that may and is close.
fn next_leader(
    me: PeerId,
    wanted: &WantedPeers,
    members: &Membership,
    standing: &Standing,
) -> Option<PeerId> {
    if members.is_joint() {
        return None;
    }
    let is_voter = |peer: &PeerId| members.voters.contains(peer);
    let is_close = |peer: &PeerId| standing.active.contains(peer) && standing.close.contains(peer);
    let mut voters = wanted.leading().filter(is_voter);
    let to = match wanted.is_old(me) || !wanted.may_lead(me) {
        true => voters.find(is_close),
        false => voters.next().filter(is_close),
    };
    to.filter(|peer| *peer != me)
}

/// Returns the change that makes a close learner a voter and removes an old voter with it. The
/// group never has more voters than desired. A lone voter, which leads, stays until the new one
/// leads: a group whose leader has left waits for an election.
fn promotion(
    wanted: &WantedPeers,
    members: &Membership,
    standing: &Standing,
) -> Option<Vec<Change>> {
    let is_due = |peer: &PeerId| {
        members.learners.contains(peer)
            && standing.close.contains(peer)
            && standing.active.contains(peer)
    };
    let promoted = wanted.ready().find(is_due)?;
    debug_assert!(
        !members.voters.contains(&promoted),
        "peer {promoted:?} votes and learns: {members:?}"
    );
    if members.voters.len() < wanted.replicas || members.voters.len() == 1 {
        return Some(vec![Change::Promote(promoted)]);
    }
    let old = leaving(wanted, members, standing).next()?;
    Some(vec![Change::Promote(promoted), Change::Remove(old)])
}

/// Returns the voters that have to leave. Those that do not answer come first.
fn leaving(
    wanted: &WantedPeers,
    members: &Membership,
    standing: &Standing,
) -> impl Iterator<Item = PeerId> {
    let old = members.voters.iter().copied();
    let mut old: Vec<PeerId> = old.filter(|peer| wanted.is_old(*peer)).collect();
    old.sort_by_key(|peer| (standing.active.contains(peer), *peer));
    old.into_iter()
}

fn removed_learner(wanted: &WantedPeers, members: &Membership) -> Option<Vec<Change>> {
    let mut learners = members.learners.iter();
    let old = learners.find(|peer| wanted.is_old(**peer))?;
    Some(vec![Change::Remove(*old)])
}

fn new_learner(wanted: &WantedPeers, members: &Membership) -> Option<Vec<Change>> {
    let new = wanted.ready().find(|peer| !members.contains(*peer))?;
    Some(vec![Change::AddLearner(new)])
}

/// Returns a change that removes all surplus voters at once: one by one might leave those that do
/// not answer.
fn removal(wanted: &WantedPeers, members: &Membership, standing: &Standing) -> Option<Vec<Change>> {
    let too_many = members.voters.len().saturating_sub(wanted.replicas);
    let old = leaving(wanted, members, standing).take(too_many.min(MOST_CHANGES));
    let changes: Vec<Change> = old.map(Change::Remove).collect();
    (!changes.is_empty()).then_some(changes)
}

fn voters_after(members: &Membership, changes: &[Change]) -> Vec<PeerId> {
    let mut voters = members.voters.clone();
    for change in changes {
        match change {
            Change::AddLearner(_) => {}
            Change::Promote(peer) => voters.push(*peer),
            Change::Remove(peer) => voters.retain(|voter| voter != peer),
        }
    }
    voters
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peers(ids: &[u64]) -> Vec<PeerId> {
        ids.iter().copied().map(PeerId).collect()
    }

    fn wanted(ids: &[u64], replicas: usize) -> WantedPeers {
        let ready = |peer| WantedPeer {
            peer,
            is_ready: true,
            may_lead: true,
        };
        WantedPeers {
            peers: peers(ids).into_iter().map(ready).collect(),
            replicas,
            next_peer: PeerId(10),
        }
    }

    fn members(voters: &[u64], learners: &[u64]) -> Membership {
        Membership {
            learners: peers(learners),
            ..Membership::founders(&peers(voters))
        }
    }

    fn standing(ids: &[u64]) -> Standing {
        Standing {
            active: peers(ids),
            close: peers(ids),
        }
    }

    use Change::{AddLearner, Promote, Remove};

    #[test]
    fn a_new_peer_replaces_an_old_one_in_one_change() {
        let to = wanted(&[1, 2, 4], 3);
        let all = standing(&[1, 2, 3, 4]);
        let next = |members: &Membership, standing: &Standing| next_change(&to, members, standing);
        let added = next(&members(&[1, 2, 3], &[]), &all);
        assert_eq!(added, Some(vec![AddLearner(PeerId(4))]));
        let behind = standing(&[1, 2, 3]);
        assert_eq!(next(&members(&[1, 2, 3], &[4]), &behind), None);
        let swapped = next(&members(&[1, 2, 3], &[4]), &all);
        assert_eq!(swapped, Some(vec![Promote(PeerId(4)), Remove(PeerId(3))]));
        assert_eq!(next(&members(&[1, 2, 4], &[]), &all), None);
        let joint = Membership {
            outgoing: peers(&[1, 2, 3]),
            ..members(&[1, 2, 4], &[])
        };
        assert_eq!(next(&joint, &all), None);
    }

    #[test]
    fn a_leader_that_is_to_leave_hands_over_first() {
        let step = |me: u64, to: &WantedPeers, of: &Membership, answering: &[u64]| {
            next_step(PeerId(me), to, of, &standing(answering))
        };
        let (to, of) = (wanted(&[2, 3, 4], 3), members(&[1, 2, 3], &[4]));
        let all = [1, 2, 3, 4];
        let swap = SteeringStep::Change(vec![Promote(PeerId(4)), Remove(PeerId(1))]);
        assert_eq!(
            step(1, &to, &of, &all),
            Some(SteeringStep::HandOver(PeerId(2)))
        );
        assert_eq!(step(2, &to, &of, &all), Some(swap));
        // No remaining peer can lead.
        assert_eq!(step(1, &to, &of, &[1, 4]), None, "no majority either");
        // The remaining leader first reaches the desired membership, and then hands over.
        let (to, of) = (wanted(&[1, 2, 3], 3), members(&[1, 2, 3, 4], &[]));
        let removal = SteeringStep::Change(vec![Remove(PeerId(4))]);
        assert_eq!(step(3, &to, &of, &all), Some(removal));
        let of = members(&[1, 2, 3], &[]);
        assert_eq!(
            step(3, &to, &of, &all),
            Some(SteeringStep::HandOver(PeerId(1)))
        );
    }

    #[test]
    fn a_lone_voter_hands_over_before_it_leaves() {
        let (to, all) = (wanted(&[4], 1), standing(&[1, 4]));
        let step = |me: u64, of: &Membership| next_step(PeerId(me), &to, of, &all);
        let promoted = SteeringStep::Change(vec![Promote(PeerId(4))]);
        assert_eq!(step(1, &members(&[1], &[4])), Some(promoted));
        let both = members(&[1, 4], &[]);
        assert_eq!(step(1, &both), Some(SteeringStep::HandOver(PeerId(4))));
        let removed = SteeringStep::Change(vec![Remove(PeerId(1))]);
        assert_eq!(step(4, &both), Some(removed));
        assert_eq!(step(4, &members(&[4], &[])), None);
        let silent = standing(&[1]);
        let of = members(&[1], &[4]);
        assert_eq!(next_step(PeerId(1), &to, &of, &silent), None);
    }

    #[test]
    fn a_peer_that_is_not_ready_is_not_added() {
        let mut to = wanted(&[1, 2, 4], 3);
        to.peers[2].is_ready = false;
        let all = standing(&[1, 2, 3, 4]);
        assert_eq!(next_change(&to, &members(&[1, 2, 3], &[]), &all), None);
        assert_eq!(next_change(&to, &members(&[1, 2, 3], &[4]), &all), None);
    }

    #[test]
    fn no_voter_leaves_without_a_successor_unless_there_are_too_many() {
        let all = standing(&[1, 2, 3, 4, 5]);
        let few = next_change(&wanted(&[1, 2], 3), &members(&[1, 2, 3], &[]), &all);
        assert_eq!(few, None);
        let down = next_change(
            &wanted(&[1, 2, 3], 3),
            &members(&[1, 2, 3, 4, 5], &[]),
            &all,
        );
        assert_eq!(down, Some(vec![Remove(PeerId(4)), Remove(PeerId(5))]));
        let to_one = next_change(&wanted(&[2], 1), &members(&[1, 2, 3], &[]), &all);
        assert_eq!(to_one, Some(vec![Remove(PeerId(1)), Remove(PeerId(3))]));
        let learner = next_change(&wanted(&[1, 2, 3], 3), &members(&[1, 2, 3], &[6]), &all);
        assert_eq!(learner, Some(vec![Remove(PeerId(6))]));
    }

    #[test]
    fn no_change_leaves_a_group_without_a_majority() {
        let two = standing(&[4, 5, 1]);
        let down = next_change(
            &wanted(&[1, 2, 3], 3),
            &members(&[1, 2, 3, 4, 5], &[]),
            &two,
        );
        assert_eq!(down, None);
        // The peer that does not answer leaves first.
        let to = wanted(&[1, 4, 5], 3);
        let change = next_change(&to, &members(&[1, 2, 3], &[4, 5]), &standing(&[1, 2, 4]));
        assert_eq!(change, Some(vec![Promote(PeerId(4)), Remove(PeerId(3))]));
        let alone = standing(&[2, 4]);
        let to = wanted(&[2, 3, 4], 3);
        let change = next_change(&to, &members(&[1, 2, 3], &[4]), &alone);
        assert_eq!(change, Some(vec![Promote(PeerId(4)), Remove(PeerId(1))]));
    }

    #[test]
    fn peers_named_by_a_newer_catalog_stay() {
        let all = standing(&[1, 2, 3, 12]);
        let to = wanted(&[1, 2, 3], 3);
        assert_eq!(next_change(&to, &members(&[1, 2, 3], &[12]), &all), None);
        assert_eq!(next_change(&to, &members(&[1, 2, 3, 12], &[]), &all), None);
        let change = next_change(&to, &members(&[1, 2, 12], &[3]), &all);
        assert_eq!(change, None);
    }

    #[test]
    fn replicas_are_added_one_at_a_time() {
        let all = standing(&[1, 2, 3]);
        let to = wanted(&[1, 2, 3], 3);
        let next = |members: &Membership| next_change(&to, members, &all);
        assert_eq!(next(&members(&[1], &[])), Some(vec![AddLearner(PeerId(2))]));
        assert_eq!(
            next(&members(&[1], &[2, 3])),
            Some(vec![Promote(PeerId(2))])
        );
        assert_eq!(
            next(&members(&[1, 2], &[3])),
            Some(vec![Promote(PeerId(3))])
        );
    }

    #[test]
    fn the_first_available_desired_replica_leads() {
        let of = members(&[1, 2, 3], &[]);
        let lead = |me: u64, to: &[u64], active: &[u64]| {
            next_leader(PeerId(me), &wanted(to, 3), &of, &standing(active))
        };
        assert_eq!(lead(2, &[1, 2, 3], &[1, 2, 3]), Some(PeerId(1)));
        assert_eq!(lead(1, &[1, 2, 3], &[1, 2, 3]), None);
        assert_eq!(lead(2, &[1, 2, 3], &[2, 3]), None, "peer 1 does not answer");
        assert_eq!(lead(2, &[4, 1, 2], &[1, 2, 3]), Some(PeerId(1)));
        assert_eq!(
            lead(3, &[1, 2, 4], &[2, 3]),
            Some(PeerId(2)),
            "peer 3 leaves"
        );

        let mut to = wanted(&[1, 2, 3], 3);
        to.peers[0].may_lead = false;
        let all = standing(&[1, 2, 3]);
        let lead = |me: u64, standing: &Standing| next_leader(PeerId(me), &to, &of, standing);
        assert_eq!(lead(1, &all), Some(PeerId(2)), "peer 1 is being stopped");
        assert_eq!(lead(1, &standing(&[1, 3])), Some(PeerId(3)));
        assert_eq!(lead(3, &all), Some(PeerId(2)), "peer 1 does not lead again");
        assert_eq!(lead(2, &all), None);
    }
}
