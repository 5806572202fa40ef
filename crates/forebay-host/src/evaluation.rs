//! Evaluates commands on the leader's newest state, and proposes their effects.
//!
//! The newest state is the applied one with the effects of the proposals that are not applied yet.
//! Evaluations of a group are done one at a time, and proposed in their order. The module `basis`
//! of `forebay-replica` says when the replica refuses an evaluation.

use std::sync::Arc;

use forebay_engine::live::Stored;
use forebay_replica::{NewProposal, Pending, Proposal};

use crate::effects::{Effect, is_barrier};
use crate::group::HostedGroup;
use crate::leader_state::{EvaluationResult, ProposeOutcome, Wake};

impl HostedGroup {
    /// Evaluates a command, and proposes its effect. See
    /// [`ReplicaHost::evaluate`](crate::ReplicaHost::evaluate).
    pub(crate) fn evaluate(
        self: &Arc<Self>,
        decide: impl FnOnce(&Pending<Stored>) -> EvaluationResult,
        wake: Wake,
    ) -> ProposeOutcome {
        let after = {
            let mut state = self.leader_state.lock();
            let basis = match self.known_basis() {
                Err(()) => return ProposeOutcome::NotLeader,
                Ok(basis) => basis.filter(|basis| basis.index <= self.applied()),
            };
            let Some(basis) = basis else {
                state.waiting.push(wake);
                return ProposeOutcome::Waits;
            };
            state.pending.begin(basis.number);
            let (effect, done) = match decide(&state.pending) {
                EvaluationResult::Effect(effect, done) => (effect, done),
                EvaluationResult::NoProposal => return ProposeOutcome::NotProposed,
                EvaluationResult::Waits => {
                    debug_assert!(
                        !state.pending.is_empty(),
                        "nothing would wake the evaluation"
                    );
                    state.waiting.push(wake);
                    return ProposeOutcome::Waits;
                }
            };
            let request = self.core.next_request();
            if let Effect::Operations(batch) = &effect {
                state.add(request, batch);
            }
            let effect = effect.encode();
            let new = NewProposal {
                is_barrier: is_barrier(&effect),
                basis: Some(basis.number),
                proposal: Proposal { request, effect },
            };
            self.propose_in_order(new, done)
        };
        if let Some(after) = after {
            after.carry_out(self);
        }
        ProposeOutcome::Proposed
    }

    /// Drops the effects of applied proposals.
    pub(crate) fn forget_pending(&self, proposals: &[Proposal]) {
        let mut state = self.leader_state.lock();
        if state.pending.is_empty() {
            return;
        }
        for proposal in proposals {
            state.pending.applied(proposal.request);
        }
    }

    /// Drops the effects of a leader that leads no more, and wakes the evaluations that wait.
    pub(crate) fn notice_leader(&self) {
        {
            let mut state = self.leader_state.lock();
            if self.known_basis().is_err() {
                state.pending.clear();
            }
        }
        self.wake_evaluations();
    }

    /// Wakes the evaluations that wait: entries were applied, or the leader changed.
    pub(crate) fn wake_evaluations(&self) {
        let waiting = std::mem::take(&mut self.leader_state.lock().waiting);
        waiting.into_iter().for_each(|wake| wake());
    }
}
