//! Stores records back to back, with a 16-byte entry for each. The sort moves only the entries.

/// The arena grows by blocks of this size, or of an eighth of the collector's share if that is
/// smaller. A larger record gets a block of its own.
const BLOCK_BYTES: usize = 4 << 20;
/// The head of a record in the arena: lengths of key (16 bits) and value (48 bits). Key and value
/// follow.
const RECORD_HEAD_BYTES: usize = 8;

/// A record's position in the sort order, and its place in the arena. Sorting moves these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// The hash64, or eight bytes of the key.
    pub head: u64,
    /// The block number and the offset in it; increases in the order of arrival.
    pub place: u64,
}

/// A store of records, back to back.
#[derive(Debug)]
pub struct Arena {
    blocks: Vec<Vec<u8>>,
    bytes: usize,
    block_bytes: usize,
}

impl Arena {
    pub fn new(share_bytes: usize) -> Self {
        Self {
            blocks: Vec::new(),
            bytes: 0,
            block_bytes: BLOCK_BYTES.min(share_bytes / 8),
        }
    }

    fn room_bytes(&self) -> usize {
        self.blocks
            .last()
            .map_or(0, |block| block.capacity() - block.len())
    }

    /// Returns the bytes of its blocks after adding a record of `more` bytes.
    #[inline]
    pub fn bytes_with(&self, more: usize) -> usize {
        let need = more + RECORD_HEAD_BYTES;
        let is_full = self.room_bytes() < need;
        let grown = if is_full {
            self.block_bytes.max(need)
        } else {
            0
        };
        self.bytes + grown
    }

    pub fn push(&mut self, key: &[u8], value: &[u8]) -> u64 {
        let need = RECORD_HEAD_BYTES + key.len() + value.len();
        if self.room_bytes() < need {
            let size = self.block_bytes.max(need);
            self.blocks.push(Vec::with_capacity(size));
            self.bytes += size;
        }
        let number = self.blocks.len() as u64 - 1;
        let Some(block) = self.blocks.last_mut() else {
            return 0;
        };
        let place = number << 32 | block.len() as u64;
        let head = (key.len() as u64) << 48 | value.len() as u64;
        block.extend_from_slice(&head.to_le_bytes());
        block.extend_from_slice(key);
        block.extend_from_slice(value);
        place
    }

    /// Returns the key and the value at `place`.
    #[inline]
    pub fn record(&self, place: u64) -> (&[u8], &[u8]) {
        let bytes = &self.blocks[(place >> 32) as usize][(place & 0xffff_ffff) as usize..];
        let (head, bytes) = bytes.split_at(RECORD_HEAD_BYTES);
        let head = head
            .first_chunk()
            .map_or(0, |head| u64::from_le_bytes(*head));
        let (key, bytes) = bytes.split_at((head >> 48) as usize);
        (key, &bytes[..(head & 0xffff_ffff_ffff) as usize])
    }

    #[inline]
    pub fn key(&self, place: u64) -> &[u8] {
        self.record(place).0
    }

    /// Starts prefetching the record at `place` into the cache.
    #[inline]
    pub fn prefetch(&self, place: u64) {
        let block = &self.blocks[(place >> 32) as usize];
        let at = (place & 0xffff_ffff) as usize;
        forebay_io::raw::prefetch(block, at);
        forebay_io::raw::prefetch(block, at + 64);
    }
}

/// Sorted records in memory, with the data needed to compare their ages.
#[derive(Debug)]
pub struct SortedRecords {
    pub arena: Arena,
    pub entries: Vec<Entry>,
    /// The first place of each unit's records, ascending.
    pub units: Vec<(u64, u32)>,
    /// The bytes of keys and values.
    pub payload_bytes: u64,
    /// The length of the longest key.
    pub longest_key: usize,
}

impl SortedRecords {
    /// Returns the input unit of the record at `place`.
    pub fn unit(&self, place: u64) -> u32 {
        let after = self.units.partition_point(|&(first, _)| first <= place);
        self.units[after.saturating_sub(1)].1
    }
}
