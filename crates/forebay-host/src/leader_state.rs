//! The newest state of a partition, as its leader knows it: the effects that are not applied yet.

use forebay_engine::live::{Batch, Stored};
use forebay_replica::{Pending, PendingValue, RequestId};
use forebay_run::operation::Operation;

use crate::effects::{Effect, WriteDone};

/// The callback of an evaluation that has to wait: it may succeed now.
pub type Wake = Box<dyn FnOnce() + Send>;

/// The result of a command's evaluation.
pub enum EvaluationResult {
    /// The effect, and the callback of its proposal.
    Effect(Effect, WriteDone),
    /// The command reads a key whose value depends on proposals that are not applied yet.
    Waits,
    /// Nothing is proposed. The evaluation itself has the reason.
    NoProposal,
}

/// The outcome of [`ReplicaHost::evaluate`](crate::ReplicaHost::evaluate).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProposeOutcome {
    Proposed,
    /// Nothing was proposed, as the evaluation decided.
    NotProposed,
    /// Nothing was proposed. The waker is called when another attempt may succeed.
    Waits,
    /// Nothing was proposed: this host does not lead the group.
    NotLeader,
}

/// The effects that a leader has proposed and not applied yet, and the evaluations that wait.
#[derive(Default)]
pub(crate) struct LeaderState {
    pub pending: Pending<Stored>,
    pub waiting: Vec<Wake>,
}

impl LeaderState {
    /// Adds the effects of a batch on its keys.
    pub fn add(&mut self, request: RequestId, batch: &Batch) {
        for (key, operation) in batch.records() {
            let value = match (operation.plain(), operation.value()) {
                (Operation::Delete, _) => PendingValue::Absent,
                (Operation::Update(_), Some((value, expires_ms))) => {
                    PendingValue::Present(Stored {
                        value: value.to_vec(),
                        expires_ms,
                    })
                }
                _ => PendingValue::Unknown,
            };
            self.pending.set(request, key, value);
        }
    }
}
