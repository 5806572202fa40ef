//! Writes and reads one page (`docs/reference/run-format.md`, section 3).
//!
//! ```text
//!  0  u64  checksum of all that follows, seeded with the page's number
//!  8  u16  n, the records that begin in this page
//! 10  u16  spill: how many bytes of the previous page's last value continue here
//! 12  u16  end of the used bytes
//! 14  u16  length of the prefix shared by the page's keys (0 in hashed order)
//! 16       hashed: n fingerprints, the lowest byte of each record's hash; ordered: the prefix
//!     u16 x n  where each record begins
//!          the spilled bytes, then the records: tag, key length, key without prefix, value
//! ```

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::bytes::{SHORT_BYTES, append_bytes, append_part, shared_bytes};
use crate::record::{DELTA, OPERATION_MASK};
use forebay_io::raw::{match_byte, prefetch};

pub const HEADER_BYTES: usize = 16;
/// The value is in the `.ext` file; the payload is a reference to it.
pub const TAG_EXTENT: u8 = 0x08;
/// The value continues in the next page.
pub const TAG_SPILLS: u8 = 0x10;
const TAG_KNOWN: u8 = OPERATION_MASK | TAG_EXTENT | TAG_SPILLS;

/// The caller adds file and page to the error.
pub type PageResult<T> = Result<T, &'static str>;

/// A page whose checksum was compared (or will be).
#[derive(Debug, Clone, Copy)]
pub struct Page<'a> {
    bytes: &'a [u8],
}

/// A record within its page.
#[derive(Debug, Clone, Copy)]
pub struct Slot<'a> {
    pub tag: u8,
    /// The offset in the page of `suffix`; `payload` follows it.
    pub at: usize,
    /// The key without the page's prefix.
    pub suffix: &'a [u8],
    /// The bytes of the value (or of the reference to it) that are in this page.
    pub payload: &'a [u8],
}

/// The most bytes of key and value of a short record.
pub const SHORT_SLOT_BYTES: usize = 32;

/// A short record within its page.
#[derive(Debug, Clone, Copy)]
pub struct ShortSlot<'a> {
    pub tag: u8,
    pub key_bytes: usize,
    /// The lengths of the key and of the value.
    pub len_bytes: usize,
    /// The key without the page's prefix, then the value, then any following bytes.
    pub bytes: &'a [u8; SHORT_SLOT_BYTES],
}

/// The result of [`Page::glance`].
#[derive(Debug, Clone, Copy)]
pub enum Glance<'a> {
    /// The tag, a plain operation with nothing else set, and the payload, whole in the page.
    Whole(u8, &'a [u8]),
    Absent,
    /// Only [`Page::find_hashed`] can decide.
    Unsure,
}

impl Slot<'_> {
    #[inline]
    pub fn is_extent(&self) -> bool {
        self.tag & TAG_EXTENT != 0
    }

    #[inline]
    pub fn spills(&self) -> bool {
        self.tag & TAG_SPILLS != 0
    }
}

impl<'a> Page<'a> {
    /// `bytes` is a whole page.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    pub fn checksum_matches(&self, number: u64) -> bool {
        match self.bytes.split_first_chunk() {
            Some((stored, rest)) => u64::from_le_bytes(*stored) == xxh3_64_with_seed(rest, number),
            None => false,
        }
    }

    #[inline(always)]
    fn word(&self, at: usize) -> PageResult<usize> {
        let word = self
            .bytes
            .get(at..at + 2)
            .ok_or("an offset beyond the page")?;
        Ok(usize::from(u16::from_le_bytes([word[0], word[1]])))
    }

    /// Returns the number of records that begin in the page.
    #[inline(always)]
    pub fn records(&self) -> PageResult<usize> {
        self.word(8)
    }

    fn spill_bytes(&self) -> PageResult<usize> {
        self.word(10)
    }

    pub fn prefix(&self) -> PageResult<&'a [u8]> {
        let len = self.word(14)?;
        self.bytes
            .get(HEADER_BYTES..HEADER_BYTES + len)
            .ok_or("a prefix beyond the page")
    }

    /// Returns the bytes between the header and the offsets: fingerprints or prefix.
    #[inline(always)]
    fn aid_bytes(&self, records: usize, hashed: bool) -> PageResult<usize> {
        if hashed { Ok(records) } else { self.word(14) }
    }

    /// Returns the continuation of the previous page's last value.
    pub fn spilled(&self, hashed: bool) -> PageResult<&'a [u8]> {
        let records = self.records()?;
        let start = HEADER_BYTES + self.aid_bytes(records, hashed)? + 2 * records;
        let end = start + self.spill_bytes()?;
        self.bytes.get(start..end).ok_or("a spill beyond the page")
    }

    /// Returns the bounds of the record numbered `index` of `records`.
    #[inline(always)]
    fn bounds(
        &self,
        index: usize,
        records: usize,
        hashed: bool,
    ) -> PageResult<std::ops::Range<usize>> {
        let offsets = HEADER_BYTES + self.aid_bytes(records, hashed)?;
        let start = self.word(offsets + 2 * index)?;
        let end = if index + 1 < records {
            self.word(offsets + 2 * index + 2)?
        } else {
            self.word(12)?
        };
        Ok(start..end)
    }

    /// Returns the record numbered `index` of `records`.
    #[inline(always)]
    pub fn slot(&self, index: usize, records: usize, hashed: bool) -> PageResult<Slot<'a>> {
        let bounds = self.bounds(index, records, hashed)?;
        self.slot_within(bounds)
    }

    /// Returns the bounds of each record, in order.
    pub fn all_bounds(
        &self,
        hashed: bool,
    ) -> PageResult<impl ExactSizeIterator<Item = std::ops::Range<usize>> + use<'a>> {
        let records = self.records()?;
        let offsets = HEADER_BYTES + self.aid_bytes(records, hashed)?;
        let offsets = self.bytes.get(offsets..offsets + 2 * records);
        let (offsets, _) = offsets.ok_or("an offset beyond the page")?.as_chunks::<2>();
        let end = self.word(12)?;
        let place = |offset: &[u8; 2]| usize::from(u16::from_le_bytes(*offset));
        let bounds = move |(index, start): (usize, &[u8; 2])| {
            place(start)..offsets.get(index + 1).map_or(end, place)
        };
        Ok(offsets.iter().enumerate().map(bounds))
    }

    /// Returns the record between two bounds, if it is short and the page has enough bytes after
    /// its head for the longest short record. [`Page::slot_within`] handles all other records.
    #[inline(always)]
    pub fn short_within(&self, bounds: &std::ops::Range<usize>) -> Option<ShortSlot<'a>> {
        let (&[tag, key_bytes], rest) = self.bytes.get(bounds.start..)?.split_first_chunk()?;
        let slot = ShortSlot {
            tag,
            key_bytes: usize::from(key_bytes),
            len_bytes: bounds.end.wrapping_sub(bounds.start + 2),
            bytes: rest.first_chunk()?,
        };
        let known = tag & !TAG_KNOWN == 0;
        let fits = slot.key_bytes <= slot.len_bytes && slot.len_bytes <= SHORT_SLOT_BYTES;
        (known && fits).then_some(slot)
    }

    #[inline(always)]
    pub fn slot_within(&self, bounds: std::ops::Range<usize>) -> PageResult<Slot<'a>> {
        let start = bounds.start;
        let record = self.bytes.get(bounds).ok_or("a record beyond the page")?;
        parse_record(record, start)
    }

    /// Starts to fetch the lines that [`Page::find_hashed`] will need first.
    #[inline]
    pub fn prefetch_header(&self) {
        prefetch(self.bytes, 0);
        prefetch(self.bytes, 64);
    }

    /// Starts to fetch the record numbered `index` of a hashed page.
    #[inline]
    pub fn prefetch_slot(&self, index: usize, records: usize) {
        if let Ok(bounds) = self.bounds(index, records, true) {
            prefetch(self.bytes, bounds.start);
            self.prefetch_rest(&bounds);
        }
    }

    /// Starts to fetch the bytes after a record's first line, before that line has arrived with the
    /// position of the value.
    #[inline(always)]
    fn prefetch_rest(&self, bounds: &std::ops::Range<usize>) {
        prefetch(self.bytes, bounds.start + 64);
        prefetch(self.bytes, bounds.end.saturating_sub(1));
    }

    /// Returns the bits of the first 64 records with this `fingerprint`, and the record count.
    #[inline(always)]
    pub fn candidates(&self, fingerprint: u8) -> PageResult<(u64, usize)> {
        let records = self.records()?;
        let lane = self
            .bytes
            .get(HEADER_BYTES..)
            .and_then(|rest| rest.first_chunk());
        let mask = match_byte(lane.ok_or("a page without fingerprints")?, fingerprint);
        let known = if records < 64 {
            (1u64 << records) - 1
        } else {
            u64::MAX
        };
        Ok((mask & known, records))
    }

    /// Looks for `key` in a hashed page; `candidates` is the result of [`Page::candidates`].
    /// Handles the case of nearly every look-up in few instructions: with fewer instructions, the
    /// processor runs more look-ups at a time.
    #[inline(always)]
    pub fn glance(&self, (mut mask, records): (u64, usize), key: &[u8]) -> Glance<'a> {
        while mask != 0 {
            let Ok(bounds) = self.bounds(mask.trailing_zeros() as usize, records, true) else {
                return Glance::Unsure;
            };
            self.prefetch_rest(&bounds);
            let Ok(slot) = self.slot_within(bounds) else {
                return Glance::Unsure;
            };
            if same(slot.suffix, key) {
                return if slot.tag <= DELTA {
                    Glance::Whole(slot.tag, slot.payload)
                } else {
                    Glance::Unsure
                };
            }
            mask &= mask - 1;
        }
        if records > 64 {
            Glance::Unsure
        } else {
            Glance::Absent
        }
    }

    /// Returns the record of `key` in a hashed page.
    pub fn find_hashed(&self, fingerprint: u8, key: &[u8]) -> PageResult<Option<Slot<'a>>> {
        let (mut mask, records) = self.candidates(fingerprint)?;
        while mask != 0 {
            let slot = self.slot(mask.trailing_zeros() as usize, records, true)?;
            if slot.suffix == key {
                return Ok(Some(slot));
            }
            mask &= mask - 1;
        }
        if records > 64 {
            self.find_beyond_64(fingerprint, key, records)
        } else {
            Ok(None)
        }
    }

    fn find_beyond_64(
        &self,
        fingerprint: u8,
        key: &[u8],
        records: usize,
    ) -> PageResult<Option<Slot<'a>>> {
        let prints = self.bytes.get(HEADER_BYTES + 64..HEADER_BYTES + records);
        for (index, &print) in prints
            .ok_or("fingerprints beyond the page")?
            .iter()
            .enumerate()
        {
            if print == fingerprint {
                let slot = self.slot(64 + index, records, true)?;
                if slot.suffix == key {
                    return Ok(Some(slot));
                }
            }
        }
        Ok(None)
    }

    /// Starts to fetch the lines that [`Page::lower_bound`] will need, if `share` of the page's
    /// keys are below the wanted one.
    #[inline]
    pub fn prefetch_near(&self, share: f32) {
        // For records small enough to matter, the offsets take a tenth of the page.
        let offsets = self.bytes.len() / 10;
        let at = offsets + (share * (self.bytes.len() - offsets) as f32) as usize;
        prefetch(self.bytes, 0);
        prefetch(self.bytes, (share * offsets as f32) as usize);
        for line in 0..6 {
            prefetch(self.bytes, (at + 64 * line).saturating_sub(192));
        }
    }

    /// Returns the number of the first record of an ordered page whose key is not less than `key`,
    /// and whether it is `key`. `share` is the estimated share of the page's keys below it, from 0
    /// to 1. The search begins there and widens, so that a good guess touches few lines.
    pub fn lower_bound(&self, key: &[u8], share: f32) -> PageResult<(usize, bool)> {
        const FIRST_STEP: usize = 8;
        let records = self.records()?;
        let prefix = self.prefix()?;
        let head = &key[..key.len().min(prefix.len())];
        match head.cmp(prefix) {
            std::cmp::Ordering::Less => return Ok((0, false)),
            std::cmp::Ordering::Greater => return Ok((records, false)),
            std::cmp::Ordering::Equal => {}
        }
        let suffix = &key[prefix.len()..];
        let (mut low, mut high) = (0, records);
        let (mut guess, mut step) = ((share * records as f32) as usize, FIRST_STEP);
        while low < high {
            let at = guess.clamp(low, high - 1);
            match self.slot(at, records, false)?.suffix.cmp(suffix) {
                std::cmp::Ordering::Less => low = at + 1,
                std::cmp::Ordering::Equal => return Ok((at, true)),
                std::cmp::Ordering::Greater => high = at,
            }
            // Widen the range until there is a bound on both sides.
            guess = match (low > 0, high < records) {
                (true, true) => low.midpoint(high),
                (true, false) => low + step,
                (false, _) => high.saturating_sub(step),
            };
            step *= 4;
        }
        Ok((low, false))
    }
}

/// Compares for equality, without a call for keys of eight to sixteen bytes.
#[inline(always)]
fn same(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() || a.len() > 16 {
        return a == b;
    }
    match (
        a.first_chunk::<8>(),
        b.first_chunk::<8>(),
        a.last_chunk::<8>(),
        b.last_chunk::<8>(),
    ) {
        (Some(a_head), Some(b_head), Some(a_tail), Some(b_tail)) => {
            (a_head == b_head) & (a_tail == b_tail)
        }
        _ => a == b,
    }
}

#[inline(always)]
fn parse_record(record: &[u8], start: usize) -> PageResult<Slot<'_>> {
    let (&[tag, low], rest) = record
        .split_first_chunk()
        .ok_or("a record without a head")?;
    if tag & !TAG_KNOWN != 0 {
        return Err("a record with an unknown tag");
    }
    let (key_bytes, rest) = if low < 0x80 {
        (usize::from(low), rest)
    } else {
        let (&high, rest) = rest.split_first().ok_or("a record without a head")?;
        (usize::from(low & 0x7f) | usize::from(high) << 7, rest)
    };
    let at = start + record.len() - rest.len();
    let (suffix, payload) = rest
        .split_at_checked(key_bytes)
        .ok_or("a key beyond its record")?;
    Ok(Slot {
        tag,
        at,
        suffix,
        payload,
    })
}

/// A record waiting for its page to be laid out.
#[derive(Debug, Clone, Copy)]
struct Pending {
    fingerprint: u8,
    tag: u8,
    key_bytes: u16,
    payload_bytes: u16,
}

/// A builder that collects records and lays out their page.
#[derive(Debug)]
pub struct PageBuilder {
    page_bytes: usize,
    hashed: bool,
    pending: Vec<Pending>,
    /// Keys and payloads of the pending records, concatenated.
    bytes: Vec<u8>,
    /// The offset in `bytes` of the last record.
    last_at: usize,
    spill: Vec<u8>,
    prefix_bytes: usize,
    /// The bytes that the page would use if it were laid out now, with full keys.
    used_bytes: usize,
    /// The last record's payload continues in the next page, so this page is full.
    full: bool,
}

impl PageBuilder {
    pub fn new(page_bytes: usize, hashed: bool) -> Self {
        Self {
            page_bytes,
            hashed,
            pending: Vec::new(),
            bytes: Vec::new(),
            last_at: 0,
            spill: Vec::new(),
            prefix_bytes: 0,
            used_bytes: HEADER_BYTES,
            full: false,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.pending.is_empty() && self.spill.is_empty()
    }

    pub fn records(&self) -> usize {
        self.pending.len()
    }

    /// Returns the key of the last record collected.
    pub fn last_key(&self) -> Option<&[u8]> {
        let last = self.pending.last()?;
        Some(&self.bytes[self.last_at..self.last_at + usize::from(last.key_bytes)])
    }

    /// Adds a whole record, or as much of its payload as fits if splitting is worthwhile; the next
    /// page gets the rest. A payload is at most half a page, keys rise. `false`: there is no room,
    /// so lay the page out and try again.
    #[inline]
    #[must_use]
    pub fn add(&mut self, fingerprint: u8, tag: u8, key: &[u8], payload: &[u8]) -> bool {
        debug_assert!(
            payload.len() <= self.page_bytes / 2,
            "a payload of {} bytes for a page of {}",
            payload.len(),
            self.page_bytes
        );
        debug_assert!(
            self.hashed || self.last_key().is_none_or(|last| last < key),
            "a key follows one that is not below it"
        );
        let head_bytes = 2 + usize::from(key.len() >= 0x80) + key.len();
        let aid_bytes = 2 + usize::from(self.hashed);
        let prefix_bytes = self.prefix_with(key);
        let saved_bytes = prefix_bytes * self.pending.len();
        let used_bytes = self.used_bytes + aid_bytes + head_bytes - saved_bytes;
        let whole_bytes = used_bytes + payload.len();
        let (here, tag) = if whole_bytes <= self.page_bytes {
            (payload.len(), tag)
        } else {
            let small = head_bytes + payload.len() <= self.page_bytes / 16;
            if self.full || small || used_bytes > self.page_bytes {
                return false;
            }
            (self.page_bytes - used_bytes, tag | TAG_SPILLS)
        };
        self.prefix_bytes = prefix_bytes;
        self.used_bytes += aid_bytes + head_bytes + here;
        self.pending.push(Pending {
            fingerprint,
            tag,
            key_bytes: key.len() as u16,
            payload_bytes: here as u16,
        });
        self.last_at = self.bytes.len();
        append_bytes(&mut self.bytes, key);
        // The carried bytes stay after the pending records until the page is laid out.
        append_bytes(&mut self.bytes, payload);
        self.full = here < payload.len();
        debug_assert!(
            self.used_bytes - self.prefix_bytes * (self.pending.len() - 1) <= self.page_bytes,
            "{} records of {} bytes do not fit their page",
            self.pending.len(),
            self.used_bytes
        );
        true
    }

    /// Returns the prefix that all keys share if `key` is added. Because keys rise, it is the
    /// common prefix of the first and the last.
    #[inline]
    fn prefix_with(&self, key: &[u8]) -> usize {
        if self.hashed {
            return 0;
        }
        match self.pending.first() {
            None => key.len(),
            Some(first) => shared_bytes(&self.bytes[..usize::from(first.key_bytes)], key),
        }
    }

    /// Appends the page to `out` and starts the next one with the carried bytes.
    pub fn finish(&mut self, number: u64, out: &mut Vec<u8>) {
        let start = out.len();
        let n = self.pending.len();
        let prefix_bytes = if n == 0 { 0 } else { self.prefix_bytes };
        let aid_bytes = if self.hashed { n } else { prefix_bytes };
        out.reserve(self.page_bytes + SHORT_BYTES);
        out.resize(start + HEADER_BYTES, 0);
        if self.hashed {
            out.extend(self.pending.iter().map(|record| record.fingerprint));
        } else {
            out.extend_from_slice(&self.bytes[..prefix_bytes]);
        }
        let offsets = out.len();
        out.resize(offsets + 2 * n, 0);
        out.extend_from_slice(&self.spill);
        debug_assert_eq!(offsets - start, HEADER_BYTES + aid_bytes);
        let carried = self.lay_out_records(start, offsets, prefix_bytes, out);
        let end = out.len() - start;
        debug_assert!(end <= self.page_bytes, "a page of {end} bytes");
        let words = [n, self.spill.len(), end, prefix_bytes];
        for (at, word) in words.into_iter().enumerate() {
            let at = start + 8 + 2 * at;
            out[at..at + 2].copy_from_slice(&(word as u16).to_le_bytes());
        }
        out.resize(start + self.page_bytes, 0);
        let checksum = xxh3_64_with_seed(&out[start + 8..], number);
        out[start..start + 8].copy_from_slice(&checksum.to_le_bytes());
        self.restart(carried);
    }

    /// Returns the offset in `self.bytes` of the carried bytes.
    #[inline]
    fn lay_out_records(
        &self,
        start: usize,
        offsets: usize,
        prefix_bytes: usize,
        out: &mut Vec<u8>,
    ) -> usize {
        let mut from = 0;
        for (index, record) in self.pending.iter().enumerate() {
            let offset = (out.len() - start) as u16;
            let at = offsets + 2 * index;
            out[at..at + 2].copy_from_slice(&offset.to_le_bytes());
            let key_bytes = usize::from(record.key_bytes);
            let suffix_bytes = key_bytes - prefix_bytes;
            if suffix_bytes < 0x80 {
                out.extend_from_slice(&[record.tag, suffix_bytes as u8]);
            } else {
                let (low, high) = (suffix_bytes as u8 | 0x80, (suffix_bytes >> 7) as u8);
                out.extend_from_slice(&[record.tag, low, high]);
            }
            let end = from + key_bytes + usize::from(record.payload_bytes);
            append_part(out, &self.bytes, from + prefix_bytes, end);
            from = end;
        }
        from
    }

    fn restart(&mut self, carried: usize) {
        let is_carried = carried < self.bytes.len();
        debug_assert_eq!(is_carried, self.full, "{carried} bytes are laid out");
        self.spill.clear();
        self.spill.extend_from_slice(&self.bytes[carried..]);
        self.bytes.clear();
        self.full = false;
        self.pending.clear();
        self.prefix_bytes = 0;
        self.used_bytes = HEADER_BYTES + self.spill.len();
    }
}
