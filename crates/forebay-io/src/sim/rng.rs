//! Random numbers that a seed repeats.

use std::sync::{Mutex, PoisonError};

use crate::Random;

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
