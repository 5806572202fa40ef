//! Work that nobody waits for, in short pieces.
//!
//! After each piece the processor is offered to others ([`give_way`]): a system that interrupts no
//! thread between the ticks of its clock would let them wait for up to 4 ms.
//!
//! Where a process may use only a part of the processors that is not enough. A quota (`cpu.max` of
//! a control group, which containers have) is used up by whoever works first, whatever its
//! priority; then all threads of the process stand still until the system's next
//! period. So a merge that takes 20 ms of a processor at once holds up every command that comes
//! meanwhile, even where the process uses half of what it may on the whole. Then [`limit_behind`]
//! says what each thread may use, and pieces are paid for with pauses.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A thread gives way when it has worked for so long.
const PIECE: Duration = Duration::from_micros(250);
/// It is looked at what a thread has used at most so often.
const LEAST: Duration = Duration::from_micros(100);
/// No pause is longer.
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
    /// What the thread had used when it paused last.
    used: Duration,
}

/// What each thread of this process that gives way may use of a processor; `None`: all there is,
/// as from the start.
pub fn limit_behind(processors: Option<f64>) {
    let share = processors.map_or(NO_LIMIT, |part| (part * 1e6).max(1.0) as u64);
    SHARE.store(share, Ordering::Relaxed);
}

/// Lets others have the processor, and pauses where this thread has used more than its part since
/// it was here last. To be called every 100 microseconds of work or so, without locks that others
/// wait for.
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

/// From now on memory comes in small pages to this process: a large one is cleared at once when it
/// is first touched, by each new thread several, which takes more of a small quota than what the
/// threads do. Nothing where the system has no such choice.
pub fn avoid_large_pages() {
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::disable_transparent_huge_pages(true);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_is_paid_for_with_a_pause() {
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
        // It uses what it does before its first look.
        let took = begun.elapsed();
        limit_behind(None);
        assert!(took > Duration::from_millis(60), "{took:?}");
        let begun = thread_time();
        (0..1000).for_each(|_| give_way());
        assert!(thread_time() - begun < Duration::from_secs(1));
    }
}
