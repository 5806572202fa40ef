//! Waking a thread by those that it is made after.

use std::fmt;

use forebay_host::StandingWatch;
use parking_lot::Mutex;

/// Wakes nobody until somebody hears it.
#[derive(Default)]
pub struct Bell(Mutex<Option<Box<dyn Fn() + Send>>>);

impl Bell {
    pub fn is_heard_by(&self, wake: impl Fn() + Send + 'static) {
        *self.0.lock() = Some(Box::new(wake));
    }

    pub fn ring(&self) {
        if let Some(wake) = &*self.0.lock() {
            wake();
        }
    }
}

impl StandingWatch for Bell {
    fn stands_anew(&self) {
        self.ring();
    }
}

impl fmt::Debug for Bell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Bell")
    }
}
