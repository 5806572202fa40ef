//! Merges sorted streams of records into one.

use std::borrow::Cow;
use std::hint::select_unpredictable;

use crate::content::ContentSum;
use crate::error::{Result, RunError, named_key};
use crate::operation::{CowOperation, DeltaKind, Operation};
use crate::record::encode;
use crate::scan::{Cursor, Direction};

/// The resolution of several records of one key, ordered by [`Cursor::age`], then by the order of
/// the streams, which are given oldest first. Within a stream keys are distinct.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolve {
    /// Compose their operations, by the algebra.
    Compose(DeltaKind),
    /// Keep the oldest.
    First,
    /// Keep the newest.
    Last,
    /// Return an error.
    Refuse,
}

/// The records that a merge omitted because of others of the same key; for composed ones, only
/// their number.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct DroppedRecords {
    pub records: u64,
    pub key_bytes: u64,
    pub value_bytes: u64,
    pub content: ContentSum,
}

/// A cursor's entry in the tournament. `rank` is the head of its record (inverted if the merge goes
/// backward), so that most comparisons read nothing else.
#[derive(Debug, Clone, Copy)]
struct Entrant {
    rank: u64,
    /// The cursor's number, and [`TIED`]: in one word, so that moving an entrant takes two words.
    mark: usize,
}

/// In an entrant's mark: it has won against another entrant of its key. An entrant lower in the
/// tree with the winner's key lost to the winner itself, or to one of that key that lost to it. So
/// the winner's mark covers all of them.
const TIED: usize = 1 << (usize::BITS - 1);

/// An entrant whose cursor is at its end: it loses to all others.
const ENDED: Entrant = Entrant {
    rank: u64::MAX,
    mark: usize::MAX & !TIED,
};

impl Entrant {
    #[inline]
    fn has_ended(self) -> bool {
        self.cursor() == ENDED.mark
    }

    #[inline]
    fn cursor(self) -> usize {
        self.mark & !TIED
    }
}

/// A merge of cursors, itself a [`Cursor`].
pub struct Merge<C> {
    cursors: Vec<C>,
    /// A tournament of the cursors: the winner in 0, in each node from 1 the loser of its match.
    /// Cursor c enters at node (c + cursors) / 2, the parent of node n is n / 2.
    tree: Vec<Entrant>,
    direction: Direction,
    resolve: Resolve,
    started: bool,
    /// The source of the current record: a cursor, or the composed one.
    current: usize,
    composed: Option<CowOperation<'static>>,
    /// The cursors at the present key, if there are several.
    pending: Vec<usize>,
    pub dropped: DroppedRecords,
}

impl<C: Cursor> Merge<C> {
    /// `cursors`: oldest first, all in `direction`.
    pub fn new(cursors: Vec<C>, resolve: Resolve, direction: Direction) -> Self {
        debug_assert!(
            cursors.len() < ENDED.mark,
            "{} cursors have no numbers",
            cursors.len()
        );
        Self {
            tree: Vec::new(),
            cursors,
            direction,
            resolve,
            started: false,
            current: 0,
            composed: None,
            pending: Vec::new(),
            dropped: DroppedRecords::default(),
        }
    }

    /// Advances the cursor.
    #[inline]
    fn enter(&mut self, cursor: usize) -> Result<Entrant> {
        if !self.cursors[cursor].advance()? {
            return Ok(ENDED);
        }
        let head = self.cursors[cursor].head();
        let rank = match self.direction {
            Direction::Forward => head,
            Direction::Backward => !head,
        };
        Ok(Entrant { rank, mark: cursor })
    }

    /// Returns whether `a` precedes `b` of the same rank: by key, and for one key the older first.
    /// Also returns whether they have the same key.
    #[cold]
    fn wins_tie(&self, a: Entrant, b: Entrant) -> (bool, bool) {
        if a.has_ended() || b.has_ended() {
            return (b.has_ended(), false);
        }
        let key = |entrant: Entrant| self.cursors[entrant.cursor()].key();
        let keys = match self.direction {
            Direction::Forward => key(a).cmp(key(b)),
            Direction::Backward => key(b).cmp(key(a)),
        };
        let order = keys.then(a.cursor().cmp(&b.cursor()));
        (order.is_lt(), keys.is_eq())
    }

    /// Returns whether `a` wins against `b`, and the bits to set in the winner's mark.
    #[inline]
    fn wins(&self, a: Entrant, b: Entrant) -> (bool, usize) {
        if a.rank == b.rank {
            let (wins, tied) = self.wins_tie(a, b);
            (wins, if tied { TIED } else { 0 })
        } else {
            (a.rank < b.rank, 0)
        }
    }

    /// Advances the winner and plays its matches again.
    #[inline]
    fn advance_winner(&mut self) -> Result<()> {
        let cursor = self.tree[0].cursor();
        debug_assert!(
            cursor < self.cursors.len(),
            "cursor {cursor} of {} won",
            self.cursors.len()
        );
        let mut winner = self.enter(cursor)?;
        let mut node = (cursor + self.cursors.len()) / 2;
        while node > 0 {
            let other = self.tree[node];
            let (lost, tied) = self.wins(other, winner);
            // The order of two streams is not predictable: use moves, not branches.
            self.tree[node] = select_unpredictable(lost, winner, other);
            winner = select_unpredictable(lost, other, winner);
            winner.mark |= tied;
            node /= 2;
        }
        debug_assert!(
            self.tree.get(1).is_none_or(|lost| winner.rank <= lost.rank),
            "another cursor comes before the one that won"
        );
        self.tree[0] = winner;
        Ok(())
    }

    fn start(&mut self) -> Result<()> {
        self.started = true;
        let count = self.cursors.len();
        self.tree = vec![ENDED; count.max(1)];
        // The winner of each node; the cursors themselves follow the nodes.
        let mut winners = vec![ENDED; 2 * count.max(1)];
        for cursor in 0..count {
            winners[count + cursor] = self.enter(cursor)?;
        }
        for node in (1..count).rev() {
            let (a, b) = (winners[2 * node], winners[2 * node + 1]);
            let (lost, tied) = self.wins(b, a);
            (winners[node], self.tree[node]) = if lost { (b, a) } else { (a, b) };
            winners[node].mark |= tied;
        }
        debug_assert!(
            (count..2 * count).all(|cursor| winners[1].rank <= winners[cursor].rank),
            "another cursor comes before the one that won"
        );
        self.tree[0] = winners[1];
        Ok(())
    }

    /// Collects the cursors at the winner's key, and resolves their records.
    #[cold]
    #[inline(never)]
    fn settle(&mut self) -> Result<()> {
        let winner = self.tree[0];
        let key = self.cursors[winner.cursor()].key();
        let shares = |other: &&Entrant| {
            let same_head = other.rank == winner.rank && !other.has_ended();
            same_head && self.cursors[other.cursor()].key() == key
        };
        let sharing = self.tree.iter().filter(shares);
        self.pending.extend(sharing.map(|other| other.cursor()));
        let cursors = &self.cursors;
        debug_assert!(
            self.pending.len() > 1,
            "a tie of {} records of one key",
            self.pending.len()
        );
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
                let (_, payload) = cursor.encoded();
                self.dropped.records += 1;
                self.dropped.key_bytes += cursor.key().len() as u64;
                self.dropped.value_bytes += payload.len() as u64;
                self.dropped.content += ContentSum::of(cursor.key(), &payload);
            }
        }
        self.current = self.pending[kept];
    }

    fn compose(&mut self, kind: DeltaKind) -> Result<()> {
        let operation = |cursor: &usize| self.cursors[*cursor].operation();
        // Operations older than the newest final one have no effect.
        let last_final = self
            .pending
            .iter()
            .rposition(|cursor| operation(cursor).is_final());
        let first = last_final.unwrap_or(0);
        self.current = self.pending[first];
        self.dropped.records += self.pending.len() as u64 - 1;
        let mut composed: Option<CowOperation<'static>> = None;
        for cursor in &self.pending[first + 1..] {
            let older = composed
                .as_ref()
                .map_or(operation(&self.current), CowOperation::borrow);
            let after = operation(cursor).after(&older, kind);
            composed = Some(after.map_err(|source| {
                let key = named_key(self.cursors[*cursor].key());
                RunError::Operand { key, source }
            })?);
        }
        self.composed = composed;
        Ok(())
    }

    fn duplicate_error(&self) -> RunError {
        RunError::Duplicate {
            key: named_key(self.cursors[self.pending[0]].key()),
        }
    }
}

impl<C: Cursor> Cursor for Merge<C> {
    #[inline]
    fn advance(&mut self) -> Result<bool> {
        self.composed = None;
        if !self.started {
            self.start()?;
        } else if self.pending.is_empty() {
            if !self.tree[0].has_ended() {
                self.advance_winner()?;
            }
        } else {
            // Entrants of one key win one after the other.
            for _ in 0..self.pending.len() {
                self.advance_winner()?;
            }
            self.pending.clear();
        }
        let winner = self.tree[0];
        if winner.has_ended() {
            return Ok(false);
        }
        self.current = winner.cursor();
        if winner.mark & TIED != 0 {
            self.settle()?;
        }
        Ok(true)
    }

    #[inline]
    fn hash(&self) -> u64 {
        self.cursors[self.current].hash()
    }

    #[inline]
    fn head(&self) -> u64 {
        self.cursors[self.current].head()
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.cursors[self.current].key()
    }

    #[inline]
    fn operation(&self) -> Operation<'_> {
        match &self.composed {
            Some(operation) => operation.borrow(),
            None => self.cursors[self.current].operation(),
        }
    }

    #[inline]
    fn encoded(&self) -> (u8, Cow<'_, [u8]>) {
        match &self.composed {
            Some(operation) => encode(operation.borrow()),
            None => self.cursors[self.current].encoded(),
        }
    }

    #[inline]
    fn value(&self) -> Option<(&[u8], u64)> {
        match &self.composed {
            Some(operation) => operation.borrow().value(),
            None => self.cursors[self.current].value(),
        }
    }
}
