//! Who belongs to a group.

use raft::eraftpb::{
    ConfChangeSingle, ConfChangeTransition, ConfChangeType, ConfChangeV2, ConfState,
};

use crate::ids::PeerId;

/// A group's peers. While `outgoing` is not empty the group goes from one set of voters to another,
/// and whatever is decided needs a majority of both.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Membership {
    pub voters: Vec<PeerId>,
    /// They get the log, and do not vote.
    pub learners: Vec<PeerId>,
    pub outgoing: Vec<PeerId>,
    /// Outgoing voters that become learners.
    pub learners_next: Vec<PeerId>,
}

/// A step of a change that the coordinator asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    AddLearner(PeerId),
    /// REQUIRES: the peer is a learner, and close behind the leader.
    Promote(PeerId),
    Remove(PeerId),
}

impl Membership {
    /// The peers that a group is founded with.
    pub fn founders(voters: &[PeerId]) -> Self {
        Self {
            voters: voters.to_vec(),
            ..Self::default()
        }
    }

    pub fn is_joint(&self) -> bool {
        !self.outgoing.is_empty()
    }

    pub fn contains(&self, peer: PeerId) -> bool {
        let all = [&self.voters, &self.learners, &self.outgoing];
        all.iter().any(|peers| peers.contains(&peer))
    }

    /// Whether the library can take it.
    pub(crate) fn is_sound(&self) -> bool {
        let is_once = |peers: &[PeerId]| peers.windows(2).all(|two| two[0] < two[1]);
        let lists = [
            &self.voters,
            &self.learners,
            &self.outgoing,
            &self.learners_next,
        ];
        let has_nobody = lists.iter().any(|peers| peers.contains(&PeerId(0)));
        let is_voter = |peer: &PeerId| self.voters.contains(peer) || self.outgoing.contains(peer);
        let leaves = |peer: &PeerId| self.outgoing.contains(peer) && !self.voters.contains(peer);
        lists.iter().all(|peers| is_once(peers))
            && !has_nobody
            && !self.voters.is_empty()
            && !self.learners.iter().any(is_voter)
            && self.learners_next.iter().all(leaves)
    }

    pub(crate) fn of(state: &ConfState) -> Self {
        let sorted = |ids: &[u64]| {
            let mut peers: Vec<_> = ids.iter().map(|id| PeerId(*id)).collect();
            peers.sort();
            peers
        };
        Self {
            voters: sorted(state.get_voters()),
            learners: sorted(state.get_learners()),
            outgoing: sorted(state.get_voters_outgoing()),
            learners_next: sorted(state.get_learners_next()),
        }
    }

    pub(crate) fn to_raft(&self) -> ConfState {
        let ids = |peers: &[PeerId]| peers.iter().map(|peer| peer.0).collect();
        let mut state = ConfState::default();
        state.set_voters(ids(&self.voters));
        state.set_learners(ids(&self.learners));
        state.set_voters_outgoing(ids(&self.outgoing));
        state.set_learners_next(ids(&self.learners_next));
        // The library leaves a joint configuration by itself: nobody else has to remember it.
        state.set_auto_leave(self.is_joint());
        state
    }
}

/// Without changes: the end of a joint configuration.
pub(crate) fn to_raft(changes: &[Change]) -> ConfChangeV2 {
    let single = |change: &Change| {
        let (kind, peer) = match change {
            Change::AddLearner(peer) => (ConfChangeType::AddLearnerNode, peer),
            Change::Promote(peer) => (ConfChangeType::AddNode, peer),
            Change::Remove(peer) => (ConfChangeType::RemoveNode, peer),
        };
        let mut single = ConfChangeSingle::default();
        single.set_change_type(kind);
        single.set_node_id(peer.0);
        single
    };
    let mut change = ConfChangeV2::default();
    if changes.len() > 1 {
        change.set_transition(ConfChangeTransition::Implicit);
    }
    change.set_changes(changes.iter().map(single).collect::<Vec<_>>().into());
    change
}
