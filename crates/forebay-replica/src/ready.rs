//! Turns the Raft library's output into actions.

use std::sync::Arc;

use raft::eraftpb::{Entry, Message, MessageType};
use raft::{Ready, StateRole};

use crate::bugs::{Bug, is_planted};
use crate::entry::{Content, LogEntry};
use crate::events::{Action, Committed, Permit, Persist, Promise};
use crate::frame::PeerMessage;
use crate::ids::PeerId;
use crate::membership::{Change, Membership, to_raft};
use crate::replica::{Replica, Writing};
use crate::tail::SnapshotFacts;
use crate::time::Now;

impl Replica {
    /// Repeats until nothing is left that does not wait for other peers or the caller.
    pub(crate) fn settle(&mut self, now: Now, actions: &mut Vec<Action>) {
        loop {
            self.notice_leader(now, actions);
            self.take_copy(actions);
            self.log_gathered(now, actions);
            if self.reads.wants_round() && self.may_begin_round() {
                self.begin_round(now);
            }
            if self.writing.is_some() {
                return;
            }
            if !self.raw.has_ready() {
                self.stand_as_asked(now);
            }
            if !self.raw.has_ready() {
                return;
            }
            self.take_ready(now, actions);
        }
    }

    /// Returns whether a leader may begin a round. It may once an entry of its term is decided:
    /// before, it may not know what is decided.
    fn may_begin_round(&self) -> bool {
        match self.is_leader() {
            true => self.raw.raft.commit_to_current_term(),
            false => self.leader().is_some(),
        }
    }

    fn take_ready(&mut self, now: Now, actions: &mut Vec<Action>) {
        let mut ready = self.raw.ready();
        let at_once = ready.take_messages();
        let when_written = ready.take_persisted_messages();
        let mut committed = ready.take_committed_entries();
        if is_planted(Bug::AppliesBeforeCommit) {
            committed = ready.entries().clone();
        }
        let states = ready.take_read_states();
        debug_assert!(
            !at_once.iter().any(is_promise),
            "what is not written yet would be promised: {at_once:?}"
        );
        debug_assert!(
            self.writing.is_none(),
            "{:?} is written, and more would be",
            self.writing
        );
        let (number, is_awaited) = (ready.number(), ready.must_sync());
        let installs = self.persist(&ready, actions);
        self.raw.advance_append_async(ready);
        self.send(at_once, actions);
        match is_awaited && !is_planted(Bug::AcksBeforeSync) {
            true => {
                self.writing = Some(Writing {
                    number,
                    messages: when_written,
                    installs,
                });
            }
            false => {
                self.raw.on_persist_ready(number);
                self.installed(installs);
                self.send(when_written, actions);
            }
        }
        self.hand_out(now, &committed, actions);
        for state in states {
            self.permit(&state, actions);
        }
    }

    /// Appends what has to be durable to the log's tail in memory, and requests its write.
    fn persist(&mut self, ready: &Ready, actions: &mut Vec<Action>) -> Option<u64> {
        let announced = ready.snapshot().get_metadata();
        debug_assert!(
            ready.snapshot().is_empty()
                || self.installing.as_ref().is_some_and(|facts| {
                    (facts.place.index, facts.place.term) == (announced.index, announced.term)
                }),
            "a copy at entry {} is to be installed, and {:?} has come",
            announced.index,
            self.installing
        );
        let snapshot = match ready.snapshot().is_empty() {
            true => None,
            false => self.installing.take(),
        };
        let store = self.raw.mut_store();
        if let Some(facts) = &snapshot {
            store.install(facts.clone());
            self.handed = facts.clone();
            self.unapplied.clear();
            self.clock.observe(facts.stamp_ms);
        }
        store.append(ready.entries());
        let mut promise = None;
        if let Some(hard) = ready.hs() {
            store.set_hard(hard);
            debug_assert_eq!(
                hard.term, self.raw.raft.term,
                "another term is promised than the one that has begun"
            );
            promise = Some(Promise {
                term: hard.term,
                vote: Some(PeerId(hard.vote)).filter(|peer| peer.0 != 0),
                committed: hard.commit,
            });
        }
        let entries: Vec<_> = ready.entries().iter().map(decoded).collect();
        for entry in &entries {
            if let Content::Batch { stamp_ms, .. } = entry.content {
                self.clock.observe(stamp_ms);
            }
        }
        let installs = snapshot.as_ref().map(|facts| facts.place.index);
        if promise.is_some() || !entries.is_empty() || snapshot.is_some() {
            actions.push(Action::Persist(Persist {
                number: ready.number(),
                snapshot,
                entries,
                promise,
                is_awaited: ready.must_sync(),
            }));
        }
        installs
    }

    pub(crate) fn take_persisted(&mut self, number: u64, actions: &mut Vec<Action>) {
        let is_it = |writing: &mut Writing| writing.number <= number;
        if let Some(writing) = self.writing.take_if(is_it) {
            self.raw.on_persist_ready(writing.number);
            self.installed(writing.installs);
            self.send(writing.messages, actions);
        }
    }

    fn installed(&mut self, index: Option<u64>) {
        if let Some(index) = index {
            self.raw.advance_apply_to(index);
        }
    }

    fn send(&self, messages: Vec<Message>, actions: &mut Vec<Action>) {
        let group = self.group;
        // Drop the library's own heartbeats: rounds replace them. Rounds of a lone voter are
        // answered at once, and are sent to no learner.
        let raft = &self.raw.raft;
        let has_rounds = raft.commit_to_current_term() && !raft.prs().is_singleton();
        let is_idle = |message: &Message| {
            let is_beat = message.get_msg_type() == MessageType::MsgHeartbeat;
            is_beat && message.context.is_empty() && has_rounds
        };
        let messages = messages.into_iter().filter(|message| !is_idle(message));
        actions.extend(messages.map(|raft| Action::Send(PeerMessage { group, raft })));
    }

    /// Passes decided entries on to be applied. A change of the group takes effect from here on.
    fn hand_out(&mut self, now: Now, entries: &[Entry], actions: &mut Vec<Action>) {
        let mut all = Vec::new();
        for entry in entries {
            let mut entry = decoded(entry);
            debug_assert!(
                entry.place.index == self.handed.place.index + 1
                    && entry.place.term >= self.handed.place.term
                    || is_planted(Bug::AppliesBeforeCommit),
                "entry {} is handed out after {}",
                entry.place,
                self.handed.place
            );
            match &mut entry.content {
                Content::Batch { stamp_ms, .. } => {
                    if is_planted(Bug::HasOwnClock) {
                        *stamp_ms = now.unix_ms;
                    }
                    debug_assert!(
                        self.handed.stamp_ms <= *stamp_ms || is_planted(Bug::HasOwnClock),
                        "at entry {} the partition's time falls from {} to {stamp_ms}",
                        entry.place,
                        self.handed.stamp_ms
                    );
                    self.handed.stamp_ms = *stamp_ms;
                }
                Content::Changes(changes) => self.change_group(now, changes),
                Content::Empty | Content::Split(_) => {}
            }
            self.handed.place = entry.place;
            let first = self.logged.front();
            debug_assert!(
                first.is_none_or(|logged| logged.place >= entry.place),
                "entry {} is decided, and {first:?} is not",
                entry.place
            );
            let is_awaited = first.is_some_and(|logged| logged.place == entry.place);
            if is_awaited {
                self.logged.pop_front();
            }
            self.unapplied.push_back(self.handed.clone());
            all.push(Committed {
                entry,
                facts: self.handed.clone(),
                is_awaited,
            });
        }
        if !all.is_empty() {
            actions.push(Action::Apply(all));
        }
    }

    fn change_group(&mut self, now: Now, changes: &[Change]) {
        // A change that the library refuses is refused by all replicas alike: they know the same
        // group.
        if let Ok(state) = self.raw.apply_conf_change(&to_raft(changes)) {
            self.handed.membership = Arc::new(Membership::of(&state));
            debug_assert!(
                self.handed.membership.is_sound(),
                "{changes:?} leave a group that cannot be: {:?}",
                self.handed.membership
            );
            self.reads.change_group(now.monotonic);
        }
        if self.is_leader() && !self.raw.raft.promotable() {
            let term = self.raw.raft.term;
            self.raw.raft.become_follower(term, 0);
        }
    }

    pub(crate) fn take_applied(&mut self, index: u64) {
        debug_assert!(
            index <= self.handed.place.index,
            "entry {index} is applied, and {} was handed out last",
            self.handed.place
        );
        let mut last = None;
        while self
            .unapplied
            .front()
            .is_some_and(|facts| facts.place.index <= index)
        {
            last = self.unapplied.pop_front();
        }
        if let Some(facts) = last {
            let index = facts.place.index;
            self.raw.mut_store().set_applied(facts);
            if !is_planted(Bug::AppliesBeforeCommit) {
                self.raw.advance_apply_to(index);
            }
        }
    }

    /// Passes a copy that arrived to the library, as if the leader had just sent it.
    fn take_copy(&mut self, actions: &mut Vec<Action>) {
        let raft = &self.raw.raft;
        let is_follower = raft.state == StateRole::Follower && raft.leader_id != 0;
        if !is_follower || self.writing.is_some() {
            return;
        }
        let Some(facts) = self.came.take() else {
            return;
        };
        self.fetching = None;
        if facts.membership.is_sound() {
            let _ = self.raw.step(self.announcement(&facts));
        }
        match self.raw.snap() {
            Some(_) => {
                debug_assert!(
                    self.installing.is_none(),
                    "two copies are installed at a time: {:?} and {facts:?}",
                    self.installing
                );
                self.installing = Some(facts);
            }
            None => actions.push(Action::DropSnapshot),
        }
    }

    fn announcement(&self, facts: &SnapshotFacts) -> Message {
        let raft = &self.raw.raft;
        let mut message = Message::default();
        message.set_msg_type(MessageType::MsgSnapshot);
        (message.from, message.to) = (raft.leader_id, self.me.0);
        message.term = raft.term;
        let metadata = message.mut_snapshot().mut_metadata();
        (metadata.index, metadata.term) = (facts.place.index, facts.place.term);
        metadata.set_conf_state(facts.membership.to_raft());
        message
    }

    fn permit(&mut self, state: &raft::ReadState, actions: &mut Vec<Action>) {
        for request in self.reads.confirm(&state.request_ctx) {
            actions.push(Action::Read(Permit {
                request,
                index: state.index,
                lease: None,
            }));
        }
    }
}

/// Decodes an entry. All entries were made by [`LogEntry::to_raft`] or proposed by this replica, so
/// each is valid.
fn decoded(entry: &Entry) -> LogEntry {
    LogEntry::of(entry).unwrap_or_else(|error| {
        debug_assert!(false, "entry {} cannot be read: {error}", entry.index);
        LogEntry {
            place: crate::ids::Place {
                term: entry.term,
                index: entry.index,
            },
            content: Content::Empty,
        }
    })
}

/// Returns whether a message is a promise on which others rely: a vote, or an acknowledgement of
/// entries. An answer that acknowledges no entry is none: a replica sends it to a leader of an
/// earlier term.
fn is_promise(message: &Message) -> bool {
    let is_promise = match message.get_msg_type() {
        MessageType::MsgRequestVoteResponse => true,
        MessageType::MsgAppendResponse => message.index > 0,
        _ => false,
    };
    is_promise && !message.reject
}
