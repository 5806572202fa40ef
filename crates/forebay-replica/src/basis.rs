//! The state on which a leader evaluates commands before it proposes their effects.
//!
//! A leader evaluates a command on the applied state and on the effects that it has proposed and
//! not applied yet ([`Pending`](crate::Pending)). The proposal is right only if the log has exactly
//! these effects before it. So each such proposal names its *basis*. The replica refuses a proposal
//! with another basis than its current one. A new basis begins when:
//!
//! - the replica becomes leader, or stops leading;
//! - an entry changes the state in a way that the pending effects do not show: a split, or a
//!   proposal that is a barrier (a load, the removal of a range);
//! - a proposal with a basis is refused: those after it may rest on it.
//!
//! Nothing of this is in the log. All entries of a term are from one leader, in the order in which
//! it proposed them.

use crate::entry::Proposal;

/// The state on which a leader may evaluate commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Basis {
    /// Rises with each new basis of this process.
    pub number: u64,
    /// The entries up to this index have to be applied before a command is evaluated.
    pub index: u64,
}

/// A proposal as a leader receives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewProposal {
    pub proposal: Proposal,
    /// The number of the basis on which it was evaluated; `None` if it depends on no state.
    pub basis: Option<u64>,
    /// Whether it changes the state in a way that the pending effects do not show.
    pub is_barrier: bool,
}

impl From<Proposal> for NewProposal {
    /// Returns a proposal that depends on no state.
    fn from(proposal: Proposal) -> Self {
        Self {
            proposal,
            basis: None,
            is_barrier: false,
        }
    }
}

/// The current basis of a replica.
#[derive(Debug, Default)]
pub(crate) struct BasisState {
    pub number: u64,
    /// Commands are evaluated only once this entry is applied. `None`: a barrier is gathered and
    /// not logged yet.
    pub apply_first: Option<u64>,
}
