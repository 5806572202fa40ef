//! Cursors over sorted runs in memory, and over any source of records, in both directions.

use std::borrow::Cow;
use std::ops::Bound;
use std::sync::Arc;

use forebay_run::error::Result;
use forebay_run::hash::key_head;
use forebay_run::operation::Operation;
use forebay_run::record::{decode, value_of};
use forebay_run::scan::{Cursor, Direction, ScanRange};
use forebay_run::{Order, Run, RunScan};

use crate::live::basics::shape::Shape;
use crate::live::memory::mini::MiniRun;

/// A cursor over a [`MiniRun`] that walks several ranges of places in order.
#[derive(Debug)]
pub(crate) struct MiniCursor {
    mini: Arc<MiniRun>,
    shape: Arc<Shape>,
    range: ScanRange,
    /// The ranges that follow.
    rest: std::vec::IntoIter<ScanRange>,
    direction: Direction,
    /// Forward: where the next record begins. Backward: the end of the block of the next records.
    at: usize,
    /// Backward: the starts of the block's remaining records.
    starts: Vec<usize>,
    seeking: bool,
    done: bool,
    hash: u64,
    head: u64,
    tag: u8,
    /// The bytes of the current record's key and payload.
    key: (usize, usize),
    payload: (usize, usize),
}

impl MiniCursor {
    /// Creates a cursor over ranges, in the order of the walk; `None` without any.
    pub fn over(
        mini: &Arc<MiniRun>,
        shape: &Arc<Shape>,
        ranges: Vec<ScanRange>,
        direction: Direction,
    ) -> Option<Self> {
        let mut cursor = Self {
            mini: Arc::clone(mini),
            shape: Arc::clone(shape),
            range: ScanRange::all(),
            rest: ranges.into_iter(),
            direction,
            at: 0,
            starts: Vec::new(),
            seeking: true,
            done: false,
            hash: 0,
            head: 0,
            tag: 0,
            key: (0, 0),
            payload: (0, 0),
        };
        cursor.begin_next().then_some(cursor)
    }

    /// Moves to the start of the next range, if there is one.
    fn begin_next(&mut self) -> bool {
        let Some(range) = self.rest.next() else {
            return false;
        };
        let begin = match self.direction {
            Direction::Forward => &range.from,
            Direction::Backward => &range.to,
        };
        let (start, end) = match begin {
            Bound::Unbounded => (0, self.mini.end()),
            Bound::Included(at) | Bound::Excluded(at) => {
                let head = match self.shape.order {
                    Order::Hashed => at.hash,
                    Order::Ordered => key_head(&at.key),
                };
                self.mini.block_around(head, &at.key)
            }
        };
        self.at = match self.direction {
            Direction::Forward => start,
            Direction::Backward => end,
        };
        self.starts.clear();
        self.seeking = true;
        self.range = range;
        true
    }

    /// Returns where the next record begins, if there is one.
    #[inline]
    fn next_start(&mut self) -> Option<usize> {
        if self.direction == Direction::Forward {
            return Some(self.at).filter(|at| *at < self.mini.end());
        }
        if self.starts.is_empty() {
            let (start, end) = self.mini.block_before(self.at)?;
            let mut at = start;
            while at < end {
                self.starts.push(at);
                at += self.mini.record(at)?.len_bytes;
            }
            self.at = start;
        }
        self.starts.pop()
    }

    /// Moves to the next record; `false` when there is none.
    #[inline]
    fn load_next(&mut self) -> bool {
        let Some(at) = self.next_start() else {
            return false;
        };
        let Some(record) = self.mini.record(at) else {
            return false;
        };
        let end = at + record.len_bytes;
        self.tag = record.tag;
        self.payload = (end - record.payload.len(), end);
        self.key = (self.payload.0 - record.key.len(), self.payload.0);
        (self.hash, self.head) = self.shape.hash_and_head(record.key);
        if self.direction == Direction::Forward {
            self.at = end;
        }
        true
    }
}

impl Cursor for MiniCursor {
    #[inline]
    fn advance(&mut self) -> Result<bool> {
        while !self.done {
            while self.load_next() {
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
            self.done = !self.begin_next();
        }
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
        self.mini.slice(self.key)
    }

    #[inline]
    fn operation(&self) -> Operation<'_> {
        // Records in memory were encoded by this process.
        decode(self.tag, self.mini.slice(self.payload)).unwrap_or(Operation::Delete)
    }

    #[inline]
    fn encoded(&self) -> (u8, Cow<'_, [u8]>) {
        (self.tag, Cow::Borrowed(self.mini.slice(self.payload)))
    }

    #[inline]
    fn value(&self) -> Option<(&[u8], u64)> {
        value_of(self.tag, self.mini.slice(self.payload))
    }
}

/// A cursor over a run on the disk that walks several ranges of places in order.
#[derive(Debug)]
pub(crate) struct RunCursor {
    scan: RunScan,
    run: Arc<Run>,
    /// The ranges that follow.
    rest: std::vec::IntoIter<ScanRange>,
    direction: Direction,
    purpose: Purpose,
}

/// The purpose of a walk over files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Pages whose checksums were verified before are not verified again.
    Reading,
    /// Records are written to a new file with new checksums, so all pages are verified.
    Merging,
}

impl RunCursor {
    /// Creates a cursor over ranges, in the order of the walk; `None` without any.
    pub fn over(
        run: &Arc<Run>,
        ranges: Vec<ScanRange>,
        direction: Direction,
        purpose: Purpose,
    ) -> Option<Self> {
        let mut rest = ranges.into_iter();
        Some(Self {
            scan: scan(run, rest.next()?, direction, purpose),
            run: Arc::clone(run),
            rest,
            direction,
            purpose,
        })
    }

    #[inline(always)]
    fn advance(&mut self) -> Result<bool> {
        while !self.scan.advance()? {
            let Some(range) = self.rest.next() else {
                return Ok(false);
            };
            self.scan = scan(&self.run, range, self.direction, self.purpose);
        }
        Ok(true)
    }
}

/// Walks a range. The pages of a long walk do not count as memory of this process.
fn scan(run: &Arc<Run>, range: ScanRange, direction: Direction, purpose: Purpose) -> RunScan {
    let scan = RunScan::new(Arc::clone(run), range, direction);
    let scan = match purpose {
        Purpose::Reading => scan,
        Purpose::Merging => scan.comparing(),
    };
    match direction {
        Direction::Forward => scan.releasing(),
        Direction::Backward => scan,
    }
}

/// A cursor over a sorted run, in memory or on the disk.
#[derive(Debug)]
pub(crate) enum SourceCursor {
    Mini(MiniCursor),
    Run(RunCursor),
}

impl Cursor for SourceCursor {
    #[inline(always)]
    fn advance(&mut self) -> Result<bool> {
        match self {
            SourceCursor::Mini(cursor) => cursor.advance(),
            SourceCursor::Run(cursor) => cursor.advance(),
        }
    }

    #[inline(always)]
    fn hash(&self) -> u64 {
        match self {
            SourceCursor::Mini(cursor) => cursor.hash(),
            SourceCursor::Run(cursor) => cursor.scan.hash(),
        }
    }

    #[inline(always)]
    fn head(&self) -> u64 {
        match self {
            SourceCursor::Mini(cursor) => cursor.head(),
            SourceCursor::Run(cursor) => cursor.scan.head(),
        }
    }

    #[inline(always)]
    fn key(&self) -> &[u8] {
        match self {
            SourceCursor::Mini(cursor) => cursor.key(),
            SourceCursor::Run(cursor) => cursor.scan.key(),
        }
    }

    #[inline(always)]
    fn operation(&self) -> Operation<'_> {
        match self {
            SourceCursor::Mini(cursor) => cursor.operation(),
            SourceCursor::Run(cursor) => cursor.scan.operation(),
        }
    }

    #[inline(always)]
    fn encoded(&self) -> (u8, Cow<'_, [u8]>) {
        match self {
            SourceCursor::Mini(cursor) => cursor.encoded(),
            SourceCursor::Run(cursor) => cursor.scan.encoded(),
        }
    }

    #[inline(always)]
    fn value(&self) -> Option<(&[u8], u64)> {
        match self {
            SourceCursor::Mini(cursor) => cursor.value(),
            SourceCursor::Run(cursor) => cursor.scan.value(),
        }
    }
}
