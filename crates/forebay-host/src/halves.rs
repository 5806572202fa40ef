//! Cutting a partition in two, where an entry of its group's log says so.
//!
//! On each replica, in this order: where the log of the right half's group begins is written, whose
//! peer it is is noted, then the partition is cut, in one manifest. A crash before that leaves the
//! whole, and the entry comes again; the right half does not run before, so it has promised nothing
//! until then, and its log may begin once more. A crash afterwards finds both halves.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use forebay_engine::live::{AppliedPlace, DecidedCut, DecidedEntry};
use forebay_engine::{Bound, PartitionId};
use forebay_replica::{FOUNDED, GroupId, Membership, Promise, SnapshotFacts, SplitEntry};

use crate::outside::{RightHalf, StateError, WriteError};
use crate::partition_state::{PartitionState, of_this_machine, place_of};
use crate::replica_log::{EngineLog, entry_place};

/// A place in a table's order, as entries have it: 0 and a slot (u16), or 1 and a key.
pub fn cut_place(at: &Bound) -> Bytes {
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
    /// Begins the log of a right half's group. What there was of it goes.
    pub fn begin_half(&self, group: GroupId) -> Result<(), WriteError> {
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
    /// Cuts the partition, unless the entry is for other members, or it was cut there before.
    pub(crate) fn apply_split(
        &self,
        decided: &DecidedEntry,
        facts: &SnapshotFacts,
        split: &SplitEntry,
    ) -> Result<(), StateError> {
        let (table, id) = (self.table(), self.partition());
        let at = bound_of(&split.at).filter(|_| split.is_for(&facts.membership));
        let cuts = |at: &Bound| table.cuts(id, at).map_err(of_this_machine);
        let right = PartitionId(split.partition);
        let at = match at {
            Some(at) if cuts(&at)? => at,
            _ => return table.pass(id, decided).map_err(of_this_machine),
        };
        let (me, halves) = match self.halves() {
            Some((me, halves)) => (split.peer_of(*me), Some(halves)),
            None => (None, None),
        };
        if let (Some(peer), Some(halves)) = (me, halves) {
            halves.begin(&RightHalf {
                partition: right,
                group: split.group,
                peer,
                planned_in: split.planned_in,
            })?;
        }
        let cut = DecidedCut {
            at,
            right,
            right_place: founded(split),
        };
        let done = table.split_by(id, decided, &cut);
        done.map(|_| ()).map_err(of_this_machine)
    }
}

fn founded(split: &SplitEntry) -> AppliedPlace {
    debug_assert!(
        split.founders().is_sorted_by(|one, next| one < next),
        "two replicas of group {} would be one peer: {:?}",
        split.group,
        split.peers
    );
    place_of(&SnapshotFacts {
        place: FOUNDED,
        membership: Arc::new(Membership::founders(&split.founders())),
        stamp_ms: 0,
    })
}

/// Whether an entry cuts a partition where it ends, or behind that.
pub(crate) fn cuts_at_or_behind(split: &SplitEntry, end: Option<&Bound>) -> bool {
    let at = bound_of(&split.at);
    at.is_some_and(|at| end.is_some_and(|end| *end <= at))
}
