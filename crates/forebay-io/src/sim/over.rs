//! The end of a test, for what loops beside it.

use std::sync::atomic::{AtomicBool, Ordering};

/// Whether a test is over. Threads that loop until it is end where it failed, too: a test that
/// fails would hang else, and one that writes meanwhile fills the memory.
#[derive(Debug, Default)]
pub struct TestOver(AtomicBool);

impl TestOver {
    pub fn is(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// It is over once this is dropped, also by a panic.
    #[must_use]
    pub fn at_end(&self) -> OverAtEnd<'_> {
        OverAtEnd(self)
    }
}

/// Held by who decides that a test is over.
#[derive(Debug)]
pub struct OverAtEnd<'a>(&'a TestOver);

impl Drop for OverAtEnd<'_> {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Release);
    }
}
