//! Handles the requests of clients and the coordinator: proposals, reads, changes of the group,
//! hand-overs.

use crate::basis::NewProposal;
use crate::bugs::{Bug, is_planted};
use crate::entry::{Content, MOST_CHANGES, MOST_ENTRY_BYTES, MOST_PROPOSALS};
use crate::events::{Action, Permit, Refusal};
use crate::ids::{PeerId, Place, RequestId};
use crate::membership::{Change, to_raft};
use crate::replica::{Logged, Replica, SeenLeader};
use crate::split::SplitEntry;
use crate::start::FOUNDED;
use crate::time::{HAND_OVER_AGAIN_TICKS, Now};

/// The size of an entry's content besides its effects, and of the content besides each of them.
const ENTRY_BYTES: usize = 16;
const PROPOSAL_BYTES: usize = 16;
/// The most entries of the log that a peer may lack to become the leader.
const FORCED_PEER_BEHIND: u64 = 100;
/// The most entries that a learner may lack to become a voter.
const CLOSE_BEHIND: u64 = 1000;

impl Replica {
    pub(crate) fn take_proposals(
        &mut self,
        now: Now,
        proposals: Vec<NewProposal>,
        actions: &mut Vec<Action>,
    ) {
        self.asked_at_tick = self.ticks;
        let why = match self.is_leader() {
            false => Refusal::NotLeader(self.leader()),
            true if !self.has_majority(now) => Refusal::NoReplicas,
            true => return self.gather(proposals, actions),
        };
        self.refuse_with_dependents(proposals, why, actions);
    }

    /// Makes an entry of the proposals that arrived while the previous one was written. During a
    /// hand-over they wait for the next leader.
    pub(crate) fn log_gathered(&mut self, now: Now, actions: &mut Vec<Action>) {
        let may_log = self.is_leader() && self.raw.raft.lead_transferee.is_none();
        while may_log && self.writing.is_none() && !self.gathered.is_empty() {
            let mut room = MOST_ENTRY_BYTES - ENTRY_BYTES;
            let fits = |new: &&NewProposal| {
                let size = new.proposal.effect.len() + PROPOSAL_BYTES;
                let fits = size <= room;
                room = room.saturating_sub(size);
                fits
            };
            let all = self.gathered.iter().take(MOST_PROPOSALS);
            let count = all.take_while(fits).count();
            // A proposal that can never fit is refused alone.
            let batch: Vec<_> = self.gathered.drain(..count.max(1)).collect();
            let has_barrier = batch.iter().any(|new| new.is_barrier);
            let proposals: Vec<_> = batch.iter().map(|new| new.proposal.clone()).collect();
            let requests = proposals.iter().map(|proposal| proposal.request).collect();
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
                self.refuse_with_dependents(batch, Refusal::NoReplicas, actions);
                continue;
            }
            if has_barrier {
                self.note_barrier_logged();
            }
            let place = Place {
                term: self.raw.raft.term,
                index: self.raw.raft.raft_log.last_index(),
            };
            debug_assert!(
                self.logged.back().is_none_or(|before| before.place < place)
                    && place > self.handed.place,
                "entry {place} is logged after {:?} and {}",
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

    /// Proposes the coordinator's changes, if the group is ready for them.
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
            // If a change is dropped, the coordinator asks again.
            let _ = (self.raw).propose_conf_change(context.into(), to_raft(changes));
        }
    }

    /// Proposes the coordinator's split, if the group is ready for it.
    pub(crate) fn propose_split(&mut self, now: Now, split: SplitEntry, actions: &mut Vec<Action>) {
        let is_settled = !self.raw.raft.has_pending_conf() && split.is_for(self.membership());
        let is_handed_over = self.raw.raft.lead_transferee.is_some();
        if self.is_leader() && is_settled && !is_handed_over && self.has_majority(now) {
            let content = Content::Split(split).to_bytes();
            // If a split is dropped, the coordinator asks again.
            if self.raw.propose(Vec::new(), content.into()).is_ok() {
                self.refuse_gathered_evaluations(actions);
            }
        }
    }

    pub(crate) fn is_close(&self, peer: PeerId) -> bool {
        let committed = self.raw.raft.raft_log.committed;
        let progress = self.progress(peer);
        // A peer that has not yet reported its log may lack everything older than the leader's log.
        let has_begun =
            |matched: u64| matched >= FOUNDED.index || is_planted(Bug::PromotesTheEmpty);
        progress.is_some_and(|it| {
            it.is_active && has_begun(it.matched) && it.matched + CLOSE_BEHIND >= committed
        })
    }

    /// Hands over leadership, if this replica leads. It stands for election only if no other peer
    /// is elected.
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

    /// Hands over leadership to a peer that lacks few enough entries to lead soon.
    pub(crate) fn hand_over(&mut self, to: PeerId) {
        let is_voter = self.membership().voters.contains(&to);
        let again = self.handed_over_at_tick;
        let is_time = again.is_none_or(|at| self.ticks >= at + HAND_OVER_AGAIN_TICKS);
        let last = self.raw.raft.raft_log.last_index();
        let progress = self.progress(to);
        let is_near =
            progress.is_some_and(|it| it.is_active && it.matched + FORCED_PEER_BEHIND >= last);
        if self.is_leader() && to != self.me && is_voter && is_time && is_near {
            // From here on, reads need a round: the new leader may be elected within the lease.
            self.handed_over_in = self.raw.raft.term;
            self.handed_over_at_tick = Some(self.ticks);
            self.raw.transfer_leader(to.0);
        }
    }

    /// Refuses the requests that wait for a leader that has lost leadership.
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
        for new in std::mem::take(&mut self.gathered) {
            actions.push(self.refuse(new.proposal.request, not_leader));
        }
        self.renew_basis();
        for request in self.reads.reset() {
            actions.push(self.refuse(request, not_leader));
        }
    }
}
