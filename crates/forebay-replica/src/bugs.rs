//! Defects that tests plant in a replica, to see that the simulator finds them. Outside of tests
//! there are none.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// What is being written counts as written.
    AcksBeforeSync,
    /// A replica that lost its log goes on as the peer that it was.
    VotesAfterForgetting,
    /// Entries are applied once they are in the log.
    AppliesBeforeCommit,
    /// Who was the leader answers reads without asking the others.
    ReadsWhenStale,
    /// Each replica judges by its own clock.
    HasOwnClock,
    /// What may be in the log is proposed again.
    ProposesTwice,
    /// The lease is believed before the read, and not looked at after it.
    LooksOnce,
    /// A peer that was brought nothing yet is taken for one that lacks little.
    PromotesTheEmpty,
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
