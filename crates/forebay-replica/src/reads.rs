//! Linearizable reads: by lease, or by asking a majority.
//!
//! A *round* asks all peers whether they still follow this leader; it is the heartbeat, too. When a
//! majority has answered, no other leader had been elected when the round began, and the answerers
//! help nobody else for [`PROMISE`](crate::PROMISE). So the reads that waited for the round may be
//! answered at the index that was committed then, and until [`LEASE`] after the round began others,
//! too. A follower has its leader make the round.

use std::collections::VecDeque;
use std::time::Duration;

use crate::ids::{PeerId, RequestId};
use crate::time::{LEASE, READ_PATIENCE};

#[derive(Debug, Default)]
pub struct Reads {
    /// Counts the rounds of this process, from a random number on: no two in a group are alike.
    next: u64,
    rounds: VecDeque<ReadRound>,
    /// They go with the next round.
    waiting: Vec<(Duration, RequestId)>,
    /// When the last round began that a majority answered.
    confirmed: Option<Duration>,
    /// Rounds from before this say nothing about the lease: the group was another one.
    not_before: Duration,
}

#[derive(Debug)]
struct ReadRound {
    number: u64,
    begun: Duration,
    requests: Vec<RequestId>,
}

impl Reads {
    pub fn new(first: u64) -> Self {
        Self {
            next: first,
            ..Self::default()
        }
    }

    pub fn wait(&mut self, now: Duration, request: RequestId) {
        self.waiting.push((now, request));
    }

    /// Reads wait, and no round is under way that they would wait for as long.
    pub fn wants_round(&self) -> bool {
        !self.waiting.is_empty() && self.rounds.is_empty()
    }

    /// Requests wait, for a round to begin or for its answers.
    pub fn are_asked(&self) -> bool {
        let asks = |round: &ReadRound| !round.requests.is_empty();
        !self.waiting.is_empty() || self.rounds.iter().any(asks)
    }

    /// Begins a round: what identifies it.
    pub fn begin(&mut self, now: Duration, me: PeerId) -> Vec<u8> {
        self.next = self.next.wrapping_add(1);
        debug_assert!(
            self.rounds.iter().all(|round| round.number != self.next),
            "two rounds have the number {}",
            self.next
        );
        let waiting = self.waiting.drain(..);
        self.rounds.push_back(ReadRound {
            number: self.next,
            begun: now,
            requests: waiting.map(|(_, request)| request).collect(),
        });
        [me.0.to_le_bytes(), self.next.to_le_bytes()].concat()
    }

    /// A majority answered a round: the requests that it confirms.
    pub fn confirm(&mut self, mark: &[u8]) -> Vec<RequestId> {
        let number = mark.get(8..16).and_then(|bytes| bytes.try_into().ok());
        let Some(number) = number.map(u64::from_le_bytes) else {
            return Vec::new();
        };
        let Some(at) = self.rounds.iter().position(|round| round.number == number) else {
            return Vec::new();
        };
        let Some(round) = self.rounds.remove(at) else {
            return Vec::new();
        };
        if round.begun >= self.not_before {
            self.confirmed = self.confirmed.max(Some(round.begun));
        }
        round.requests
    }

    /// When a majority was last known to follow.
    pub fn confirmed(&self) -> Option<Duration> {
        self.confirmed
    }

    /// Until when no other leader can have been elected.
    pub fn lease_end(&self) -> Option<Duration> {
        self.confirmed.map(|begun| begun + LEASE)
    }

    /// The group changes: only rounds that begin from now on say who follows.
    pub fn change_group(&mut self, now: Duration) {
        (self.confirmed, self.not_before) = (None, now + Duration::from_nanos(1));
    }

    /// Requests that have waited for too long.
    pub fn give_up(&mut self, now: Duration) -> Vec<RequestId> {
        let is_old = |since: Duration| now >= since + READ_PATIENCE;
        let mut requests = Vec::new();
        while self.rounds.front().is_some_and(|round| is_old(round.begun)) {
            requests.extend(
                self.rounds
                    .pop_front()
                    .into_iter()
                    .flat_map(|round| round.requests),
            );
        }
        let gone = self.waiting.extract_if(.., |(since, _)| is_old(*since));
        requests.extend(gone.map(|(_, request)| request));
        requests
    }

    /// Another one leads: no round of before is answered, and nothing is known of a majority.
    pub fn reset(&mut self) -> Vec<RequestId> {
        self.confirmed = None;
        let rounds = self.rounds.drain(..).flat_map(|round| round.requests);
        let waiting = self.waiting.drain(..).map(|(_, request)| request);
        rounds.chain(waiting).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_lease_counts_from_the_question() {
        let mut reads = Reads::new(5);
        reads.wait(SECOND, RequestId(9));
        let mark = reads.begin(SECOND, PeerId(1));
        assert_eq!(reads.lease_end(), None, "nobody has answered");
        // However late the answer is, it says what held when the question came.
        assert_eq!(reads.confirm(&mark), [RequestId(9)]);
        assert_eq!(reads.lease_end(), Some(SECOND + LEASE));
        assert!(
            reads.confirm(&mark).is_empty(),
            "an answer that comes twice"
        );
    }

    #[test]
    fn a_round_of_before_a_change_of_the_group_gives_no_lease() {
        let mut reads = Reads::new(5);
        reads.wait(SECOND, RequestId(9));
        let mark = reads.begin(SECOND, PeerId(1));
        reads.change_group(SECOND);
        assert_eq!(
            reads.confirm(&mark),
            [RequestId(9)],
            "the read itself may be answered"
        );
        assert_eq!(reads.lease_end(), None);
        let mark = reads.begin(SECOND * 2, PeerId(1));
        reads.confirm(&mark);
        assert_eq!(reads.lease_end(), Some(SECOND * 2 + LEASE));
    }
}
