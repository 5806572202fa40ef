//! The members of a group.

use bytes::{BufMut, Bytes, BytesMut};
use raft::eraftpb::{
    ConfChangeSingle, ConfChangeTransition, ConfChangeType, ConfChangeV2, ConfState,
};

use serde::{Deserialize, Serialize};

use crate::bytes_of::{CodecError, Reader};
use crate::ids::PeerId;

/// The most peers in each list of a group.
const MOST_PEERS: usize = 64;

/// A group's peers. While `outgoing` is not empty, the group changes from one set of voters to
/// another, and each decision needs a majority of both.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Membership {
    pub voters: Vec<PeerId>,
    /// Peers that receive the log and do not vote.
    pub learners: Vec<PeerId>,
    pub outgoing: Vec<PeerId>,
    /// Outgoing voters that become learners.
    pub learners_next: Vec<PeerId>,
}

/// A step of a change that the coordinator asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    AddLearner(PeerId),
    /// REQUIRES: the peer is a learner, and lacks few entries of the leader's log.
    Promote(PeerId),
    Remove(PeerId),
}

impl Membership {
    /// Returns the members of a group that these peers found.
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

    fn lists(&self) -> [&Vec<PeerId>; 4] {
        let Self {
            voters,
            learners,
            outgoing,
            learners_next,
        } = self;
        [voters, learners, outgoing, learners_next]
    }

    /// Encodes four lists: voters, learners, outgoing voters and next learners, each as a count
    /// (u32) and peers (u64).
    pub fn to_bytes(&self) -> Bytes {
        let mut out = BytesMut::new();
        for peers in self.lists() {
            out.put_u32_le(peers.len() as u32);
            peers.iter().for_each(|peer| out.put_u64_le(peer.0));
        }
        out.freeze()
    }

    pub fn from_bytes(bytes: Bytes) -> Result<Self, CodecError> {
        let mut reader = Reader::new(bytes);
        let mut peers = || {
            let count = reader.count("peers of a group", MOST_PEERS)?;
            let peers = (0..count).map(|_| reader.u64().map(PeerId));
            peers.collect::<Result<Vec<_>, _>>()
        };
        let membership = Self {
            voters: peers()?,
            learners: peers()?,
            outgoing: peers()?,
            learners_next: peers()?,
        };
        reader.end()?;
        Ok(membership)
    }

    /// Returns whether the library accepts the configuration.
    pub(crate) fn is_sound(&self) -> bool {
        let is_once = |peers: &[PeerId]| peers.windows(2).all(|two| two[0] < two[1]);
        let lists = self.lists();
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
        // The library leaves a joint configuration by itself: no caller has to remember it.
        state.set_auto_leave(self.is_joint());
        state
    }
}

/// Encodes changes. Without changes, the result ends a joint configuration.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_read_as_they_are_written() {
        let joint = Membership {
            voters: vec![PeerId(1), PeerId(9)],
            learners: vec![PeerId(4)],
            outgoing: vec![PeerId(1), PeerId(2)],
            learners_next: Vec::new(),
        };
        for members in [Membership::default(), joint] {
            let bytes = members.to_bytes();
            assert_eq!(Membership::from_bytes(bytes.clone()), Ok(members));
            for len in 0..bytes.len() {
                assert!(Membership::from_bytes(bytes.slice(..len)).is_err());
            }
        }
        let many = Bytes::from_static(&[255; 40]);
        assert!(matches!(
            Membership::from_bytes(many),
            Err(CodecError::TooMany { .. })
        ));
    }
}
