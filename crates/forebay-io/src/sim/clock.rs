//! A clock that a test moves.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::{Clock, SystemClock};

/// Time that passes when a test says so.
#[derive(Debug)]
pub struct HandClock {
    state: Mutex<ClockState>,
    moved: Condvar,
    sleep: Sleep,
}

#[derive(Debug, Default)]
struct ClockState {
    start_ms: u64,
    passed: Duration,
    /// No sleep takes any time from now on.
    over: bool,
}

/// What a sleeper does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sleep {
    /// It moves the clock.
    Moves,
    /// It waits until the clock was moved.
    Waits,
    /// It sleeps: only dates are by hand.
    Really,
}

impl Default for HandClock {
    /// A clock of 1970 that whoever sleeps moves.
    fn default() -> Self {
        Self::at(0)
    }
}

impl HandClock {
    /// A clock that whoever sleeps moves; it begins `start_ms` after 1970-01-01 UTC.
    pub fn at(start_ms: u64) -> Self {
        Self::new(start_ms, Sleep::Moves)
    }

    /// A clock on which sleepers wait for [`HandClock::advance`].
    pub fn waiting() -> Self {
        Self::new(0, Sleep::Waits)
    }

    /// A clock that has dates by hand; sleepers sleep, and its monotonic time is the machine's.
    pub fn of_dates(start_ms: u64) -> Self {
        Self::new(start_ms, Sleep::Really)
    }

    fn new(start_ms: u64, sleep: Sleep) -> Self {
        Self {
            state: Mutex::new(ClockState {
                start_ms,
                ..ClockState::default()
            }),
            moved: Condvar::new(),
            sleep,
        }
    }

    pub fn advance(&self, time: Duration) {
        self.lock().passed += time;
        self.moved.notify_all();
    }

    /// Lets the date be `unix_ms`.
    pub fn set(&self, unix_ms: u64) {
        let mut state = self.lock();
        state.start_ms = unix_ms.saturating_sub(state.passed.as_millis() as u64);
    }

    /// Lets all who wait go on, now and later.
    pub fn end(&self) {
        self.lock().over = true;
        self.moved.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, ClockState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock for HandClock {
    fn unix_ms(&self) -> u64 {
        let state = self.lock();
        state.start_ms + state.passed.as_millis() as u64
    }

    fn monotonic(&self) -> Duration {
        match self.sleep {
            Sleep::Moves | Sleep::Waits => self.lock().passed,
            Sleep::Really => SystemClock.monotonic(),
        }
    }

    fn sleep(&self, time: Duration) {
        match self.sleep {
            Sleep::Moves => self.advance(time),
            Sleep::Really => SystemClock.sleep(time),
            Sleep::Waits => {
                let state = self.lock();
                let until = state.passed + time;
                let waits = |state: &mut ClockState| state.passed < until && !state.over;
                let waited = self.moved.wait_while(state, waits);
                drop(waited.unwrap_or_else(PoisonError::into_inner));
            }
        }
    }
}
