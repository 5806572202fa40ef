//! The items of a problem that are replicas of one piece: no two of them may be on one machine.

use std::ops::Range;

/// The pieces' replicas among the items. They are ordered by piece, the primary of each first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Siblings {
    /// The piece of each item. Empty if every item is a piece of its own.
    pieces: Vec<u32>,
    /// The first item of each piece, and the number of items at the end.
    firsts: Vec<u32>,
}

impl Siblings {
    /// Creates the index from the number of replicas of each piece.
    pub fn new(counts: impl Iterator<Item = usize> + Clone) -> Self {
        if counts.clone().all(|count| count == 1) {
            return Self::default();
        }
        let mut siblings = Self::default();
        for (piece, count) in counts.enumerate() {
            siblings.firsts.push(siblings.pieces.len() as u32);
            let length = siblings.pieces.len() + count;
            siblings.pieces.resize(length, piece as u32);
        }
        siblings.firsts.push(siblings.pieces.len() as u32);
        siblings
    }

    /// Returns whether no piece has more than one replica.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Returns the piece that an item is a replica of.
    pub fn piece(&self, item: u32) -> u32 {
        match self.pieces.get(item as usize) {
            Some(piece) => *piece,
            None => item,
        }
    }

    /// Returns all replicas of an item's piece, including itself.
    #[inline]
    pub fn with(&self, item: u32) -> Range<u32> {
        match self.pieces.get(item as usize) {
            Some(&piece) => self.firsts[piece as usize]..self.firsts[piece as usize + 1],
            None => item..item + 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_know_their_piece_and_its_other_replicas() {
        let siblings = Siblings::new([2, 1, 3].into_iter());
        let pieces: Vec<u32> = (0..6).map(|item| siblings.piece(item)).collect();
        assert_eq!(pieces, [0, 0, 1, 2, 2, 2]);
        assert_eq!(siblings.with(1), 0..2);
        assert_eq!(siblings.with(2), 2..3);
        assert_eq!(siblings.with(4), 3..6);
        let alone = Siblings::new([1, 1].into_iter());
        assert!(alone.is_empty() && !siblings.is_empty());
        assert_eq!((alone.piece(1), alone.with(1)), (1, 1..2));
    }
}
