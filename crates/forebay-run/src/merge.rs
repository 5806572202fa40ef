//! Merging sorted streams of records into one.

use crate::content::ContentSum;
use crate::error::{Result, RunError};
use crate::operation::{CowOperation, DeltaKind, Operation};
use crate::record::encode;
use crate::scan::{Cursor, Direction};

/// What becomes of several records of one key: by [`Cursor::age`], then in the order of the streams,
/// which are given oldest first. Within a stream keys are distinct.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolve {
    /// Their operations are composed, as the algebra says.
    Compose(DeltaKind),
    /// The oldest is kept.
    First,
    /// The newest is kept.
    Last,
    /// That is an error.
    Refuse,
}

/// The records that a merge left out because of others of the same key.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Dropped {
    pub records: u64,
    pub key_bytes: u64,
    pub value_bytes: u64,
    pub content: ContentSum,
}

/// A merge of cursors, itself a [`Cursor`].
pub struct Merge<C> {
    cursors: Vec<C>,
    /// A binary heap of the cursors that have a record, the next one on top; each with its hash,
    /// so that most comparisons touch nothing else.
    heap: Vec<(u64, usize)>,
    direction: Direction,
    resolve: Resolve,
    started: bool,
    /// Where the record stands: in a cursor, or composed.
    current: usize,
    composed: Option<CowOperation<'static>>,
    pending: Vec<usize>,
    key: Vec<u8>,
    pub dropped: Dropped,
}

impl<C: Cursor> Merge<C> {
    /// `cursors`: oldest first, all in `direction`.
    pub fn new(cursors: Vec<C>, resolve: Resolve, direction: Direction) -> Self {
        Self {
            heap: Vec::with_capacity(cursors.len()),
            cursors,
            direction,
            resolve,
            started: false,
            current: 0,
            composed: None,
            pending: Vec::new(),
            key: Vec::new(),
            dropped: Dropped::default(),
        }
    }

    /// Whether `a` comes out before `b`: by position, and of one key the older first.
    fn before(&self, a: (u64, usize), b: (u64, usize)) -> bool {
        let order = a.0.cmp(&b.0).then_with(|| {
            let key = |at: (u64, usize)| self.cursors[at.1].key();
            key(a).cmp(key(b))
        });
        let order = if self.direction == Direction::Backward {
            order.reverse()
        } else {
            order
        };
        order.then(a.1.cmp(&b.1)).is_lt()
    }

    fn sift_up(&mut self, mut at: usize) {
        while at > 0 {
            let parent = (at - 1) / 2;
            if !self.before(self.heap[at], self.heap[parent]) {
                return;
            }
            self.heap.swap(at, parent);
            at = parent;
        }
    }

    fn sift_down(&mut self) {
        let mut at = 0;
        loop {
            let mut least = at;
            for child in [2 * at + 1, 2 * at + 2] {
                if child < self.heap.len() && self.before(self.heap[child], self.heap[least]) {
                    least = child;
                }
            }
            if least == at {
                return;
            }
            self.heap.swap(at, least);
            at = least;
        }
    }

    /// Takes the top cursor off; its record stays readable until it is advanced.
    fn pop(&mut self) -> Option<usize> {
        let (_, cursor) = *self.heap.first()?;
        self.heap.swap_remove(0);
        self.sift_down();
        Some(cursor)
    }

    fn advance_and_push(&mut self, cursor: usize) -> Result<()> {
        if self.cursors[cursor].advance()? {
            self.heap.push((self.cursors[cursor].hash(), cursor));
            self.sift_up(self.heap.len() - 1);
        }
        Ok(())
    }

    /// The common case of advancing one cursor and putting it back, in one sift.
    fn replace_top(&mut self) -> Result<()> {
        let cursor = self.heap[0].1;
        if self.cursors[cursor].advance()? {
            self.heap[0].0 = self.cursors[cursor].hash();
        } else {
            self.heap.swap_remove(0);
        }
        self.sift_down();
        Ok(())
    }

    fn start(&mut self) -> Result<()> {
        self.started = true;
        for cursor in 0..self.cursors.len() {
            self.advance_and_push(cursor)?;
        }
        Ok(())
    }

    /// Whether the second-best cursor stands on the same key as the top.
    fn top_is_shared(&self) -> bool {
        let (hash, top) = self.heap[0];
        let same = |at: usize| {
            self.heap.get(at).is_some_and(|&(other_hash, other)| {
                other_hash == hash && self.cursors[other].key() == self.cursors[top].key()
            })
        };
        same(1) || same(2)
    }

    /// Gathers all records of the top's key and settles what comes of them.
    fn settle(&mut self) -> Result<()> {
        self.key.clear();
        let (hash, top) = self.heap[0];
        self.key.extend_from_slice(self.cursors[top].key());
        while let Some(&(other_hash, cursor)) = self.heap.first() {
            if other_hash != hash || self.cursors[cursor].key() != self.key {
                break;
            }
            self.pop();
            self.pending.push(cursor);
        }
        let cursors = &self.cursors;
        self.pending
            .sort_by_key(|&cursor| (cursors[cursor].age(), cursor));
        match self.resolve {
            Resolve::Refuse => return Err(self.duplicate_error()),
            Resolve::First => self.keep(0),
            Resolve::Last => self.keep(self.pending.len() - 1),
            Resolve::Compose(kind) => self.compose(kind)?,
        }
        Ok(())
    }

    fn keep(&mut self, kept: usize) {
        for (place, &cursor) in self.pending.iter().enumerate() {
            if place != kept {
                let cursor = &self.cursors[cursor];
                let (_, payload) = encode(cursor.operation());
                self.dropped.records += 1;
                self.dropped.key_bytes += cursor.key().len() as u64;
                self.dropped.value_bytes += payload.len() as u64;
                self.dropped.content += ContentSum::of(cursor.key(), &payload);
            }
        }
        self.current = self.pending[kept];
    }

    fn compose(&mut self, kind: DeltaKind) -> Result<()> {
        let mut composed = self.cursors[self.pending[0]].operation().to_owned();
        for &cursor in &self.pending[1..] {
            let newer = self.cursors[cursor].operation();
            composed = newer.after(&composed.borrow(), kind).map_err(|source| {
                let key = String::from_utf8_lossy(&self.key).into_owned();
                RunError::Operand { key, source }
            })?;
        }
        self.composed = Some(composed);
        self.current = self.pending[0];
        Ok(())
    }

    fn duplicate_error(&self) -> RunError {
        RunError::Duplicate {
            key: String::from_utf8_lossy(&self.key).into_owned(),
        }
    }
}

impl<C: Cursor> Cursor for Merge<C> {
    fn advance(&mut self) -> Result<bool> {
        self.composed = None;
        if !self.started {
            self.start()?;
        } else if self.pending.is_empty() {
            if !self.heap.is_empty() {
                self.replace_top()?;
            }
        } else {
            for cursor in std::mem::take(&mut self.pending) {
                self.advance_and_push(cursor)?;
            }
        }
        let Some(&(_, top)) = self.heap.first() else {
            return Ok(false);
        };
        self.current = top;
        if self.top_is_shared() {
            self.settle()?;
        }
        Ok(true)
    }

    fn hash(&self) -> u64 {
        self.cursors[self.current].hash()
    }

    fn key(&self) -> &[u8] {
        self.cursors[self.current].key()
    }

    fn operation(&self) -> Operation<'_> {
        match &self.composed {
            Some(operation) => operation.borrow(),
            None => self.cursors[self.current].operation(),
        }
    }
}
