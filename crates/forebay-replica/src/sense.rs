//! Checks whether a message can be true.
//!
//! The library ends the process if a peer contradicts what is known to be decided. This module
//! drops such a message before that.

use raft::RawNode;
use raft::eraftpb::{Message, MessageType};

use crate::tail::Tail;

/// Returns false if the sender is wrong, or has forgotten its promises.
pub fn makes_sense(raw: &RawNode<Tail>, message: &Message) -> bool {
    let raft = &raw.raft;
    let (last, committed) = (raft.raft_log.last_index(), raft.raft_log.committed);
    if message.from == 0 || message.to != raft.id || message.from == raft.id {
        return false;
    }
    let has_term = message.term != 0;
    match message.get_msg_type() {
        MessageType::MsgAppend => has_term && entries_fit(raw, message),
        MessageType::MsgHeartbeat => has_term && message.commit <= last.max(committed),
        MessageType::MsgAppendResponse => {
            has_term && (message.reject || message.index <= last) && message.request_snapshot == 0
        }
        MessageType::MsgSnapshot => has_term && message.get_snapshot().get_metadata().index > 0,
        // It may have no term; it has exactly one mark.
        MessageType::MsgReadIndex => message.term == 0 && message.get_entries().len() == 1,
        MessageType::MsgReadIndexResp => has_term && message.index <= last,
        _ => has_term,
    }
}

/// Returns whether a leader relies on entries that this replica acknowledged and no longer has. Its
/// log then lost its end without any other sign. Within a term, a log does not become shorter.
pub fn shows_loss(raw: &RawNode<Tail>, message: &Message) -> bool {
    let raft = &raw.raft;
    let (last, committed) = (raft.raft_log.last_index(), raft.raft_log.committed);
    let is_beat = message.get_msg_type() == MessageType::MsgHeartbeat;
    let is_of_peer = message.from != 0 && message.from != raft.id && message.to == raft.id;
    is_beat && is_of_peer && message.term >= raft.term && message.commit > last.max(committed)
}

fn entries_fit(raw: &RawNode<Tail>, message: &Message) -> bool {
    let log = &raw.raft.raft_log;
    let (mut index, mut term) = (message.index, message.log_term);
    for entry in message.get_entries() {
        if entry.index != index + 1 || entry.term < term || entry.term > message.term {
            return false;
        }
        (index, term) = (entry.index, entry.term);
        let is_decided = index <= log.committed && index >= log.first_index();
        if is_decided && log.term(index).is_ok_and(|known| known != term) {
            return false;
        }
    }
    true
}
