//! Records hashes of the keys that a dry run has seen, to find duplicate and lost keys.
//!
//! A hash has 64 bits. Among a hundred million keys, two share a hash in three of ten thousand
//! cases. The dry run then reports a duplicate that does not exist.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// The memory that a key takes while the table of keys grows.
const KEY_BYTES: u64 = 64;

/// The set of keys that a dry run has seen.
#[derive(Debug)]
pub struct Keys {
    seen: HashMap<u64, SeenKey>,
    most: usize,
    keeps_first: bool,
    /// Whether there were more keys than fit in memory.
    pub is_full: bool,
    /// Rows left out because of another row of the same key, and their bytes.
    pub repeated: u64,
    pub repeated_bytes: u64,
    /// The first key that occurred again.
    pub example: Option<Vec<u8>>,
}

#[derive(Debug, Clone, Copy)]
struct SeenKey {
    place: u64,
    bytes: u32,
}

impl Keys {
    pub fn new(memory_bytes: u64, keeps_first: bool) -> Self {
        Self {
            seen: HashMap::new(),
            most: usize::try_from(memory_bytes / KEY_BYTES).unwrap_or(usize::MAX),
            keeps_first,
            is_full: false,
            repeated: 0,
            repeated_bytes: 0,
            example: None,
        }
    }

    /// Adds a row of this key, at a place in the order of the sources.
    pub fn add(&mut self, hash: u64, key: &[u8], place: u64, bytes: usize) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let row = SeenKey { place, bytes };
        let has_room = self.seen.len() < self.most;
        match self.seen.entry(hash) {
            Entry::Vacant(vacant) if has_room => drop(vacant.insert(row)),
            Entry::Vacant(_) => self.is_full = true,
            Entry::Occupied(mut kept) => {
                self.repeated += 1;
                self.example.get_or_insert_with(|| key.to_vec());
                let replaces = (place < kept.get().place) == self.keeps_first;
                let dropped = if replaces { kept.insert(row) } else { row };
                self.repeated_bytes += u64::from(dropped.bytes);
            }
        }
    }

    pub fn has(&self, hash: u64) -> bool {
        self.seen.contains_key(&hash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_or_the_last_row_of_a_key_stays() {
        for (keeps_first, dropped) in [(true, 20 + 30), (false, 10 + 20)] {
            let mut keys = Keys::new(1 << 20, keeps_first);
            for (place, bytes) in [(5, 20), (1, 10), (9, 30)] {
                keys.add(7, b"seven", place, bytes);
            }
            keys.add(8, b"eight", 6, 100);
            assert_eq!((keys.repeated, keys.repeated_bytes), (2, dropped));
            assert_eq!(keys.example.as_deref(), Some(&b"seven"[..]));
            assert!(keys.has(8) && !keys.has(9) && !keys.is_full);
        }
    }

    #[test]
    fn more_keys_than_memory_are_reported() {
        let mut keys = Keys::new(2 * KEY_BYTES, true);
        (0..3).for_each(|hash| keys.add(hash, b"key", hash, 1));
        assert!(keys.is_full && keys.has(1) && !keys.has(2));
    }
}
