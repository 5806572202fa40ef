//! The position up to which a partition of a replicated table has applied its log.
//!
//! A replicated table has no log of its own. The entries of its partitions' groups are in one log
//! beside it. Each partition records which entries its state includes: in memory under its lock,
//! and in the manifest for its runs. Both change in one step with the state. After a crash the
//! state is that of the runs, and entries are applied again from there.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

use crate::keys::key_text::{from_hex, to_hex};

/// A position in the log of a partition's group, and the state at that position. Entries are
/// counted from 1; 0 is before all of them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AppliedPlace {
    /// The last fully applied entry: its term, and its number.
    pub term: u64,
    pub index: u64,
    /// The partition's time, in milliseconds since 1970-01-01 UTC: the stamp of the last entry that
    /// was applied in whole or in part, or begun. It never falls.
    pub stamp_ms: u64,
    /// The group's members, in the encoding of the replication layer.
    #[serde(with = "as_hex", default, skip_serializing_if = "is_empty")]
    pub members: Arc<[u8]>,
    /// How many proposals of the next entry are applied.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub done: u32,
    /// The newest load that was added, by its number in the cluster's catalog; 0: none. It never
    /// falls. It moves with the runs of a load, so that no load is added twice.
    #[serde(default, skip_serializing_if = "is_no_load")]
    pub loaded: u64,
}

/// A decided entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecidedEntry {
    /// The place after the entry is fully applied. Its `done` and `loaded` do not count.
    pub place: AppliedPlace,
    /// How many proposals it has; 0 if it has no operations.
    pub proposals: u32,
}

/// The reason why an entry was refused. It changed nothing.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum EntryError {
    #[error("the table is not replicated, and its partitions have no log of a group")]
    NotReplicated,
    #[error(
        "proposal {number} of entry {index} is not the next one: the state has entry {applied}, \
         and {done} proposals of the entry after it"
    )]
    OutOfOrder {
        index: u64,
        number: u32,
        applied: u64,
        done: u32,
    },
    #[error("proposal {number} of entry {index} has written already, and a proposal writes once")]
    SecondWrite { index: u64, number: u32 },
    #[error("entry {index} has {proposals} proposals, and proposal {number} was asked for")]
    NoProposal {
        index: u64,
        proposals: u32,
        number: u32,
    },
    #[error("an entry of another partition's log wrote to it")]
    Elsewhere,
}

impl AppliedPlace {
    /// Returns the position, to be compared with other places of the same log.
    pub fn position(&self) -> (u64, u32) {
        (self.index, self.done)
    }
}

impl DecidedEntry {
    /// Returns whether a proposal of this entry is the next one for a partition at this place.
    pub(crate) fn follows(&self, applied: &AppliedPlace, number: u32) -> bool {
        applied.index.checked_add(1) == Some(self.place.index)
            && applied.done == number
            && applied.term <= self.place.term
    }

    /// Returns the place of a partition whose last applied proposal is this one. REQUIRES: it was
    /// at `before`.
    pub(crate) fn place_after(&self, number: u32, before: &AppliedPlace) -> AppliedPlace {
        debug_assert!(
            self.follows(before, number),
            "proposal {number} of entry {} does not follow {before:?}",
            self.place.index
        );
        let stamp_ms = before.stamp_ms.max(self.place.stamp_ms);
        let after = match number + 1 < self.proposals {
            true => AppliedPlace {
                stamp_ms,
                done: number + 1,
                ..before.clone()
            },
            false => AppliedPlace {
                stamp_ms,
                done: 0,
                loaded: before.loaded,
                ..self.place.clone()
            },
        };
        debug_assert!(
            before.position() < after.position(),
            "a partition goes from {before:?} to {after:?}"
        );
        after
    }
}

fn is_empty(members: &Arc<[u8]>) -> bool {
    members.is_empty()
}

fn is_zero(done: &u32) -> bool {
    *done == 0
}

fn is_no_load(loaded: &u64) -> bool {
    *loaded == 0
}

/// Serializes bytes as pairs of hex digits.
mod as_hex {
    use super::{Arc, Deserialize, Deserializer, Serializer, from_hex, to_hex};

    pub fn serialize<S: Serializer>(bytes: &Arc<[u8]>, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&to_hex(bytes))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Arc<[u8]>, D::Error> {
        let digits = String::deserialize(from)?;
        let bytes = from_hex(&digits).map(Arc::from);
        bytes.ok_or_else(|| serde::de::Error::custom("members are not pairs of hex digits"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(index: u64, done: u32) -> AppliedPlace {
        AppliedPlace {
            term: 2,
            index,
            stamp_ms: 10 * index,
            members: Arc::from(&[1u8, 0xff][..]),
            done,
            loaded: 3,
        }
    }

    #[test]
    fn places_are_read_back_from_json() {
        for place in [AppliedPlace::default(), at(7, 0), at(7, 3)] {
            let text = serde_json::to_string(&place).unwrap();
            assert_eq!(serde_json::from_str::<AppliedPlace>(&text).unwrap(), place);
        }
        let text = serde_json::to_string(&at(7, 3)).unwrap();
        assert!(text.contains("\"01ff\""), "{text}");
        assert!(serde_json::from_str::<AppliedPlace>(&text.replace("01ff", "01f")).is_err());
    }

    #[test]
    fn proposals_are_applied_one_after_the_other() {
        let entry = DecidedEntry {
            place: at(8, 0),
            proposals: 2,
        };
        let before = at(7, 0);
        assert!(entry.follows(&before, 0) && !entry.follows(&before, 1));
        let begun = entry.place_after(0, &before);
        assert_eq!((begun.position(), begun.stamp_ms), ((7, 1), 80));
        assert!(entry.follows(&begun, 1) && !entry.follows(&begun, 0));
        let loaded = AppliedPlace { loaded: 5, ..begun };
        let whole = entry.place_after(1, &loaded);
        assert_eq!(
            whole,
            AppliedPlace {
                loaded: 5,
                ..at(8, 0)
            },
            "an entry does not mention loads"
        );
        assert!(!entry.follows(&whole, 0));
        let older_term = AppliedPlace { term: 3, ..before };
        assert!(!entry.follows(&older_term, 0));
    }
}
