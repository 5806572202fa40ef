//! The buffer that takes a partition's writes.
//!
//! Records are appended in the order of writes. A small hash table finds the record of a key.
//! Operations on the same key are combined, so the buffer has each key only once. A full buffer is
//! sorted into a [`MiniRun`]. It is kept small enough for a processor's cache.

use forebay_run::operation::Operation;
use forebay_run::record::encode;

use crate::live::basics::error::LiveError;
use crate::live::basics::expiry::{delta_written_ms, earliest};
use crate::live::basics::record::{Record, append_raw};
use crate::live::basics::shape::{KeyPlace, Shape};
use crate::live::memory::mini::MiniRun;

/// A buffer is full at this many bytes, or at records of 32 bytes, whichever comes first.
const MAX_BYTES: usize = 256 << 10;
/// The same where writers read: one look-up finds a key in the buffer, while each run costs one
/// more. More records would exceed the numbers of entries.
const MAX_READ_BYTES: usize = 1_900_000;
const MIN_BYTES: usize = 4 << 10;
const RECORD_BYTES: usize = 32;
/// The slots of a new hash table. It doubles when three quarters are used.
const FIRST_SLOTS: usize = 256;
/// The first capacity for records.
const FIRST_BYTES: usize = 1 << 10;
/// The bytes of a record besides its key and its payload, at most.
const RECORD_HEAD_BYTES: usize = 24;

#[derive(Debug, Clone, Copy)]
struct Entry {
    head: u64,
    /// Where the record begins.
    at: u32,
    /// The lower half of [`KeyPlace::spread`].
    spread: u32,
}

/// A buffer of a partition's newest records, with a hash table of their keys.
#[derive(Debug)]
pub(crate) struct Memtable {
    /// The size at which it is full, and the size if writers read.
    full_bytes: usize,
    full_read_bytes: usize,
    /// How often a writer has looked up a key.
    looks: usize,
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    /// 0, or the number of an entry plus 1; open addressing, linear probing.
    slots: Vec<u16>,
    /// How many operations were combined with another one of their key.
    met: usize,
    /// See [`MiniRun::deltas_since_ms`].
    deltas_since_ms: Option<u64>,
}

impl Default for Memtable {
    fn default() -> Self {
        Self::within(usize::MAX)
    }
}

impl Memtable {
    /// Creates a buffer that uses at most about this much memory.
    pub fn within(memory_bytes: usize) -> Self {
        Self {
            // With small records, the hash table and the list of entries use as much again.
            full_bytes: (memory_bytes / 2).clamp(MIN_BYTES, MAX_BYTES),
            full_read_bytes: (memory_bytes / 2).clamp(MIN_BYTES, MAX_READ_BYTES),
            looks: 0,
            bytes: Vec::new(),
            entries: Vec::new(),
            slots: Vec::new(),
            met: 0,
            deltas_since_ms: None,
        }
    }

    /// Returns an empty buffer of the same size, which uses no memory yet.
    pub fn renewed(&self) -> Self {
        Self {
            full_bytes: self.full_bytes,
            full_read_bytes: self.full_read_bytes,
            ..Self::default()
        }
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn records(&self) -> u64 {
        self.entries.len() as u64
    }

    /// Counts a read by a writer.
    #[inline]
    pub fn note_look(&mut self) {
        self.looks += 1;
    }

    /// Returns whether writers have looked up at least half of the written keys, as writers of
    /// counters do.
    fn is_read(&self) -> bool {
        self.looks * 2 >= self.entries.len()
    }

    #[inline]
    pub fn is_full(&self) -> bool {
        self.fills(self.full_bytes) && (!self.is_read() || self.fills(self.full_read_bytes))
    }

    #[inline]
    fn fills(&self, full_bytes: usize) -> bool {
        let most_records = full_bytes / RECORD_BYTES;
        self.entries.len() >= most_records || self.bytes.len() >= full_bytes
    }

    /// Returns whether operations meet others of their key often enough that merging buffers saves
    /// records.
    pub fn is_repetitive(&self) -> bool {
        self.met * 8 >= self.entries.len()
    }

    pub fn deltas_since_ms(&self) -> Option<u64> {
        self.deltas_since_ms
    }

    /// Returns the bytes of its records.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the memory it uses.
    #[inline]
    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity()
            + self.entries.capacity() * size_of::<Entry>()
            + self.slots.capacity() * size_of::<u16>()
    }

    #[inline]
    fn record(&self, entry: Entry) -> Option<Record<'_>> {
        Record::read(&self.bytes, entry.at as usize)
    }

    /// Returns the slot of the key, or the free one where it belongs. REQUIRES: there is a free
    /// one.
    #[inline]
    fn slot_of(&self, place: KeyPlace, key: &[u8]) -> usize {
        let mask = self.slots.len() - 1;
        debug_assert!(
            self.slots.len().is_power_of_two() && self.entries.len() < self.slots.len(),
            "{} slots for {} records: a search would not end",
            self.slots.len(),
            self.entries.len()
        );
        let spread = place.spread as u32;
        let mut slot = spread as usize & mask;
        loop {
            let Some(number) = usize::from(self.slots[slot]).checked_sub(1) else {
                return slot;
            };
            let entry = self.entries[number];
            if entry.spread == spread
                && entry.head == place.head
                && self.record(entry).is_some_and(|record| record.key == key)
            {
                return slot;
            }
            slot = (slot + 1) & mask;
        }
    }

    #[inline]
    fn entry_of(&self, place: KeyPlace, key: &[u8]) -> Option<usize> {
        if self.slots.is_empty() {
            return None;
        }
        usize::from(self.slots[self.slot_of(place, key)]).checked_sub(1)
    }

    /// Returns the operation on a key.
    #[inline]
    pub fn get(&self, place: KeyPlace, key: &[u8]) -> Option<Operation<'_>> {
        let entry = self.entry_of(place, key)?;
        self.record(self.entries[entry])?.operation()
    }

    /// Adds an operation, combined with the existing one of its key. An error changes nothing.
    #[inline]
    pub fn add(
        &mut self,
        shape: &Shape,
        place: KeyPlace,
        key: &[u8],
        operation: Operation<'_>,
    ) -> Result<(), LiveError> {
        if (self.entries.len() + 1) * 4 > self.slots.len() * 3 {
            self.grow();
        }
        self.deltas_since_ms = earliest([self.deltas_since_ms, delta_written_ms(operation)]);
        let slot = self.slot_of(place, key);
        if let Some(number) = usize::from(self.slots[slot]).checked_sub(1) {
            return self.change(shape, number, key, operation);
        }
        debug_assert!(
            self.entries.len() < usize::from(u16::MAX) && u32::try_from(self.bytes.len()).is_ok(),
            "a buffer of {} records and {} bytes takes one more",
            self.entries.len(),
            self.bytes.len()
        );
        let at = self.bytes.len() as u32;
        let spread = place.spread as u32;
        self.entries.push(Entry {
            head: place.head,
            at,
            spread,
        });
        self.slots[slot] = self.entries.len() as u16;
        let (tag, payload) = encode(operation);
        self.append(key, tag, &payload);
        Ok(())
    }

    /// Replaces the operation of an entry.
    fn change(
        &mut self,
        shape: &Shape,
        number: usize,
        key: &[u8],
        newer: Operation<'_>,
    ) -> Result<(), LiveError> {
        self.met += 1;
        let entry = self.entries[number];
        let older = self.record(entry).and_then(|record| record.operation());
        let composed = match older {
            Some(older) if !newer.is_final() => Some(shape.compose(key, &older, &newer)?),
            _ => None,
        };
        let operation = composed
            .as_ref()
            .map_or(newer, |composed| composed.borrow());
        let (tag, payload) = encode(operation);
        let old = self
            .record(entry)
            .map(|record| (record.len_bytes, record.payload.len()));
        match old {
            Some((len_bytes, payload_bytes)) if payload_bytes == payload.len() => {
                let at = entry.at as usize;
                let end = at + len_bytes;
                self.bytes[at] = tag;
                self.bytes[end - payload_bytes..end].copy_from_slice(&payload);
            }
            _ => {
                debug_assert!(
                    u32::try_from(self.bytes.len()).is_ok(),
                    "a buffer of {} bytes takes one more record",
                    self.bytes.len()
                );
                self.entries[number].at = self.bytes.len() as u32;
                self.append(key, tag, &payload);
            }
        }
        Ok(())
    }

    /// Capacity doubles as needed, but a record that fills the buffer does not double it once more.
    #[inline]
    fn append(&mut self, key: &[u8], tag: u8, payload: &[u8]) {
        let needed = key.len() + payload.len() + RECORD_HEAD_BYTES;
        if self.bytes.capacity() - self.bytes.len() < needed {
            let doubled = (2 * self.bytes.capacity()).clamp(FIRST_BYTES, self.full_read_bytes);
            self.bytes
                .reserve_exact(needed.max(doubled.saturating_sub(self.bytes.len())));
        }
        append_raw(&mut self.bytes, key, tag, payload);
    }

    fn grow(&mut self) {
        let slots = (self.slots.len() * 2).max(FIRST_SLOTS);
        self.slots.clear();
        self.slots.resize(slots, 0);
        for (number, entry) in self.entries.iter().enumerate() {
            let mut slot = entry.spread as usize & (slots - 1);
            while self.slots[slot] != 0 {
                slot = (slot + 1) & (slots - 1);
            }
            self.slots[slot] = number as u16 + 1;
        }
    }

    /// Sorts the records into a run and empties the buffer.
    pub fn seal(&mut self) -> MiniRun {
        let bytes = &self.bytes;
        let key = |entry: &Entry| Record::read(bytes, entry.at as usize).map(|record| record.key);
        self.entries.sort_unstable_by_key(|entry| entry.head);
        let of_one_head = self.entries.chunk_by_mut(|a, b| a.head == b.head);
        for entries in of_one_head.filter(|entries| entries.len() > 1) {
            entries.sort_unstable_by(|a, b| key(a).cmp(&key(b)));
        }
        let mut mini = MiniRun::with_capacity(bytes.len(), self.entries.len() as u64);
        for entry in &self.entries {
            if let Some(record) = Record::read(bytes, entry.at as usize) {
                mini.push(entry.head, record.key, record.tag, record.payload);
            }
        }
        debug_assert_eq!(
            mini.records(),
            self.records(),
            "records of the buffer cannot be read back"
        );
        mini.shrink();
        mini.deltas_since_ms = self.deltas_since_ms;
        self.clear();
        mini
    }

    fn clear(&mut self) {
        let kept_bytes = match self.is_read() {
            true => self.full_read_bytes,
            false => 2 * self.full_bytes,
        };
        self.bytes.clear();
        // Memory for one large value must not be kept for good.
        self.bytes.shrink_to(kept_bytes);
        self.entries.clear();
        self.slots.fill(0);
        self.looks = 0;
        self.met = 0;
        self.deltas_since_ms = None;
    }
}
