//! Random numbers that a seed repeats, and runs of many seeds for the tests of simulators.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::Random;
use crate::threads::pool;

/// A small deterministic generator (splitmix64): one seed, one sequence.
#[derive(Debug, Clone)]
pub struct Rng(pub u64);

impl Rng {
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Returns a number below `bound`, which must not be 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next_u64() % bound
    }
}

/// An [`Rng`] as a [`Random`].
#[derive(Debug)]
pub struct SeededRandom(Mutex<Rng>);

impl SeededRandom {
    pub fn new(seed: u64) -> Self {
        Self(Mutex::new(Rng(seed)))
    }
}

impl Random for SeededRandom {
    fn next_u64(&self) -> u64 {
        let mut rng = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        rng.next_u64()
    }
}

/// How often each event happened, for people.
pub type SeedCounts = BTreeMap<&'static str, u64>;

/// Runs the seeds from 0 to `count` on two threads. Fails with the seeds for which `run` returns a
/// violation. `FOREBAY_TEST_SEED=n` runs that seed alone, `FOREBAY_TEST_SEEDS=n` that many.
pub fn all_hold(count: u64, run: impl Fn(u64) -> (Option<String>, SeedCounts) + Sync) {
    let (first, count) = match number("FOREBAY_TEST_SEED") {
        Some(seed) => (seed, 1),
        None => (0, number("FOREBAY_TEST_SEEDS").unwrap_or(count)),
    };
    let next = AtomicU64::new(first);
    let both = pool(2, || {
        let (mut problems, mut counts) = (BTreeMap::new(), SeedCounts::new());
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= first + count {
                return (problems, counts);
            }
            let (problem, counted) = run(seed);
            problems.extend(problem.map(|problem| (seed, problem)));
            add(&mut counts, counted);
        }
    });
    let (mut problems, mut counts) = (BTreeMap::new(), SeedCounts::new());
    for (some, counted) in both {
        problems.extend(some);
        add(&mut counts, counted);
    }
    println!("{counts:?}");
    let shown = problems.iter().take(20);
    let shown: Vec<String> = shown
        .map(|(seed, problem)| format!("FOREBAY_TEST_SEED={seed} repeats this: {problem}"))
        .collect();
    let failed = problems.len();
    assert!(problems.is_empty(), "{failed} of {count} runs: {shown:#?}");
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn add(counts: &mut SeedCounts, more: SeedCounts) {
    for (what, count) in more {
        *counts.entry(what).or_insert(0) += count;
    }
}
