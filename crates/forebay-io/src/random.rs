//! Sources of random numbers.

use std::fmt::Debug;

/// A source of random numbers.
pub trait Random: Debug + Send + Sync + 'static {
    fn next_u64(&self) -> u64;
}

/// Random numbers seeded by the system.
#[derive(Debug, Default, Clone, Copy)]
pub struct SystemRandom;

impl Random for SystemRandom {
    fn next_u64(&self) -> u64 {
        use std::hash::{BuildHasher, Hasher, RandomState};
        RandomState::new().build_hasher().finish()
    }
}
