//! Defects that tests plant in the state machines to check that the simulator finds them.
//!
//! Outside of tests there are none.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// The coordinator commits a swap before all nodes have reported.
    CommitsEarly,
    /// The coordinator does not compare proofs with the manifests.
    BelievesProofs,
    /// The coordinator accepts a late heartbeat of a process that has ended.
    HearsStale,
    /// A revert ends before all nodes have reverted.
    ForgetsANode,
    /// A node does not retry a drop that failed.
    ForgetsADrop,
    /// The coordinator excludes a node as soon as the node is down.
    LeavesOutEarly,
    /// The coordinator carries out a request again that it has already answered.
    DoesTwice,
    /// The preference lists change before their new nodes have the data.
    MovesEarly,
    /// A node removes data that it no longer has to hold before all nodes know the new lists.
    ReleasesEarly,
    /// A node that lacks the new version answers from the version that the head has replaced.
    AnswersFromOld,
    /// A replica that lost its state comes back as the same peer.
    ReusesAPeer,
}

#[cfg(test)]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Bug>> = const { std::cell::Cell::new(None) };
}

/// Plants a defect in everything that this thread runs from now on.
#[cfg(test)]
pub fn plant(bug: Option<Bug>) {
    PLANTED.set(bug);
}

#[cfg(test)]
pub fn is_planted(bug: Bug) -> bool {
    PLANTED.get() == Some(bug)
}

#[cfg(not(test))]
pub const fn is_planted(_: Bug) -> bool {
    false
}
