//! Splits of live tables' partitions that are under way.
//!
//! First the partition's entry names the future children, with their own groups and peers on the
//! partition's nodes. So every node knows of these peers before any of them can exist. Then the
//! group's log decides the split. Once a node has such a peer, the map names the children. Until
//! then no request is routed to them, and the group's membership does not change.

use forebay_engine::{Bound, Bounds, PartitionId};
use forebay_host::encode_split_point;
use forebay_replica::{ChildGroup, GroupId, PeerId, SplitEntry};

use crate::ids::NodeId;

use super::groups::{GroupEntry, PeerEntry, PeerState, PlannedSplit, SplitFrom};

/// The numbers for the children of a split.
#[derive(Debug, Clone, Copy)]
pub struct ChildIds {
    /// The number of the first child. The other children have the following numbers.
    pub partition: PartitionId,
    pub group: GroupId,
    /// The coordinator's term, and the revision that it writes.
    pub term: u64,
    pub revision: u64,
}

impl PlannedSplit {
    /// Returns the split points.
    pub fn points(&self) -> impl Iterator<Item = &Bound> {
        self.children.iter().map(|child| &child.bounds.lower)
    }

    /// Returns the entry for the group's log.
    pub fn entry(&self) -> SplitEntry {
        let from = |child: &GroupEntry| {
            child
                .split_from
                .clone()
                .map_or_else(Vec::new, |it| it.peers)
        };
        let voters = self.children.first().map_or_else(Vec::new, from);
        SplitEntry {
            planned_in: self.revision,
            voters: voters.into_iter().map(|(voter, _)| voter).collect(),
            children: (self.children.iter())
                .map(|child| ChildGroup {
                    from: encode_split_point(&child.bounds.lower),
                    partition: child.partition.0,
                    group: child.group,
                    peers: from(child).into_iter().map(|(_, peer)| peer).collect(),
                })
                .collect(),
        }
    }
}

impl GroupEntry {
    /// Plans a split at points that rise. In each child the peer on the node `first` is the first
    /// candidate for election. So the parent's leader also leads the children, and commands in
    /// flight find it.
    ///
    /// REQUIRES: the points are within the partition, and its peers are settled.
    pub fn plan_split(&mut self, points: &[Bound], first: Option<NodeId>, ids: ChildIds) {
        debug_assert!(
            points.is_sorted_by(|one, next| one < next)
                && points
                    .iter()
                    .all(|at| self.bounds.holds(at) && self.bounds.lower < *at)
                && self.split.is_none(),
            "group {}, which goes {}, cannot be split at {points:?}",
            self.group,
            self.bounds
        );
        debug_assert!(
            self.peers.iter().all(|peer| peer.state == PeerState::Made),
            "the replicas of group {} are not settled: {:?}",
            self.group,
            self.peers
        );
        let mut voters: Vec<PeerEntry> = self.staying().copied().collect();
        voters.sort_by_key(|peer| (Some(peer.node) != first, peer.peer));
        let uppers = points[1..].iter().cloned().map(Some);
        let uppers = uppers.chain([self.bounds.upper.clone()]);
        let bounds = points.iter().cloned().zip(uppers);
        let children = bounds.enumerate().map(|(number, (lower, upper))| {
            let group = GroupId(ids.group.0 + number as u64);
            let partition = PartitionId(ids.partition.0 + number as u32);
            let bounds = Bounds { lower, upper };
            let child = Self::founded(group, partition, bounds, &[], ids.term);
            self.child(child, &voters, ids.term)
        });
        self.split = Some(PlannedSplit {
            revision: ids.revision,
            children: children.collect(),
        });
    }

    /// Gives a child its founders: a peer for each voter of this group.
    fn child(&self, mut child: Self, voters: &[PeerEntry], term: u64) -> Self {
        child.epoch = self.epoch + 1;
        let mut peers: Vec<(PeerId, PeerId)> = Vec::new();
        for voter in voters {
            let peer = child.add_peer(voter.node, term);
            child.founders.push(peer);
            peers.push((voter.peer, peer));
        }
        peers.sort_unstable();
        child.split_from = Some(SplitFrom {
            group: self.group,
            peers,
        });
        // These peers run as soon as they exist. If one is missing later, it has lost its promises.
        let all = child.peers.iter_mut();
        all.for_each(|peer| peer.state = PeerState::Made);
        child
    }

    /// Removes and returns the planned children, which are entries of their own from now on.
    pub fn take_children(&mut self) -> Vec<GroupEntry> {
        let children = self
            .split
            .take()
            .map_or_else(Vec::new, |split| split.children);
        if let Some(first) = children.first() {
            self.bounds.upper = Some(first.bounds.lower.clone());
            self.epoch += 1;
        }
        children
    }
}
