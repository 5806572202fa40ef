//! Ranges of keys that were deleted by one record each.
//!
//! A source of a partition's records, in memory or on the disk, may have such ranges beside its
//! records. They delete the keys of *older* sources, not the source's own records. Merging sources
//! joins their ranges, and drops the records of older sources that a newer source's ranges cover. A
//! merge with the oldest source drops the ranges, too.
//!
//! A hashed table has no order of keys: a range is a whole partition or nothing.

use std::ops::Bound as RangeBound;

use forebay_run::scan::{Direction, Position, ScanRange};
use forebay_run::{Order, Run};
use serde::{Deserialize, Serialize};

use crate::keys::bound::Bound;
use crate::keys::partition::{Bounds, PartitionId, check_apart};
use crate::live::basics::record::{Record, append_raw};

/// The tag of a range in the log. No operation has it.
const REMOVED_TAG: u8 = 7;

/// The keys from `from` up to `to`, exclusive; without `to`, all later keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyRange {
    pub from: Vec<u8>,
    pub to: Option<Vec<u8>>,
}

/// A set of deleted ranges. They are rising and disjoint: between two of them there are keys.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<Bounds>", into = "Vec<Bounds>")]
pub(crate) struct RemovedRanges {
    ranges: Vec<KeyRange>,
}

impl KeyRange {
    pub fn all() -> Self {
        Self {
            from: Vec::new(),
            to: None,
        }
    }

    /// Returns the range of the keys between two bounds. The successor of a key is the key with one
    /// more byte, zero.
    pub fn between(from: RangeBound<&[u8]>, to: RangeBound<&[u8]>) -> Self {
        let behind = |key: &[u8]| [key, &[0]].concat();
        Self {
            from: match from {
                RangeBound::Unbounded => Vec::new(),
                RangeBound::Included(key) => key.to_vec(),
                RangeBound::Excluded(key) => behind(key),
            },
            to: match to {
                RangeBound::Unbounded => None,
                RangeBound::Included(key) => Some(behind(key)),
                RangeBound::Excluded(key) => Some(key.to_vec()),
            },
        }
    }

    /// Returns the part of it in a partition; `None` if there is none. A partition that is covered
    /// fully has the range of all keys.
    pub fn within(&self, bounds: &Bounds) -> Option<Self> {
        let (lower, upper) = match (&bounds.lower, &bounds.upper) {
            (Bound::Key(lower), None) => (&lower[..], None),
            (Bound::Key(lower), Some(Bound::Key(upper))) => (&lower[..], Some(&upper[..])),
            _ => return self.is_all().then(Self::all),
        };
        let to = self.to.as_deref();
        if self.from[..] <= *lower && ends_at_most(upper, to) {
            return Some(Self::all());
        }
        let within = Self {
            from: self.from.clone().max(lower.to_vec()),
            to: if ends_at_most(upper, to) { upper } else { to }.map(<[u8]>::to_vec),
        };
        (!within.is_empty()).then_some(within)
    }

    pub fn is_all(&self) -> bool {
        *self == Self::all()
    }

    pub fn is_empty(&self) -> bool {
        self.to.as_ref().is_some_and(|to| *to <= self.from)
    }

    pub fn covers(&self, key: &[u8]) -> bool {
        self.from[..] <= *key && self.to.as_ref().is_none_or(|to| key < &to[..])
    }

    /// Appends it to a record of the log.
    pub fn append_to(&self, out: &mut Vec<u8>, partition: PartitionId) {
        let mut payload = partition.0.to_le_bytes().to_vec();
        payload.push(u8::from(self.to.is_some()));
        payload.extend_from_slice(self.to.as_deref().unwrap_or_default());
        append_raw(out, &self.from, REMOVED_TAG, &payload);
    }

    /// Decodes the ranges of a record of the log; `None` if it has operations. The text of an error
    /// says what is wrong.
    pub fn all_of(record: &[u8]) -> Option<Result<Vec<(PartitionId, Self)>, String>> {
        if record.first() != Some(&REMOVED_TAG) {
            return None;
        }
        let mut ranges = Vec::new();
        let mut at = 0;
        while at < record.len() {
            let Some((range, len_bytes)) = Self::read(record, at) else {
                return Some(Err("it holds an invalid range of keys".to_owned()));
            };
            ranges.push(range);
            at += len_bytes;
        }
        Some(Ok(ranges))
    }

    fn read(record: &[u8], at: usize) -> Option<((PartitionId, Self), usize)> {
        let record = Record::read(record, at).filter(|record| record.tag == REMOVED_TAG)?;
        let (id, rest) = record.payload.split_first_chunk()?;
        let (is_bounded, to) = rest.split_first()?;
        let range = Self {
            from: record.key.to_vec(),
            to: (*is_bounded != 0).then(|| to.to_vec()),
        };
        let id = PartitionId(u32::from_le_bytes(*id));
        Some(((id, range), record.len_bytes))
    }
}

/// Returns whether the end `a` is at `b` or before it; `None` is the end of the order.
fn ends_at_most(a: Option<&[u8]>, b: Option<&[u8]>) -> bool {
    match (a, b) {
        (_, None) => true,
        (None, Some(_)) => false,
        (Some(a), Some(b)) => a <= b,
    }
}

impl RemovedRanges {
    /// Creates a set of one range. REQUIRES: it is not empty.
    pub fn of(range: KeyRange) -> Self {
        debug_assert!(!range.is_empty(), "{range:?} has no keys to delete");
        Self {
            ranges: vec![range],
        }
    }

    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Returns the number of ranges.
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Returns the memory it uses besides itself.
    pub fn memory_bytes(&self) -> usize {
        let keys =
            |range: &KeyRange| range.from.capacity() + range.to.as_ref().map_or(0, Vec::capacity);
        self.ranges.capacity() * size_of::<KeyRange>() + self.ranges.iter().map(keys).sum::<usize>()
    }

    /// Returns whether everything older is deleted.
    pub fn is_all(&self) -> bool {
        matches!(&self.ranges[..], [only] if only.is_all())
    }

    /// Returns about how many pages of a run they cover.
    pub fn pages_of(&self, run: &Run) -> u64 {
        if self.is_all() {
            return run.summary().pages;
        }
        let ranges = self.ranges.iter();
        let pages = ranges.map(|range| run.pages_between(&range.from, range.to.as_deref()));
        pages.sum()
    }

    #[inline]
    pub fn covers(&self, key: &[u8]) -> bool {
        !self.is_empty() && self.last_from(key).is_some_and(|range| range.covers(key))
    }

    fn last_from(&self, key: &[u8]) -> Option<&KeyRange> {
        let begun = self.ranges.partition_point(|range| range.from[..] <= *key);
        begun.checked_sub(1).map(|last| &self.ranges[last])
    }

    /// Adds a range, joined with those that it meets. REQUIRES: it is not empty.
    pub fn add(&mut self, mut range: KeyRange) {
        debug_assert!(!range.is_empty(), "{range:?} has no keys to delete");
        let ends_before = |other: &KeyRange| {
            let to = other.to.as_ref();
            to.is_some_and(|to| *to < range.from)
        };
        let first = self.ranges.partition_point(ends_before);
        let begins_within = |other: &KeyRange| range.to.as_ref().is_none_or(|to| other.from <= *to);
        let met = self.ranges[first..].partition_point(begins_within);
        if let [one, ..] = &self.ranges[first..first + met] {
            range.from = range.from.min(one.from.clone());
        }
        if let [.., last] = &self.ranges[first..first + met]
            && ends_at_most(range.to.as_deref(), last.to.as_deref())
        {
            range.to.clone_from(&last.to);
        }
        self.ranges.splice(first..first + met, [range]);
        debug_assert!(
            self.lies_apart(first),
            "a range of deleted keys meets another one, or is out of order: {self:?}"
        );
    }

    /// Returns whether there are keys between a range and its neighbours.
    fn lies_apart(&self, at: usize) -> bool {
        let around = at.saturating_sub(1)..(at + 2).min(self.ranges.len());
        let apart =
            |one: &KeyRange, next: &KeyRange| one.to.as_ref().is_some_and(|to| *to < next.from);
        self.ranges[around].is_sorted_by(apart)
    }

    /// Adds the ranges of another source.
    pub fn join(&mut self, other: &Self) {
        for range in &other.ranges {
            self.add(range.clone());
        }
    }

    /// Returns the parts of a range of positions that are not deleted, in the order of a walk.
    pub fn uncovered(&self, range: &ScanRange, direction: Direction) -> Vec<ScanRange> {
        if self.is_empty() {
            return vec![range.clone()];
        }
        let ends = self.ranges.iter().map(|removed| Some(&removed.from[..]));
        // Nothing follows a range without an end.
        let starts = self
            .ranges
            .iter()
            .map_while(|removed| removed.to.as_deref());
        let starts = std::iter::once(None).chain(starts.map(Some));
        let pieces = starts
            .zip(ends.chain([None]))
            .map(|(start, end)| ScanRange {
                from: start.map_or_else(|| range.from.clone(), |start| later(&range.from, start)),
                to: end.map_or_else(|| range.to.clone(), |end| earlier(&range.to, end)),
            });
        let mut pieces: Vec<ScanRange> = pieces.filter(|piece| !is_void(piece)).collect();
        if direction == Direction::Backward {
            pieces.reverse();
        }
        pieces
    }
}

/// Returns cursors over the visible records of some sources. The sources are given newest first,
/// each with its ranges and a function that opens it. `removed` has the ranges of newer sources,
/// and gets those of these sources. The cursors are returned oldest first; a source without visible
/// records has none.
pub(crate) fn cursors_of<'a, S, C>(
    newest_first: impl Iterator<Item = (S, &'a RemovedRanges)>,
    removed: &mut RemovedRanges,
    (range, direction): (&ScanRange, Direction),
    open: impl Fn(S, Vec<ScanRange>) -> Option<C>,
) -> Vec<C> {
    let mut cursors = Vec::new();
    for (source, removes) in newest_first {
        cursors.extend(open(source, removed.uncovered(range, direction)));
        removed.join(removes);
    }
    cursors.reverse();
    cursors
}

fn place(key: &[u8]) -> Position {
    Position {
        hash: 0,
        key: key.to_vec(),
    }
}

/// Returns the start of a range, or the key, whichever is later.
fn later(from: &RangeBound<Position>, key: &[u8]) -> RangeBound<Position> {
    match from {
        RangeBound::Included(at) | RangeBound::Excluded(at) if at.key[..] >= *key => from.clone(),
        _ => RangeBound::Included(place(key)),
    }
}

/// Returns the end of a range, or the end before the key, whichever is earlier.
fn earlier(to: &RangeBound<Position>, key: &[u8]) -> RangeBound<Position> {
    match to {
        RangeBound::Included(at) | RangeBound::Excluded(at) if at.key[..] < *key => to.clone(),
        _ => RangeBound::Excluded(place(key)),
    }
}

/// Returns whether the range is empty.
pub(crate) fn is_void(range: &ScanRange) -> bool {
    match (&range.from, &range.to) {
        (_, RangeBound::Unbounded) => false,
        (RangeBound::Unbounded, RangeBound::Excluded(to)) => *to == place(&[]),
        (RangeBound::Unbounded, RangeBound::Included(_)) => false,
        (RangeBound::Included(from), RangeBound::Included(to)) => from > to,
        (RangeBound::Included(from) | RangeBound::Excluded(from), RangeBound::Excluded(to))
        | (RangeBound::Excluded(from), RangeBound::Included(to)) => from >= to,
    }
}

impl From<RemovedRanges> for Vec<Bounds> {
    fn from(removed: RemovedRanges) -> Self {
        let bounds = removed.ranges.into_iter().map(|range| Bounds {
            lower: Bound::Key(range.from),
            upper: range.to.map(Bound::Key),
        });
        bounds.collect()
    }
}

impl TryFrom<Vec<Bounds>> for RemovedRanges {
    type Error = String;

    fn try_from(bounds: Vec<Bounds>) -> Result<Self, String> {
        let ids = (0..).map(PartitionId);
        let checked = check_apart(Order::Ordered, ids.zip(&bounds));
        checked.map_err(|problem| format!("ranges of deleted keys: {problem}"))?;
        let range = |bounds: Bounds| KeyRange {
            from: bounds.lower.into_key().unwrap_or_default(),
            to: bounds.upper.and_then(Bound::into_key),
        };
        let ranges = bounds.into_iter().map(range).collect();
        Ok(Self { ranges })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn range(from: &[u8], to: Option<&[u8]>) -> KeyRange {
        KeyRange {
            from: from.to_vec(),
            to: to.map(<[u8]>::to_vec),
        }
    }

    /// Returns a bound of a range of keys of one byte.
    fn bound(kind: u8, key: u8) -> RangeBound<Vec<u8>> {
        match kind % 3 {
            0 => RangeBound::Unbounded,
            1 => RangeBound::Included(vec![key]),
            _ => RangeBound::Excluded(vec![key]),
        }
    }

    fn holds(range: &ScanRange, key: &[u8]) -> bool {
        !range.is_below(0, key) && !range.is_above(0, key)
    }

    type RangeEnds = (u8, u8, u8, u8);

    fn slices(from: &RangeBound<Vec<u8>>) -> RangeBound<&[u8]> {
        from.as_ref().map(Vec::as_slice)
    }

    proptest! {
        #[test]
        fn ranges_cover_the_added_keys_and_no_others(
            added in proptest::collection::vec(any::<RangeEnds>(), 0..8),
            walked in any::<RangeEnds>(),
        ) {
            let mut removed = RemovedRanges::default();
            let mut covered = [false; 256];
            for (from_kind, from, to_kind, to) in added {
                let (from, to) = (bound(from_kind, from), bound(to_kind, to));
                let range = KeyRange::between(slices(&from), slices(&to));
                for key in 0..=255 {
                    covered[usize::from(key)] |= range.covers(&[key]);
                }
                if !range.is_empty() {
                    removed.add(range);
                }
            }
            let again: RemovedRanges = serde_json::from_str(&serde_json::to_string(&removed).unwrap()).unwrap();
            prop_assert_eq!(&again, &removed);
            let (from, to) = (bound(walked.0, walked.1), bound(walked.2, walked.3));
            let walked = ScanRange::keys(slices(&from), slices(&to));
            for direction in [Direction::Forward, Direction::Backward] {
                let pieces = removed.uncovered(&walked, direction);
                for key in 0..=255u8 {
                    prop_assert_eq!(removed.covers(&[key]), covered[usize::from(key)], "key {}", key);
                    let held = pieces.iter().filter(|piece| holds(piece, &[key])).count();
                    let wanted = holds(&walked, &[key]) && !covered[usize::from(key)];
                    prop_assert_eq!(held, usize::from(wanted), "key {} of {:?}", key, &pieces);
                }
            }
        }

        #[test]
        fn ranges_are_read_back_from_the_log(
            ranges in proptest::collection::vec(any::<(u32, Vec<u8>, Option<Vec<u8>>)>(), 1..4),
        ) {
            let mut record = Vec::new();
            let mut wanted = Vec::new();
            for (id, from, to) in ranges {
                let range = KeyRange { from, to };
                range.append_to(&mut record, PartitionId(id));
                wanted.push((PartitionId(id), range));
            }
            prop_assert_eq!(KeyRange::all_of(&record), Some(Ok(wanted)));
            record.pop();
            prop_assert!(matches!(KeyRange::all_of(&record), None | Some(Err(_))));
        }
    }

    #[test]
    fn a_partition_that_is_covered_wholly_loses_all() {
        let bounds = |lower: &[u8], upper: Option<&[u8]>| Bounds {
            lower: Bound::Key(lower.to_vec()),
            upper: upper.map(|upper| Bound::Key(upper.to_vec())),
        };
        let middle = bounds(b"d", Some(b"m"));
        assert_eq!(
            range(b"a", Some(b"z")).within(&middle),
            Some(KeyRange::all())
        );
        assert_eq!(
            range(b"d", Some(b"m")).within(&middle),
            Some(KeyRange::all())
        );
        assert_eq!(
            range(b"a", Some(b"f")).within(&middle),
            Some(range(b"d", Some(b"f")))
        );
        assert_eq!(
            range(b"f", None).within(&middle),
            Some(range(b"f", Some(b"m")))
        );
        assert_eq!(range(b"a", Some(b"d")).within(&middle), None);
        assert_eq!(range(b"m", None).within(&middle), None);
        let slots = Bounds {
            lower: Bound::Slot(0),
            upper: Some(Bound::Slot(9)),
        };
        assert_eq!(KeyRange::all().within(&slots), Some(KeyRange::all()));
    }

    #[test]
    fn ranges_of_a_manifest_that_overlap_are_refused() {
        let text = r#"[{"lower":{"key":"a"},"upper":{"key":"c"}},{"lower":{"key":"b"}}]"#;
        assert!(serde_json::from_str::<RemovedRanges>(text).is_err());
    }
}
