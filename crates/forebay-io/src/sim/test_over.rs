//! A flag for the end of a test, for threads that loop beside it.

use std::sync::atomic::{AtomicBool, Ordering};

/// Whether a test is over. Threads that loop until then also end if the test fails. Otherwise a
/// failing test would hang, and a thread that writes meanwhile would fill the memory.
#[derive(Debug, Default)]
pub struct TestOver(AtomicBool);

impl TestOver {
    pub fn is(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Ends the test when it is dropped, also by a panic.
    #[must_use]
    pub fn at_end(&self) -> OverAtEnd<'_> {
        OverAtEnd(self)
    }
}

/// A guard of the thread that decides that a test is over.
#[derive(Debug)]
pub struct OverAtEnd<'a>(&'a TestOver);

impl Drop for OverAtEnd<'_> {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Release);
    }
}
