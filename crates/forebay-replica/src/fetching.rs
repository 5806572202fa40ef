//! Fetches entries that are only in the log's files, for peers that lag.
//!
//! It requests one part after the other, each as large as one message.

use std::time::Duration;

use raft::eraftpb::Entry;

use crate::entry::LogEntry;
use crate::events::Action;
use crate::replica::{MOST_MESSAGE_BYTES, Replica};
use crate::time::Now;

/// The most parts in flight to a peer: heartbeats queue after them.
const MOST_PARTS_UNDER_WAY: usize = 16;
/// After this long without a read, the peers' answers count as lost.
const STUCK: Duration = Duration::from_secs(1);

impl Replica {
    /// Requests the next part, if peers wait for one and no request is in progress.
    pub(crate) fn fetch_entries(&mut self, now: Now, actions: &mut Vec<Action>) {
        if self.is_reading_log {
            return;
        }
        if !self.is_leader() {
            return self.raw.store().forget_wanted();
        }
        while let Some((from, to)) = self.raw.store().first_wanted() {
            if !self.takes_more(now, from) {
                // The peer is considered again when it has answered.
                self.raw.store().skip_wanted();
                continue;
            }
            debug_assert!(
                from < to,
                "entries from {from} up to {to} are to be read, but there are none"
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

    /// Returns whether this entry is the next for a peer that does not have too much in flight.
    fn takes_more(&self, now: Now, from: u64) -> bool {
        // The parts in flight, or their answers, may be lost: one more part shows what the peer
        // lacks.
        let is_stuck = now.monotonic >= self.read_log_at + STUCK;
        let mut peers = self.raw.raft.prs().iter();
        peers.any(|(_, peer)| {
            peer.next_idx == from && (is_stuck || peer.ins.count() < MOST_PARTS_UNDER_WAY)
        })
    }

    /// Handles a part that arrived: sends it to the peers that wait for it. The others ask again.
    pub(crate) fn take_entries(&mut self, entries: &[LogEntry]) {
        let entries: Vec<Entry> = entries.iter().map(LogEntry::to_raft).collect();
        let first = entries.first().map(|entry| entry.index);
        if let (Some(first), false) = (first, self.raw.mut_store().take_fetched(entries)) {
            // These are not the decided entries: the peer needs a copy.
            self.raw.mut_store().forget_older(first);
        }
        self.send_wanted();
    }

    /// Records that entries up to this one cannot be read from files: peers that need them need a
    /// copy.
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
