//! Entries for peers that are behind, which lie in the log's files alone: asked for one part after
//! the other, as much as one message has.

use std::time::Duration;

use raft::eraftpb::Entry;

use crate::entry::LogEntry;
use crate::events::Action;
use crate::replica::{MOST_MESSAGE_BYTES, Replica};
use crate::time::Now;

/// So many parts at most are on their way to a peer: heartbeats wait behind them.
const MOST_PARTS_UNDER_WAY: usize = 16;
/// Where nothing was read for so long, nobody answers.
const STUCK: Duration = Duration::from_secs(1);

impl Replica {
    /// Has the next part fetched, if peers wait for one and none is under way.
    pub(crate) fn fetch_entries(&mut self, now: Now, actions: &mut Vec<Action>) {
        if self.is_reading_log {
            return;
        }
        if !self.is_leader() {
            return self.raw.store().forget_wanted();
        }
        while let Some((from, to)) = self.raw.store().first_wanted() {
            if !self.takes_more(now, from) {
                // It is asked for again when the peer has answered.
                self.raw.store().skip_wanted();
                continue;
            }
            debug_assert!(
                from < to,
                "entries from {from} up to {to} are to be read, which are none"
            );
            (self.is_reading_log, self.read_log_at) = (true, now.monotonic);
            let most_bytes = MOST_MESSAGE_BYTES;
            return actions.push(Action::FetchEntries {
                from,
                to,
                most_bytes,
            });
        }
    }

    /// Whether a peer is to be sent this entry next, and has not too much before it.
    fn takes_more(&self, now: Now, from: u64) -> bool {
        // What was sent may be lost, and its answers: then one more shows what the peer lacks.
        let is_stuck = now.monotonic >= self.read_log_at + STUCK;
        let mut peers = self.raw.raft.prs().iter();
        peers.any(|(_, peer)| {
            peer.next_idx == from && (is_stuck || peer.ins.count() < MOST_PARTS_UNDER_WAY)
        })
    }

    /// A part came: who waits for it is sent it, who waits for another one asks again.
    pub(crate) fn take_entries(&mut self, entries: &[LogEntry]) {
        let entries: Vec<Entry> = entries.iter().map(LogEntry::to_raft).collect();
        let first = entries.first().map(|entry| entry.index);
        if let (Some(first), false) = (first, self.raw.mut_store().take_fetched(entries)) {
            // Not what is decided there: a copy brings that.
            self.raw.mut_store().forget_older(first);
        }
        self.send_wanted();
    }

    /// Entries up to this one cannot be had from files: who needs them is brought a copy.
    pub(crate) fn lack_entries(&mut self, through: u64) {
        self.raw.mut_store().forget_older(through);
        self.send_wanted();
    }

    fn send_wanted(&mut self) {
        self.is_reading_log = false;
        for wanted in self.raw.store().take_wanted() {
            self.raw.on_entries_fetched(wanted);
        }
        self.raw.mut_store().drop_fetched();
    }
}
