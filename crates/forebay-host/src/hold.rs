//! Holds back proposals for a moment, so that several groups pause at once.
//!
//! A checkpoint of a table is of one moment over all its partitions. The process that makes one
//! holds the leaders of all groups, on all nodes. Only then does it take each group's state. What
//! was acknowledged before the last hold began is in all of these states. What is proposed after it
//! waits, and is in none.
//!
//! A hold expires by itself, so that a forgotten hold blocks writes for no longer than its length.
//! After a hold, the next may begin only after three times its length. Repeated holds therefore
//! cost at most a quarter of the time.

use std::time::Duration;

use forebay_replica::NewProposal;
use parking_lot::Mutex;

use crate::effects::WriteDone;

/// Proposals in their order of arrival.
type Proposals = Vec<(NewProposal, WriteDone)>;

/// The proposals of a group that are held back; usually none.
#[derive(Default)]
pub(crate) struct HeldProposals {
    hold: Mutex<Option<Hold>>,
    /// The earliest time of the next hold.
    rest_until: Mutex<Duration>,
}

struct Hold {
    begun: Duration,
    until: Duration,
    waiting: Proposals,
}

/// The pause after a hold, in lengths of that hold.
const REST: u32 = 3;

impl HeldProposals {
    /// Begins a hold for that time. A running hold is unchanged. Returns whether there is one.
    pub fn begin(&self, now: Duration, within: Duration) -> bool {
        let mut hold = self.hold.lock();
        if hold.is_none() && now < *self.rest_until.lock() {
            return false;
        }
        hold.get_or_insert_with(|| Hold {
            begun: now,
            until: now + within,
            waiting: Proposals::new(),
        });
        true
    }

    /// Returns the proposals that may continue, or none while they are held.
    pub fn admit(&self, all: Proposals) -> Option<Proposals> {
        match &mut *self.hold.lock() {
            None => Some(all),
            Some(hold) => {
                hold.waiting.extend(all);
                None
            }
        }
    }

    /// Returns whether there is a hold whose time is over.
    pub fn is_over(&self, now: Duration) -> bool {
        let hold = self.hold.lock();
        hold.as_ref().is_some_and(|hold| hold.until <= now)
    }

    /// Returns whether there is a hold whose time is not over.
    pub fn is_on(&self, now: Duration) -> bool {
        let hold = self.hold.lock();
        hold.as_ref().is_some_and(|hold| hold.until > now)
    }

    /// Ends the hold. Passes the waiting proposals to `propose`. Proposals that arrive meanwhile
    /// queue after them, so that the order is kept.
    pub fn release(&self, now: Duration, propose: impl Fn(Proposals)) {
        loop {
            let waiting = {
                let mut hold = self.hold.lock();
                let Some(held) = &mut *hold else {
                    return;
                };
                let waiting = std::mem::take(&mut held.waiting);
                if waiting.is_empty() {
                    *self.rest_until.lock() = now + REST * now.saturating_sub(held.begun);
                    *hold = None;
                    return;
                }
                waiting
            };
            propose(waiting);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use forebay_replica::{Proposal, Refusal, RequestId};

    use super::*;

    fn proposal(text: &'static str) -> (NewProposal, WriteDone) {
        let proposal = Proposal {
            request: RequestId(0),
            effect: Bytes::from_static(text.as_bytes()),
        };
        (proposal.into(), Box::new(|_| ()))
    }

    fn texts(proposals: &Proposals) -> Vec<&str> {
        let texts = proposals.iter();
        texts
            .map(|(new, _)| std::str::from_utf8(&new.proposal.effect).unwrap())
            .collect()
    }

    #[test]
    fn held_proposals_are_released_in_order() {
        let held = Arc::<HeldProposals>::default();
        let admitted = held.admit(vec![proposal("0")]).unwrap();
        assert_eq!(texts(&admitted), ["0"]);
        let until = Duration::from_secs(5);
        assert!(held.begin(Duration::ZERO, until));
        assert!(held.admit(vec![proposal("1"), proposal("2")]).is_none());
        assert!(held.is_on(Duration::from_secs(4)) && !held.is_over(Duration::from_secs(4)));
        assert!(!held.is_on(until) && held.is_over(until));
        let seen = Mutex::new(Vec::new());
        held.release(until, |proposals| {
            // A proposal that arrives while others are proposed is queued after them.
            if texts(&proposals) == ["1", "2"] {
                assert!(held.admit(vec![proposal("3")]).is_none());
            }
            let mut seen = seen.lock();
            seen.extend(texts(&proposals).into_iter().map(str::to_owned));
            let refused = proposals.into_iter();
            refused.for_each(|(_, done)| done(Err(Refusal::NotLeader(None))));
        });
        assert_eq!(*seen.lock(), ["1", "2", "3"]);
        assert!(held.admit(vec![proposal("4")]).is_some());
        assert!(!held.is_over(until));
    }

    #[test]
    fn proposals_are_held_for_at_most_a_quarter_of_the_time() {
        let held = HeldProposals::default();
        let second = Duration::from_secs;
        assert!(held.begin(second(1), second(3)));
        // The hold is not prolonged.
        assert!(held.begin(second(3), second(3)) && held.is_over(second(4)));
        held.release(second(4), |_| ());
        assert!(!held.begin(second(12), second(3)));
        assert!(held.begin(second(13), second(3)));
    }
}
