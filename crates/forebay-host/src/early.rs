//! Messages to replicas that the node does not have yet.
//!
//! When a partition is split, the child's replica on one node may stand for election, and lead,
//! before another node has applied the split. This module keeps its last message until the other
//! node has the group. Otherwise the sender would repeat it some ticks later. A message may always
//! arrive late, so keeping it changes nothing else.

use std::collections::VecDeque;
use std::time::Duration;

use forebay_replica::{GroupId, PeerId, PeerMessage};
use parking_lot::Mutex;

/// The limits: how many messages are kept, how long each may be, and for how long.
const MOST: usize = 256;
const LONGEST_BYTES: usize = 16 << 10;
const KEPT_FOR: Duration = Duration::from_secs(1);

/// The last messages to replicas that the node does not have, oldest first, with the time of
/// arrival.
#[derive(Debug, Default)]
pub struct EarlyMessages(Mutex<VecDeque<(Duration, PeerMessage)>>);

impl EarlyMessages {
    /// Keeps a message to a replica that the node does not have. It replaces the previous one of
    /// the same peer.
    pub fn keep(&self, now: Duration, message: PeerMessage) {
        let place = |of: &PeerMessage| (of.group, of.to(), of.from());
        let mut kept = self.0.lock();
        kept.retain(|(at, other)| is_fresh(now, *at) && place(other) != place(&message));
        if message.size() > LONGEST_BYTES {
            return;
        }
        if kept.len() == MOST {
            kept.pop_front();
        }
        kept.push_back((now, message));
    }

    /// Takes the messages for a replica that the node has now.
    pub fn take(&self, now: Duration, group: GroupId, peer: PeerId) -> Vec<PeerMessage> {
        let mut kept = self.0.lock();
        let mut taken = Vec::new();
        for (at, message) in std::mem::take(&mut *kept) {
            match message.group == group && message.to() == peer {
                true if is_fresh(now, at) => taken.push(message),
                true => {}
                false => kept.push_back((at, message)),
            }
        }
        taken
    }
}

fn is_fresh(now: Duration, at: Duration) -> bool {
    now.saturating_sub(at) < KEPT_FOR
}

#[cfg(test)]
mod tests {
    use forebay_replica::{Action, Event, Now, Replica, Start};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Returns the first messages of the first of three founders to the others.
    fn messages(group: GroupId) -> Vec<PeerMessage> {
        let voters = [PeerId(1), PeerId(2), PeerId(3)];
        let now = Now {
            monotonic: SECOND,
            unix_ms: 0,
        };
        let mut replica = Replica::new(now, &Start::founder(group, PeerId(1), &voters, 1)).unwrap();
        let actions = replica.handle(now, Event::Tick).into_iter();
        let sent = actions.filter_map(|action| match action {
            Action::Send(message) => Some(message),
            _ => None,
        });
        sent.collect()
    }

    #[test]
    fn a_new_replica_receives_the_messages_that_arrived_before_it() {
        let early = EarlyMessages::default();
        let (one, other) = (GroupId(7), GroupId(8));
        for message in [messages(one), messages(one), messages(other)].concat() {
            early.keep(SECOND, message);
        }
        let taken = early.take(SECOND, one, PeerId(2));
        assert_eq!(taken, &messages(one)[..1], "one message, of this peer only");
        assert!(early.take(SECOND, one, PeerId(2)).is_empty());
        assert_eq!(early.take(SECOND, one, PeerId(3)).len(), 1);
        assert!(
            early.take(2 * SECOND, other, PeerId(2)).is_empty(),
            "too late"
        );
    }
}
