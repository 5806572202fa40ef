//! Entries of a group's log, as the engine stores them and as replicas send them.
//!
//! | kind | content |
//! | --- | --- |
//! | 0 | empty: a leader's first entry |
//! | 1 | proposals: stamp_ms u64, count u32, then for each: request u64, length u32, effect |
//! | 2 | changes of the group: count u32, then for each: kind u8, peer u64 |
//! | 3 | a split of the group's partition, encoded by [`SplitEntry`] |
//!
//! The kind is the first byte. A change has its own kind: 0 adds a learner, 1 promotes it, 2
//! removes a peer.
//!
//! The Raft library also needs each change of the group as protobuf. This process only writes those
//! bytes. It reads changes from the encoding above.

use bytes::{BufMut, Bytes, BytesMut};
use raft::eraftpb::{Entry, EntryType};

use crate::bytes_of::{CodecError, Reader, put_bytes};
use crate::ids::{PeerId, Place, RequestId};
use crate::membership::Change;
use crate::split::SplitEntry;

/// The most proposals in one entry, and bytes of its content.
pub const MOST_PROPOSALS: usize = 4096;
pub const MOST_ENTRY_BYTES: usize = 32 << 20;
/// The most peers in one change.
pub const MOST_CHANGES: usize = 16;

/// An effect that is applied as a whole or not at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proposal {
    pub request: RequestId,
    /// Opaque here; the module `effects` of forebay-host defines it.
    pub effect: Bytes,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// A leader's first entry.
    Empty,
    Batch {
        /// The partition's time from this entry on; expiry is judged by it.
        stamp_ms: u64,
        proposals: Vec<Proposal>,
    },
    /// Without changes: the end of a joint configuration.
    Changes(Vec<Change>),
    Split(SplitEntry),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogEntry {
    pub place: Place,
    pub content: Content,
}

impl Content {
    pub fn to_bytes(&self) -> Bytes {
        let mut out = BytesMut::new();
        match self {
            Self::Empty => out.put_u8(0),
            Self::Batch {
                stamp_ms,
                proposals,
            } => {
                out.put_u8(1);
                out.put_u64_le(*stamp_ms);
                debug_assert!(
                    proposals.len() <= MOST_PROPOSALS,
                    "an entry of {} proposals, which nobody reads",
                    proposals.len()
                );
                out.put_u32_le(proposals.len() as u32);
                for proposal in proposals {
                    out.put_u64_le(proposal.request.0);
                    put_bytes(&mut out, &proposal.effect);
                }
            }
            Self::Changes(changes) => {
                out.put_u8(2);
                debug_assert!(
                    changes.len() <= MOST_CHANGES,
                    "an entry of {} changes, which nobody reads",
                    changes.len()
                );
                out.put_u32_le(changes.len() as u32);
                for change in changes {
                    let (kind, peer) = match change {
                        Change::AddLearner(peer) => (0, peer),
                        Change::Promote(peer) => (1, peer),
                        Change::Remove(peer) => (2, peer),
                    };
                    out.put_u8(kind);
                    out.put_u64_le(peer.0);
                }
            }
            Self::Split(split) => {
                out.put_u8(3);
                split.put(&mut out);
            }
        }
        debug_assert!(
            out.len() <= MOST_ENTRY_BYTES,
            "an entry of {} bytes, which nobody reads",
            out.len()
        );
        out.freeze()
    }

    pub fn from_bytes(bytes: Bytes) -> Result<Self, CodecError> {
        let mut reader = Reader::new(bytes);
        let content = match reader.u8()? {
            0 => Self::Empty,
            1 => Self::Batch {
                stamp_ms: reader.u64()?,
                proposals: read_proposals(&mut reader)?,
            },
            2 => Self::Changes(read_changes(&mut reader)?),
            3 => Self::Split(SplitEntry::read(&mut reader)?),
            found => {
                return Err(CodecError::Unknown {
                    what: "kind of entry",
                    found,
                });
            }
        };
        reader.end()?;
        Ok(content)
    }
}

fn read_proposals(reader: &mut Reader) -> Result<Vec<Proposal>, CodecError> {
    let count = reader.count("proposals", MOST_PROPOSALS)?;
    let mut proposals = Vec::new();
    for _ in 0..count {
        let request = RequestId(reader.u64()?);
        let effect = reader.bytes("effect", MOST_ENTRY_BYTES)?;
        proposals.push(Proposal { request, effect });
    }
    Ok(proposals)
}

fn read_changes(reader: &mut Reader) -> Result<Vec<Change>, CodecError> {
    let count = reader.count("changes", MOST_CHANGES)?;
    let mut changes = Vec::new();
    for _ in 0..count {
        let (kind, peer) = (reader.u8()?, PeerId(reader.u64()?));
        changes.push(match kind {
            0 => Change::AddLearner(peer),
            1 => Change::Promote(peer),
            2 => Change::Remove(peer),
            found => {
                return Err(CodecError::Unknown {
                    what: "change",
                    found,
                });
            }
        });
    }
    Ok(changes)
}

impl LogEntry {
    pub(crate) fn of(entry: &Entry) -> Result<Self, CodecError> {
        let place = Place {
            term: entry.term,
            index: entry.index,
        };
        let content = match entry.get_entry_type() {
            EntryType::EntryNormal if entry.data.is_empty() => Content::Empty,
            EntryType::EntryNormal => Content::from_bytes(entry.data.clone())?,
            _ if entry.context.is_empty() => Content::Changes(Vec::new()),
            _ => Content::from_bytes(entry.context.clone())?,
        };
        Ok(Self { place, content })
    }

    pub(crate) fn to_raft(&self) -> Entry {
        let mut entry = Entry::default();
        (entry.term, entry.index) = (self.place.term, self.place.index);
        match &self.content {
            Content::Empty => {}
            Content::Batch { .. } | Content::Split(_) => {
                entry.data = self.content.to_bytes();
            }
            Content::Changes(changes) => {
                entry.set_entry_type(EntryType::EntryConfChangeV2);
                if !changes.is_empty() {
                    entry.context = self.content.to_bytes();
                }
            }
        }
        entry
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::GroupId;
    use crate::split::ChildGroup;

    #[test]
    fn contents_are_read_as_they_are_written() {
        let proposals = vec![Proposal {
            request: RequestId(7),
            effect: Bytes::from_static(b"set"),
        }];
        let all = [
            Content::Empty,
            Content::Batch {
                stamp_ms: 9,
                proposals,
            },
            Content::Changes(vec![Change::Promote(PeerId(4)), Change::Remove(PeerId(1))]),
            Content::Changes(Vec::new()),
            Content::Split(SplitEntry {
                planned_in: 70,
                voters: vec![PeerId(1), PeerId(2)],
                children: [(b"m", 9, 8), (b"t", 10, 11)]
                    .map(|(from, partition, group)| ChildGroup {
                        from: Bytes::from_static(from),
                        partition,
                        group: GroupId(group),
                        peers: vec![PeerId(4), PeerId(5)],
                    })
                    .into(),
            }),
        ];
        for content in all {
            let bytes = content.to_bytes();
            assert_eq!(Content::from_bytes(bytes.clone()), Ok(content.clone()));
            for len in 0..bytes.len() {
                assert!(Content::from_bytes(bytes.slice(..len)).is_err());
            }
            let place = Place { term: 2, index: 5 };
            let entry = LogEntry { place, content };
            assert_eq!(LogEntry::of(&entry.to_raft()), Ok(entry));
        }
        let many = Bytes::from_static(&[1, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255]);
        assert!(matches!(
            Content::from_bytes(many),
            Err(CodecError::TooMany { .. })
        ));
    }
}
