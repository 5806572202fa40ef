//! Proposes to a group, and holds proposals back for checkpoints.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_replica::{Event, NewProposal, Proposal};

use crate::effects::{WriteDone, is_barrier};
use crate::group::{AfterUnlock, HostedGroup, Requester};

impl HostedGroup {
    /// Holds back proposals, as the module `hold` describes. Returns the term in which this replica
    /// leads.
    pub(crate) fn hold(self: &Arc<Self>, within: Duration) -> Option<u64> {
        if !self.held.begin(self.core.monotonic(), within) {
            return None;
        }
        // Read the term after the hold began: what is proposed in this term from now on waits.
        let term = self.leads_in();
        if term.is_none() {
            self.release();
        }
        term
    }

    pub(crate) fn is_held(&self) -> bool {
        self.held.is_on(self.core.monotonic())
    }

    pub(crate) fn release(self: &Arc<Self>) {
        let now = self.core.monotonic();
        self.held
            .release(now, |waiting| self.propose_now(waiting).carry_out(self));
    }

    /// Returns the term in which this replica leads, as far as it knows.
    fn leads_in(&self) -> Option<u64> {
        let facts = (!self.is_halted()).then(|| self.facts())?;
        (facts.leader == Some(self.me())).then_some(facts.term)
    }

    /// Proposes what depends on no state.
    pub(crate) fn propose(self: &Arc<Self>, effect: Bytes, done: WriteDone) {
        let request = self.core.next_request();
        let new = NewProposal {
            basis: None,
            is_barrier: is_barrier(&effect),
            proposal: Proposal { request, effect },
        };
        if let Some(after) = self.propose_in_order(new, done) {
            after.carry_out(self);
        }
    }

    /// Proposes, unless proposals are held back. Returns what the caller carries out without the
    /// lock of the leader's state.
    pub(crate) fn propose_in_order(
        self: &Arc<Self>,
        new: NewProposal,
        done: WriteDone,
    ) -> Option<AfterUnlock> {
        let admitted = self.held.admit(vec![(new, done)])?;
        Some(self.propose_now(admitted))
    }

    fn propose_now(self: &Arc<Self>, all: Vec<(NewProposal, WriteDone)>) -> AfterUnlock {
        let mut proposals = Vec::with_capacity(all.len());
        {
            let mut requesters = self.requesters.lock();
            for (new, done) in all {
                let request = new.proposal.request;
                let other = requesters.insert(request, Requester::Write(done));
                debug_assert!(other.is_none(), "two proposals have the number {request:?}");
                proposals.push(new);
            }
        }
        match self.is_halted() {
            true => AfterUnlock::refusing(&proposals),
            false => self.handle(Event::Propose(proposals)),
        }
    }
}
