//! Defects that tests plant in a replica, to check that the simulator finds them. Outside of tests
//! there are none.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// A write in progress counts as written.
    AcksBeforeSync,
    /// A replica that lost its log continues as the same peer.
    VotesAfterForgetting,
    /// Entries are applied once they are in the log.
    AppliesBeforeCommit,
    /// A former leader answers reads without asking the others.
    ReadsWhenStale,
    /// Each replica uses its own clock for expiry.
    HasOwnClock,
    /// Proposals that may be in the log are proposed again.
    ProposesTwice,
    /// The lease is checked before the read, and not after it.
    LooksOnce,
    /// A peer that has received nothing counts as close.
    PromotesTheEmpty,
    /// A leader logs effects that were evaluated on another basis.
    TakesAnyBasis,
}

#[cfg(test)]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Bug>> = const { std::cell::Cell::new(None) };
}

/// Plants a defect in the replicas that this thread runs from now on.
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
