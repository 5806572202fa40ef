//! Live tables against a plain map, through every end of a process.
//!
//! Random choices follow a seed that a failure prints; `FOREBAY_TEST_SEED=n` repeats it, and
//! `FOREBAY_TEST_ROUNDS=n` runs so many seeds instead of the usual number.
#![allow(clippy::unwrap_used)]

mod applying;
mod cut_by_entry;
mod damage;
mod divide;
mod faults;
mod formats;
mod history;
mod kill;
mod life;
mod lives;
mod replicas;
mod threads;
mod timed;

use forebay_io::sim::Rng;
use forebay_io::{Random, SystemRandom};

/// Runs a test on many seeds, or on the one that the environment names.
fn for_seeds(rounds: u64, test: impl Fn(u64)) {
    struct SeedNotice(u64);
    impl Drop for SeedNotice {
        fn drop(&mut self) {
            if std::thread::panicking() {
                eprintln!("repeat this with FOREBAY_TEST_SEED={}", self.0);
            }
        }
    }
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse().unwrap());
    let (first, rounds) = match number("FOREBAY_TEST_SEED") {
        Some(seed) => (seed, 1),
        None => {
            let rounds = number("FOREBAY_TEST_ROUNDS").unwrap_or(rounds);
            (SystemRandom.next_u64() >> 16, rounds)
        }
    };
    for seed in first..first + rounds {
        let notify = SeedNotice(seed);
        test(seed);
        drop(notify);
    }
}

/// Returns a random one of some items.
fn one_of<T: Copy>(rng: &mut Rng, things: &[T]) -> T {
    things[rng.below(things.len() as u64) as usize]
}
