//! Gathers proposals until they are logged, and tracks the basis of evaluations.

use crate::basis::{Basis, NewProposal};
use crate::bugs::{Bug, is_planted};
use crate::events::{Action, Refusal};
use crate::replica::Replica;

impl Replica {
    /// Returns the basis for evaluations. `None` if the replica does not lead, or waits for a
    /// barrier to be logged.
    pub fn basis(&self) -> Option<Basis> {
        let index = self.basis.apply_first.filter(|_| self.is_leader())?;
        let number = self.basis.number;
        Some(Basis { number, index })
    }

    /// Begins a new basis behind everything that the log has now.
    pub(crate) fn renew_basis(&mut self) {
        let last = self.raw.raft.raft_log.last_index();
        self.basis.number += 1;
        self.basis.apply_first = Some(last);
    }

    /// Notes that the last logged entry has a barrier.
    pub(crate) fn note_barrier_logged(&mut self) {
        self.basis.apply_first = Some(self.raw.raft.raft_log.last_index());
    }

    /// Gathers proposals, except for those that were evaluated on another basis.
    pub(crate) fn gather(&mut self, proposals: Vec<NewProposal>, actions: &mut Vec<Action>) {
        for new in proposals {
            let is_outdated = new.basis.is_some_and(|basis| basis != self.basis.number);
            if is_outdated && !is_planted(Bug::TakesAnyBasis) {
                actions.push(self.refuse(new.proposal.request, Refusal::Outdated));
                continue;
            }
            if new.is_barrier {
                self.basis.number += 1;
                self.basis.apply_first = None;
            }
            self.gathered.push(new);
        }
    }

    /// Refuses proposals, and those that may rest on them.
    pub(crate) fn refuse_with_dependents(
        &mut self,
        proposals: Vec<NewProposal>,
        why: Refusal,
        actions: &mut Vec<Action>,
    ) {
        let has_basis = proposals.iter().any(|new| new.basis.is_some());
        let has_barrier = proposals.iter().any(|new| new.is_barrier);
        let refused = proposals.into_iter();
        actions.extend(refused.map(|new| self.refuse(new.proposal.request, why)));
        if has_basis || has_barrier {
            self.refuse_gathered_evaluations(actions);
        }
    }

    /// Refuses the gathered proposals that were evaluated, and begins a new basis.
    pub(crate) fn refuse_gathered_evaluations(&mut self, actions: &mut Vec<Action>) {
        if !is_planted(Bug::TakesAnyBasis) {
            let outdated = self.gathered.extract_if(.., |new| new.basis.is_some());
            let outdated: Vec<NewProposal> = outdated.collect();
            let refused = outdated.into_iter();
            actions.extend(refused.map(|new| self.refuse(new.proposal.request, Refusal::Outdated)));
        }
        self.renew_basis();
        if self.gathered.iter().any(|new| new.is_barrier) {
            self.basis.apply_first = None;
        }
    }
}
