//! Defines orders other than key order, for records that are sent in such an order.
//!
//! Each key gets a prefix of a few bytes, by which records are sorted. The prefix is removed
//! afterwards.

use forebay_run::MAX_KEY_BYTES;
use forebay_run::error::named_key;

use super::SortError;

/// The order in which a sort returns records.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Arrangement {
    /// Key order.
    #[default]
    ByKey,
    /// An order decided by the seed, in which neighbouring keys are far apart.
    Shuffled(u64),
    /// Input order. Records of one key stay separate, and all are returned.
    AsTheyCame,
}

impl Arrangement {
    /// Returns the length of the prefix of a key.
    pub fn lead_bytes(self) -> usize {
        match self {
            Arrangement::ByKey => 0,
            Arrangement::Shuffled(_) => size_of::<u64>(),
            Arrangement::AsTheyCame => size_of::<u32>() + size_of::<u64>(),
        }
    }

    /// Writes the sort key of record number `index` of an input unit to `out`, replacing its
    /// content.
    pub(super) fn arrange(
        self,
        key: &[u8],
        (unit, index): (u32, u64),
        out: &mut Vec<u8>,
    ) -> Result<(), SortError> {
        let most = MAX_KEY_BYTES - self.lead_bytes();
        if key.len() > most {
            let key = named_key(key);
            return Err(SortError::LongKey { key, most });
        }
        out.clear();
        match self {
            Arrangement::ByKey => {}
            Arrangement::Shuffled(seed) => out.extend_from_slice(&mixed(seed, key).to_be_bytes()),
            Arrangement::AsTheyCame => {
                out.extend_from_slice(&unit.to_be_bytes());
                out.extend_from_slice(&index.to_be_bytes());
            }
        }
        out.extend_from_slice(key);
        Ok(())
    }
}

/// Returns a hash in which every bit depends on each bit of seed and key.
fn mixed(seed: u64, key: &[u8]) -> u64 {
    let mut hash = stirred(seed ^ key.len() as u64);
    for chunk in key.chunks(size_of::<u64>()) {
        let mut word = [0; size_of::<u64>()];
        word[..chunk.len()].copy_from_slice(chunk);
        hash = stirred(hash ^ u64::from_le_bytes(word));
    }
    hash
}

/// Applies the finalizer of SplitMix64.
fn stirred(mut bits: u64) -> u64 {
    bits = bits.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// A sample of keys of a collector's records, for an arrangement that hides the keys.
#[derive(Debug)]
pub struct DrawnKeys {
    keys: Vec<Vec<u8>>,
    /// One of this many records is drawn.
    step: u64,
    seen: u64,
    bytes: u64,
}

/// The most keys that are kept.
const KEYS: usize = 8192;

impl Default for DrawnKeys {
    fn default() -> Self {
        Self {
            keys: Vec::new(),
            step: 1,
            seen: 0,
            bytes: 0,
        }
    }
}

impl DrawnKeys {
    pub fn see(&mut self, key: &[u8], bytes: u64) {
        if self.seen.is_multiple_of(self.step) {
            if self.keys.len() == KEYS {
                let mut number = 0;
                self.keys.retain(|_| {
                    number += 1;
                    number % 2 == 1
                });
                self.step *= 2;
            }
            if self.seen.is_multiple_of(self.step) {
                self.keys.push(key.to_vec());
            }
        }
        self.seen += 1;
        self.bytes += bytes;
    }

    /// Returns the keys, and the number of bytes each represents.
    pub fn samples(&self) -> impl Iterator<Item = (Vec<u8>, u64)> + '_ {
        let each = self.bytes / (self.keys.len() as u64).max(1);
        self.keys.iter().map(move |key| (key.clone(), each.max(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_drawn_evenly_from_all_seen_keys() {
        let mut drawn = DrawnKeys::default();
        for number in 0..100_000_u32 {
            drawn.see(&number.to_be_bytes(), 10);
        }
        let samples: Vec<_> = drawn.samples().collect();
        assert!(samples.len() > KEYS / 2 - 1 && samples.len() <= KEYS);
        let bytes: u64 = samples.iter().map(|sample| sample.1).sum();
        assert!(bytes.abs_diff(1_000_000) < 20_000, "{bytes}");
        let half = 50_000_u32.to_be_bytes();
        let below = samples.iter().filter(|(key, _)| key[..] < half[..]);
        assert!(below.count().abs_diff(samples.len() / 2) < 10);
    }

    #[test]
    fn neighbours_are_scattered_differently_by_each_seed() {
        let key = |number: u32| format!("k{number:07}").into_bytes();
        let upper = |seed| (0..4096).filter(move |number| mixed(seed, &key(*number)) >> 63 == 1);
        for seed in 0..8 {
            let count = upper(seed).count();
            assert!(count.abs_diff(2048) < 200, "seed {seed}: {count}");
        }
        assert!(!upper(1).eq(upper(2)));
        assert_ne!(mixed(1, b"a"), mixed(1, b"a\0"));
    }

    #[test]
    fn a_key_that_leaves_no_room_is_refused() {
        let mut out = Vec::new();
        let key = vec![b'k'; MAX_KEY_BYTES];
        let shuffled = Arrangement::Shuffled(1);
        assert!(Arrangement::ByKey.arrange(&key, (0, 0), &mut out).is_ok());
        assert!(shuffled.arrange(&key[8..], (0, 0), &mut out).is_ok());
        assert_eq!(out.len(), MAX_KEY_BYTES);
        let refused = shuffled.arrange(&key[7..], (0, 0), &mut out);
        assert!(matches!(
            refused,
            Err(SortError::LongKey { most: 8184, .. })
        ));
    }
}
