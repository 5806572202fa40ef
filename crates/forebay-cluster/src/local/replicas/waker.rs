//! Wakes a thread that starts later than the threads that wake it.

use std::fmt;

use forebay_host::StandingWatch;
use parking_lot::Mutex;

/// A waker that calls the function set last, or nothing if none was set.
#[derive(Default)]
pub struct Waker(Mutex<Option<Box<dyn Fn() + Send>>>);

impl Waker {
    pub fn set(&self, wake: impl Fn() + Send + 'static) {
        *self.0.lock() = Some(Box::new(wake));
    }

    pub fn wake(&self) {
        if let Some(wake) = &*self.0.lock() {
            wake();
        }
    }
}

impl StandingWatch for Waker {
    fn changed(&self) {
        self.wake();
    }
}

impl fmt::Debug for Waker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Waker")
    }
}
