//! Handles time and messages of peers: heartbeats, elections, and messages that are not credible.

use raft::eraftpb::{Message, MessageType};
use raft::{SnapshotStatus, StateRole};

use crate::events::{Action, Refusal};
use crate::ids::{PeerId, Place};
use crate::replica::{Replica, Writing};
use crate::sense::{makes_sense, shows_loss};
use crate::start::FOUNDED;
use crate::time::{
    ANNOUNCE_AGAIN, FIRST_ELECTION_TICKS, HAND_OVER_TICKS, HEARTBEAT_TICKS, IDLE_AFTER_TICKS,
    IDLE_HEARTBEAT_TICKS, Now, PROMISE, SNAPSHOT_PATIENCE, STAND_TICKS, TICK,
};

/// The mark of a candidate that the leader asked to lead; the library does not export it.
const TRANSFER: &[u8] = b"CampaignTransfer";

/// Returns whether the leader asked the candidate to lead.
fn is_wanted(message: &Message) -> bool {
    message.context == TRANSFER
}

impl Replica {
    /// Counts one tick for one event, however late it is. A process that was paused therefore does
    /// not assume that its leader was silent meanwhile.
    pub(crate) fn tick(&mut self, now: Now, actions: &mut Vec<Action>) {
        if !self.is_tick_due(now) {
            return;
        }
        debug_assert!(
            self.election_ticks >= FIRST_ELECTION_TICKS,
            "it stands for election after {} ticks",
            self.election_ticks
        );
        self.last_tick = now.monotonic;
        self.ticks += 1;
        self.raw.tick();
        match self.is_leader() {
            true => self.tick_leader(now),
            false => self.maybe_stand(now),
        }
        for request in self.reads.give_up(now.monotonic) {
            actions.push(self.refuse(request, Refusal::NoReplicas));
        }
    }

    /// Ends a hand-over whose target did not take the lead: the leader keeps serving. REQUIRES: it
    /// leads.
    fn take_back(&mut self) {
        let is_over = |at: u64| self.ticks >= at + HAND_OVER_TICKS;
        if self.raw.raft.lead_transferee.is_some() && self.handed_over_at_tick.is_some_and(is_over)
        {
            self.raw.raft.abort_leader_transfer();
        }
    }

    fn tick_leader(&mut self, now: Now) {
        self.take_back();
        let between = match self.is_idle() {
            true => IDLE_HEARTBEAT_TICKS,
            false => HEARTBEAT_TICKS,
        };
        if self.ticks.is_multiple_of(between) {
            match self.raw.raft.commit_to_current_term() {
                true => self.begin_round(now),
                false => self.raw.ping(),
            }
        }
        self.retry_copies(now);
    }

    /// Returns whether no client has asked anything for a while.
    pub(crate) fn is_idle(&self) -> bool {
        self.ticks >= self.asked_at_tick + IDLE_AFTER_TICKS
    }

    /// Announces copies again: a peer may not have received the announcement.
    fn retry_copies(&mut self, now: Now) {
        let peers = self.raw.raft.prs().iter();
        let waits = |progress: &raft::Progress| progress.state == raft::ProgressState::Snapshot;
        let waiting: Vec<u64> = peers
            .filter(|(_, progress)| waits(progress))
            .map(|(id, _)| *id)
            .collect();
        if waiting.is_empty() {
            return self.copying.clear();
        }
        self.copying.retain(|id, _| waiting.contains(id));
        for id in waiting {
            let since = *self.copying.entry(id).or_insert(now.monotonic);
            if now.monotonic >= since + ANNOUNCE_AGAIN {
                self.copying.remove(&id);
                self.raw.report_snapshot(id, SnapshotStatus::Failure);
            }
        }
    }

    /// Calls an election if no leader was heard from for long enough. Not during a write: the
    /// library counts everything that a candidate has as written.
    fn maybe_stand(&mut self, now: Now) {
        let raft = &mut self.raw.raft;
        let is_due = raft.election_elapsed as u64 >= self.election_ticks;
        let may = raft.promotable() && now.monotonic >= self.promised_until;
        if is_due && may && self.writing.is_none() {
            raft.election_elapsed = 0;
            self.draw_election();
            // It fails if a change of the group is not applied yet; the next try may succeed.
            let _ = self.raw.campaign();
        }
    }

    /// Stands for election at the leader's request. The leader logs nothing until this replica
    /// leads, or until it takes the lead back. The library counts everything that a candidate has
    /// as written. A replica whose state lacks a change of the group does not stand: it tries again
    /// after the next event. REQUIRES: no write is in progress.
    pub(crate) fn stand_as_asked(&mut self, now: Now) {
        debug_assert!(
            self.writing.is_none(),
            "it stands for election while {:?} is written",
            self.writing
        );
        let Some((message, since)) = self.asked_to_lead.take() else {
            return;
        };
        let raft = &self.raw.raft;
        let is_over = now.monotonic.saturating_sub(since) >= TICK * STAND_TICKS;
        if is_over
            || self.is_unhealthy
            || message.term != raft.term
            || raft.state != StateRole::Follower
        {
            return;
        }
        let _ = self.raw.step(message.clone());
        if self.raw.raft.state == StateRole::Follower {
            self.asked_to_lead = Some((message, since));
        }
    }

    pub(crate) fn begin_round(&mut self, now: Now) {
        let mark = self.reads.begin(now.monotonic, self.me);
        self.raw.read_index(mark);
    }

    pub(crate) fn receive(&mut self, now: Now, message: Message, actions: &mut Vec<Action>) {
        if shows_loss(&self.raw, &message) {
            return actions.push(Action::Leave);
        }
        if !makes_sense(&self.raw, &message) {
            return;
        }
        self.received.insert(PeerId(message.from), self.ticks);
        match message.get_msg_type() {
            MessageType::MsgRequestVote | MessageType::MsgRequestPreVote
                if now.monotonic < self.promised_until && !is_wanted(&message) => {}
            MessageType::MsgTimeoutNow if self.is_unhealthy => {}
            MessageType::MsgTimeoutNow => self.asked_to_lead = Some((message, now.monotonic)),
            MessageType::MsgSnapshot => self.receive_of_copy(now, message, actions),
            kind => {
                let leads = matches!(kind, MessageType::MsgAppend | MessageType::MsgHeartbeat);
                let (from, term) = (message.from, message.term);
                // A message of a peer that has left is refused, and of no use.
                let _ = self.raw.step(message);
                self.receive_leader(now, leads && term == self.raw.raft.term);
                if kind == MessageType::MsgAppendResponse {
                    self.go_on_behind_copy(from);
                }
            }
        }
    }

    /// Continues after a copy that arrived late and is older than the last announced one. If the
    /// log reaches back to the copy, entries follow at once. The library alone would wait for the
    /// next announcement, and the peer would receive nothing meanwhile, not even requests.
    fn go_on_behind_copy(&mut self, peer: u64) {
        let raft = &mut self.raw.raft;
        let waits = |progress: &raft::Progress| progress.state == raft::ProgressState::Snapshot;
        if raft.state != StateRole::Leader || !raft.prs().get(peer).is_some_and(waits) {
            return;
        }
        let least = FOUNDED.index.max(raft.raft_log.first_index() - 1);
        let progress = raft.mut_prs().get_mut(peer);
        if let Some(progress) = progress.filter(|progress| progress.matched >= least) {
            progress.snapshot_failure();
            progress.become_probe();
            raft.send_append(peer);
        }
    }

    fn receive_leader(&mut self, now: Now, leads: bool) {
        if leads && self.raw.raft.state == StateRole::Follower {
            debug_assert!(
                self.promised_until <= now.monotonic + PROMISE,
                "a promise until {:?} would end early, as the clock is at {:?}",
                self.promised_until,
                now.monotonic
            );
            self.promised_until = now.monotonic + PROMISE;
        }
    }

    /// Handles the announcement of a copy: the leader's log does not reach back far enough. The
    /// library receives it once the copy has arrived. Until then it counts as a heartbeat.
    fn receive_of_copy(&mut self, now: Now, message: Message, actions: &mut Vec<Action>) {
        let metadata = message.get_snapshot().get_metadata();
        let at_least = Place {
            term: metadata.term,
            index: metadata.index,
        };
        let (from, term) = (message.from, message.term);
        let log = &self.raw.raft.raft_log;
        if at_least.index <= log.committed || log.match_term(at_least.index, at_least.term) {
            let _ = self.raw.step(message);
            return self.receive_leader(now, term == self.raw.raft.term);
        }
        let mut beat = Message::default();
        beat.set_msg_type(MessageType::MsgHeartbeat);
        (beat.from, beat.to, beat.term) = (from, self.me.0, term);
        let _ = self.raw.step(beat);
        if term != self.raw.raft.term {
            return;
        }
        self.receive_leader(now, true);
        let from = PeerId(from);
        let is_asked = self.fetching.is_some_and(|(asked, since)| {
            asked == from && now.monotonic < since + SNAPSHOT_PATIENCE
        });
        // One at a time: until this copy is installed, no other one is.
        let is_installed = |writing: &Writing| writing.installs.is_none();
        let is_free = self.came.is_none()
            && self.installing.is_none()
            && self.writing.as_ref().is_none_or(is_installed);
        if !is_asked && is_free {
            self.fetching = Some((from, now.monotonic));
            actions.push(Action::FetchSnapshot { from, at_least });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::time::Duration;

    use bytes::Bytes;

    use super::*;
    use crate::entry::Proposal;
    use crate::events::Event;
    use crate::frame::PeerMessage;
    use crate::ids::{GroupId, RequestId};
    use crate::membership::Change;
    use crate::start::Start;

    const GROUP: GroupId = GroupId(1);

    fn at_ms(ms: u64) -> Now {
        let monotonic = Duration::from_millis(ms);
        Now {
            monotonic,
            unix_ms: ms,
        }
    }

    /// Returns whether the replica persists a vote for a candidate.
    fn votes(replica: &mut Replica, now: Now, term: u64, context: &'static [u8]) -> bool {
        let mut raft = Message::default();
        raft.set_msg_type(MessageType::MsgRequestVote);
        (raft.from, raft.to, raft.term) = (2, 1, term);
        (raft.index, raft.log_term) = (1, 1);
        raft.context = context.into();
        let group = GROUP;
        let actions = replica.handle(now, Event::Message(PeerMessage { group, raft }));
        let is_vote = |action: &Action| {
            matches!(action, Action::Persist(persist)
                if persist.promise.is_some_and(|promise| promise.vote == Some(PeerId(2))))
        };
        actions.iter().any(is_vote)
    }

    fn founder() -> Replica {
        let voters = [PeerId(1), PeerId(2), PeerId(3)];
        let mut start = Start::founder(GROUP, PeerId(1), &voters, 1);
        start.promise.vote = Some(PeerId(3));
        Replica::new(at_ms(5000), &start).unwrap()
    }

    #[test]
    fn a_new_founder_votes_at_once() {
        let voters = [PeerId(1), PeerId(2), PeerId(3)];
        let start = Start::founder(GROUP, PeerId(1), &voters, 1);
        let mut replica = Replica::new(at_ms(5000), &start).unwrap();
        assert!(votes(&mut replica, at_ms(5010), 2, b""));
    }

    #[test]
    fn a_restarted_replica_votes_for_no_candidate_during_its_old_promise() {
        let mut replica = founder();
        assert!(!votes(&mut replica, at_ms(5010), 2, b""));
        assert!(!votes(&mut replica, at_ms(5990), 3, b""));
        assert!(votes(&mut replica, at_ms(6000), 4, b""));
        let mut replica = founder();
        assert!(
            votes(&mut replica, at_ms(5010), 2, TRANSFER),
            "the leader itself asks for it"
        );
    }

    #[test]
    fn a_replica_with_a_live_leader_votes_for_no_candidate() {
        let mut replica = founder();
        let mut raft = Message::default();
        raft.set_msg_type(MessageType::MsgHeartbeat);
        (raft.from, raft.to, raft.term) = (3, 1, 2);
        let message = PeerMessage { group: GROUP, raft };
        let actions = replica.handle(at_ms(7000), Event::Message(message));
        for action in actions {
            if let Action::Persist(persist) = action {
                let number = persist.number;
                replica.handle(at_ms(7001), Event::Persisted { number });
            }
        }
        assert!(!votes(&mut replica, at_ms(7990), 3, b""));
    }

    #[test]
    fn a_designated_leader_stands_once_its_writes_are_durable() {
        let mut replica = founder();
        let message = |kind| {
            let mut raft = Message::default();
            raft.set_msg_type(kind);
            (raft.from, raft.to, raft.term) = (3, 1, 2);
            Event::Message(PeerMessage { group: GROUP, raft })
        };
        let written = replica.handle(at_ms(7000), message(MessageType::MsgHeartbeat));
        let number = written.iter().find_map(|action| match action {
            Action::Persist(persist) => Some(persist.number),
            _ => None,
        });
        let asked = replica.handle(at_ms(7001), message(MessageType::MsgTimeoutNow));
        assert!(asked.is_empty(), "the write of its term is not durable yet");
        let number = number.unwrap();
        let actions = replica.handle(at_ms(7002), Event::Persisted { number });
        let stands = |action: &Action| {
            matches!(action, Action::Persist(persist)
                if persist.promise.is_some_and(|promise| promise.vote == Some(PeerId(1))))
        };
        assert!(actions.iter().any(stands), "{actions:?}");
    }

    #[test]
    fn a_replica_that_lacks_acknowledged_entries_leaves() {
        let beat = |term, commit| {
            let mut raft = Message::default();
            raft.set_msg_type(MessageType::MsgHeartbeat);
            (raft.from, raft.to, raft.term, raft.commit) = (3, 1, term, commit);
            Event::Message(PeerMessage { group: GROUP, raft })
        };
        let leaves = |event| {
            let actions = founder().handle(at_ms(7000), event);
            actions.iter().any(|it| matches!(it, Action::Leave))
        };
        let last = founder().last();
        assert!(leaves(beat(last.term + 1, last.index + 1)));
        assert!(!leaves(beat(last.term + 1, last.index)));
        assert!(
            !leaves(beat(0, last.index + 1)),
            "a heartbeat of an earlier term"
        );
    }

    /// Returns whether the replica stands for election, or asks to, within these ticks.
    fn stands(replica: &mut Replica, from_ms: u64, to_ms: u64) -> bool {
        (from_ms..to_ms).step_by(100).any(|ms| {
            let actions = replica.handle(at_ms(ms), Event::Tick);
            actions
                .iter()
                .any(|action| matches!(action, Action::Send(_)))
        })
    }

    #[test]
    fn an_unhealthy_replica_stands_last_and_accepts_no_hand_over() {
        let mut unhealthy = founder();
        unhealthy.handle(at_ms(5000), Event::FallIll);
        let mut raft = Message::default();
        raft.set_msg_type(MessageType::MsgTimeoutNow);
        (raft.from, raft.to, raft.term) = (2, 1, 1);
        let message = PeerMessage { group: GROUP, raft };
        let well = founder().handle(at_ms(5001), Event::Message(message.clone()));
        assert!(!well.is_empty(), "a healthy replica stands");
        assert!(
            unhealthy
                .handle(at_ms(5001), Event::Message(message))
                .is_empty()
        );
        assert!(stands(&mut founder(), 5100, 8200));
        assert!(!stands(&mut unhealthy, 5100, 8900));
        assert!(stands(&mut unhealthy, 8900, 11_200));
    }

    /// A lone leader and a learner whose messages arrive at once. The requested copy arrives later.
    struct Pair {
        replicas: [Replica; 2],
        now_ms: u64,
        has_asked: bool,
    }

    impl Pair {
        fn notify(&mut self, to: usize, event: Event) {
            let mut events = VecDeque::from([(to, event)]);
            while let Some((to, event)) = events.pop_front() {
                for action in self.replicas[to].handle(at_ms(self.now_ms), event) {
                    let next = match action {
                        Action::Persist(persist) => {
                            let number = persist.number;
                            Some((to, Event::Persisted { number }))
                        }
                        Action::Send(message) => {
                            let to = (message.to().0 - 1) as usize;
                            Some((to, Event::Message(message)))
                        }
                        Action::Apply(all) => all.last().map(|last| {
                            let index = last.entry.place.index;
                            (to, Event::Applied { index })
                        }),
                        Action::FetchSnapshot { .. } => {
                            self.has_asked = true;
                            None
                        }
                        _ => None,
                    };
                    events.extend(next);
                }
            }
        }

        fn tick(&mut self, times: usize) {
            for _ in 0..times {
                self.now_ms += 100;
                self.notify(0, Event::Tick);
                self.notify(1, Event::Tick);
            }
        }
    }

    #[test]
    fn entries_follow_at_once_after_a_copy_older_than_the_last_announced() {
        let (one, two) = (PeerId(1), PeerId(2));
        let lone = Start::founder(GROUP, one, &[one], 1);
        let replicas = [lone, Start::joiner(GROUP, two, 2)];
        let mut pair = Pair {
            replicas: replicas.map(|start| Replica::new(at_ms(5000), &start).unwrap()),
            now_ms: 5000,
            has_asked: false,
        };
        pair.tick(40);
        assert!(pair.replicas[0].is_leader());
        pair.notify(0, Event::Change(vec![Change::AddLearner(two)]));
        assert!(pair.has_asked);
        let copied = pair.replicas[0].applied().clone();
        for number in 0..20 {
            let proposal = Proposal {
                request: RequestId(number),
                effect: Bytes::from_static(b"set"),
            };
            pair.notify(0, Event::Propose(vec![proposal.into()]));
            // Meanwhile the leader announces the copy again.
            pair.tick(2);
        }
        pair.notify(1, Event::SnapshotCame(copied));
        assert_eq!(pair.replicas[1].last(), pair.replicas[0].last());
        pair.notify(0, Event::Change(vec![Change::Promote(two)]));
        pair.notify(0, Event::Transfer { to: two });
        assert!(pair.replicas[1].is_leader(), "it leads without a tick");
    }
}
