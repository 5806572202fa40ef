//! Background work, in short pieces.
//!
//! After each piece the thread offers the processor to others ([`give_way`]). A system that
//! interrupts no thread between its clock ticks would otherwise let them wait for up to 4 ms.
//!
//! If a process may use only a part of the processors, that is not enough. A quota (`cpu.max` of a
//! control group, which containers have) goes to the thread that works first, whatever its
//! priority. Once it is used up, all threads of the process stop until the system's next period. A
//! merge that takes 20 ms of a processor at once thus delays every command that arrives meanwhile.
//! That happens even if the process uses only half of its quota on average. [`limit_behind`]
//! therefore limits what each thread may use, and threads pay for pieces with pauses.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long a thread works before it yields.
const PIECE: Duration = Duration::from_micros(250);
/// The least time between two measurements of a thread's usage.
const LEAST: Duration = Duration::from_micros(100);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_millis(20);
const NO_LIMIT: u64 = u64::MAX;

/// Millionths of a processor.
static SHARE: AtomicU64 = AtomicU64::new(NO_LIMIT);

thread_local! {
    static LAST: Cell<Option<YieldState>> = const { Cell::new(None) };
}

#[derive(Debug, Clone, Copy)]
struct YieldState {
    at: Instant,
    /// The processor time that the thread had used at its last pause.
    used: Duration,
}

/// Sets the part of a processor that each background thread of this process may use. `None`: no
/// limit, which is the default.
pub fn limit_behind(processors: Option<f64>) {
    let share = processors.map_or(NO_LIMIT, |part| (part * 1e6).max(1.0) as u64);
    SHARE.store(share, Ordering::Relaxed);
}

/// Yields the processor, and pauses if this thread has used more than its part since the last call.
/// Call it about every 100 microseconds of work, without locks that others wait for.
pub fn give_way() {
    let now = Instant::now();
    let Some(last) = LAST.get() else {
        let used = thread_time();
        LAST.set(Some(YieldState { at: now, used }));
        return;
    };
    if now.duration_since(last.at) < LEAST {
        return;
    }
    let used = thread_time();
    let piece = used.saturating_sub(last.used);
    if piece < PIECE {
        LAST.set(Some(YieldState { at: now, ..last }));
        return;
    }
    let share = match SHARE.load(Ordering::Relaxed) {
        NO_LIMIT => 1.0,
        share => share as f64 / 1e6,
    };
    match pause_after(piece, share) {
        Duration::ZERO => std::thread::yield_now(),
        pause => std::thread::sleep(pause),
    }
    let at = Instant::now();
    LAST.set(Some(YieldState { at, used }));
}

fn pause_after(used: Duration, share: f64) -> Duration {
    match share >= 1.0 {
        true => Duration::ZERO,
        false => used.mul_f64(1.0 / share - 1.0).min(LONGEST_PAUSE),
    }
}

fn thread_time() -> Duration {
    use rustix::time::{ClockId, clock_gettime};
    let used = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(used.tv_sec as u64, used.tv_nsec as u32)
}

/// Makes the system give this process memory in small pages from now on. The system clears a large
/// page at once when it is first touched. Each new thread touches several, which takes more of a
/// small quota than the threads' work. Does nothing if the system has no such option.
pub fn avoid_large_pages() {
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::disable_transparent_huge_pages(true);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_follows_each_piece_of_work() {
        let piece = Duration::from_millis(1);
        assert_eq!(pause_after(piece, 1.5), Duration::ZERO);
        assert_eq!(pause_after(piece, 0.25), Duration::from_millis(3));
        assert_eq!(pause_after(piece, 0.001), LONGEST_PAUSE);
    }

    #[test]
    fn a_thread_uses_no_more_than_its_share() {
        limit_behind(Some(0.2));
        let (begun, used) = (Instant::now(), thread_time());
        while thread_time() - used < Duration::from_millis(20) {
            give_way();
        }
        // The time before its first measurement counts as used.
        let took = begun.elapsed();
        limit_behind(None);
        assert!(took > Duration::from_millis(60), "{took:?}");
        let begun = thread_time();
        (0..1000).for_each(|_| give_way());
        assert!(thread_time() - begun < Duration::from_secs(1));
    }
}
