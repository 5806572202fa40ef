//! The filter of a run: shows without reading a page whether the run may contain a key.
//!
//! `docs/reference/run-format.md`, section 6.6, specifies its bytes. It is a blocked Bloom filter:
//! a key touches one block of 64 bytes, a cache line, and in each of its eight words one bit.
//! Records are added in any order, and nothing is kept but the filter. So the approximate number of
//! records has to be known in advance. If there are far fewer (a merge with many records of one
//! key), neighbouring blocks are united until the size fits.

use xxhash_rust::xxh3::xxh3_64;

use crate::hash::HASH_BITS;
use forebay_io::raw::prefetch;

/// The bits of a filter for each expected record.
pub const BITS_PER_KEY: u64 = 10;
const BLOCK_BYTES: usize = 64;
const BLOCK_BITS: u64 = 8 * BLOCK_BYTES as u64;
/// The number of times that a filter can be halved if there are fewer records than expected.
const FOLDS: u32 = 6;

/// Returns the hash of a key in filters: the low 50 bits of its hash64 in any table, so that a
/// caller with a hash64 need not compute it.
#[inline]
pub fn filter_hash(key: &[u8]) -> u64 {
    xxh3_64(key) >> (64 - HASH_BITS)
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(align(64))]
struct FilterBlock([u64; 8]);

/// A filter of keys. It may report a key that is absent, but never misses one that is present.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    blocks: Box<[FilterBlock]>,
}

/// A builder that collects the keys of a [`Filter`].
#[derive(Debug)]
pub struct FilterBuilder {
    blocks: Vec<FilterBlock>,
    records: u64,
    /// The last hashes added, whose blocks are being fetched into the cache.
    waiting: [u64; WAITING],
}

/// The number of blocks that are fetched at a time while a filter is filled.
const WAITING: usize = 32;

/// Returns the bits of a key in the words of its block.
#[inline]
fn bits(hash: u64) -> [u64; 8] {
    let mixed = (hash << (64 - HASH_BITS)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16;
    std::array::from_fn(|word| 1 << ((mixed >> (6 * word)) & 63))
}

/// Returns the block of a key among `count`. The bits with the most effect on it have the least
/// effect in [`bits`].
#[inline]
fn place(hash: u64, count: usize) -> usize {
    let high = (hash >> (HASH_BITS - 32)) & 0xffff_ffff;
    ((high * count as u64) >> 32) as usize
}

impl Filter {
    /// Returns whether the key of this hash (its hash64, or its [`filter_hash`]) may have been
    /// added.
    #[inline]
    pub fn may_hold(&self, hash: u64) -> bool {
        let Some(block) = self.blocks.get(place(hash, self.blocks.len())) else {
            return true;
        };
        let missing = block.0.iter().zip(bits(hash));
        missing.fold(0, |sum, (word, bit)| sum | (bit & !word)) == 0
    }

    pub fn memory_bytes(&self) -> usize {
        self.blocks.len() * BLOCK_BYTES
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let words = self.blocks.iter().flat_map(|block| block.0);
        words.flat_map(u64::to_le_bytes).collect()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, &'static str> {
        let (blocks, rest) = bytes.as_chunks::<BLOCK_BYTES>();
        if !rest.is_empty() || blocks.is_empty() || u32::try_from(blocks.len()).is_err() {
            return Err("section Filter: it is not made of blocks");
        }
        let block = |bytes: &[u8; BLOCK_BYTES]| {
            let words = bytes.as_chunks::<8>().0;
            FilterBlock(std::array::from_fn(|word| u64::from_le_bytes(words[word])))
        };
        Ok(Self {
            blocks: blocks.iter().map(block).collect(),
        })
    }
}

impl FilterBuilder {
    /// Returns a builder with about [`BITS_PER_KEY`] bits for each of `expected_records`. With more
    /// records the filter reports more false positives; nothing else changes.
    pub fn new(expected_records: u64) -> Self {
        let most = u64::from(u32::MAX >> FOLDS << FOLDS);
        let blocks = expected_records.saturating_mul(BITS_PER_KEY) / BLOCK_BITS + 1;
        // Only a number that divides by two can be halved later.
        let grain = 1 << FOLDS.min(blocks.ilog2().saturating_sub(2));
        let blocks = blocks.next_multiple_of(grain).min(most);
        Self {
            blocks: vec![FilterBlock::default(); blocks as usize],
            records: 0,
            waiting: [0; WAITING],
        }
    }

    /// Adds the key of this hash: its hash64, or its [`filter_hash`].
    #[inline]
    pub fn add(&mut self, hash: u64) {
        prefetch(&self.blocks, place(hash, self.blocks.len()));
        let earlier = &mut self.waiting[self.records as usize % WAITING];
        let due = std::mem::replace(earlier, hash);
        self.records += 1;
        if self.records > WAITING as u64 {
            self.set(due);
        }
    }

    #[inline]
    fn set(&mut self, hash: u64) {
        let place = place(hash, self.blocks.len());
        let words = self.blocks[place].0.iter_mut();
        words.zip(bits(hash)).for_each(|(word, bit)| *word |= bit);
    }

    pub fn finish(mut self) -> Filter {
        for at in 0..WAITING.min(self.records as usize) {
            self.set(self.waiting[at]);
        }
        let needed = self.records * BITS_PER_KEY / BLOCK_BITS + 1;
        debug_assert!(!self.blocks.is_empty(), "a filter without a block");
        while self.blocks.len().is_multiple_of(2) && self.blocks.len() as u64 / 2 >= needed {
            let (pairs, _) = self.blocks.as_chunks::<2>();
            let united = pairs
                .iter()
                .map(|[a, b]| FilterBlock(std::array::from_fn(|word| a.0[word] | b.0[word])));
            self.blocks = united.collect();
        }
        Filter {
            blocks: self.blocks.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::KeyHasher;
    use proptest::prelude::*;

    fn key(number: u64) -> [u8; 8] {
        number.to_be_bytes()
    }

    fn filter(expected: u64, records: u64) -> Filter {
        let mut builder = FilterBuilder::new(expected);
        (0..records).for_each(|number| builder.add(filter_hash(&key(number))));
        builder.finish()
    }

    /// Returns the share of a million absent keys that a filter does not exclude.
    fn passed(filter: &Filter) -> f64 {
        let absent = (1 << 40)..(1 << 40) + 1_000_000u64;
        let passed = absent.filter(|number| filter.may_hold(filter_hash(&key(*number))));
        passed.count() as f64 / 1e6
    }

    #[test]
    fn one_percent_of_absent_keys_passes_at_any_expected_number() {
        for (expected, records) in [
            (1_000_000, 1_000_000),
            (1_000_000, 990_000),
            (1_000_000, 260_000),
            (1_000_000, 30_000),
            (3000, 3000),
        ] {
            let filter = filter(expected, records);
            let share = passed(&filter);
            println!("{expected} expected, {records} came: {share}");
            assert!(share < 0.0115, "{expected} {records}: {share}");
            let bits = 8.0 * filter.memory_bytes() as f64 / records as f64;
            assert!(bits < 25.0, "{expected} {records}: {bits} bits a key");
        }
        assert!(passed(&filter(1000, 10_000)) < 1.0);
    }

    #[test]
    fn the_hash_of_any_table_serves() {
        for prefix in [&b""[..], b"t:", b"flights:"] {
            let hasher = KeyHasher::new(prefix);
            let filter = filter(1000, 1000);
            for number in 0..1000 {
                assert!(filter.may_hold(hasher.hash64(&key(number))));
            }
        }
    }

    proptest! {
        #[test]
        fn added_keys_are_found_also_when_read_back(
            keys in proptest::collection::vec(any::<u64>(), 0..2000),
            expected in 0u64..20_000,
        ) {
            let mut builder = FilterBuilder::new(expected);
            keys.iter().for_each(|number| builder.add(filter_hash(&key(*number))));
            let filter = builder.finish();
            let again = Filter::decode(&filter.encode()).expect("decoded");
            prop_assert_eq!(&again, &filter);
            for number in keys {
                prop_assert!(again.may_hold(filter_hash(&key(number))));
            }
        }

        #[test]
        fn any_bytes_give_an_error_or_a_filter(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let whole = !bytes.is_empty() && bytes.len() % 64 == 0;
            prop_assert_eq!(Filter::decode(&bytes).is_ok(), whole);
        }
    }
}
