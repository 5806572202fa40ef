//! Encodes messages between replicas: a frame has those of all groups from one node to another.
//!
//! | content | |
//! | --- | --- |
//! | version | u8, 1 |
//! | count | u32 |
//! | messages | group u64, kind u8, to, from, term, log_term, index, commit, commit_term, request_snapshot, reject_hint u64, reject u8, context (u32 and bytes), entries (u32, then term, index u64 and content with its length), snapshot term and index u64 |
//! | checksum | XXH3-64 of all before it |
//!
//! The library's protobuf is not used. Only this code reads what a peer sends, with a limit for
//! each length. [`decode`] checks that a frame is well formed. The receiver checks whether its
//! content can be true ([`crate::Replica::handle`]).

use bytes::{BufMut, Bytes, BytesMut};
use raft::eraftpb::{Message, MessageType};
use xxhash_rust::xxh3::xxh3_64;

use crate::bytes_of::{CodecError, Reader, put_bytes};
use crate::entry::{Content, LogEntry, MOST_ENTRY_BYTES};
use crate::ids::{GroupId, PeerId, Place};

const VERSION: u8 = 1;
pub const MOST_MESSAGES: usize = 65_536;
/// The most entries in one message, and bytes of its context.
pub const MOST_ENTRIES: usize = 65_536;
const MOST_CONTEXT_BYTES: usize = 64;
/// Larger indexes and terms are invalid, so that sums of two do not overflow.
const MOST_NUMBER: u64 = 1 << 60;

/// A message from one replica to another of its group.
#[derive(Debug, Clone, PartialEq)]
pub struct PeerMessage {
    pub group: GroupId,
    pub(crate) raft: Message,
}

/// The kinds of messages between replicas. Proposals and transfers do not pass through peers.
const KINDS: [MessageType; 12] = [
    MessageType::MsgAppend,
    MessageType::MsgAppendResponse,
    MessageType::MsgRequestVote,
    MessageType::MsgRequestVoteResponse,
    MessageType::MsgSnapshot,
    MessageType::MsgHeartbeat,
    MessageType::MsgHeartbeatResponse,
    MessageType::MsgTimeoutNow,
    MessageType::MsgReadIndex,
    MessageType::MsgReadIndexResp,
    MessageType::MsgRequestPreVote,
    MessageType::MsgRequestPreVoteResponse,
];

impl PeerMessage {
    pub fn from(&self) -> PeerId {
        PeerId(self.raft.from)
    }

    pub fn to(&self) -> PeerId {
        PeerId(self.raft.to)
    }

    /// Returns its approximate size in bytes.
    pub fn size(&self) -> usize {
        let entries = self.raft.get_entries().iter();
        128 + entries
            .map(|entry| 32 + entry.data.len() + entry.context.len())
            .sum::<usize>()
    }
}

/// Encodes messages to the replicas of one node. Leaves out what cannot be encoded: messages may
/// get lost.
pub fn encode(messages: &[PeerMessage]) -> Bytes {
    debug_assert!(
        messages.len() <= MOST_MESSAGES,
        "a frame of {} messages, which nobody reads",
        messages.len()
    );
    let size: usize = messages.iter().map(PeerMessage::size).sum();
    let mut out = BytesMut::with_capacity(size + 16);
    out.put_u8(VERSION);
    out.put_u32_le(0);
    let mut count = 0_u32;
    for message in messages {
        let mark = out.len();
        match put_message(&mut out, message) {
            Ok(()) => count += 1,
            Err(_) => out.truncate(mark),
        }
    }
    out[1..5].copy_from_slice(&count.to_le_bytes());
    let checksum = xxh3_64(&out);
    out.put_u64_le(checksum);
    out.freeze()
}

fn put_message(out: &mut BytesMut, message: &PeerMessage) -> Result<(), CodecError> {
    let raft = &message.raft;
    let kind = KINDS.iter().position(|kind| *kind == raft.get_msg_type());
    let kind = kind.ok_or(CodecError::Unknown {
        what: "kind of message",
        found: raft.get_msg_type() as u8,
    })?;
    out.put_u64_le(message.group.0);
    out.put_u8(kind as u8);
    let numbers = [
        raft.to,
        raft.from,
        raft.term,
        raft.log_term,
        raft.index,
        raft.commit,
        raft.commit_term,
        raft.request_snapshot,
        raft.reject_hint,
    ];
    debug_assert!(
        numbers.iter().all(|number| *number <= MOST_NUMBER),
        "a message of the numbers {numbers:?}, which nobody reads"
    );
    numbers.iter().for_each(|number| out.put_u64_le(*number));
    out.put_u8(raft.reject.into());
    debug_assert!(
        raft.context.len() <= MOST_CONTEXT_BYTES && raft.get_entries().len() <= MOST_ENTRIES,
        "a message of {} entries with {} bytes of context, which nobody reads",
        raft.get_entries().len(),
        raft.context.len()
    );
    put_bytes(out, &raft.context);
    let is_read = is_read(raft.get_msg_type());
    out.put_u32_le(raft.get_entries().len() as u32);
    for entry in raft.get_entries() {
        out.put_u64_le(entry.term);
        out.put_u64_le(entry.index);
        match is_read {
            true => put_bytes(out, &entry.data),
            false => put_bytes(out, &LogEntry::of(entry)?.content.to_bytes()),
        }
    }
    let snapshot = raft.get_snapshot().get_metadata();
    out.put_u64_le(snapshot.term);
    out.put_u64_le(snapshot.index);
    Ok(())
}

/// Returns whether the message has the asker's mark as the data of an entry.
fn is_read(kind: MessageType) -> bool {
    matches!(
        kind,
        MessageType::MsgReadIndex | MessageType::MsgReadIndexResp
    )
}

/// Decodes the messages of a frame. Reserves memory for what is present, not for what is announced.
pub fn decode(frame: Bytes) -> Result<Vec<PeerMessage>, CodecError> {
    let len = frame.len().checked_sub(8).ok_or(CodecError::Short)?;
    let mut checksum = Reader::new(frame.slice(len..));
    if checksum.u64()? != xxh3_64(&frame[..len]) {
        return Err(CodecError::Checksum);
    }
    let mut reader = Reader::new(frame.slice(..len));
    match reader.u8()? {
        VERSION => {}
        found => {
            return Err(CodecError::Unknown {
                what: "version",
                found,
            });
        }
    }
    let count = reader.count("messages", MOST_MESSAGES)?;
    let mut messages = Vec::new();
    for _ in 0..count {
        messages.push(read_message(&mut reader)?);
    }
    reader.end()?;
    Ok(messages)
}

fn number(reader: &mut Reader) -> Result<u64, CodecError> {
    let found = reader.u64()?;
    match found <= MOST_NUMBER {
        true => Ok(found),
        false => Err(CodecError::TooMany {
            what: "a number",
            found,
            most: MOST_NUMBER,
        }),
    }
}

fn read_message(reader: &mut Reader) -> Result<PeerMessage, CodecError> {
    let group = GroupId(reader.u64()?);
    let found = reader.u8()?;
    let kind = KINDS.get(usize::from(found)).ok_or(CodecError::Unknown {
        what: "kind of message",
        found,
    })?;
    let mut raft = Message::default();
    raft.set_msg_type(*kind);
    raft.to = number(reader)?;
    raft.from = number(reader)?;
    raft.term = number(reader)?;
    raft.log_term = number(reader)?;
    raft.index = number(reader)?;
    raft.commit = number(reader)?;
    raft.commit_term = number(reader)?;
    raft.request_snapshot = number(reader)?;
    raft.reject_hint = number(reader)?;
    raft.reject = reader.u8()? != 0;
    raft.context = reader.bytes("context", MOST_CONTEXT_BYTES)?;
    read_entries(reader, &mut raft)?;
    let place = Place {
        term: number(reader)?,
        index: number(reader)?,
    };
    if *kind == MessageType::MsgSnapshot {
        let metadata = raft.mut_snapshot().mut_metadata();
        (metadata.term, metadata.index) = (place.term, place.index);
    }
    Ok(PeerMessage { group, raft })
}

fn read_entries(reader: &mut Reader, raft: &mut Message) -> Result<(), CodecError> {
    let count = reader.count("entries", MOST_ENTRIES)?;
    let mut entries = Vec::new();
    for _ in 0..count {
        let place = Place {
            term: number(reader)?,
            index: number(reader)?,
        };
        let bytes = reader.bytes("an entry", MOST_ENTRY_BYTES)?;
        let is_read = is_read(raft.get_msg_type());
        let content = match is_read {
            true => Content::Empty,
            false => Content::from_bytes(bytes.clone())?,
        };
        let mut entry = LogEntry { place, content }.to_raft();
        if is_read {
            entry.data = bytes;
        }
        entries.push(entry);
    }
    raft.set_entries(entries.into());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::Proposal;
    use crate::ids::RequestId;
    use forebay_io::sim::Rng;

    fn samples() -> Vec<PeerMessage> {
        let mut rng = Rng(1);
        let message = |(at, kind): (usize, &MessageType)| {
            let mut raft = Message::default();
            raft.set_msg_type(*kind);
            (raft.to, raft.from) = (1 + at as u64, 2);
            (raft.term, raft.log_term, raft.index) = (5, rng.below(4), rng.below(9));
            raft.reject = at % 2 == 0;
            raft.context = Bytes::from_static(b"round");
            let proposals = vec![Proposal {
                request: RequestId(3),
                effect: Bytes::from_static(b"+1"),
            }];
            let content = Content::Batch {
                stamp_ms: 4,
                proposals,
            };
            let place = Place { term: 5, index: 6 };
            raft.set_entries(vec![LogEntry { place, content }.to_raft()].into());
            if *kind == MessageType::MsgSnapshot {
                raft.mut_snapshot().mut_metadata().index = 8;
            }
            let group = GroupId(at as u64);
            PeerMessage { group, raft }
        };
        KINDS.iter().enumerate().map(message).collect()
    }

    #[test]
    fn one_frame_carries_messages_of_many_groups() {
        let messages = samples();
        let frame = encode(&messages);
        assert_eq!(decode(frame), Ok(messages));
    }

    #[test]
    fn a_damaged_frame_is_refused() {
        let frame = encode(&samples());
        let mut rng = Rng(2);
        for len in 0..frame.len() {
            assert!(decode(frame.slice(..len)).is_err());
        }
        for _ in 0..5000 {
            let mut bytes = frame.to_vec();
            let at = rng.below(bytes.len() as u64) as usize;
            bytes[at] ^= 1 << rng.below(8);
            assert_eq!(decode(bytes.into()), Err(CodecError::Checksum));
        }
    }

    #[test]
    fn nonsense_with_a_right_checksum_is_refused_or_read() {
        let frame = encode(&samples());
        let mut rng = Rng(3);
        for _ in 0..20_000 {
            let mut bytes = frame[..frame.len() - 8].to_vec();
            for _ in 0..1 + rng.below(3) {
                let at = rng.below(bytes.len() as u64) as usize;
                bytes[at] = rng.next_u64() as u8;
            }
            let checksum = xxh3_64(&bytes);
            bytes.extend(checksum.to_le_bytes());
            let _ = decode(bytes.into());
        }
    }
}
