//! Sorting entries, and finding the records of one key among them.

use std::ops::Range;

use forebay_run::Order;
use forebay_run::hash::key_head;

use super::collector::{Arena, Entry};
use super::{Duplicates, SortError, Tally};

/// Ranges of entries with equal heads that are this short are sorted by comparing keys.
const SMALL: usize = 24;

/// Eight bytes of the key from `depth`, big-endian, zeros behind its end.
#[inline]
pub fn head_of(key: &[u8], depth: usize) -> u64 {
    key_head(key.get(depth..).unwrap_or_default())
}

/// Sorts by head, key, place; afterwards heads of ordered entries are the keys' first eight bytes
/// again. Returns the ranges in which heads are equal.
pub fn sort_entries(entries: &mut [Entry], arena: &Arena, order: Order) -> Vec<Range<usize>> {
    entries.sort_unstable();
    let equal = equal_heads(entries);
    for range in &equal {
        let entries = &mut entries[range.clone()];
        match order {
            Order::Hashed => sort_by_key(entries, arena),
            Order::Ordered => {
                let head = entries[0].head;
                sort_from(entries, arena, 8);
                entries.iter_mut().for_each(|entry| entry.head = head);
            }
        }
    }
    equal
}

fn equal_heads(entries: &[Entry]) -> Vec<Range<usize>> {
    let mut equal = Vec::new();
    let mut start = 0;
    for end in 1..=entries.len() {
        if end == entries.len() || entries[end].head != entries[start].head {
            if end - start > 1 {
                equal.push(start..end);
            }
            start = end;
        }
    }
    equal
}

fn sort_by_key(entries: &mut [Entry], arena: &Arena) {
    entries.sort_unstable_by(|a, b| {
        arena
            .key(a.place)
            .cmp(arena.key(b.place))
            .then(a.place.cmp(&b.place))
    });
}

/// Sorts entries whose keys agree in their first `depth` bytes, eight bytes at a time, so that most
/// comparisons stay within the entries.
fn sort_from(entries: &mut [Entry], arena: &Arena, depth: usize) {
    let some_end_here = entries
        .iter()
        .any(|entry| arena.key(entry.place).len() < depth + 8);
    if entries.len() <= SMALL || some_end_here {
        return sort_by_key(entries, arena);
    }
    for entry in entries.iter_mut() {
        entry.head = head_of(arena.key(entry.place), depth);
    }
    entries.sort_unstable();
    for range in equal_heads(entries) {
        sort_from(&mut entries[range], arena, depth + 8);
    }
}

/// Settles records of one key within a collector, whose order of arrival is that of age.
pub fn drop_duplicates(
    entries: &mut Vec<Entry>,
    arena: &Arena,
    equal_heads: &[Range<usize>],
    duplicates: Duplicates,
    dropped: &mut Tally,
) -> Result<(), SortError> {
    let mut gone = Vec::new();
    for range in equal_heads {
        for second in range.start + 1..range.end {
            let (a, b) = (entries[second - 1], entries[second]);
            let key = arena.key(b.place);
            if arena.key(a.place) != key {
                continue;
            }
            gone.push(match duplicates {
                Duplicates::Fail => {
                    let key = String::from_utf8_lossy(key).into_owned();
                    return Err(SortError::Duplicate { key });
                }
                Duplicates::First => second,
                Duplicates::Last => second - 1,
            });
        }
    }
    if gone.is_empty() {
        return Ok(());
    }
    for &index in &gone {
        let (key, value) = arena.record(entries[index].place);
        dropped.add(key, value);
    }
    let mut gone = gone.into_iter().peekable();
    let mut index = 0;
    entries.retain(|_| {
        let keep = gone.next_if_eq(&index).is_none();
        index += 1;
        keep
    });
    Ok(())
}
