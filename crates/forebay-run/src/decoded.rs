//! Decodes all records of a page at once, so that a walk over them takes few instructions.

use std::ops::Range;

use crate::hash::{KeyHasher, key_head};
use crate::page::{Page, PageResult, SHORT_SLOT_BYTES, ShortSlot, Slot, TAG_EXTENT, TAG_SPILLS};
use crate::record::{DELTA, OPERATION_MASK};
use crate::scan::Direction;
use forebay_io::raw::prefetch;

/// The position of a record in [`Decoded::bytes`]: its key, followed by its payload.
#[derive(Debug, Clone, Copy, Default)]
struct Entry {
    /// The key's hash; in ordered pages its [`key_head`].
    head: u64,
    key_at: u32,
    payload_at: u32,
    end: u32,
    tag: u8,
}

/// The decoded records of a page, with a position before the first record or on one.
#[derive(Debug, Default)]
pub(crate) struct Decoded {
    current: Entry,
    /// The next record's number, in the order of the walk.
    next: usize,
    /// The number of records.
    count: usize,
    /// The entries of the records; later entries are left over from earlier pages.
    entries: Vec<Entry>,
    /// For a hashed page, a copy of it; for an ordered one, the records with full keys. It never
    /// shrinks, so that it need not be cleared again.
    bytes: Vec<u8>,
}

impl Decoded {
    /// Removes all records.
    pub fn clear(&mut self) {
        (self.next, self.count) = (0, 0);
    }

    /// Decodes all records of a page, and starts to fetch `ahead`, the page that may be next.
    /// `hasher` is given for a hashed page.
    pub fn decode(
        &mut self,
        page: &[u8],
        ahead: &[u8],
        hasher: Option<&KeyHasher>,
        direction: Direction,
    ) -> PageResult<()> {
        self.clear();
        let all = Page::new(page).all_bounds(hasher.is_some())?;
        let count = all.len();
        if self.entries.len() < count {
            self.entries.resize(count, Entry::default());
        }
        match hasher {
            Some(hasher) => self.decode_hashed(page, ahead, all, hasher)?,
            None => self.decode_ordered(page, ahead, all)?,
        }
        self.count = count;
        if direction == Direction::Backward {
            self.entries[..count].reverse();
        }
        Ok(())
    }

    fn decode_hashed(
        &mut self,
        bytes: &[u8],
        ahead: &[u8],
        all: impl Iterator<Item = Range<usize>>,
        hasher: &KeyHasher,
    ) -> PageResult<()> {
        self.bytes.clear();
        self.bytes.extend_from_slice(bytes);
        let page = Page::new(&self.bytes);
        for (entry, bounds) in self.entries.iter_mut().zip(all) {
            prefetch(ahead, bounds.start);
            let slot = page.slot_within(bounds)?;
            let payload_at = slot.at + slot.suffix.len();
            *entry = Entry {
                head: hasher.hash64(slot.suffix),
                key_at: slot.at as u32,
                payload_at: payload_at as u32,
                end: (payload_at + slot.payload.len()) as u32,
                tag: slot.tag,
            };
        }
        Ok(())
    }

    fn decode_ordered(
        &mut self,
        bytes: &[u8],
        ahead: &[u8],
        all: impl ExactSizeIterator<Item = Range<usize>>,
    ) -> PageResult<()> {
        let page = Page::new(bytes);
        let prefix = Prefix::new(page.prefix()?);
        let most = bytes.len() + all.len() * prefix.whole.len() + WINDOW_BYTES;
        if self.bytes.len() < most {
            self.bytes.resize(most, 0);
        }
        let out = &mut self.bytes[..];
        let mut at = 0;
        for (entry, bounds) in self.entries.iter_mut().zip(all) {
            prefetch(ahead, bounds.start);
            let short = page.short_within(&bounds);
            let short = short.and_then(|slot| prefix.join_short(&slot, out, at));
            *entry = match short {
                Some(entry) => entry,
                None => prefix.join(&page.slot_within(bounds)?, out, at)?,
            };
            at = entry.end as usize;
        }
        Ok(())
    }

    /// Skips the records for which `early` returns `true`, which are the first ones.
    pub fn skip_early(&mut self, early: impl Fn(u64, &[u8]) -> bool) {
        let is_early = |entry: &Entry| early(entry.head, self.key_of(entry));
        self.next = self.entries[..self.count].partition_point(is_early);
    }

    /// Removes the records for which `late` returns `true`, which are the last ones; returns
    /// whether there are any.
    pub fn cut_late(&mut self, late: impl Fn(u64, &[u8]) -> bool) -> bool {
        let is_late = |entry: &Entry| late(entry.head, self.key_of(entry));
        let entries = &self.entries[..self.count];
        if !entries.last().is_some_and(is_late) {
            return false;
        }
        self.count = entries.partition_point(|entry| !is_late(entry));
        true
    }

    /// Returns whether no record is left.
    pub fn is_empty(&self) -> bool {
        self.next >= self.count
    }

    /// Moves to the next record; `false` when there is none.
    #[inline(always)]
    pub fn advance(&mut self) -> bool {
        if self.next >= self.count {
            return false;
        }
        self.current = self.entries[self.next];
        self.next += 1;
        true
    }

    #[inline(always)]
    fn key_of(&self, entry: &Entry) -> &[u8] {
        &self.bytes[entry.key_at as usize..entry.payload_at as usize]
    }

    #[inline(always)]
    pub fn head(&self) -> u64 {
        self.current.head
    }

    #[inline(always)]
    pub fn key(&self) -> &[u8] {
        self.key_of(&self.current)
    }

    /// Returns the part of the payload that is in the page.
    #[inline(always)]
    pub fn payload(&self) -> &[u8] {
        &self.bytes[self.current.payload_at as usize..self.current.end as usize]
    }

    /// Returns the operation, without the tag's bits for the position of the payload.
    #[inline(always)]
    pub fn tag(&self) -> u8 {
        self.current.tag & OPERATION_MASK
    }

    /// Returns whether this is a plain operation whose whole payload is in the page.
    #[inline(always)]
    pub fn is_simple(&self) -> bool {
        self.current.tag <= DELTA
    }

    /// Returns whether the payload, or a part of it, is outside of the page.
    #[inline(always)]
    pub fn is_distant(&self) -> bool {
        self.current.tag & (TAG_EXTENT | TAG_SPILLS) != 0
    }

    pub fn slot(&self) -> Slot<'_> {
        Slot {
            tag: self.current.tag,
            at: self.current.key_at as usize,
            suffix: self.key(),
            payload: self.payload(),
        }
    }
}

/// The output bytes that may be overwritten after a short record.
const WINDOW_BYTES: usize = 2 * SHORT_SLOT_BYTES;

/// The prefix of an ordered page's keys.
struct Prefix<'a> {
    whole: &'a [u8],
    /// The prefix, padded with zeros, if it is short.
    short: Option<[u8; SHORT_SLOT_BYTES]>,
    head: u64,
    /// The number of bits by which the prefix shifts the following bytes in a key's head, and a
    /// mask of the bits that remain visible.
    shift: u32,
    seen: u64,
}

impl<'a> Prefix<'a> {
    fn new(whole: &'a [u8]) -> Self {
        let mut short = [0; SHORT_SLOT_BYTES];
        let room = short.get_mut(..whole.len());
        let is_short = room.map(|room| room.copy_from_slice(whole)).is_some();
        Self {
            whole,
            short: is_short.then_some(short),
            head: key_head(whole),
            shift: 8 * (whole.len() as u32 % 8),
            seen: if whole.len() < 8 { u64::MAX } else { 0 },
        }
    }

    /// Writes a record's key and payload to `out`, at `at`. It uses few instructions, because
    /// nearly all small records take this path: its copies have fixed lengths and include any
    /// following bytes.
    #[inline(always)]
    fn join_short(&self, slot: &ShortSlot<'_>, out: &mut [u8], at: usize) -> Option<Entry> {
        let prefix_bytes = self.whole.len();
        let window = out.get_mut(at..)?.first_chunk_mut::<WINDOW_BYTES>()?;
        let (first, _) = window.split_first_chunk_mut()?;
        *first = self.short?;
        let rest = window.get_mut(prefix_bytes..)?.first_chunk_mut()?;
        *rest = *slot.bytes;
        // Read from the source: a read of the bytes just written would wait.
        let (behind, _) = slot.bytes.split_first_chunk()?;
        let known = u64::MAX << (64 - 8 * slot.key_bytes.clamp(1, 8));
        let known = if slot.key_bytes == 0 { 0 } else { known };
        let behind = (u64::from_be_bytes(*behind) & known) >> self.shift & self.seen;
        Some(Entry {
            head: self.head | behind,
            key_at: at as u32,
            payload_at: (at + prefix_bytes + slot.key_bytes) as u32,
            end: (at + prefix_bytes + slot.len_bytes) as u32,
            tag: slot.tag,
        })
    }

    /// Does the same for any record.
    #[cold]
    #[inline(never)]
    fn join(&self, slot: &Slot<'_>, out: &mut [u8], at: usize) -> PageResult<Entry> {
        let parts = [self.whole, slot.suffix, slot.payload];
        let mut ends = [at; 3];
        let mut end = at;
        for (part, end_at) in parts.into_iter().zip(&mut ends) {
            let room = out.get_mut(end..end + part.len());
            room.ok_or("records that overlap")?.copy_from_slice(part);
            end += part.len();
            *end_at = end;
        }
        Ok(Entry {
            head: self.head | (key_head(slot.suffix) >> self.shift & self.seen),
            key_at: at as u32,
            payload_at: ends[1] as u32,
            end: ends[2] as u32,
            tag: slot.tag,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::PageBuilder;
    use forebay_io::sim::Rng;

    const PAGE_BYTES: usize = 4096;

    fn page_of(records: &[(Vec<u8>, Vec<u8>)], hashed: bool) -> Vec<u8> {
        let mut builder = PageBuilder::new(PAGE_BYTES, hashed);
        for (key, payload) in records {
            assert!(builder.add(0, 0, key, payload));
        }
        let mut page = Vec::new();
        builder.finish(0, &mut page);
        page
    }

    fn walk(decoded: &mut Decoded) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut found = Vec::new();
        while decoded.advance() {
            found.push((decoded.key().to_vec(), decoded.payload().to_vec()));
        }
        found
    }

    #[test]
    fn keys_of_any_length_are_decoded_with_heads_and_payloads() {
        let hasher = KeyHasher::new(b"");
        let mut decoded = Decoded::default();
        for prefix_bytes in 0..40 {
            for step in [1, 5, 50] {
                let key = |number: u8| {
                    let mut key = vec![b'p'; prefix_bytes];
                    key.extend((0..usize::from(number) * step).map(|at| at as u8 ^ number));
                    key
                };
                let payload = |number: u8| vec![number; usize::from(number) * 7 % 45];
                let mut records: Vec<_> = (0..6).map(|n| (key(n), payload(n))).collect();
                records.sort();
                let page = page_of(&records, false);
                decoded
                    .decode(&page, &[], None, Direction::Forward)
                    .unwrap();
                for (key, payload) in &records {
                    assert!(decoded.advance());
                    assert_eq!((decoded.key(), decoded.payload()), (&key[..], &payload[..]));
                    assert_eq!(decoded.head(), key_head(key), "{key:?}");
                }
                assert!(!decoded.advance());
                let hashed = page_of(&records, true);
                let way = Direction::Backward;
                decoded.decode(&hashed, &page, Some(&hasher), way).unwrap();
                records.reverse();
                assert_eq!(walk(&mut decoded), records);
                assert_eq!(decoded.head(), hasher.hash64(&records[5].0));
            }
        }
    }

    #[test]
    fn any_page_gives_records_or_an_error() {
        let records: Vec<_> = (0..60u8).map(|n| (vec![b'k', n, n], vec![n; 20])).collect();
        let sound = page_of(&records, false);
        let mut rng = Rng(7);
        let mut decoded = Decoded::default();
        for _ in 0..20_000 {
            let mut page = sound.clone();
            for _ in 0..=rng.below(4) {
                // Mostly in the header and the offsets.
                let within = [130, PAGE_BYTES as u64 - 8][rng.below(2) as usize];
                let at = 8 + rng.below(within);
                page[at as usize] = rng.below(256) as u8;
            }
            if decoded.decode(&page, &[], None, Direction::Forward).is_ok() {
                walk(&mut decoded);
            }
        }
    }
}
