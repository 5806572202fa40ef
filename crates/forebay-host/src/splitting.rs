//! Splits a partition when an entry of its group's log says so.
//!
//! Each replica does the following, in this order: it writes where the logs of the children's
//! groups begin, records its peers in these groups, and splits the partition in one manifest. After
//! a crash before the manifest, the partition is whole, and the entry is applied again. The
//! children do not run before, so they have promised nothing, and their logs may begin again. After
//! a crash afterwards, all parts are in place.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use forebay_engine::live::{DecidedEntry, SplitChild};
use forebay_engine::{Bound, PartitionId};
use forebay_replica::{
    ChildGroup, FOUNDED, GroupId, Membership, Promise, SnapshotFacts, SplitEntry,
};

use crate::environment::{ChildReplica, StateError, WriteError};
use crate::partition_state::{PartitionState, of_this_machine, place_of};
use crate::replica_log::{EngineLog, entry_place};

/// Encodes a split point for entries: 0 and a slot (u16), or 1 and a key.
pub fn encode_split_point(at: &Bound) -> Bytes {
    let mut out = BytesMut::new();
    match at {
        Bound::Slot(slot) => {
            out.put_u8(0);
            out.put_u16_le(*slot);
        }
        Bound::Key(key) => {
            out.put_u8(1);
            out.put_slice(key);
        }
    }
    out.freeze()
}

fn bound_of(bytes: &[u8]) -> Option<Bound> {
    match bytes {
        [0, low, high] => Some(Bound::Slot(u16::from_le_bytes([*low, *high]))),
        [1, key @ ..] => Some(Bound::Key(key.to_vec())),
        _ => None,
    }
}

impl EngineLog {
    /// Begins the log of a child's group. Removes what the log had of it.
    pub fn begin_child(&self, group: GroupId) -> Result<(), WriteError> {
        let promise = Promise {
            term: FOUNDED.term,
            vote: None,
            committed: FOUNDED.index,
        };
        self.forget(group)?;
        self.begin(group, entry_place(FOUNDED), &promise.to_bytes())
    }
}

impl PartitionState {
    /// Splits the partition, unless the entry is for other members, or the partition was split
    /// there before.
    pub(crate) fn apply_split(
        &self,
        decided: &DecidedEntry,
        facts: &SnapshotFacts,
        split: &SplitEntry,
    ) -> Result<(), StateError> {
        let (table, id) = (self.table(), self.partition());
        let children: Option<Vec<SplitChild>> = split.children.iter().map(child_of).collect();
        let children = children.filter(|_| split.is_for(&facts.membership));
        let lie_within = |children: &Vec<SplitChild>| {
            let points = children.iter().map(|child| &child.from);
            table.can_split(id, points).map_err(of_this_machine)
        };
        let children = match children {
            Some(children) if lie_within(&children)? => children,
            _ => return table.pass(id, decided).map_err(of_this_machine),
        };
        if let Some((me, replicas)) = self.children()
            && let Some(peers) = split.peers_of(*me)
        {
            let of_here: Vec<ChildReplica> = split
                .children
                .iter()
                .zip(peers)
                .map(|(child, peer)| ChildReplica {
                    partition: PartitionId(child.partition),
                    group: child.group,
                    peer,
                    planned_in: split.planned_in,
                })
                .collect();
            replicas.begin(&of_here)?;
        }
        let done = table.split_by(id, decided, &children);
        done.map(|_| ()).map_err(of_this_machine)
    }
}

/// Returns `None` if the split point is invalid.
fn child_of(child: &ChildGroup) -> Option<SplitChild> {
    let founders = child.founders();
    debug_assert!(
        founders.is_sorted_by(|one, next| one < next),
        "two replicas of group {} would be one peer: {founders:?}",
        child.group
    );
    let place = place_of(&SnapshotFacts {
        place: FOUNDED,
        membership: Arc::new(Membership::founders(&founders)),
        stamp_ms: 0,
    });
    Some(SplitChild {
        from: bound_of(&child.from)?,
        id: PartitionId(child.partition),
        place: Some(place),
    })
}

/// Returns whether an entry splits a partition at or after its end.
pub(crate) fn splits_at_or_behind(split: &SplitEntry, end: Option<&Bound>) -> bool {
    let first = split.children.first();
    let at = first.and_then(|child| bound_of(&child.from));
    at.is_some_and(|at| end.is_some_and(|end| *end <= at))
}
