//! Partitions of live tables that are being cut in two.
//!
//! First the partition's entry names the half that is to come, with a group and peers of its own,
//! on the nodes that have the partition's: so all of them know of these peers before any of them
//! can be there. Then the group's log cuts it, and when somebody has such a peer the map names two
//! partitions. Until then nobody is led to the right half, and the group's peers stay as they are.

use forebay_engine::{Bound, Bounds, PartitionId};
use forebay_host::cut_place;
use forebay_replica::{GroupId, SplitEntry};

use crate::ids::NodeId;

use super::groups::{CutFrom, GroupEntry, PeerEntry, PeerState, PlannedHalf};

/// What a half is to be.
#[derive(Debug, Clone, Copy)]
pub struct HalfIds {
    pub partition: PartitionId,
    pub group: GroupId,
    /// The coordinator's, and the revision that it makes.
    pub term: u64,
    pub revision: u64,
}

impl PlannedHalf {
    /// Where the partition is cut.
    pub fn at(&self) -> &Bound {
        &self.half.bounds.lower
    }

    /// As the group's log has it.
    pub fn entry(&self) -> SplitEntry {
        SplitEntry {
            at: cut_place(self.at()),
            partition: self.half.partition.0,
            group: self.half.group,
            planned_in: self.revision,
            peers: self
                .half
                .cut_from
                .clone()
                .map_or_else(Vec::new, |from| from.peers),
        }
    }
}

impl GroupEntry {
    /// Plans a cut. Of the half that is to come the peer on the node `first` stands for election
    /// first: who leads the whole leads it then, too, and finds commands that are on their way.
    /// REQUIRES: the place lies within the partition, and its peers are settled.
    pub fn plan_half(&mut self, at: Bound, first: Option<NodeId>, ids: HalfIds) {
        debug_assert!(
            self.bounds.holds(&at) && self.bounds.lower < at && self.splits_off.is_none(),
            "group {}, which goes {}, cannot be cut at {at}",
            self.group,
            self.bounds
        );
        debug_assert!(
            self.peers.iter().all(|peer| peer.state == PeerState::Made),
            "the replicas of group {} are not settled: {:?}",
            self.group,
            self.peers
        );
        let bounds = Bounds {
            lower: at,
            upper: self.bounds.upper.clone(),
        };
        let mut half = Self::founded(ids.group, ids.partition, bounds, &[], ids.term);
        half.epoch = self.epoch + 1;
        let mut voters: Vec<PeerEntry> = self.staying().copied().collect();
        voters.sort_by_key(|peer| (Some(peer.node) != first, peer.peer));
        let mut peers = Vec::new();
        for voter in voters {
            let peer = half.add_peer(voter.node, ids.term);
            half.founders.push(peer);
            peers.push((voter.peer, peer));
        }
        peers.sort_unstable();
        half.cut_from = Some(CutFrom {
            group: self.group,
            peers,
        });
        // They run as soon as they are there: where one is gone then, it forgot.
        let all = half.peers.iter_mut();
        all.for_each(|peer| peer.state = PeerState::Made);
        self.splits_off = Some(PlannedHalf {
            revision: ids.revision,
            half: Box::new(half),
        });
    }

    /// Takes the planned half off, which is another entry from now on.
    pub fn cut_half(&mut self) -> Option<GroupEntry> {
        let half = *self.splits_off.take()?.half;
        self.bounds.upper = Some(half.bounds.lower.clone());
        self.epoch += 1;
        Some(half)
    }
}
