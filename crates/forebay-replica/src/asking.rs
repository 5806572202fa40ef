//! What clients and the coordinator ask for: proposals, reads, changes of the group, another
//! leader.

use crate::bugs::{Bug, is_planted};
use crate::entry::{Content, MOST_CHANGES, MOST_ENTRY_BYTES, MOST_PROPOSALS, Proposal};
use crate::events::{Action, Permit, Refusal};
use crate::ids::{PeerId, Place, RequestId};
use crate::membership::{Change, to_raft};
use crate::replica::{Logged, Replica, SeenLeader};
use crate::split::SplitEntry;
use crate::start::FOUNDED;
use crate::time::{HAND_OVER_AGAIN_TICKS, Now};

/// Content of an entry beside its operations, and beside each of them.
const ENTRY_BYTES: usize = 16;
const PROPOSAL_BYTES: usize = 16;
/// Who is to lead lacks so many entries of the log at most.
const HEIR_BEHIND: u64 = 100;
/// A learner may vote when it is so many entries behind at most.
const CLOSE_BEHIND: u64 = 1000;

impl Replica {
    pub(crate) fn take_proposals(
        &mut self,
        now: Now,
        proposals: Vec<Proposal>,
        actions: &mut Vec<Action>,
    ) {
        self.asked_at_tick = self.ticks;
        let why = match self.is_leader() {
            false => Refusal::NotLeader(self.leader()),
            true if !self.has_majority(now) => Refusal::NoReplicas,
            true => return self.gathered.extend(proposals),
        };
        let refused = proposals.into_iter();
        actions.extend(refused.map(|proposal| self.refuse(proposal.request, why)));
    }

    /// Makes an entry of what came while the one before was written, or the lead was handed over:
    /// it waits for who leads then.
    pub(crate) fn log_gathered(&mut self, now: Now, actions: &mut Vec<Action>) {
        let may_log = self.is_leader() && self.raw.raft.lead_transferee.is_none();
        while may_log && self.writing.is_none() && !self.gathered.is_empty() {
            let mut room = MOST_ENTRY_BYTES - ENTRY_BYTES;
            let fits = |proposal: &&Proposal| {
                let size = proposal.operations.len() + PROPOSAL_BYTES;
                let fits = size <= room;
                room = room.saturating_sub(size);
                fits
            };
            let all = self.gathered.iter().take(MOST_PROPOSALS);
            let count = all.take_while(fits).count();
            // One that never fits is refused by itself.
            let proposals: Vec<_> = self.gathered.drain(..count.max(1)).collect();
            let requests: Vec<_> = proposals.iter().map(|proposal| proposal.request).collect();
            let stamp_ms = self.clock.stamp(now);
            debug_assert!(
                self.handed.stamp_ms <= stamp_ms || is_planted(Bug::HasOwnClock),
                "the partition's time would fall from {} to {stamp_ms}",
                self.handed.stamp_ms
            );
            let content = Content::Batch {
                stamp_ms,
                proposals,
            };
            let is_logged = count > 0
                && (self.raw)
                    .propose(Vec::new(), content.to_bytes().into())
                    .is_ok();
            if !is_logged {
                let refused = requests.into_iter();
                actions.extend(refused.map(|it| self.refuse(it, Refusal::NoReplicas)));
                continue;
            }
            let place = Place {
                term: self.raw.raft.term,
                index: self.raw.raft.raft_log.last_index(),
            };
            debug_assert!(
                self.logged.back().is_none_or(|before| before.place < place)
                    && place > self.handed.place,
                "entry {place} is logged behind {:?} and {}",
                self.logged.back(),
                self.handed.place
            );
            self.logged.push_back(Logged { place, requests });
        }
    }

    pub(crate) fn take_read(&mut self, now: Now, request: RequestId, actions: &mut Vec<Action>) {
        self.asked_at_tick = self.ticks;
        if self.holds_lease(now) {
            return actions.push(Action::Read(Permit {
                request,
                index: self.raw.raft.raft_log.committed,
                lease: Some(self.raw.raft.term),
            }));
        }
        if self.leader().is_none() {
            return actions.push(self.refuse(request, Refusal::NotLeader(None)));
        }
        self.reads.wait(now.monotonic, request);
    }

    /// The coordinator's wish, if the group is ready for it.
    pub(crate) fn propose_changes(&mut self, changes: &[Change]) {
        let members = self.membership();
        let fits = |change: &Change| match change {
            Change::AddLearner(peer) => peer.0 != 0 && !members.contains(*peer),
            Change::Promote(peer) => members.learners.contains(peer) && self.is_close(*peer),
            Change::Remove(peer) => members.contains(*peer),
        };
        let is_one = (1..=MOST_CHANGES).contains(&changes.len());
        let is_settled = !self.raw.raft.has_pending_conf() && !members.is_joint();
        if self.is_leader() && is_one && is_settled && changes.iter().all(fits) {
            let context = Content::Changes(changes.to_vec()).to_bytes();
            // One that is dropped is wished again.
            let _ = (self.raw).propose_conf_change(context.into(), to_raft(changes));
        }
    }

    /// The coordinator's wish, if the group is ready for it.
    pub(crate) fn propose_split(&mut self, now: Now, split: SplitEntry) {
        let is_settled = !self.raw.raft.has_pending_conf() && split.is_for(self.membership());
        let is_handed_over = self.raw.raft.lead_transferee.is_some();
        if self.is_leader() && is_settled && !is_handed_over && self.has_majority(now) {
            let content = Content::Split(split).to_bytes();
            // One that is dropped is wished again.
            let _ = self.raw.propose(Vec::new(), content.into());
        }
    }

    pub(crate) fn is_close(&self, peer: PeerId) -> bool {
        let committed = self.raw.raft.raft_log.committed;
        let progress = self.progress(peer);
        // One that has said nothing of its log may lack all that is older than the log.
        let has_begun =
            |matched: u64| matched >= FOUNDED.index || is_planted(Bug::PromotesTheEmpty);
        progress.is_some_and(|it| {
            it.is_active && has_begun(it.matched) && it.matched + CLOSE_BEHIND >= committed
        })
    }

    /// Has another one lead, if it leads, and stands only where no other is elected.
    pub(crate) fn fall_ill(&mut self) {
        self.is_unhealthy = true;
        self.draw_election();
        let standing = self.standing();
        let forced_peer =
            standing.and_then(|standing| standing.forced_peer(self.me, self.membership()));
        if let Some(to) = forced_peer {
            self.hand_over(to);
        }
    }

    /// Has another one lead, which lacks so little that it can soon.
    pub(crate) fn hand_over(&mut self, to: PeerId) {
        let is_voter = self.membership().voters.contains(&to);
        let again = self.handed_over_at_tick;
        let is_time = again.is_none_or(|at| self.ticks >= at + HAND_OVER_AGAIN_TICKS);
        let last = self.raw.raft.raft_log.last_index();
        let progress = self.progress(to);
        let is_near = progress.is_some_and(|it| it.is_active && it.matched + HEIR_BEHIND >= last);
        if self.is_leader() && to != self.me && is_voter && is_time && is_near {
            // From here on reads ask the others: the new leader may be elected within the lease.
            self.handed_over_in = self.raw.raft.term;
            self.handed_over_at_tick = Some(self.ticks);
            self.raw.transfer_leader(to.0);
        }
    }

    /// Answers those who wait for a leader that is none any more.
    pub(crate) fn notice_leader(&mut self, now: Now, actions: &mut Vec<Action>) {
        let (term, leader) = (self.raw.raft.term, self.leader());
        if (self.seen.term, self.seen.leader) == (term, leader) {
            return;
        }
        debug_assert!(
            self.seen.term <= term,
            "the term falls from {} to {term}",
            self.seen.term
        );
        debug_assert!(
            self.seen.term < term || self.seen.leader.is_none() || leader.is_none(),
            "two lead in term {term}: {:?}, then {leader:?}",
            self.seen.leader
        );
        let led = self.seen.leader == Some(self.me);
        self.stands_first &= leader.is_none();
        self.seen = SeenLeader {
            term,
            leader,
            since: now.monotonic,
        };
        let not_leader = Refusal::NotLeader(leader.filter(|peer| *peer != self.me));
        if led {
            let why = match is_planted(Bug::ProposesTwice) {
                true => not_leader,
                false => Refusal::Uncertain,
            };
            for logged in std::mem::take(&mut self.logged) {
                let requests = logged.requests.into_iter();
                actions.extend(requests.map(|request| self.refuse(request, why)));
            }
        }
        for proposal in std::mem::take(&mut self.gathered) {
            actions.push(self.refuse(proposal.request, not_leader));
        }
        for request in self.reads.reset() {
            actions.push(self.refuse(request, not_leader));
        }
    }
}
