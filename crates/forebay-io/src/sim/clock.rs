//! A clock that a test moves.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::{Clock, SystemClock, Waiting};

/// A clock whose time passes when a test advances it.
#[derive(Debug)]
pub struct HandClock {
    hands: Arc<Hands>,
    sleep: Sleep,
}

/// The clock and the waits on it.
#[derive(Debug, Default)]
struct Hands {
    state: Mutex<ClockState>,
    moved: Condvar,
}

#[derive(Debug, Default)]
struct ClockState {
    start_ms: u64,
    passed: Duration,
    /// No sleep takes any time from now on.
    over: bool,
    /// Tasks that wait for the clock to advance.
    wakers: Vec<Waker>,
}

/// A task's wait for a moment.
#[derive(Debug)]
struct HandWait {
    hands: Arc<Hands>,
    until: Duration,
    polled: bool,
}

/// What a sleep does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sleep {
    /// It advances the clock.
    Moves,
    /// It waits until the clock was advanced.
    Waits,
    /// It really sleeps: only dates are simulated.
    Really,
}

impl Default for HandClock {
    /// A clock that starts in 1970 and that sleeps advance.
    fn default() -> Self {
        Self::at(0)
    }
}

impl HandClock {
    /// A clock that sleeps advance. It begins `start_ms` after 1970-01-01 UTC.
    pub fn at(start_ms: u64) -> Self {
        Self::new(start_ms, Sleep::Moves)
    }

    /// A clock on which sleepers wait for [`HandClock::advance`].
    pub fn waiting() -> Self {
        Self::new(0, Sleep::Waits)
    }

    /// A clock with simulated dates. Sleepers really sleep, and its monotonic time is the
    /// machine's.
    pub fn of_dates(start_ms: u64) -> Self {
        Self::new(start_ms, Sleep::Really)
    }

    fn new(start_ms: u64, sleep: Sleep) -> Self {
        let hands = Arc::<Hands>::default();
        hands.lock().start_ms = start_ms;
        Self { hands, sleep }
    }

    pub fn advance(&self, time: Duration) {
        self.hands.change(|state| state.passed += time);
    }

    /// Sets the date to `unix_ms`.
    pub fn set(&self, unix_ms: u64) {
        let mut state = self.hands.lock();
        state.start_ms = unix_ms.saturating_sub(state.passed.as_millis() as u64);
    }

    /// Ends all waits, now and later.
    pub fn end(&self) {
        self.hands.change(|state| state.over = true);
    }
}

impl Hands {
    fn lock(&self) -> MutexGuard<'_, ClockState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut ClockState)) {
        let mut state = self.lock();
        change(&mut state);
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        self.moved.notify_all();
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl ClockState {
    fn is_past(&self, moment: Duration) -> bool {
        self.over || self.passed >= moment
    }
}

impl Future for HandWait {
    type Output = ();

    /// Never ready at once: a task that waits repeatedly lets others run, as with a real clock.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let polled = std::mem::replace(&mut self.polled, true);
        let mut state = self.hands.lock();
        match (state.is_past(self.until), polled) {
            (true, true) => return Poll::Ready(()),
            (true, false) => context.waker().wake_by_ref(),
            (false, _) => {
                if !state
                    .wakers
                    .iter()
                    .any(|waker| waker.will_wake(context.waker()))
                {
                    state.wakers.push(context.waker().clone());
                }
            }
        }
        Poll::Pending
    }
}

impl Clock for HandClock {
    fn unix_ms(&self) -> u64 {
        let state = self.hands.lock();
        state.start_ms + state.passed.as_millis() as u64
    }

    fn monotonic(&self) -> Duration {
        match self.sleep {
            Sleep::Moves | Sleep::Waits => self.hands.lock().passed,
            Sleep::Really => SystemClock.monotonic(),
        }
    }

    fn sleep(&self, time: Duration) {
        match self.sleep {
            Sleep::Moves => self.advance(time),
            Sleep::Really => SystemClock.sleep(time),
            Sleep::Waits => {
                let state = self.hands.lock();
                let until = state.passed + time;
                let waits = |state: &mut ClockState| !state.is_past(until);
                let waited = self.hands.moved.wait_while(state, waits);
                drop(waited.unwrap_or_else(PoisonError::into_inner));
            }
        }
    }

    fn wait(&self, time: Duration) -> Waiting {
        if self.sleep == Sleep::Really {
            return SystemClock.wait(time);
        }
        let until = self.hands.lock().passed + time;
        if self.sleep == Sleep::Moves {
            self.advance(time);
        }
        Box::pin(HandWait {
            hands: Arc::clone(&self.hands),
            until,
            polled: false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::within;

    const SECOND: Duration = Duration::from_secs(1);

    fn poll(future: Pin<&mut impl Future>) -> bool {
        future
            .poll(&mut Context::from_waker(Waker::noop()))
            .is_ready()
    }

    #[test]
    fn tasks_wait_until_the_clock_is_moved() {
        let clock = HandClock::waiting();
        let (mut short, mut long) = (clock.wait(SECOND), clock.wait(2 * SECOND));
        assert!(!poll(Pin::new(&mut short)) && !poll(Pin::new(&mut long)));
        clock.advance(SECOND / 2);
        assert!(!poll(Pin::new(&mut short)));
        clock.advance(SECOND / 2);
        assert!(poll(Pin::new(&mut short)) && !poll(Pin::new(&mut long)));
        clock.end();
        assert!(poll(Pin::new(&mut long)));
    }

    #[test]
    fn waiting_tasks_move_a_clock_that_sleepers_move() {
        let clock = HandClock::default();
        let mut wait = clock.wait(SECOND);
        assert_eq!(clock.monotonic(), SECOND);
        assert!(!poll(Pin::new(&mut wait)));
        assert!(poll(Pin::new(&mut wait)));
    }

    #[test]
    fn work_ends_at_its_time_limit() {
        let clock = HandClock::waiting();
        let mut never = Box::pin(within(&clock, SECOND, std::future::pending::<()>()));
        let mut done = Box::pin(within(&clock, SECOND, std::future::ready(7)));
        assert!(!poll(never.as_mut()) && poll(done.as_mut()));
        clock.advance(SECOND);
        assert!(poll(never.as_mut()));
    }
}
