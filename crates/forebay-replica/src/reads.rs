//! Linearizable reads: by lease, or by asking a majority.
//!
//! A *round* asks all peers whether they still follow this leader. It is also the heartbeat. If a
//! majority answers, no other leader had been elected when the round began. The peers that answered
//! help no other peer to lead for [`PROMISE`](crate::PROMISE). So the leader may answer the reads
//! that waited for the round, at the index that was committed then. Until [`LEASE`] after the round
//! began, it may answer further reads. A follower has its leader start a round.

use std::collections::VecDeque;
use std::time::Duration;

use crate::ids::{PeerId, RequestId};
use crate::time::{LEASE, READ_PATIENCE};

#[derive(Debug, Default)]
pub struct Reads {
    /// Counts the rounds of this process, from a random number: no two marks in a group are equal.
    next: u64,
    rounds: VecDeque<ReadRound>,
    /// The requests that wait for the next round.
    waiting: Vec<(Duration, RequestId)>,
    /// The start of the last round that a majority answered.
    confirmed: Option<Duration>,
    /// Rounds that began before this prove nothing about the lease: the group had other members.
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

    /// Returns whether reads wait and no round is running.
    pub fn wants_round(&self) -> bool {
        !self.waiting.is_empty() && self.rounds.is_empty()
    }

    /// Returns whether requests wait, for a round to begin or for its answers.
    pub fn are_asked(&self) -> bool {
        let asks = |round: &ReadRound| !round.requests.is_empty();
        !self.waiting.is_empty() || self.rounds.iter().any(asks)
    }

    /// Begins a round, and returns its mark.
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

    /// Returns the requests that a round confirms, after a majority has answered it.
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

    /// Returns when a majority was last known to follow.
    pub fn confirmed(&self) -> Option<Duration> {
        self.confirmed
    }

    /// Returns the time until which no other leader can have been elected.
    pub fn lease_end(&self) -> Option<Duration> {
        self.confirmed.map(|begun| begun + LEASE)
    }

    /// Records a change of the group: only rounds that begin from now on prove who follows.
    pub fn change_group(&mut self, now: Duration) {
        (self.confirmed, self.not_before) = (None, now + Duration::from_nanos(1));
    }

    /// Removes and returns the requests that have waited too long.
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

    /// Removes all requests after a change of leader: earlier rounds are void, and no majority is
    /// known.
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
    fn a_lease_counts_from_the_start_of_its_round() {
        let mut reads = Reads::new(5);
        reads.wait(SECOND, RequestId(9));
        let mark = reads.begin(SECOND, PeerId(1));
        assert_eq!(reads.lease_end(), None, "no peer has answered");
        // However late the answer is, it proves what held when the round began.
        assert_eq!(reads.confirm(&mark), [RequestId(9)]);
        assert_eq!(reads.lease_end(), Some(SECOND + LEASE));
        assert!(reads.confirm(&mark).is_empty(), "a repeated answer");
    }

    #[test]
    fn a_round_from_before_a_group_change_gives_no_lease() {
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
