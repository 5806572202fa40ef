//! The content of proposals: what each does to its partition.
//!
//! A leader evaluates commands, and its log has only their effects. So replicas whose programs
//! differ have the same state. The first byte is the kind:
//!
//! | kind | content |
//! | --- | --- |
//! | no bytes | nothing: it only moves the partition's time |
//! | 16 | operations on keys, in the encoding of the log of live tables |
//! | 17 | a load, by its number (u64): each replica adds the run that it has fetched |
//! | 18 | the removal of a range: whether its keys are counted (u8), start, end |
//! | 19 | the removal of all keys |
//!
//! A bound of a range is a byte and, except for 0, a key after its length (u32): 0 for none, 1 for
//! inclusive, 2 for exclusive. A kind that a program does not know is of a newer program: its
//! entry waits. `docs/reference/replica-log-format.md` has the format.

use std::fmt::Debug;
use std::ops::Bound;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use forebay_engine::live::Batch;
use forebay_engine::{PartitionId, RunId, TableName};
use forebay_replica::Refusal;
use thiserror::Error;

// Programs before effects used 1 and 2, for commands and loads.
const OPERATIONS: u8 = 16;
const LOAD: u8 = 17;
const REMOVE_RANGE: u8 = 18;
const REMOVE_ALL: u8 = 19;

/// What a proposal does to its partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Only advances the partition's time.
    AdvanceTime,
    Operations(Batch),
    /// Adds the run of a load, by the load's number.
    Load(u64),
    RemoveRange {
        start: Bound<Vec<u8>>,
        end: Bound<Vec<u8>>,
        /// Whether the answer has the number of removed keys.
        is_counted: bool,
    },
    RemoveAll,
}

/// The answer to an applied proposal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    Done,
    /// The number of removed keys.
    Count(u64),
    /// Nothing was done: the partition lacks some of the keys.
    OtherPartition,
    /// Nothing was done: no replica of the table can store it. Leaders propose no such effect.
    Refused(String),
}

/// The callback of a proposal: receives the state's answer, or the reason why there is none.
pub type WriteDone = Box<dyn FnOnce(Result<Answer, Refusal>) + Send>;

/// The reason why an effect was not decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum EffectError {
    /// It is of a newer program.
    #[error(
        "the log has proposals of kind {0}, which this program does not know: have all nodes run the \
         same program"
    )]
    Newer(u8),
    #[error("a proposal in the log is damaged")]
    Damaged,
}

/// The runs of loads that a node has before their entries arrive.
pub trait LoadedRuns: Debug + Send + Sync {
    /// Returns the run of a load for a partition, with an id of this node's table. If it returns
    /// none, the node does not have the run, and the load's entry waits.
    fn find(&self, table: &TableName, partition: PartitionId, load: u64) -> Option<RunId>;

    /// Reports that the run is part of the table now, or removed.
    fn taken(&self, table: &TableName, partition: PartitionId, load: u64);
}

impl Effect {
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        match self {
            Self::AdvanceTime => {}
            Self::Operations(batch) => {
                out.reserve(1 + batch.bytes().len());
                out.put_u8(OPERATIONS);
                out.put_slice(batch.bytes());
            }
            Self::Load(load) => {
                out.put_u8(LOAD);
                out.put_u64_le(*load);
            }
            Self::RemoveRange {
                start,
                end,
                is_counted,
            } => {
                out.put_u8(REMOVE_RANGE);
                out.put_u8(u8::from(*is_counted));
                put_bound(&mut out, start);
                put_bound(&mut out, end);
            }
            Self::RemoveAll => out.put_u8(REMOVE_ALL),
        }
        out.freeze()
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, EffectError> {
        let Some((kind, rest)) = bytes.split_first() else {
            return Ok(Self::AdvanceTime);
        };
        let effect = match *kind {
            OPERATIONS => Batch::from_bytes(rest).map(Self::Operations),
            LOAD => <[u8; 8]>::try_from(rest)
                .ok()
                .map(|load| Self::Load(u64::from_le_bytes(load))),
            REMOVE_RANGE => removed_range(rest),
            REMOVE_ALL => rest.is_empty().then_some(Self::RemoveAll),
            kind => return Err(EffectError::Newer(kind)),
        };
        effect.ok_or(EffectError::Damaged)
    }
}

/// Returns whether the proposal changes more of the state than the keys that it names.
pub(crate) fn is_barrier(effect: &[u8]) -> bool {
    matches!(effect.first(), Some(&(LOAD | REMOVE_RANGE | REMOVE_ALL)))
}

/// Returns whether the proposal adds a load.
pub(crate) fn is_load(effect: &[u8]) -> bool {
    effect.first() == Some(&LOAD)
}

fn put_bound(out: &mut BytesMut, bound: &Bound<Vec<u8>>) {
    let (kind, key) = match bound {
        Bound::Unbounded => return out.put_u8(0),
        Bound::Included(key) => (1, key),
        Bound::Excluded(key) => (2, key),
    };
    out.put_u8(kind);
    out.put_u32_le(key.len() as u32);
    out.put_slice(key);
}

fn removed_range(mut bytes: &[u8]) -> Option<Effect> {
    let is_counted = match bytes.try_get_u8().ok()? {
        0 => false,
        1 => true,
        _ => return None,
    };
    let (start, end) = (take_bound(&mut bytes)?, take_bound(&mut bytes)?);
    bytes.is_empty().then_some(Effect::RemoveRange {
        start,
        end,
        is_counted,
    })
}

fn take_bound(bytes: &mut &[u8]) -> Option<Bound<Vec<u8>>> {
    let kind = bytes.try_get_u8().ok()?;
    if kind == 0 {
        return Some(Bound::Unbounded);
    }
    let length = bytes.try_get_u32_le().ok()?;
    let (key, rest) = bytes.split_at_checked(length as usize)?;
    *bytes = rest;
    match kind {
        1 => Some(Bound::Included(key.to_vec())),
        2 => Some(Bound::Excluded(key.to_vec())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Effects with their bytes. These bytes are in logs: a program has to read them forever.
    fn images() -> Vec<(Effect, &'static [u8])> {
        let mut batch = Batch::new();
        batch.update(b"k", b"v");
        batch.delete(b"gone");
        vec![
            (Effect::AdvanceTime, b""),
            (Effect::Operations(batch), b"\x10\0\x01\x01kv\x02\x04\0gone"),
            (Effect::Load(258), b"\x11\x02\x01\0\0\0\0\0\0"),
            (
                Effect::RemoveRange {
                    start: Bound::Included(b"a".to_vec()),
                    end: Bound::Unbounded,
                    is_counted: true,
                },
                b"\x12\x01\x01\x01\0\0\0a\0",
            ),
            (
                Effect::RemoveRange {
                    start: Bound::Unbounded,
                    end: Bound::Excluded(b"bc".to_vec()),
                    is_counted: false,
                },
                b"\x12\0\0\x02\x02\0\0\0bc",
            ),
            (Effect::RemoveAll, b"\x13"),
        ]
    }

    #[test]
    fn effects_have_the_documented_bytes() {
        for (effect, bytes) in images() {
            assert_eq!(&effect.encode()[..], bytes, "{effect:?}");
            assert_eq!(Effect::decode(bytes), Ok(effect));
        }
    }

    #[test]
    fn a_part_of_an_effect_is_damage() {
        for (effect, bytes) in images() {
            for end in 1..bytes.len() {
                let part = Effect::decode(&bytes[..end]);
                let is_shorter = matches!(part, Ok(Effect::Operations(_)));
                assert!(
                    is_shorter || matches!(part, Err(EffectError::Damaged)),
                    "{effect:?}, {end}"
                );
            }
        }
    }

    #[test]
    fn an_unknown_kind_waits_for_a_newer_program() {
        let decoded = Effect::decode(b"\x05what");
        assert_eq!(decoded, Err(EffectError::Newer(5)));
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_effect_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            if let Ok(effect) = Effect::decode(&bytes) {
                prop_assert_eq!(Effect::decode(&effect.encode()), Ok(effect));
            }
        }
    }
}
