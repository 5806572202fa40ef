//! Sorts entries, and finds the records of one key among them.

use std::ops::Range;

use forebay_run::error::named_key;
use forebay_run::hash::key_head;
use forebay_run::operation::{CowOperation, DeltaKind};
use forebay_run::{Order, RunError};

use super::arena::{Arena, Entry};
use super::{Duplicates, SortError, SortPlan, Tally, collect_operation, operation_of};

/// Ranges of entries with equal heads up to this length are sorted by comparing keys.
const SMALL: usize = 24;

/// Returns eight bytes of the key from `depth`, big-endian, with zeros after its end.
#[inline]
pub fn head_of(key: &[u8], depth: usize) -> u64 {
    key_head(key.get(depth..).unwrap_or_default())
}

/// Sorts by head, key, place. Afterwards heads of ordered entries are the keys' first eight bytes
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

/// Sorts entries whose keys agree in their first `depth` bytes, eight bytes at a time. Most
/// comparisons therefore need only the entries.
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

/// Resolves records of one key within a collector, whose order of arrival is the order of age. Of
/// composed records it counts only how many were dropped, because the remaining one is new.
pub fn settle_duplicates(
    entries: &mut Vec<Entry>,
    arena: &mut Arena,
    equal_heads: &[Range<usize>],
    plan: &SortPlan,
    dropped: &mut Tally,
) -> Result<(), SortError> {
    let gone = match plan.duplicates {
        Duplicates::Compose(kind) | Duplicates::ComposeInAnyOrder(kind) => {
            let gone = compose(entries, arena, equal_heads, kind)?;
            dropped.records += gone.len() as u64;
            gone
        }
        duplicates => {
            let gone = choose(entries, arena, equal_heads, duplicates)?;
            for &index in &gone {
                let (key, value) = arena.record(entries[index].place);
                dropped.add(key, plan.payload(value));
            }
            gone
        }
    };
    if gone.is_empty() {
        return Ok(());
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

/// Returns the indexes, ascending, of the entries replaced by another of their key.
fn choose(
    entries: &[Entry],
    arena: &Arena,
    equal_heads: &[Range<usize>],
    duplicates: Duplicates,
) -> Result<Vec<usize>, SortError> {
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
                    let key = named_key(key);
                    return Err(SortError::Duplicate { key });
                }
                Duplicates::First => second,
                Duplicates::Last | Duplicates::Compose(_) | Duplicates::ComposeInAnyOrder(_) => {
                    second - 1
                }
            });
        }
    }
    Ok(gone)
}

/// Composes the operations of each key into one record at the end of the arena. It replaces the
/// key's last entry; returns the indexes of the others, ascending.
fn compose(
    entries: &mut [Entry],
    arena: &mut Arena,
    equal_heads: &[Range<usize>],
    kind: DeltaKind,
) -> Result<Vec<usize>, SortError> {
    let mut gone = Vec::new();
    let mut collected = Vec::new();
    for range in equal_heads {
        let mut first = range.start;
        for next in range.start + 1..=range.end {
            let key = arena.key(entries[first].place);
            if next < range.end && arena.key(entries[next].place) == key {
                continue;
            }
            if next - first > 1 {
                let key = key.to_vec();
                let composed = compose_records(&entries[first..next], arena, kind)?;
                collect_operation(composed.borrow(), &mut collected);
                entries[next - 1].place = arena.push(&key, &collected);
                gone.extend(first..next - 1);
            }
            first = next;
        }
    }
    Ok(gone)
}

fn compose_records(
    entries: &[Entry],
    arena: &Arena,
    kind: DeltaKind,
) -> Result<CowOperation<'static>, SortError> {
    let operation = |entry: &Entry| operation_of(true, arena.record(entry.place).1);
    let mut composed = operation(&entries[0]).to_owned();
    for entry in &entries[1..] {
        let after = operation(entry).after(&composed.borrow(), kind);
        composed = after.map_err(|source| {
            let key = named_key(arena.key(entry.place));
            RunError::Operand { key, source }
        })?;
    }
    Ok(composed)
}
