//! Walking a run's records in order, either way.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::ops::{Bound, Range};
use std::sync::Arc;

use crate::error::Result;
use crate::format::Order;
use crate::hash::key_head;
use crate::operation::Operation;
use crate::page::{OPERATION_MASK, Page, Slot};
use crate::pages::Access;
use crate::record::{decode, encode, is_plain, value_of};
use crate::run::{Index, Run};

/// A sorted stream of records: what scans, merges and sort buffers have in common.
///
/// After `advance` returned `true` the accessors tell of the record that it moved to; before the
/// first call and after a `false` or an error they mean nothing.
pub trait Cursor {
    /// Moves to the next record; `false` when there is none.
    fn advance(&mut self) -> Result<bool>;
    /// The key's hash64; 0 in ordered runs.
    fn hash(&self) -> u64;
    /// Where the record sorts, as far as eight bytes tell: the hash, or in ordered runs
    /// [`key_head`] of the key. Records of equal heads sort by key.
    fn head(&self) -> u64;
    fn key(&self) -> &[u8];
    fn operation(&self) -> Operation<'_>;
    /// The operation as tag and payload: what [`encode`] makes of it.
    fn encoded(&self) -> (u8, Cow<'_, [u8]>) {
        encode(self.operation())
    }
    /// What a key has whose whole history this record is: see [`Operation::value`].
    fn value(&self) -> Option<(&[u8], u64)> {
        self.operation().value()
    }
    /// The record's place in history among those of its key in other streams; where ages are equal
    /// (as they are by default) the streams' own order decides.
    fn age(&self) -> u64 {
        0
    }
}

impl<C: Cursor + ?Sized> Cursor for Box<C> {
    fn advance(&mut self) -> Result<bool> {
        (**self).advance()
    }
    fn hash(&self) -> u64 {
        (**self).hash()
    }
    fn head(&self) -> u64 {
        (**self).head()
    }
    fn key(&self) -> &[u8] {
        (**self).key()
    }
    fn operation(&self) -> Operation<'_> {
        (**self).operation()
    }
    fn encoded(&self) -> (u8, Cow<'_, [u8]>) {
        (**self).encoded()
    }
    fn value(&self) -> Option<(&[u8], u64)> {
        (**self).value()
    }
    fn age(&self) -> u64 {
        (**self).age()
    }
}

/// A place in sort order: the hash first (0 in ordered runs), then the key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    pub hash: u64,
    pub key: Vec<u8>,
}

/// What a scan covers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScanRange {
    pub from: Bound<Position>,
    pub to: Bound<Position>,
}

impl ScanRange {
    pub fn all() -> Self {
        Self {
            from: Bound::Unbounded,
            to: Bound::Unbounded,
        }
    }

    /// Hashed order: all records with a hash of at least `from` and below `to`.
    pub fn hashes(from: u64, to: Option<u64>) -> Self {
        let at = |hash| Position {
            hash,
            key: Vec::new(),
        };
        Self {
            from: Bound::Included(at(from)),
            to: to.map_or(Bound::Unbounded, |to| Bound::Excluded(at(to))),
        }
    }

    /// Ordered order: between two keys.
    pub fn keys(from: Bound<&[u8]>, to: Bound<&[u8]>) -> Self {
        let at = |key: &[u8]| Position {
            hash: 0,
            key: key.to_vec(),
        };
        Self {
            from: from.map(at),
            to: to.map(at),
        }
    }

    /// Whether a place comes before the range, for whoever walks in that direction.
    #[inline]
    pub fn is_early(&self, direction: Direction, hash: u64, key: &[u8]) -> bool {
        match direction {
            Direction::Forward => self.is_below(hash, key),
            Direction::Backward => self.is_above(hash, key),
        }
    }

    /// Whether a place comes behind the range, for whoever walks in that direction.
    #[inline]
    pub fn is_late(&self, direction: Direction, hash: u64, key: &[u8]) -> bool {
        match direction {
            Direction::Forward => self.is_above(hash, key),
            Direction::Backward => self.is_below(hash, key),
        }
    }

    /// Whether a place lies below the range.
    #[inline]
    pub fn is_below(&self, hash: u64, key: &[u8]) -> bool {
        let order = |at: &Position| hash.cmp(&at.hash).then_with(|| key.cmp(&at.key));
        match &self.from {
            Bound::Unbounded => false,
            Bound::Included(at) => order(at) == Ordering::Less,
            Bound::Excluded(at) => order(at) != Ordering::Greater,
        }
    }

    /// Whether a place lies above the range.
    #[inline]
    pub fn is_above(&self, hash: u64, key: &[u8]) -> bool {
        let order = |at: &Position| hash.cmp(&at.hash).then_with(|| key.cmp(&at.key));
        match &self.to {
            Bound::Unbounded => false,
            Bound::Included(at) => order(at) == Ordering::Greater,
            Bound::Excluded(at) => order(at) != Ordering::Less,
        }
    }
}

/// The way a scan goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    Forward,
    Backward,
}

/// A scan that comes through more pages than this is taken for a long one.
const SINGLE_PAGES: usize = 4;

/// A scan over one run. Holds the run open.
#[derive(Debug)]
pub struct RunScan {
    run: Arc<Run>,
    hashed: bool,
    range: ScanRange,
    direction: Direction,
    page: usize,
    /// A copy of the page: one in place could lose its trust between two records.
    bytes: Vec<u8>,
    started: bool,
    releasing: bool,
    /// How many pages the scan has come through.
    passed: usize,
    /// Only the records that begin in the first page.
    one_page: bool,
    /// Records of the page that are still to come: those numbered in this range.
    rest: Range<usize>,
    records: usize,
    /// Still looking for the range's first record.
    seeking: bool,
    done: bool,
    hash: u64,
    head: u64,
    /// The key's first bytes, in ordered order: the page's prefix, and behind it the suffix.
    key: Vec<u8>,
    /// How long the page's prefix is, and its [`key_head`].
    prefix_bytes: usize,
    prefix_head: u64,
    /// The key, in ordered order without the prefix: where in the page.
    suffix_at: Range<usize>,
    tag: u8,
    payload_at: Range<usize>,
    /// The payload when it does not lie in one piece in the page.
    distant: Option<Vec<u8>>,
}

impl RunScan {
    pub fn new(run: Arc<Run>, range: ScanRange, direction: Direction) -> Self {
        let page = first_page(&run, &range, direction);
        let done = run.pages.count() == 0;
        Self {
            hashed: run.order() == Order::Hashed,
            run,
            range,
            direction,
            page,
            bytes: Vec::new(),
            started: false,
            releasing: false,
            passed: 0,
            one_page: false,
            rest: 0..0,
            records: 0,
            seeking: true,
            done,
            hash: 0,
            key: Vec::new(),
            prefix_bytes: 0,
            prefix_head: 0,
            head: 0,
            suffix_at: 0..0,
            tag: 0,
            payload_at: 0..0,
            distant: None,
        }
    }

    /// Gives the pages passed back to the system now and then, so that a walk over a large mapped
    /// file does not count as memory of this process. Forward scans only.
    pub fn releasing(mut self) -> Self {
        self.releasing = true;
        self
    }

    /// The number of the page that the scan stands in.
    pub fn page(&self) -> usize {
        self.page
    }

    /// Takes the next page in hand; `false` when there is none.
    fn next_page(&mut self) -> Result<bool> {
        if self.started {
            let next = match self.direction {
                _ if self.one_page => None,
                Direction::Forward => Some(self.page + 1).filter(|&p| p < self.run.pages.count()),
                Direction::Backward => self.page.checked_sub(1),
            };
            let Some(next) = next else { return Ok(false) };
            self.page = next;
            if self.releasing {
                self.run.pages.release_before(self.page);
            }
        }
        self.started = true;
        self.passed += 1;
        let long = self.passed > SINGLE_PAGES;
        let access = if long {
            Access::Sequential
        } else {
            Access::Single
        };
        let bytes = self.run.pages.get(self.page, access)?;
        self.bytes.clear();
        self.bytes.extend_from_slice(&bytes);
        let page = Page::new(&self.bytes);
        let damaged = |what| self.run.pages.damaged(self.page, what);
        self.records = page.records().map_err(damaged)?;
        self.rest = 0..self.records;
        if !self.hashed {
            let prefix = page.prefix().map_err(damaged)?;
            self.prefix_bytes = prefix.len();
            self.prefix_head = key_head(prefix);
            self.key.clear();
            self.key.extend_from_slice(prefix);
        }
        self.run.pages.check_whole()?;
        Ok(true)
    }

    /// Reads the record numbered `index` of the page.
    #[inline]
    fn load(&mut self, index: usize) -> Result<()> {
        let page = Page::new(&self.bytes);
        let damaged = |what| self.run.pages.damaged(self.page, what);
        let slot = page
            .slot(index, self.records, self.hashed)
            .map_err(damaged)?;
        self.tag = slot.tag & OPERATION_MASK;
        self.suffix_at = slot.at..slot.at + slot.suffix.len();
        self.payload_at = self.suffix_at.end..self.suffix_at.end + slot.payload.len();
        if self.hashed {
            self.hash = self.run.hasher().hash64(slot.suffix);
            self.head = self.hash;
        } else {
            // From where it lies, and now: reading the key back just after it was put together would wait.
            let behind = key_head(slot.suffix).checked_shr(8 * self.prefix_bytes as u32);
            self.head = self.prefix_head | behind.unwrap_or(0);
            self.key.truncate(self.prefix_bytes);
            self.key.extend_from_slice(slot.suffix);
        }
        self.distant = if slot.is_extent() || slot.spills() {
            self.distant_payload(&slot)?
        } else {
            None
        };
        if !is_plain(self.tag) {
            decode(self.tag, self.payload()).map_err(damaged)?;
        }
        Ok(())
    }

    fn distant_payload(&self, slot: &Slot<'_>) -> Result<Option<Vec<u8>>> {
        let payload = self.run.payload(self.page, slot, true)?;
        self.run.pages.check_whole()?;
        Ok(payload.map(Cow::into_owned))
    }

    fn payload(&self) -> &[u8] {
        match &self.distant {
            Some(payload) => payload,
            None => &self.bytes[self.payload_at.clone()],
        }
    }
}

impl Cursor for RunScan {
    #[inline]
    fn advance(&mut self) -> Result<bool> {
        while !self.done {
            let next = match self.direction {
                Direction::Forward => self.rest.next(),
                Direction::Backward => self.rest.next_back(),
            };
            let Some(index) = next else {
                self.done = !self.next_page()?;
                continue;
            };
            self.load(index)?;
            let (range, direction) = (&self.range, self.direction);
            if self.seeking && range.is_early(direction, self.hash, self.key()) {
                continue;
            }
            if range.is_late(direction, self.hash, self.key()) {
                break;
            }
            self.seeking = false;
            return Ok(true);
        }
        self.done = true;
        Ok(false)
    }

    #[inline]
    fn hash(&self) -> u64 {
        self.hash
    }

    #[inline]
    fn head(&self) -> u64 {
        self.head
    }

    #[inline]
    fn key(&self) -> &[u8] {
        if self.hashed {
            &self.bytes[self.suffix_at.clone()]
        } else {
            &self.key
        }
    }

    #[inline]
    fn operation(&self) -> Operation<'_> {
        // `load` has decoded it once already.
        decode(self.tag, self.payload()).unwrap_or(Operation::Delete)
    }

    #[inline]
    fn encoded(&self) -> (u8, Cow<'_, [u8]>) {
        (self.tag, Cow::Borrowed(self.payload()))
    }

    #[inline]
    fn value(&self) -> Option<(&[u8], u64)> {
        value_of(self.tag, self.payload())
    }
}

/// The page in which the range's first record, in the scan's direction, may lie.
fn first_page(run: &Run, range: &ScanRange, direction: Direction) -> usize {
    let end = match direction {
        Direction::Forward => &range.from,
        Direction::Backward => &range.to,
    };
    match (end, &run.index, direction) {
        (Bound::Unbounded, _, Direction::Forward) => 0,
        (Bound::Unbounded, _, Direction::Backward) => run.pages.count().saturating_sub(1),
        (Bound::Included(at) | Bound::Excluded(at), Index::Hashed(index), Direction::Forward) => {
            index.first_page(at.hash)
        }
        (Bound::Included(at) | Bound::Excluded(at), Index::Hashed(index), Direction::Backward) => {
            index.last_page(at.hash)
        }
        (Bound::Included(at) | Bound::Excluded(at), Index::Ordered(index), _) => {
            index.page(&at.key)
        }
    }
}

impl Run {
    /// Walks the records of `range`.
    pub fn scan(self: &Arc<Self>, range: ScanRange, direction: Direction) -> RunScan {
        RunScan::new(Arc::clone(self), range, direction)
    }

    /// Walks the records that begin in one page, which there must be.
    pub fn scan_page(self: &Arc<Self>, page: usize) -> RunScan {
        let scan = self.scan(ScanRange::all(), Direction::Forward);
        let done = page >= self.pages.count();
        RunScan {
            page,
            one_page: true,
            done,
            ..scan
        }
    }

    /// In ordered runs, a key above all those of the pages before `page` and not above those of it;
    /// empty for the first page.
    pub fn separator(&self, page: usize) -> Option<&[u8]> {
        match &self.index {
            Index::Ordered(index) if page < index.len() => Some(index.separator(page)),
            Index::Ordered(_) | Index::Hashed(_) => None,
        }
    }
}
