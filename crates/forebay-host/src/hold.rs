//! Proposals that wait for a moment, so that several groups stand still at once: a checkpoint of a
//! table is of one moment over all its partitions.
//!
//! Whoever makes one holds the leaders of all groups, on whatever nodes, and only then takes each
//! group's state. What was acknowledged before the last hold began is in all of these states; what
//! is proposed after it waits, and is in none. A hold ends by itself, so that whoever forgets it
//! costs writes that time alone.

use std::time::Duration;

use bytes::Bytes;
use forebay_replica::Refusal;
use parking_lot::Mutex;

/// What is done with the outcome of a proposal.
type Done = Box<dyn FnOnce(Result<Bytes, Refusal>) + Send>;
/// Proposals in the order in which they came.
type Proposals = Vec<(Bytes, Done)>;

/// What is held back of a group; nothing most of the time.
#[derive(Default)]
pub(crate) struct HeldProposals {
    hold: Mutex<Option<Hold>>,
}

struct Hold {
    until: Duration,
    waiting: Proposals,
}

impl HeldProposals {
    /// Begins a hold, or prolongs it.
    pub fn begin(&self, until: Duration) {
        let mut hold = self.hold.lock();
        match &mut *hold {
            Some(hold) => hold.until = until,
            None => {
                let waiting = Proposals::new();
                *hold = Some(Hold { until, waiting });
            }
        }
    }

    /// Gives the proposals back that may go on; none while they are held.
    pub fn admit(&self, all: Proposals) -> Option<Proposals> {
        match &mut *self.hold.lock() {
            None => Some(all),
            Some(hold) => {
                hold.waiting.extend(all);
                None
            }
        }
    }

    /// Whether there is a hold whose time is over.
    pub fn is_over(&self, now: Duration) -> bool {
        let hold = self.hold.lock();
        hold.as_ref().is_some_and(|hold| hold.until <= now)
    }

    /// Whether there is a hold whose time is not over.
    pub fn is_on(&self, now: Duration) -> bool {
        let hold = self.hold.lock();
        hold.as_ref().is_some_and(|hold| hold.until > now)
    }

    /// Ends the hold. What waits is given to `propose`, and what comes meanwhile waits behind it,
    /// so that the order stays.
    pub fn release(&self, propose: impl Fn(Proposals)) {
        loop {
            let waiting = {
                let mut hold = self.hold.lock();
                let Some(held) = &mut *hold else {
                    return;
                };
                let waiting = std::mem::take(&mut held.waiting);
                if waiting.is_empty() {
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

    use super::*;

    fn proposal(text: &'static str) -> (Bytes, Done) {
        (Bytes::from_static(text.as_bytes()), Box::new(|_| ()))
    }

    fn texts(proposals: &Proposals) -> Vec<&str> {
        let texts = proposals.iter();
        texts
            .map(|(bytes, _)| std::str::from_utf8(bytes).unwrap())
            .collect()
    }

    #[test]
    fn what_is_held_goes_on_in_its_order() {
        let held = Arc::<HeldProposals>::default();
        let admitted = held.admit(vec![proposal("0")]).unwrap();
        assert_eq!(texts(&admitted), ["0"]);
        let until = Duration::from_secs(5);
        held.begin(until);
        assert!(held.admit(vec![proposal("1"), proposal("2")]).is_none());
        assert!(held.is_on(Duration::from_secs(4)) && !held.is_over(Duration::from_secs(4)));
        assert!(!held.is_on(until) && held.is_over(until));
        let seen = Mutex::new(Vec::new());
        held.release(|proposals| {
            // One that comes while others are proposed stands behind them.
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
}
