//! Walks a run's records in order, in either direction.

use std::borrow::Cow;
use std::ops::Bound;
use std::sync::Arc;

use crate::decoded::Decoded;
use crate::error::Result;
use crate::format::Order;
use crate::operation::Operation;
use crate::pages::Access;
use crate::record::{decode, is_plain, value_of};
use crate::run::{Index, Run};
use crate::scan::{Cursor, Direction, ScanRange};

/// A scan that reads more pages than this is treated as a long one.
const SINGLE_PAGES: usize = 4;

/// A scan over one run. Holds the run open.
#[derive(Debug)]
pub struct RunScan {
    /// A copy of the page's records: a page read in place could lose its trust between two of them.
    records: Decoded,
    hashed: bool,
    run: Arc<Run>,
    range: ScanRange,
    direction: Direction,
    page: usize,
    started: bool,
    releasing: bool,
    /// Compare each page's checksum, even if the page is trusted.
    comparing: bool,
    /// The number of pages that the scan has read.
    passed: usize,
    /// Only return records that begin in the first page.
    one_page: bool,
    /// The range's first record has not been found yet.
    seeking: bool,
    /// No page is left.
    done: bool,
    /// The present record's payload if it is not contiguous in the page.
    distant: Vec<u8>,
}

impl RunScan {
    pub fn new(run: Arc<Run>, range: ScanRange, direction: Direction) -> Self {
        let page = first_page(&run, &range, direction);
        Self {
            records: Decoded::default(),
            hashed: run.order() == Order::Hashed,
            done: run.pages.count() == 0,
            run,
            range,
            direction,
            page,
            started: false,
            releasing: false,
            comparing: false,
            passed: 0,
            one_page: false,
            seeking: true,
            distant: Vec::new(),
        }
    }

    /// Releases the read pages to the system from time to time. So a walk over a large mapped file
    /// does not count as memory of this process. Forward scans only.
    pub fn releasing(mut self) -> Self {
        self.releasing = true;
        self
    }

    /// Compares the checksum of each page that the scan reads, even if it was compared before. For
    /// callers that write the scanned records to another run.
    pub fn comparing(mut self) -> Self {
        self.comparing = true;
        self
    }

    /// Returns the number of the scan's current page.
    pub fn page(&self) -> usize {
        self.page
    }

    /// Advances if the page's records are exhausted (`stands` is `false`), or if the current
    /// record's payload is not in the page.
    #[cold]
    #[inline(never)]
    fn advance_slowly(&mut self, mut stands: bool) -> Result<bool> {
        while !stands {
            if self.done || !self.next_page()? {
                self.done = true;
                return Ok(false);
            }
            stands = self.records.advance();
        }
        self.distant.clear();
        if self.records.is_distant() {
            if self.comparing && self.records.slot().spills() {
                self.compare_next()?;
            }
            let payload = self.run.payload(self.page, &self.records.slot(), true)?;
            self.distant = payload.map(Cow::into_owned).unwrap_or_default();
            self.run.pages.check_whole()?;
        }
        if !is_plain(self.tag()) {
            let decoded = decode(self.tag(), self.payload());
            decoded.map_err(|what| self.run.pages.damaged(self.page, what))?;
        }
        Ok(true)
    }

    /// Compares the page in which a value continues; a reader of a page after the last one gets the
    /// error.
    fn compare_next(&self) -> Result<()> {
        let next = self.page + 1;
        if next < self.run.pages.count() {
            self.run.pages.compare(next, Access::Single)?;
        }
        Ok(())
    }

    #[inline]
    fn tag(&self) -> u8 {
        self.records.tag()
    }

    #[inline]
    fn payload(&self) -> &[u8] {
        if self.records.is_distant() {
            &self.distant
        } else {
            self.records.payload()
        }
    }

    /// Decodes the next page; `false` if there is none.
    fn next_page(&mut self) -> Result<bool> {
        self.records.clear();
        if self.started {
            let Some(next) = self.page_ahead() else {
                return Ok(false);
            };
            self.page = next;
            if self.releasing {
                self.run.pages.release_before(self.page);
            }
        }
        debug_assert!(
            self.page < self.run.pages.count(),
            "a scan reached page {} of {}",
            self.page,
            self.run.pages.count()
        );
        self.started = true;
        self.passed += 1;
        let long = self.passed > SINGLE_PAGES;
        let access = if long {
            Access::Sequential
        } else {
            Access::Single
        };
        let bytes = match self.comparing {
            true => self.run.pages.compare(self.page, access)?,
            false => self.run.pages.get(self.page, access)?,
        };
        let hasher = self.hashed.then(|| self.run.hasher());
        let ahead = self.page_ahead().filter(|_| self.passed > 1);
        let ahead = ahead.and_then(|page| self.run.pages.in_place(page));
        let decoded =
            self.records
                .decode(&bytes, ahead.unwrap_or_default(), hasher, self.direction);
        self.run.pages.check_whole()?;
        decoded.map_err(|what| self.run.pages.damaged(self.page, what))?;
        self.done = self.keep_range();
        Ok(true)
    }

    /// Returns the page after this one, in the scan's direction.
    fn page_ahead(&self) -> Option<usize> {
        match self.direction {
            _ if self.one_page => None,
            Direction::Forward => Some(self.page + 1).filter(|&p| p < self.run.pages.count()),
            Direction::Backward => self.page.checked_sub(1),
        }
    }

    /// Keeps only the page's records within the range; returns whether the range ends among them.
    fn keep_range(&mut self) -> bool {
        let (range, direction, hashed) = (&self.range, self.direction, self.hashed);
        let hash = |head: u64| if hashed { head } else { 0 };
        if self.seeking {
            self.records
                .skip_early(|head, key| range.is_early(direction, hash(head), key));
            self.seeking = self.records.is_empty();
        }
        self.records
            .cut_late(|head, key| range.is_late(direction, hash(head), key))
    }
}

impl Cursor for RunScan {
    #[inline]
    fn advance(&mut self) -> Result<bool> {
        let stands = self.records.advance();
        if stands && self.records.is_simple() {
            Ok(true)
        } else {
            self.advance_slowly(stands)
        }
    }

    #[inline]
    fn hash(&self) -> u64 {
        if self.hashed { self.head() } else { 0 }
    }

    #[inline]
    fn head(&self) -> u64 {
        self.records.head()
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.records.key()
    }

    #[inline]
    fn operation(&self) -> Operation<'_> {
        // `advance` has decoded it once already.
        decode(self.tag(), self.payload()).unwrap_or(Operation::Delete)
    }

    #[inline]
    fn encoded(&self) -> (u8, Cow<'_, [u8]>) {
        (self.tag(), Cow::Borrowed(self.payload()))
    }

    #[inline]
    fn value(&self) -> Option<(&[u8], u64)> {
        value_of(self.tag(), self.payload())
    }
}

/// Returns the page in which the range's first record, in the scan's direction, may be.
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

    /// Walks the records that begin in one page. REQUIRES: the page exists.
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

    /// Returns, in ordered runs, a key above all those of the pages before `page` and not above
    /// those of it; empty for the first page.
    pub fn separator(&self, page: usize) -> Option<&[u8]> {
        match &self.index {
            Index::Ordered(index) if page < index.len() => Some(index.separator(page)),
            Index::Ordered(_) | Index::Hashed(_) => None,
        }
    }
}
