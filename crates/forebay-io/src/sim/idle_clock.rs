//! A clock for many threads whose time passes only while all of them wait.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use super::rest::{LOOK, Rest};
use crate::{Clock, Waiting, start_thread};

/// Waits end at multiples of this, so that events at about the same time happen together.
const GRAIN: Duration = Duration::from_millis(10);
/// How long this process may be busy before the clock reports what it does.
const BUSY: Duration = Duration::from_secs(60);

/// A clock that stands still while any thread of this process has work. When all wait, it advances
/// to the next moment that one of them waits for. So nothing is late because the machine is slow,
/// and no wait takes long.
///
/// There may be one in a process: two such clocks slow each other down, and so does any other work
/// in the process.
#[derive(Debug)]
pub struct IdleClock {
    shared: Arc<IdleShared>,
}

#[derive(Debug, Default)]
struct IdleShared {
    state: Mutex<IdleState>,
}

#[derive(Debug, Default)]
struct IdleState {
    start_ms: u64,
    now: Duration,
    alarms: BTreeMap<AlarmKey, Sleeper>,
    alarms_set: u64,
    is_over: bool,
}

/// The moment of an alarm, and its number among all alarms.
type AlarmKey = (Duration, u64);

#[derive(Debug)]
enum Sleeper {
    Thread(Thread),
    Task(Option<Waker>),
}

/// A task's wait.
#[derive(Debug)]
struct IdleWait {
    shared: Arc<IdleShared>,
    key: AlarmKey,
}

impl IdleClock {
    /// Creates a clock that begins `start_ms` after 1970-01-01 UTC.
    pub fn at(start_ms: u64) -> std::io::Result<Self> {
        let shared = Arc::<IdleShared>::default();
        shared.lock().start_ms = start_ms;
        let moved = Arc::clone(&shared);
        start_thread("sim-clock", move || moved.run())?;
        Ok(Self { shared })
    }

    /// Ends all waits, now and later, as if their time had come.
    pub fn end(&self) {
        let mut state = self.shared.lock();
        state.is_over = true;
        let all = std::mem::take(&mut state.alarms);
        drop(state);
        all.into_values().for_each(Sleeper::wake);
    }
}

impl Drop for IdleClock {
    fn drop(&mut self) {
        self.end();
    }
}

impl Sleeper {
    fn wake(self) {
        match self {
            Sleeper::Thread(thread) => thread.unpark(),
            Sleeper::Task(waker) => waker.into_iter().for_each(Waker::wake),
        }
    }
}

impl IdleState {
    /// Sets an alarm at the first multiple of the grain that is not before the end of that time.
    fn set(&mut self, time: Duration, who: Sleeper) -> AlarmKey {
        let grains = (self.now + time).as_nanos().div_ceil(GRAIN.as_nanos());
        let at = GRAIN * u32::try_from(grains).unwrap_or(u32::MAX);
        let key = (at.max(self.now + time), self.alarms_set);
        self.alarms_set += 1;
        self.alarms.insert(key, who);
        key
    }

    /// Advances to the next alarm. Returns the sleepers to wake.
    fn advance(&mut self) -> Vec<Sleeper> {
        let Some((next, _)) = self.alarms.keys().next().copied() else {
            return Vec::new();
        };
        self.now = self.now.max(next);
        let later = self.alarms.split_off(&(next, u64::MAX));
        let due = std::mem::replace(&mut self.alarms, later);
        due.into_values().collect()
    }
}

impl IdleShared {
    fn lock(&self) -> MutexGuard<'_, IdleState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the thread that advances the clock.
    fn run(&self) {
        let mut rest = Rest::new();
        let (mut busy_since, mut is_reported) = (Instant::now(), false);
        while !self.lock().is_over {
            if rest.is_all() {
                let due = self.lock().advance();
                let is_idle = due.is_empty();
                due.into_iter().for_each(Sleeper::wake);
                (busy_since, is_reported) = (Instant::now(), false);
                if !is_idle {
                    continue;
                }
            } else if !is_reported && busy_since.elapsed() > BUSY {
                is_reported = true;
                eprintln!(
                    "the simulated clock stands still for {BUSY:?}: {:?} run",
                    rest.awake()
                );
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Waits until the moment, or, with `is_woken_before`, until something else wakes this thread.
    fn pause(&self, time: Duration, is_woken_before: bool) {
        if time.is_zero() {
            return std::thread::yield_now();
        }
        let mut state = self.lock();
        if state.is_over {
            // A thread that waits for an event with a limit gives up then.
            state.now += time;
            drop(state);
            // A thread that polls for an end gets the processor for it.
            return std::thread::sleep(LOOK);
        }
        let key = state.set(time, Sleeper::Thread(std::thread::current()));
        drop(state);
        loop {
            std::thread::park();
            let mut state = self.lock();
            if is_woken_before {
                state.alarms.remove(&key);
            }
            if !state.alarms.contains_key(&key) {
                return;
            }
        }
    }
}

impl Clock for IdleClock {
    fn unix_ms(&self) -> u64 {
        let state = self.shared.lock();
        state.start_ms + state.now.as_millis() as u64
    }

    fn monotonic(&self) -> Duration {
        self.shared.lock().now
    }

    fn sleep(&self, time: Duration) {
        self.shared.pause(time, false);
    }

    fn wait(&self, time: Duration) -> Waiting {
        let mut state = self.shared.lock();
        let is_over = state.is_over;
        let key = state.set(time, Sleeper::Task(None));
        if is_over {
            state.now += time;
            state.alarms.remove(&key);
        }
        drop(state);
        Box::pin(IdleWait {
            shared: Arc::clone(&self.shared),
            key,
        })
    }

    fn park(&self, limit: Duration) {
        self.shared.pause(limit, true);
    }
}

impl Future for IdleWait {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        match self.shared.lock().alarms.get_mut(&self.key) {
            None => Poll::Ready(()),
            Some(sleeper) => {
                *sleeper = Sleeper::Task(Some(context.waker().clone()));
                Poll::Pending
            }
        }
    }
}

impl Drop for IdleWait {
    fn drop(&mut self) {
        let alarm = self.shared.lock().alarms.remove(&self.key);
        drop(alarm);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn an_hour_of_many_threads_takes_no_time_and_no_wait_is_cut_short() {
        let clock = Arc::new(IdleClock::at(7).unwrap());
        let waits = Arc::new(AtomicU64::new(0));
        let sleeper = |number: u32| {
            let (clock, waits) = (Arc::clone(&clock), Arc::clone(&waits));
            start_thread("sleeper", move || {
                let time = HOUR / 20 * number;
                while clock.monotonic() + time <= HOUR {
                    let until = clock.monotonic() + time;
                    clock.sleep(time);
                    assert_eq!(clock.monotonic(), until);
                    waits.fetch_add(1, Ordering::Relaxed);
                }
            })
        };
        let threads: Vec<_> = (1..=4).map(|number| sleeper(number).unwrap()).collect();
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(waits.load(Ordering::Relaxed), 20 + 10 + 6 + 5);
        assert_eq!(clock.monotonic(), HOUR);
        assert_eq!(clock.unix_ms(), 7 + 3_600_000);
    }

    #[test]
    fn an_earlier_unpark_ends_a_park_but_no_sleep() {
        let clock = Arc::new(IdleClock::at(0).unwrap());
        std::thread::current().unpark();
        clock.sleep(HOUR);
        assert_eq!(clock.monotonic(), HOUR);
        std::thread::current().unpark();
        clock.park(HOUR);
        assert_eq!(clock.monotonic(), HOUR);
        clock.park(HOUR);
        assert_eq!(clock.monotonic(), 2 * HOUR);
    }

    #[test]
    fn dropped_waits_do_not_hold_the_clock_back() {
        let clock = IdleClock::at(0).unwrap();
        drop(clock.wait(HOUR));
        clock.sleep(HOUR * 2);
        assert_eq!(clock.monotonic(), HOUR * 2);
        let mut wait = clock.wait(HOUR);
        let mut context = Context::from_waker(Waker::noop());
        assert!(wait.as_mut().poll(&mut context).is_pending());
        clock.sleep(HOUR);
        assert!(wait.as_mut().poll(&mut context).is_ready());
    }
}
