//! The in-memory index of a run: one entry per page (`docs/reference/run-format.md`, section 4).
//!
//! Hashed: for each slot the number of pages that begin in earlier slots; for each page the 32 hash
//! bits below the slot of its first record. The slot bits are a CRC of the key, not random, so a
//! slot may have no page or millions. Within a slot hashes are uniform, and interpolation finds the
//! page. Ordered: for each page a separator key, searched by its first eight bytes.

use std::cmp::Ordering;

use crate::format::word32;
use crate::hash::{HASH_BITS, key_head, slot_of};
use forebay_io::raw::prefetch;

/// The steps that the walk from the interpolated page takes before binary search replaces it.
const WALK: usize = 8;

/// Returns how many of `pages` would begin at or below `wanted` if they were spread evenly.
#[inline]
fn guess(wanted: u32, pages: usize) -> usize {
    ((u64::from(wanted) * (pages as u64 + 1)) >> 32) as usize
}

#[inline]
fn middle_bits(hash: u64) -> u32 {
    (hash >> (HASH_BITS - 32)) as u32
}

/// The index of a hashed run.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct HashIndex {
    first_slot: u32,
    /// `starts[s]`: how many pages begin with a record of a slot below `first_slot + s`.
    starts: Vec<u32>,
    /// For each page `middle_bits` of its first record's hash.
    firsts: Vec<u32>,
}

impl HashIndex {
    /// Returns the pages to search for a record of `hash`, to be searched from the last. The range
    /// has more than one page only if records agree in 46 bits of their hashes.
    #[inline]
    pub fn pages(&self, hash: u64) -> std::ops::Range<usize> {
        let slot = u32::from(slot_of(hash)).wrapping_sub(self.first_slot) as usize;
        let Some(&[start, end]) = self.starts.get(slot..slot.saturating_add(2)) else {
            return 0..0;
        };
        let (start, end) = (start as usize, end as usize);
        let wanted = middle_bits(hash);
        let after = self.count_up_to(start, end, wanted);
        let first = after.saturating_sub(1);
        match self.firsts.get(first) {
            Some(&bits) if bits == wanted && first >= start => self.tied(start, after, wanted),
            _ => first..after,
        }
    }

    /// Starts to fetch the entries that [`HashIndex::pages`] will read.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        let slot = u32::from(slot_of(hash)).wrapping_sub(self.first_slot) as usize;
        if let Some(&[start, end]) = self.starts.get(slot..slot.saturating_add(2)) {
            let guess = guess(middle_bits(hash), end.saturating_sub(start) as usize);
            prefetch(&self.firsts, start as usize + guess);
        }
    }

    /// Handles records of equal bits that are in several pages, or begin in the page before.
    #[cold]
    fn tied(&self, start: usize, after: usize, wanted: u32) -> std::ops::Range<usize> {
        let below = self.firsts[start..after].partition_point(|&first| first < wanted);
        (start + below).saturating_sub(1)..after
    }

    /// Returns `start` plus the number of `firsts` from there to `end` that are at most `wanted`.
    /// The `firsts` rise and are spread evenly over all of u32, so the position is guessed. A step
    /// or two lead from the guess to the right one. The steps are branches on purpose. If the guess
    /// is right, the processor fetches the page before the directory's memory has confirmed it.
    #[inline]
    fn count_up_to(&self, start: usize, end: usize, wanted: u32) -> usize {
        let Some(firsts) = self.firsts.get(start..end) else {
            return start;
        };
        let mut count = guess(wanted, firsts.len());
        for _ in 0..WALK {
            if count < firsts.len() && firsts[count] <= wanted {
                count += 1;
            } else if count > 0 && firsts[count - 1] > wanted {
                count -= 1;
            } else {
                return start + count;
            }
        }
        self.search(start, end, wanted)
    }

    #[cold]
    fn search(&self, start: usize, end: usize, wanted: u32) -> usize {
        start + self.firsts[start..end].partition_point(|&first| first <= wanted)
    }

    /// Returns the first page that may have a record with a hash of at least `hash`.
    pub fn first_page(&self, hash: u64) -> usize {
        let slot = u32::from(slot_of(hash));
        if slot < self.first_slot || self.starts.is_empty() {
            return 0;
        }
        let slot = ((slot - self.first_slot) as usize).min(self.starts.len() - 2);
        let start = self.starts[slot] as usize;
        let end = self.starts[slot + 1] as usize;
        if u32::from(slot_of(hash)) - self.first_slot > slot as u32 {
            return end.saturating_sub(1);
        }
        let wanted = middle_bits(hash);
        let below = self.firsts[start..end].partition_point(|&first| first < wanted);
        (start + below).saturating_sub(1)
    }

    /// Returns the last page that may have a record with a hash of at most `hash`.
    pub fn last_page(&self, hash: u64) -> usize {
        let slot = u32::from(slot_of(hash));
        if slot < self.first_slot {
            return 0;
        }
        let slot = (slot - self.first_slot) as usize;
        let Some(&[start, end]) = self.starts.get(slot..slot.saturating_add(2)) else {
            return self.firsts.len().saturating_sub(1);
        };
        let (start, end) = (start as usize, end as usize);
        self.search(start, end, middle_bits(hash)).saturating_sub(1)
    }

    pub fn memory_bytes(&self) -> usize {
        4 * (self.starts.len() + self.firsts.len())
    }

    pub fn encode(&self) -> Vec<u8> {
        let counts = [
            self.first_slot,
            self.starts.len() as u32,
            self.firsts.len() as u32,
        ];
        let words = counts.iter().chain(&self.starts).chain(&self.firsts);
        words.flat_map(|word| word.to_le_bytes()).collect()
    }

    /// Decodes the section and checks that it fits a run of `pages` pages.
    pub fn decode(bytes: &[u8], pages: usize) -> Result<Self, &'static str> {
        let (words, rest) = bytes.as_chunks::<4>();
        let mut words = words.iter().map(|word| u32::from_le_bytes(*word));
        let mut next = || words.next().ok_or("the index is too short");
        let (first_slot, starts, firsts) = (next()?, next()? as usize, next()? as usize);
        if !rest.is_empty() || firsts > pages || words.len() != starts.saturating_add(firsts) {
            return Err("the index does not fit its counts");
        }
        let starts: Vec<u32> = words.by_ref().take(starts).collect();
        let firsts: Vec<u32> = words.collect();
        let rising = starts.is_sorted() && (starts.is_empty() == firsts.is_empty());
        if !rising
            || starts
                .last()
                .is_some_and(|&last| last as usize != firsts.len())
        {
            return Err("the index's slots do not cover its pages");
        }
        if starts.len() == 1 || first_slot > crate::hash::SLOTS {
            return Err("the index's slots are out of range");
        }
        Ok(Self {
            first_slot,
            starts,
            firsts,
        })
    }
}

/// A builder of a [`HashIndex`], page by page.
#[derive(Debug, Default)]
pub struct HashIndexBuilder {
    index: HashIndex,
    last_slot: u32,
}

impl HashIndexBuilder {
    /// Adds a page whose first record has `hash`.
    pub fn add(&mut self, hash: u64) {
        let slot = u32::from(slot_of(hash));
        let index = &mut self.index;
        if index.firsts.is_empty() {
            index.first_slot = slot;
            index.starts.push(0);
            self.last_slot = slot;
        }
        debug_assert!(
            slot > self.last_slot
                || slot == self.last_slot
                    && index
                        .firsts
                        .last()
                        .is_none_or(|last| *last <= middle_bits(hash)),
            "a page begins with hash {hash:x}, and the one before in slot {} with {:x?}",
            self.last_slot,
            index.firsts.last()
        );
        for _ in self.last_slot..slot {
            index.starts.push(index.firsts.len() as u32);
        }
        self.last_slot = slot;
        index.firsts.push(middle_bits(hash));
    }

    /// How many pages were added.
    pub fn pages(&self) -> usize {
        self.index.firsts.len()
    }

    /// Returns the index; `last_hash` is the hash of the run's last record.
    pub fn finish(mut self, last_hash: u64) -> HashIndex {
        let index = &mut self.index;
        if !index.firsts.is_empty() {
            for _ in self.last_slot..=u32::from(slot_of(last_hash)) {
                index.starts.push(index.firsts.len() as u32);
            }
            index.firsts.shrink_to_fit();
        }
        debug_assert!(
            self.index.starts.last().map_or(0, |last| *last as usize) == self.index.firsts.len(),
            "slots cover {:?} of {} pages",
            self.index.starts.last(),
            self.index.firsts.len()
        );
        self.index
    }
}

/// The index of an ordered run. `separators[p]` is above every key of page p - 1 and not above the
/// first of page p; that of page 0 is empty.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct KeyIndex {
    ends: Vec<u32>,
    bytes: Vec<u8>,
    /// The common prefix of all separators but the first.
    common: Vec<u8>,
    /// The eight bytes after `common` of each separator, big-endian.
    heads: Vec<u64>,
}

impl KeyIndex {
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub fn separator(&self, page: usize) -> &[u8] {
        let start = if page == 0 {
            0
        } else {
            self.ends[page - 1] as usize
        };
        &self.bytes[start..self.ends[page] as usize]
    }

    /// Returns the only page that may have `key`. It is also the first page with a key of at least
    /// `key`, unless all of its keys are below.
    pub fn page(&self, key: &[u8]) -> usize {
        let head = match key[..key.len().min(self.common.len())].cmp(&self.common) {
            Ordering::Less => return 0,
            Ordering::Greater => return self.len().saturating_sub(1),
            Ordering::Equal => key_head(&key[self.common.len()..]),
        };
        let heads = self.heads.get(1..).unwrap_or_default();
        let mut low = heads.partition_point(|&other| other < head);
        let ties = heads[low..].partition_point(|&other| other == head);
        if ties > 0 {
            let mut high = low + ties;
            while low < high {
                let middle = low.midpoint(high);
                if self.separator(middle + 1) <= key {
                    low = middle + 1
                } else {
                    high = middle
                }
            }
        }
        low
    }

    /// Returns the approximate share of the page's keys that are below a key. It takes them as
    /// spread evenly between the page's separator and the next one's. Returns a half if this is
    /// unknown.
    pub fn share(&self, page: usize, key: &[u8]) -> f32 {
        const UNKNOWN: f32 = 0.5;
        let Some(&[from, to]) = self.heads.get(page..page.saturating_add(2)) else {
            return UNKNOWN;
        };
        let head = key_head(key.get(self.common.len()..).unwrap_or_default());
        if (from..to).contains(&head) {
            (head - from) as f32 / (to - from) as f32
        } else {
            UNKNOWN
        }
    }

    pub fn memory_bytes(&self) -> usize {
        4 * self.ends.len() + self.bytes.len() + 8 * self.heads.len()
    }

    /// Returns whether it can be written: its ends must be numbers of 32 bits.
    pub fn is_writable(&self) -> bool {
        u32::try_from(self.bytes.len()).is_ok()
    }

    pub fn add(&mut self, separator: &[u8]) {
        debug_assert!(
            self.len() < 2 || !self.is_writable() || self.separator(self.len() - 1) < separator,
            "separator {} does not rise",
            self.len()
        );
        debug_assert!(
            self.is_empty() == separator.is_empty(),
            "separator {} of {} bytes: that of the first page alone is empty",
            self.len(),
            separator.len()
        );
        self.bytes.extend_from_slice(separator);
        self.ends.push(self.bytes.len() as u32);
    }

    /// Computes the search data after all separators were added.
    pub fn finish(mut self) -> Self {
        let (first, last) = match self.len() {
            0 | 1 => (&[][..], &[][..]),
            pages => (self.separator(1), self.separator(pages - 1)),
        };
        self.common = first
            .iter()
            .zip(last)
            .take_while(|(a, b)| a == b)
            .map(|(a, _)| *a)
            .collect();
        let skip = self.common.len();
        self.heads = (0..self.len())
            .map(|page| key_head(self.separator(page).get(skip..).unwrap_or_default()))
            .collect();
        self
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut out = (self.ends.len() as u32).to_le_bytes().to_vec();
        out.extend(self.ends.iter().flat_map(|end| end.to_le_bytes()));
        out.extend_from_slice(&self.bytes);
        out
    }

    pub fn decode(bytes: &[u8], pages: usize) -> Result<Self, &'static str> {
        if bytes.len() < 4 {
            return Err("the index is too short");
        }
        let count = word32(bytes, 0) as usize;
        let table = count
            .checked_mul(4)
            .and_then(|len| bytes[4..].split_at_checked(len));
        let (ends, separators) = table.ok_or("the index is too short")?;
        let ends: Vec<u32> = ends
            .as_chunks()
            .0
            .iter()
            .map(|end| u32::from_le_bytes(*end))
            .collect();
        let last = ends.last().map_or(0, |&end| end as usize);
        if count > pages || !ends.is_sorted() || last != separators.len() {
            return Err("the index does not fit its counts");
        }
        let index = Self {
            ends,
            bytes: separators.to_vec(),
            ..Self::default()
        }
        .finish();
        if (2..index.len()).any(|page| index.separator(page - 1) >= index.separator(page)) {
            return Err("the index's separators do not rise");
        }
        Ok(index)
    }
}

/// Returns the shortest key above `before` and not above `after`; REQUIRES `before < after`.
pub fn separator<'a>(before: &[u8], after: &'a [u8]) -> &'a [u8] {
    debug_assert!(before < after, "no key is between two that do not ascend");
    let same = before.iter().zip(after).take_while(|(a, b)| a == b).count();
    &after[..(same + 1).min(after.len())]
}

#[cfg(test)]
#[path = "index_tests.rs"]
mod tests;
