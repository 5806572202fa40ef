//! Defects that tests plant in the machines, to see that the simulator finds them. Outside of tests
//! there are none.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// A swap is committed without all reports.
    CommitsEarly,
    /// Proofs are not compared with the manifests.
    BelievesProofs,
    /// A late heartbeat of a process that has ended counts.
    HearsStale,
    /// A revert ends before all have gone back.
    ForgetsANode,
    /// A drop that a node could not carry out is not tried again.
    ForgetsADrop,
    /// A node that is down is left out at once.
    LeavesOutEarly,
    /// A request that was answered is done again.
    DoesTwice,
    /// The lists change before those who are new in them hold what they are to.
    MovesEarly,
    /// Who holds something no longer gives it up before all know.
    ReleasesEarly,
    /// A node answers from what the head has replaced, as long as it lacks the new version.
    AnswersFromOld,
    /// A replica that forgot comes back as the peer that it was.
    ReusesAPeer,
}

#[cfg(test)]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Bug>> = const { std::cell::Cell::new(None) };
}

/// Plants a defect in what this thread runs from now on.
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
