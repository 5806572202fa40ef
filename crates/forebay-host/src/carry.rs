//! Carries out a replica's actions.
//!
//! Actions that only queue work are done under the replica's lock, so that they keep the replica's
//! order. The rest is done after the lock is released.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use forebay_io::start_behind;
use forebay_replica::{
    Action, Committed, Content, Event, NewProposal, PeerId, Permit, Persist, Place, Refusal,
};
use tracing::{debug, info, warn};

use crate::effects::{Answer, is_load};
use crate::environment::{NoEntries, ReadPace, StateError};
use crate::group::{AfterUnlock, HostedGroup, ReadPermit, Requester, StateWork};
use crate::log_reader::{LogPart, PartReader};
use crate::pool::{Patience, TaskOutcome};

impl HostedGroup {
    /// REQUIRES: the replica's lock.
    pub(crate) fn carry_out(self: &Arc<Self>, actions: Vec<Action>) -> AfterUnlock {
        let mut later = AfterUnlock::default();
        for action in actions {
            match action {
                Action::Persist(persist) if persist.snapshot.is_some() => {
                    later.has_work |= self.line_up(StateWork::Install(persist));
                }
                Action::Persist(persist) => self.log.push(Arc::clone(self) as _, persist),
                Action::Send(message) => {
                    let node = self.nodes.lock().get(&message.to()).copied();
                    if let Some(node) = node {
                        self.core.outbox.push(node, message);
                    }
                }
                Action::Apply(entries) => {
                    later.has_work |= self.line_up(StateWork::Apply(entries.into()));
                }
                Action::Read(permit) => later.reads.push(permit),
                Action::Refuse { request, why } => later.refused.push((request, why)),
                Action::FetchEntries {
                    from,
                    to,
                    most_bytes,
                } => {
                    let part = LogPart {
                        from,
                        to,
                        most_bytes,
                    };
                    self.core.reader.push(Arc::clone(self) as _, part);
                }
                Action::FetchSnapshot { from, at_least } => later.fetches.push((from, at_least)),
                Action::DropSnapshot => later.drops_copy = true,
                Action::Leave => later.leaves = true,
            }
        }
        later
    }

    /// Queues work on the state. Returns whether the caller has to see to it.
    fn line_up(&self, work: StateWork) -> bool {
        self.work.lock().push_back(work);
        !self.is_lined_up.swap(true, Ordering::AcqRel)
    }

    /// Does the queued work: see [`StateKeeper::work`](crate::pool::StateKeeper::work).
    pub(crate) fn do_work(self: &Arc<Self>, patience: Patience) -> TaskOutcome {
        loop {
            debug_assert!(
                self.is_lined_up.load(Ordering::Acquire),
                "another thread may come to the state of group {}",
                self.group()
            );
            let next = self.work.lock().pop_front();
            let Some(next) = next else {
                self.is_lined_up.store(false, Ordering::Release);
                // More work may have arrived just before.
                let is_more = !self.work.lock().is_empty();
                if !is_more || self.is_lined_up.swap(true, Ordering::AcqRel) {
                    return TaskOutcome::All;
                }
                continue;
            };
            let left = match next {
                _ if self.is_halted() => None,
                StateWork::Apply(entries) => self.apply(entries, patience),
                StateWork::Install(_) if patience < Patience::Much => {
                    Some((next, TaskOutcome::TakesLong))
                }
                StateWork::Install(persist) => self.install(persist).map(retry_later),
            };
            if let Some((left, why)) = left {
                self.work.lock().push_front(left);
                return why;
            }
        }
    }

    /// Applies entries. Returns those that are left, and the reason.
    fn apply(
        self: &Arc<Self>,
        mut entries: VecDeque<Committed>,
        patience: Patience,
    ) -> Option<(StateWork, TaskOutcome)> {
        let (mut last, mut why) = (None, TaskOutcome::RetryLater);
        while let Some(committed) = entries.pop_front() {
            if self.is_halted() {
                return None;
            }
            let index = committed.entry.place.index;
            // A copy may have replaced the state and covered these entries.
            if index <= self.applied() {
                continue;
            }
            if patience < Patience::Much && takes_long(&committed) {
                entries.push_front(committed);
                why = TaskOutcome::TakesLong;
                break;
            }
            debug_assert_eq!(
                index,
                self.applied() + 1,
                "group {} leaves out entries",
                self.group()
            );
            match self.state.apply(&committed, patience > Patience::None) {
                Ok(answers) => {
                    self.note_unblocked();
                    self.set_applied(index);
                    last = Some(index);
                    self.answer(&committed, answers);
                    if takes_long(&committed) {
                        self.core.watch.changed();
                    }
                }
                Err(StateError::Waits) => {
                    why = TaskOutcome::Waits;
                    entries.push_front(committed);
                    break;
                }
                Err(StateError::Later(problem)) => {
                    self.note_blocked(&problem);
                    entries.push_front(committed);
                    break;
                }
                // The replica keeps its log until another one has replaced it.
                Err(StateError::Damaged(problem)) => {
                    self.fall_ill(&problem);
                    self.note_blocked(&problem);
                    entries.push_front(committed);
                    break;
                }
                Err(StateError::Never(problem)) => {
                    self.halt(&problem);
                    return None;
                }
            }
        }
        if let Some(index) = last {
            self.notify(Event::Applied { index });
            self.read_early();
            self.wake_evaluations();
        }
        (!entries.is_empty()).then_some((StateWork::Apply(entries), why))
    }

    /// Notes that decided entries cannot be applied now. Logs a repeated failure once.
    fn note_blocked(&self, problem: &str) {
        if !self.is_blocked.swap(true, Ordering::Relaxed) {
            let group = self.group().0;
            warn!(
                group,
                problem, "what is decided waits until it can be applied"
            );
        }
    }

    /// Notes that decided entries are applied again.
    fn note_unblocked(&self) {
        if self.is_blocked.load(Ordering::Relaxed) && self.is_blocked.swap(false, Ordering::Relaxed)
        {
            info!(group = self.group().0, "what is decided is applied again");
        }
    }

    fn answer(&self, committed: &Committed, answers: Vec<Answer>) {
        let Content::Batch { proposals, .. } = &committed.entry.content else {
            return;
        };
        if !committed.is_awaited {
            return;
        }
        debug_assert_eq!(
            answers.len(),
            proposals.len(),
            "proposals of entry {} of group {} would never be answered",
            committed.entry.place,
            self.group()
        );
        self.forget_pending(proposals);
        let mut done = Vec::with_capacity(proposals.len());
        {
            let mut requesters = self.requesters.lock();
            for (proposal, answer) in proposals.iter().zip(answers) {
                if let Some(Requester::Write(requester)) = requesters.remove(&proposal.request) {
                    done.push((requester, answer));
                }
            }
        }
        done.into_iter()
            .for_each(|(requester, answer)| requester(Ok(answer)));
    }

    /// Installs the copy, and then restarts the log after it.
    fn install(self: &Arc<Self>, persist: Persist) -> Option<StateWork> {
        let facts = persist.snapshot.clone()?;
        debug_assert!(
            facts.place.index >= self.applied(),
            "group {} applied up to entry {}, and a copy is at {}",
            self.group(),
            self.applied(),
            facts.place
        );
        match self.state.install(&facts) {
            Ok(()) => {
                self.note_unblocked();
                self.set_applied(facts.place.index);
                self.core.counts.copies.fetch_add(1, Ordering::Relaxed);
                self.log.push(Arc::clone(self) as _, persist);
                self.read_early();
                None
            }
            Err(StateError::Waits) => Some(StateWork::Install(persist)),
            Err(StateError::Later(problem)) => {
                self.note_blocked(&problem);
                Some(StateWork::Install(persist))
            }
            Err(StateError::Never(problem) | StateError::Damaged(problem)) => {
                self.halt(&problem);
                None
            }
        }
    }

    /// Completes the reads whose entries are applied by now.
    fn read_early(self: &Arc<Self>) {
        let applied = self.applied();
        let due: Vec<Permit> = {
            let mut early = self.early_reads.lock();
            early
                .extract_if(.., |permit| permit.index <= applied)
                .collect()
        };
        due.into_iter().for_each(|permit| self.give(permit));
    }

    fn give(self: &Arc<Self>, permit: Permit) {
        let requester = self.requesters.lock().remove(&permit.request);
        if let Some(Requester::Read(asked, done)) = requester {
            if permit.is_confirmed() {
                self.fresh.lock().confirm(asked);
            }
            done(Ok(ReadPermit::by(self, permit)));
        }
    }

    /// Fetches a copy without changing anything else, one at a time. A replica that needs another
    /// asks again.
    fn fetch(self: &Arc<Self>, from: PeerId, at_least: Place) {
        if self.is_fetching.swap(true, Ordering::AcqRel) {
            return;
        }
        let group = Arc::clone(self);
        debug!(group = self.group().0, from = from.0, "a copy is fetched");
        let fetching = start_behind("forebay-copy", move || {
            let event = match group.state.fetch_copy(from, at_least) {
                Ok(facts) => {
                    debug!(group = group.group().0, place = %facts.place, "a copy came");
                    Event::SnapshotCame(facts)
                }
                Err(error) => {
                    warn!(group = group.group().0, %error, "a copy did not come; it is asked for again");
                    Event::SnapshotFailed
                }
            };
            let was_fetching = group.is_fetching.swap(false, Ordering::AcqRel);
            debug_assert!(
                was_fetching,
                "two copies arrived for group {} at a time",
                group.group()
            );
            group.notify(event);
        });
        if let Err(error) = fetching {
            warn!(group = self.group().0, %error, "no thread can be started to fetch a copy");
            self.is_fetching.store(false, Ordering::Release);
            self.notify(Event::SnapshotFailed);
        }
    }
}

fn retry_later(left: StateWork) -> (StateWork, TaskOutcome) {
    (left, TaskOutcome::RetryLater)
}

/// Returns whether an entry waits for the disk: the memtable is flushed before the partition as a
/// whole is changed.
fn takes_long(committed: &Committed) -> bool {
    match &committed.entry.content {
        Content::Split(_) => true,
        Content::Batch { proposals, .. } => {
            let mut effects = proposals.iter().map(|proposal| &proposal.effect);
            effects.any(|effect| is_load(effect))
        }
        Content::Empty | Content::Changes(_) => false,
    }
}

impl AfterUnlock {
    /// Returns what refuses proposals of a replica that has ended.
    pub fn refusing(proposals: &[NewProposal]) -> Self {
        let all = proposals.iter();
        let refused = all.map(|new| (new.proposal.request, Refusal::NotLeader(None)));
        Self {
            refused: refused.collect(),
            ..Self::default()
        }
    }

    pub fn carry_out(self, group: &Arc<HostedGroup>) {
        group.core.outbox.deliver();
        if self.has_work {
            group
                .core
                .pool
                .see_to(Arc::clone(group) as _, Patience::None);
        }
        if self.leaves {
            group.halt("its log lost entries that it had acknowledged");
        }
        let has_refused = !self.refused.is_empty();
        for (request, why) in self.refused {
            let requester = group.requesters.lock().remove(&request);
            if let Some(requester) = requester {
                requester.refuse(why);
            }
        }
        if has_refused {
            // A refused barrier is awaited no more.
            group.wake_evaluations();
        }
        if !self.reads.is_empty() {
            group.early_reads.lock().extend(self.reads);
            group.read_early();
        }
        if self.drops_copy {
            group.state.drop_copy();
        }
        for (from, at_least) in self.fetches {
            group.fetch(from, at_least);
        }
        if self.has_changed {
            group.notice_leader();
            group.core.watch.changed();
        }
    }
}

/// Reads the group's log for a peer that lags.
impl PartReader for HostedGroup {
    fn read_part(self: Arc<Self>, part: LogPart, pace: &dyn ReadPace) {
        if self.is_halted() {
            return;
        }
        let read = self
            .log
            .log()
            .entries(self.group(), (part.from, part.to), part.most_bytes);
        let event = match read {
            Ok(found) if !found.entries.is_empty() => {
                debug_assert!(
                    found
                        .entries
                        .iter()
                        .all(|entry| entry.place.index < part.to),
                    "entries behind those of {part:?} were read"
                );
                pace.wait(found.bytes);
                let counts = &self.core.counts;
                counts.tail_bytes.fetch_add(found.bytes, Ordering::Relaxed);
                Event::EntriesCame(found.entries)
            }
            // The requested entries are decided, so they were in the log once.
            Ok(_) => Event::EntriesGone { through: part.from },
            Err(NoEntries { through }) => Event::EntriesGone {
                through: through.max(part.from),
            },
        };
        self.notify(event);
    }
}
