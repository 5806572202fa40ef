//! A checksum of a set of records that does not depend on their order or their division into files.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Sub, SubAssign};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The sum, modulo 2^64, of a hash of each record. Sums of disjoint parts add up to that of the
/// whole. So the sums of partitions add up to their table's, for any partitioning.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ContentSum(pub u64);

impl ContentSum {
    /// Returns the hash of one record: XXH3 of the value, seeded with XXH3 of the key.
    #[inline]
    pub fn of(key: &[u8], value: &[u8]) -> Self {
        let seed = xxh3_64_with_seed(key, key.len() as u64);
        Self(xxh3_64_with_seed(value, seed))
    }
}

impl Add for ContentSum {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.wrapping_add(other.0))
    }
}

impl AddAssign for ContentSum {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for ContentSum {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0.wrapping_sub(other.0))
    }
}

impl SubAssign for ContentSum {
    fn sub_assign(&mut self, other: Self) {
        *self = *self - other;
    }
}

impl Sum for ContentSum {
    fn sum<I: Iterator<Item = Self>>(parts: I) -> Self {
        parts.fold(Self::default(), Add::add)
    }
}

impl fmt::Display for ContentSum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl FromStr for ContentSum {
    type Err = std::num::ParseIntError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        u64::from_str_radix(text, 16).map(Self)
    }
}

impl Serialize for ContentSum {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ContentSum {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}
