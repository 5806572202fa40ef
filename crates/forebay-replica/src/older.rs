//! The entries of a group's log that are only in the log's files, as the library sees them.
//!
//! It has the range and the terms of these entries, and not the entries themselves. They are
//! fetched for peers that lag.

use std::collections::VecDeque;

use crate::ids::Place;

/// The start of the entries in files, and the first entry of each later term among them and after
/// them. Terms change seldom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OlderEntries {
    /// The first is the place before the first entry.
    runs: VecDeque<Place>,
}

impl OlderEntries {
    /// Returns an empty range: the entries in memory begin after this place.
    pub fn none(before: Place) -> Self {
        Self {
            runs: [before].into(),
        }
    }

    /// Creates a range from the place before the first entry, and the places at which later terms
    /// begin. Returns `None` if these contradict each other.
    pub fn new(before: Place, terms: impl IntoIterator<Item = Place>) -> Option<Self> {
        let mut older = Self::none(before);
        let mut is_sound = true;
        for place in terms {
            let last = older.runs.back();
            is_sound &= last.is_none_or(|last| (last.term, last.index) < (place.term, place.index))
                && last.is_none_or(|last| last.index < place.index);
            older.push(place);
        }
        is_sound.then_some(older)
    }

    pub fn before(&self) -> Place {
        self.runs.front().copied().unwrap_or_default()
    }

    /// Records that the next entry is now in files only. REQUIRES: its term is not an earlier one.
    pub fn push(&mut self, place: Place) {
        if self.runs.back().is_none_or(|last| last.term < place.term) {
            self.runs.push_back(place);
        }
    }

    /// Returns the term of an entry that is not before the first. After the last entry, it returns
    /// the last term.
    pub fn term(&self, index: u64) -> Option<u64> {
        let runs = self.runs.partition_point(|run| run.index <= index);
        Some(self.runs.get(runs.checked_sub(1)?)?.term)
    }

    /// Records that entries up to this one are no longer in the files.
    pub fn forget(&mut self, through: u64) {
        let Some(term) = self.term(through) else {
            return;
        };
        while self.runs.front().is_some_and(|run| run.index <= through) {
            self.runs.pop_front();
        }
        let index = through;
        self.runs.push_front(Place { term, index });
        debug_assert!(
            self.runs.len() < 2 || self.runs[0].index < self.runs[1].index,
            "entries in files begin after {index}, but their terms at {:?}",
            self.runs
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(term: u64, index: u64) -> Place {
        Place { term, index }
    }

    #[test]
    fn terms_are_known_from_the_first_entry_on() {
        let mut older = OlderEntries::new(at(2, 10), [at(3, 15), at(7, 16)]).unwrap();
        let terms = [9, 10, 14, 15, 16, 99].map(|index| older.term(index));
        assert_eq!(terms, [None, Some(2), Some(2), Some(3), Some(7), Some(7)]);
        older.push(at(7, 17));
        older.push(at(8, 18));
        older.forget(15);
        assert_eq!(older.before(), at(3, 15));
        let terms = [14, 15, 16, 17, 18].map(|index| older.term(index));
        assert_eq!(terms, [None, Some(3), Some(7), Some(7), Some(8)]);
        older.forget(12);
        assert_eq!(older.before(), at(3, 15), "the entry is gone already");
        older.forget(17);
        assert_eq!(older.before(), at(7, 17));
    }

    #[test]
    fn places_that_contradict_each_other_are_refused() {
        assert_eq!(OlderEntries::new(at(2, 10), [at(3, 10)]), None);
        assert_eq!(OlderEntries::new(at(2, 10), [at(1, 12)]), None);
        assert_eq!(OlderEntries::new(at(2, 10), [at(4, 12), at(3, 13)]), None);
    }
}
