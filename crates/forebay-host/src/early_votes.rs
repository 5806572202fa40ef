//! Votes that are asked for in groups that are not here yet.
//!
//! Where a partition is split, the replica of one node may stand for election before another node
//! has applied the split. What it asks is kept until the group is there: it would ask again a tick
//! later. A message may always be late, so this changes nothing else.

use std::collections::VecDeque;
use std::time::Duration;

use forebay_replica::{GroupId, PeerId, PeerMessage};
use parking_lot::Mutex;

/// So many are kept, for so long.
const MOST: usize = 256;
const KEPT_FOR: Duration = Duration::from_secs(1);

/// See the module's text. Oldest first, with the time at which each came.
#[derive(Debug, Default)]
pub struct EarlyVotes(Mutex<VecDeque<(Duration, PeerMessage)>>);

impl EarlyVotes {
    /// Keeps a message of a group that is not here, if it asks for a vote: of each candidate the
    /// last one.
    pub fn keep(&self, now: Duration, message: PeerMessage) {
        if !message.asks_for_vote() {
            return;
        }
        let place = |of: &PeerMessage| (of.group, of.to(), of.from());
        let mut kept = self.0.lock();
        kept.retain(|(at, other)| is_fresh(now, *at) && place(other) != place(&message));
        if kept.len() == MOST {
            kept.pop_front();
        }
        kept.push_back((now, message));
    }

    /// What was asked of a peer that is here now.
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

    /// What the first of three founders asks the others.
    fn questions(group: GroupId) -> Vec<PeerMessage> {
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
    fn a_group_is_asked_later_what_it_was_asked_before_it_was_there() {
        let early = EarlyVotes::default();
        let (one, other) = (GroupId(7), GroupId(8));
        for message in [questions(one), questions(one), questions(other)].concat() {
            assert!(message.asks_for_vote(), "the first founder stands at once");
            early.keep(SECOND, message);
        }
        let taken = early.take(SECOND, one, PeerId(2));
        assert_eq!(taken, &questions(one)[..1], "once, and of this peer alone");
        assert!(early.take(SECOND, one, PeerId(2)).is_empty());
        assert_eq!(early.take(SECOND, one, PeerId(3)).len(), 1);
        assert!(
            early.take(2 * SECOND, other, PeerId(2)).is_empty(),
            "too late"
        );
    }
}
