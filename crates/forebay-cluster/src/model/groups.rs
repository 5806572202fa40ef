//! The groups of live tables: one Raft group for each partition, and the nodes for its replicas.
//!
//! The catalog has the desired members of a group. The actual members are in the group's own
//! configuration. No number is used twice. Each new coordinator starts its numbers in a new, much
//! higher range. So even a catalog that was restored from an old backup does not repeat a number.

use forebay_engine::{Bounds, PartitionId};
use forebay_replica::{GroupId, PeerId};
use serde::{Deserialize, Serialize};

use super::doc::{Doc, DocRef};
use crate::ids::NodeId;

/// The number of groups in one document.
const PAGE_GROUPS: usize = 64;
/// The bits for the numbers that one coordinator can assign. The term is above them.
const TERM_BITS: u32 = 20;

/// The groups of a table: a root document, and the documents of its partitions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TableGroups {
    pages: Vec<Doc<GroupsPage>>,
    root: Option<DocRef>,
}

/// The content of the root document of a table's groups.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupsRoot {
    pub pages: Vec<DocRef>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupsPage {
    pub groups: Vec<GroupEntry>,
}

/// A partition of a live table, and its group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupEntry {
    pub partition: PartitionId,
    pub bounds: Bounds,
    /// Rises when the partition's bounds change.
    pub epoch: u64,
    pub group: GroupId,
    /// The voters with which the group is founded. Each founds it by itself. All later peers join.
    pub founders: Vec<PeerId>,
    pub peers: Vec<PeerEntry>,
    pub next_peer: PeerId,
    /// The newest term of a leader whose report changed this entry.
    pub term: u64,
    /// The replica of another group with which the only founder begins, after
    /// [`GroupEntry::succeed`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inherits: Option<InheritedReplica>,
    /// The group from which this one was split off. Its voters became the founders.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split_from: Option<SplitFrom>,
    /// The split under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<PlannedSplit>,
}

/// The origin of the founders of a group that was split off another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SplitFrom {
    pub group: GroupId,
    /// The other group's voters, in rising order, each with the peer on its node in this group.
    pub peers: Vec<(PeerId, PeerId)>,
}

/// The planned split of a partition: the children beside the range that it keeps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedSplit {
    /// The first revision that contains the plan.
    pub revision: u64,
    /// The entries of the children after the split, in the order of their bounds. There is at least
    /// one.
    pub children: Vec<GroupEntry>,
}

/// A replica of a group that lost its majority for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InheritedReplica {
    pub group: GroupId,
    pub peer: PeerId,
}

/// A replica of a group, and the node that it is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeerEntry {
    pub peer: PeerId,
    pub node: NodeId,
    pub state: PeerState,
    /// The replica found damage. It stays until its group has a majority without it, and does not
    /// lead in the meantime.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_unhealthy: bool,
}

/// The state of a replica in its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PeerState {
    /// The node must create the replica, empty. The replica has promised nothing yet.
    New,
    /// The replica exists and runs. If its files are missing, it has lost its promises.
    Made,
    /// The replica runs until its group works without it.
    Leaving,
    /// The replica lost its promises, is damaged, or never existed. It never runs again, and its
    /// files can be removed.
    Lost,
}

impl PeerState {
    /// Returns whether the replica is to belong to the group.
    pub fn stays(self) -> bool {
        matches!(self, PeerState::New | PeerState::Made)
    }
}

/// Returns a number that no coordinator has used, for a coordinator of this term.
pub fn fresh_id(next: u64, term: u64) -> u64 {
    next.max(term.saturating_mul(1 << TERM_BITS)).max(1)
}

impl GroupEntry {
    /// Creates a group that its founders on these nodes are to found.
    pub fn founded(
        group: GroupId,
        partition: PartitionId,
        bounds: Bounds,
        nodes: &[NodeId],
        term: u64,
    ) -> Self {
        let mut entry = Self {
            partition,
            bounds,
            epoch: 1,
            group,
            founders: Vec::new(),
            peers: Vec::new(),
            next_peer: PeerId(1),
            term: 0,
            inherits: None,
            split_from: None,
            split: None,
        };
        for node in nodes {
            let peer = entry.add_peer(*node, term);
            entry.founders.push(peer);
        }
        entry
    }

    /// Creates the group that replaces this one. One replica of this group founds it alone, with
    /// the data that it has. No peer of this group belongs to the new one.
    pub fn succeed(&self, group: GroupId, by: PeerEntry, term: u64) -> Self {
        let (partition, bounds) = (self.partition, self.bounds.clone());
        let founded = Self::founded(group, partition, bounds, &[by.node], term);
        Self {
            epoch: self.epoch,
            inherits: Some(InheritedReplica {
                group: self.group,
                peer: by.peer,
            }),
            ..founded
        }
    }

    /// Adds a peer, for a coordinator of this term.
    pub fn add_peer(&mut self, node: NodeId, term: u64) -> PeerId {
        debug_assert!(
            self.staying().all(|entry| entry.node != node),
            "node {node} has a replica of group {} already",
            self.group
        );
        let peer = PeerId(fresh_id(self.next_peer.0, term));
        self.next_peer = PeerId(peer.0 + 1);
        self.peers.push(PeerEntry {
            peer,
            node,
            state: PeerState::New,
            is_unhealthy: false,
        });
        peer
    }

    pub fn peer(&self, peer: PeerId) -> Option<&PeerEntry> {
        self.peers.iter().find(|entry| entry.peer == peer)
    }

    /// Returns the peers that are to belong to the group.
    pub fn staying(&self) -> impl Iterator<Item = &PeerEntry> {
        self.peers.iter().filter(|entry| entry.state.stays())
    }
}

impl TableGroups {
    /// Creates the groups of a table. REQUIRES: the groups rise by the bounds of their partitions.
    pub fn new(groups: &[GroupEntry]) -> Self {
        let pages = groups.chunks(PAGE_GROUPS).map(|groups| {
            let groups = groups.to_vec();
            Doc::new(GroupsPage { groups })
        });
        Self {
            pages: pages.collect(),
            root: None,
        }
    }

    pub fn count(&self) -> usize {
        self.pages.iter().map(|page| page.groups.len()).sum()
    }

    pub fn all(&self) -> impl Iterator<Item = &GroupEntry> + Clone {
        self.pages.iter().flat_map(|page| &page.groups)
    }

    /// Replaces the entry of a group of this table. Only its page is written again.
    pub fn put(&mut self, entry: GroupEntry) {
        self.replace(entry.group, entry);
    }

    /// Replaces one group with another.
    pub fn replace(&mut self, group: GroupId, entry: GroupEntry) {
        for page in &mut self.pages {
            let mut groups = page.groups.iter();
            let Some(at) = groups.position(|known| known.group == group) else {
                continue;
            };
            if page.groups[at] != entry {
                page.edit().groups[at] = entry;
                self.root = None;
            }
            return;
        }
    }

    /// Inserts a group after another one.
    pub fn put_behind(&mut self, group: GroupId, entry: GroupEntry) {
        for number in 0..self.pages.len() {
            let mut groups = self.pages[number].groups.iter();
            let Some(at) = groups.position(|known| known.group == group) else {
                continue;
            };
            let page = self.pages[number].edit();
            page.groups.insert(at + 1, entry);
            if page.groups.len() > 2 * PAGE_GROUPS {
                let groups = page.groups.split_off(PAGE_GROUPS);
                let rest = Doc::new(GroupsPage { groups });
                self.pages.insert(number + 1, rest);
            }
            self.root = None;
            return;
        }
    }

    /// Creates the groups from documents that were read.
    pub fn read(root: DocRef, pages: Vec<Doc<GroupsPage>>) -> Self {
        Self {
            pages,
            root: Some(root),
        }
    }

    pub fn root(&self) -> Option<&DocRef> {
        self.root.as_ref()
    }

    pub fn pages(&self) -> &[Doc<GroupsPage>] {
        &self.pages
    }

    pub(super) fn pages_mut(&mut self) -> &mut [Doc<GroupsPage>] {
        &mut self.pages
    }

    pub(super) fn root_written(&mut self, reference: DocRef) {
        self.root = Some(reference);
    }
}

#[cfg(test)]
mod tests {
    use forebay_engine::Bound;

    use super::*;

    fn entry(at: u64) -> GroupEntry {
        let bounds = Bounds {
            lower: Bound::Slot(at as u16),
            upper: Some(Bound::Slot(at as u16 + 1)),
        };
        let nodes = [NodeId(1), NodeId(2), NodeId(3)];
        GroupEntry::founded(GroupId(at + 1), PartitionId(at as u32), bounds, &nodes, 3)
    }

    #[test]
    fn no_coordinator_reuses_a_peer_number() {
        let mut group = entry(0);
        assert_eq!(
            group.founders,
            [0, 1, 2].map(|at| PeerId((3 << TERM_BITS) + at))
        );
        let before = group.clone();
        let joined = group.add_peer(NodeId(4), 3);
        assert!(!group.founders.contains(&joined));
        // A catalog that was restored to an earlier state has a later term.
        let mut restored = before;
        let other = restored.add_peer(NodeId(5), 4);
        assert!(other > joined);
        assert_eq!(fresh_id(1, 0), 1);
        assert_eq!(fresh_id(0, 0), 1);
    }

    #[test]
    fn a_change_of_a_group_writes_its_page_only() {
        let groups: Vec<GroupEntry> = (0..200).map(entry).collect();
        let mut table = TableGroups::new(&groups);
        assert_eq!(table.pages().len(), 4);
        for (at, page) in table.pages_mut().iter_mut().enumerate() {
            page.written(DocRef::new(&at.to_string()));
        }
        table.root_written(DocRef::new("root"));
        table.put(groups[70].clone());
        assert!(table.root().is_some(), "nothing changed");
        let mut changed = groups[70].clone();
        changed.peers[0].state = PeerState::Made;
        table.put(changed.clone());
        let written = table.pages().iter().map(|page| page.reference().is_some());
        assert_eq!(written.collect::<Vec<_>>(), [true, false, true, true]);
        assert_eq!(table.root(), None);
        assert_eq!(table.all().nth(70), Some(&changed));
        assert_eq!(table.all().count(), 200);
    }
}
