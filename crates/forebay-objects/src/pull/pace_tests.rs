//! Tests a pull beside a server with simulated latency and clock.

use std::sync::Arc;

use forebay_io::Clock;
use forebay_io::sim::HandClock;

use super::pace::{LOOK, Pacer};
use super::throttle::{FLOOR_BYTES, PullRate, PullThrottle};

const MIB: u64 = 1 << 20;

/// A throttle, its controller, and a server that counts.
struct Bench {
    clock: Arc<HandClock>,
    throttle: Arc<PullThrottle>,
    pacer: Pacer,
    counts: Vec<u64>,
}

impl Bench {
    fn new(ceiling_bytes: Option<u64>) -> Self {
        let rate = PullRate {
            ceiling_bytes,
            adaptive: true,
        };
        let clock = Arc::new(HandClock::default());
        let throttle = Arc::new(PullThrottle::new(rate, clock.clone()));
        Self {
            pacer: Pacer::new(Arc::clone(&throttle)),
            counts: vec![0; 25],
            clock,
            throttle,
        }
    }

    /// Takes a measurement, after `commands` that took up to `2^bucket` microseconds each, while a
    /// pull fetches at the limit, at most `bytes` a second. Returns the limit, `None` for no limit.
    fn look(&mut self, commands: u64, bucket: usize, bytes: u64) -> Option<u64> {
        self.counts[bucket] += commands;
        let fetched = bytes.min(self.throttle.limit_bytes()) / 2;
        let until = self.clock.monotonic() + LOOK;
        if fetched > 0 {
            self.throttle.take_here(fetched);
        }
        self.clock
            .sleep(until.saturating_sub(self.clock.monotonic()));
        self.pacer.look(self.clock.monotonic(), self.counts.clone());
        let limit = self.throttle.limit_bytes();
        (limit < u64::MAX).then_some(limit)
    }
}

#[test]
fn slow_serving_lowers_the_rate_and_fast_serving_raises_it() {
    let mut bench = Bench::new(Some(64 * MIB));
    for _ in 0..10 {
        assert_eq!(bench.look(1000, 4, 0), Some(16 * MIB));
    }
    let throttle = Arc::clone(&bench.throttle);
    let active = throttle.begin();
    // As fast as before, or a little slower: it rises to the requested rate.
    let limits = [4, 4, 4, 4, 5, 4].map(|bucket| bench.look(1000, bucket, 400 * MIB));
    let expected = [24, 36, 54, 64, 64, 64].map(|mib| Some(mib * MIB));
    assert_eq!(limits, expected);
    assert_eq!(throttle.slowed(), 0);
    let mut limits = vec![64 * MIB];
    for _ in 0..8 {
        limits.push(bench.look(1000, 10, 400 * MIB).expect("a limit"));
    }
    assert!(limits.is_sorted_by(|a, b| a >= b), "{limits:?}");
    assert!(limits[1] <= 32 * MIB, "{limits:?}");
    assert_eq!(limits[8], FLOOR_BYTES, "a pull never stops");
    assert!(throttle.slowed() >= 3);
    let slowed = throttle.slowed();
    let mut limits = vec![FLOOR_BYTES];
    for _ in 0..60 {
        limits.push(bench.look(1000, 4, 400 * MIB).expect("a limit"));
    }
    assert!(limits.is_sorted(), "{limits:?}");
    assert!(
        limits[1] < 2 * FLOOR_BYTES,
        "the rate rises slowly: {limits:?}"
    );
    assert_eq!(limits[60], 64 * MIB);
    assert_eq!(throttle.slowed(), slowed);
    drop(active);
}

#[test]
fn with_nothing_served_a_pull_goes_at_full_speed() {
    let mut bench = Bench::new(None);
    let throttle = Arc::clone(&bench.throttle);
    let _active = throttle.begin();
    for _ in 0..20 {
        // A few commands are no load, at any latency.
        assert_eq!(bench.look(2, 20, 400 * MIB), None);
    }
    assert_eq!(throttle.slowed(), 0);
}

#[test]
fn a_limit_is_lifted_when_the_load_ends_or_the_pull_does() {
    let mut bench = Bench::new(None);
    for _ in 0..5 {
        bench.look(1000, 4, 0);
    }
    let throttle = Arc::clone(&bench.throttle);
    let active = throttle.begin();
    let first = bench.look(1000, 12, 256 * MIB).expect("a limit");
    assert!(first <= 8 * MIB, "half of the fetched bytes: {first}");
    // In two seconds without commands it doubles; a limit that delays nothing is removed.
    let mut looks = 0;
    while bench.look(0, 0, 64 * MIB).is_some() {
        looks += 1;
        assert!(looks < 60);
    }
    bench.look(1000, 12, 256 * MIB).expect("a limit");
    drop(active);
    assert_eq!(
        bench.look(1000, 4, 0),
        Some(16 * MIB),
        "the next pull begins with it"
    );
    assert_eq!(bench.look(0, 4, 0), Some(16 * MIB));
    let quiet: Vec<_> = (0..5).map(|_| bench.look(0, 4, 0)).collect();
    assert_eq!(quiet.last(), Some(&None), "no client is served");
}

#[test]
fn a_pull_that_slows_no_commands_is_soon_unlimited() {
    let mut bench = Bench::new(None);
    for _ in 0..5 {
        bench.look(1000, 4, 0);
    }
    let throttle = Arc::clone(&bench.throttle);
    let _active = throttle.begin();
    let mut limits = Vec::new();
    while let Some(limit) = bench.look(1000, 4, 4000 * MIB) {
        limits.push(limit / MIB);
    }
    assert_eq!(limits, [24, 36, 54, 81, 121, 182, 273, 410, 615, 922]);
    assert_eq!(throttle.slowed(), 0);
}

#[test]
fn load_that_grew_during_a_pull_does_not_hold_it_up_for_good() {
    let mut bench = Bench::new(Some(64 * MIB));
    for _ in 0..5 {
        bench.look(1000, 4, 0);
    }
    let throttle = Arc::clone(&bench.throttle);
    let _active = throttle.begin();
    let limits: Vec<u64> = (0..200)
        .filter_map(|_| bench.look(1000, 11, 64 * MIB))
        .collect();
    assert!(limits.contains(&FLOOR_BYTES));
    assert_eq!(limits.last(), Some(&(64 * MIB)));
}

#[test]
fn a_pull_that_begins_before_anything_was_served_learns_at_the_floor() {
    let mut bench = Bench::new(None);
    let throttle = Arc::clone(&bench.throttle);
    let _active = throttle.begin();
    assert_eq!(bench.look(1000, 9, 400 * MIB), Some(FLOOR_BYTES));
    let last = (0..40).map(|_| bench.look(1000, 9, 400 * MIB)).last();
    let last = last.flatten().unwrap_or(u64::MAX);
    assert!(last > 4 * FLOOR_BYTES, "{last}");
}

#[test]
fn a_rate_below_the_floor_that_was_asked_for_is_kept() {
    let mut bench = Bench::new(Some(MIB));
    let throttle = Arc::clone(&bench.throttle);
    let _active = throttle.begin();
    for _ in 0..5 {
        assert_eq!(bench.look(1000, 15, 400 * MIB), Some(MIB));
    }
}
