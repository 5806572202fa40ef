//! Merges the collected records and hands them out in order, without writing runs.

use forebay_run::RunError;
use forebay_run::merge::{Merge, Resolve};
use forebay_run::operation::Operation;
use forebay_run::scan::{Cursor, Direction};

use super::boundaries::Boundaries;
use super::spill::{MemoryCursor, SortedCursor};
use super::{CollectedRecords, Duplicates, SortError, SortPlan};

/// Hands out the records of a partition with their original keys; returns how many were dropped for
/// another of their key, or composed with it. An error of `accept` ends it.
pub fn walk_partition<E: From<SortError>>(
    plan: &SortPlan,
    boundaries: &Boundaries,
    collected: &[CollectedRecords],
    partition: usize,
    mut accept: impl FnMut(&[u8], Operation<'_>) -> Result<(), E>,
) -> Result<u64, E> {
    let cursors = cursors(plan, boundaries, collected, partition);
    let mut merge = Merge::new(cursors, resolve(plan.duplicates), Direction::Forward);
    let lead = plan.arrangement.lead_bytes();
    while advance(&mut merge)? {
        let key = merge.key().get(lead..).unwrap_or_default();
        accept(key, merge.operation())?;
    }
    Ok(merge.dropped.records)
}

/// Returns the merge rule for records of one key.
pub(super) fn resolve(duplicates: Duplicates) -> Resolve {
    match duplicates {
        Duplicates::Fail => Resolve::Refuse,
        Duplicates::First => Resolve::First,
        Duplicates::Last => Resolve::Last,
        Duplicates::Compose(kind) | Duplicates::ComposeInAnyOrder(kind) => Resolve::Compose(kind),
    }
}

/// Returns cursors over all records of a partition, in memory and spilled.
pub(super) fn cursors(
    plan: &SortPlan,
    boundaries: &Boundaries,
    collected: &[CollectedRecords],
    partition: usize,
) -> Vec<SortedCursor> {
    let mut cursors = Vec::new();
    for part in collected {
        for spill in &part.spills {
            let range = boundaries.range(partition);
            cursors.push(SortedCursor::Spill(spill.cursor(range)));
        }
        let entries = boundaries.entries(partition, &part.rest, plan.order());
        let memory = MemoryCursor::new(&part.rest, plan, entries);
        cursors.push(SortedCursor::Memory(memory));
    }
    cursors
}

/// Advances the merge. If duplicates are refused, two records of one key become the sort's own
/// error.
pub(super) fn advance(merge: &mut Merge<SortedCursor>) -> Result<bool, SortError> {
    merge.advance().map_err(|error| match error {
        RunError::Duplicate { key } => SortError::Duplicate { key },
        other => SortError::Run(other),
    })
}
