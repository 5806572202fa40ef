//! Sorted streams of records, and the range and direction of a scan.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::ops::Bound;

use crate::error::Result;
use crate::operation::Operation;
use crate::record::encode;

/// A sorted stream of records, the interface of scans, merges and sort buffers.
///
/// After `advance` returned `true`, the accessors return the record that it moved to. Before the
/// first call, and after a `false` or an error, they have no meaning.
pub trait Cursor {
    /// Moves to the next record; `false` when there is none.
    fn advance(&mut self) -> Result<bool>;
    /// Returns the key's hash64; 0 in ordered runs.
    fn hash(&self) -> u64;
    /// Returns the first eight bytes of the record's sort position: the hash, or in ordered runs
    /// [`key_head`] of the key. Records of equal heads sort by key.
    fn head(&self) -> u64;
    fn key(&self) -> &[u8];
    fn operation(&self) -> Operation<'_>;
    /// Returns the operation as tag and payload, as [`encode`] does.
    fn encoded(&self) -> (u8, Cow<'_, [u8]>) {
        encode(self.operation())
    }
    /// Returns the value of a key whose only operation is this record: see [`Operation::value`].
    fn value(&self) -> Option<(&[u8], u64)> {
        self.operation().value()
    }
    /// Returns the record's age among those of its key in other streams. If ages are equal (the
    /// default), the streams' own order decides.
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

/// A position in sort order: the hash first (0 in ordered runs), then the key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    pub hash: u64,
    pub key: Vec<u8>,
}

/// The range of a scan.
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

    /// Returns, in hashed order, the range of all hashes of at least `from` and below `to`.
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

    /// Returns, in ordered order, the position after all keys that begin with `prefix`, where a
    /// range of them ends. If `prefix` has only bytes of 255, no position is after them.
    pub fn behind_prefix(prefix: &[u8]) -> Bound<Vec<u8>> {
        let Some(last) = prefix.iter().rposition(|&byte| byte != u8::MAX) else {
            return Bound::Unbounded;
        };
        let mut behind = prefix[..=last].to_vec();
        behind[last] += 1;
        Bound::Excluded(behind)
    }

    /// Returns, in ordered order, the range between two keys.
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

    /// Returns whether a position comes before the range, in the direction of the walk.
    #[inline]
    pub fn is_early(&self, direction: Direction, hash: u64, key: &[u8]) -> bool {
        match direction {
            Direction::Forward => self.is_below(hash, key),
            Direction::Backward => self.is_above(hash, key),
        }
    }

    /// Returns whether a position comes after the range, in the direction of the walk.
    #[inline]
    pub fn is_late(&self, direction: Direction, hash: u64, key: &[u8]) -> bool {
        match direction {
            Direction::Forward => self.is_above(hash, key),
            Direction::Backward => self.is_below(hash, key),
        }
    }

    /// Returns whether a position is below the range.
    #[inline]
    pub fn is_below(&self, hash: u64, key: &[u8]) -> bool {
        let order = |at: &Position| hash.cmp(&at.hash).then_with(|| key.cmp(&at.key));
        match &self.from {
            Bound::Unbounded => false,
            Bound::Included(at) => order(at) == Ordering::Less,
            Bound::Excluded(at) => order(at) != Ordering::Greater,
        }
    }

    /// Returns whether a position is above the range.
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

/// The direction of a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    Forward,
    Backward,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_after_a_prefix_begins_with_it() {
        let after = |prefix: &[u8]| ScanRange::behind_prefix(prefix);
        assert_eq!(after(b"ab"), Bound::Excluded(b"ac".to_vec()));
        assert_eq!(after(b"a\xff\xff"), Bound::Excluded(b"b".to_vec()));
        assert_eq!(after(b"\xff"), Bound::Unbounded);
        assert_eq!(after(b""), Bound::Unbounded);
    }
}
