//! Starts threads: long-running ones, and pools that share work, as many as the system allows.
//!
//! If the system starts no more threads (`ulimit -u`, the process limit of a container), work
//! becomes slower but does not fail. The caller does the work of the threads that it did not get.

use std::io;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::{Builder, JoinHandle, Scope, ScopedJoinHandle, scope, sleep};
use std::time::Duration;

use crate::raw;

/// Starts a thread that runs beside its caller.
pub fn start_thread<R: Send + 'static>(
    name: impl Into<String>,
    work: impl FnOnce() -> R + Send + 'static,
) -> io::Result<JoinHandle<R>> {
    Builder::new().name(name.into()).spawn(work)
}

/// How long a foreground thread works at most while others wait for its processor.
const ANSWERING_TURN: Duration = Duration::from_micros(100);

/// Starts a foreground thread, which answers a client. When it has work, it interrupts threads with
/// longer turns, which all others have. Linux supports this since 6.12; elsewhere it is an ordinary
/// thread.
pub fn start_answering<R: Send + 'static>(
    name: impl Into<String>,
    work: impl FnOnce() -> R + Send + 'static,
) -> io::Result<JoinHandle<R>> {
    start_thread(name, move || {
        raw::limit_turns(ANSWERING_TURN);
        work()
    })
}

/// The nice value of background threads. They get about a tenth of the processor time of other busy
/// threads, and all that those leave.
const BEHIND: u8 = 10;

/// Starts a background thread, which yields to foreground threads when processors are short.
pub fn start_behind<R: Send + 'static>(
    name: impl Into<String>,
    work: impl FnOnce() -> R + Send + 'static,
) -> io::Result<JoinHandle<R>> {
    start_thread(name, move || {
        // The caller may be a foreground thread.
        raw::limit_turns(Duration::ZERO);
        lower_priority(BEHIND);
        work()
    })
}

/// How long background work keeps a processor that others wait for.
const BEHIND_TURN: Duration = Duration::from_micros(500);

/// Does `work` on a background thread with this nice value; 0 is the priority of this thread.
/// Threads that it starts inherit the value. The waiting thread keeps its own.
///
/// A system that interrupts no thread between its clock ticks lets even the lowest priority keep a
/// processor for 4 ms. So a thread for each processor wakes often meanwhile, and lets the system
/// schedule again. That takes less than 1% of a processor.
pub fn behind<R: Send>(nice: u8, work: impl FnOnce() -> R + Send) -> R {
    if nice == 0 {
        return work();
    }
    let work = Mutex::new(Some(work));
    let take = || work.lock().unwrap_or_else(PoisonError::into_inner).take();
    let is_over = AtomicBool::new(false);
    scope(|scope| {
        interrupt_often(scope, &is_over);
        let started = start_within(scope, "forebay-behind", || {
            lower_priority(nice);
            take().map(|work| work())
        });
        let ended = started.map(|thread| thread.join());
        is_over.store(true, Ordering::Relaxed);
        match ended {
            Ok(Ok(Some(done))) => done,
            Ok(Err(panic)) => resume_unwind(panic),
            // The system starts no thread.
            Ok(Ok(None)) | Err(_) => take().expect("nobody else takes it")(),
        }
    })
}

#[cfg(not(target_os = "linux"))]
fn interrupt_often(_: &Scope<'_, '_>, _: &AtomicBool) {}

#[cfg(target_os = "linux")]
fn interrupt_often<'scope>(scope: &'scope Scope<'scope, '_>, is_over: &'scope AtomicBool) {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    let Ok(processors) = sched_getaffinity(None) else {
        return;
    };
    for processor in (0..CpuSet::MAX_CPU).filter(|number| processors.is_set(*number)) {
        let started = start_within(scope, "forebay-turns", move || {
            let mut own = CpuSet::new();
            own.set(processor);
            if sched_setaffinity(None, &own).is_err() {
                return;
            }
            raw::limit_turns(ANSWERING_TURN);
            while !is_over.load(Ordering::Relaxed) {
                sleep(BEHIND_TURN);
            }
        });
        if started.is_err() {
            return;
        }
    }
}

/// Lowers the priority of this thread, and of all that it starts from now on, to its nice value (19
/// is the lowest). If the system refuses, or would change the whole process, nothing changes.
fn lower_priority(nice: u8) {
    #[cfg(target_os = "linux")]
    let _ = rustix::process::nice(nice.into());
    #[cfg(not(target_os = "linux"))]
    let _ = nice;
}

/// Starts a thread that ends within `scope`.
pub fn start_within<'scope, R: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: impl Into<String>,
    work: impl FnOnce() -> R + Send + 'scope,
) -> io::Result<ScopedJoinHandle<'scope, R>> {
    Builder::new().name(name.into()).spawn_scoped(scope, work)
}

/// Does `work` on this thread, and on up to `threads` - 1 others at the same time. Returns the
/// results, this thread's first. REQUIRES that one of them alone does all that there is to do.
pub fn pool<R: Send>(threads: usize, work: impl Fn() -> R + Sync) -> Vec<R> {
    scope(|scope| {
        let start = |_| Builder::new().spawn_scoped(scope, &work).ok();
        let others: Vec<_> = (1..threads).map_while(start).collect();
        let mut results = vec![work()];
        results.extend(others.into_iter().map(ended));
        results
    })
}

/// Does `work` for each item, at the same time if there are enough threads. Returns the results in
/// the order of the items.
pub fn side_by_side<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let work = &work;
    scope(|scope| {
        let start = |item| {
            let thread = Builder::new().spawn_scoped(scope, move || work(item));
            thread.map_err(|_| item)
        };
        let started: Vec<_> = items.iter().map(start).collect();
        let result = |thread| match thread {
            Ok(thread) => ended(thread),
            Err(item) => work(item),
        };
        started.into_iter().map(result).collect()
    })
}

/// Fails if the system starts no thread, for callers that give work to code that requires a thread.
pub fn check_threads() -> io::Result<()> {
    let probe = Builder::new().spawn(|| ()).map_err(|error| {
        let text = format!(
            "the system starts no thread ({error}): raise the limit of processes (ulimit -u), or end some"
        );
        io::Error::new(error.kind(), text)
    })?;
    // The thread does nothing that can fail.
    let _ = probe.join();
    Ok(())
}

fn ended<R>(thread: ScopedJoinHandle<'_, R>) -> R {
    thread.join().unwrap_or_else(|panic| resume_unwind(panic))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[test]
    fn all_items_are_done_once() {
        let next = AtomicUsize::new(0);
        let take = || -> usize {
            std::iter::from_fn(|| Some(next.fetch_add(1, Ordering::Relaxed)))
                .take_while(|number| *number < 100)
                .sum()
        };
        for threads in [0, 1, 7] {
            next.store(0, Ordering::Relaxed);
            let sums = pool(threads, take);
            assert_eq!((sums.len(), sums.iter().sum()), (threads.max(1), 4950));
        }
        assert_eq!(side_by_side(&[1, 2, 3], |number| number * 2), [2, 4, 6]);
        assert!(check_threads().is_ok());
    }

    #[test]
    #[cfg(target_os = "linux")]
    #[cfg_attr(miri, ignore = "asks the system")]
    fn background_work_lowers_only_its_own_priority() {
        use rustix::process::nice;
        let own = nice(0).unwrap();
        let within = |value| behind(value, || (nice(0).unwrap(), pool(1, || nice(0).unwrap())));
        assert_eq!(within(0), (own, vec![own]));
        let lower = (own + 7).min(19);
        assert_eq!(within(7), (lower, vec![lower]));
        assert_eq!(nice(0).unwrap(), own);
        let panic = std::panic::catch_unwind(|| behind(7, || panic!("it broke")));
        assert_eq!(panic.unwrap_err().downcast_ref(), Some(&"it broke"));
    }
}
