//! What the gate would see of a version that is yet to be made, from a sample of its rows.
//!
//! The same [`Comparison`] as of two versions (`sample`), in which what is not known is estimated:
//! keys of the sample are looked up in the version that serves, and stand for the others.

use std::sync::Arc;

use forebay_io::{Random, side_by_side};

use crate::column_profile::{ColumnStats, profile_pairs};
use crate::compare::Comparer;
use crate::drawn_pages::{AT_ONCE, Advance};
use crate::error::ReadError;
use crate::manifest::Manifest;
use crate::row_estimate::row_estimate;
use crate::sample::{Comparison, NullShare, Outcome, Share, visit_keys};
use crate::schema_change::SchemaChange;
use crate::version::Version;

/// What becomes of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyOutcome {
    Value(Vec<u8>),
    /// Where it has none.
    ValueIfNew(Vec<u8>),
    /// Something is added to the value.
    More,
    Removed,
}

/// Whether a version has a key.
pub type HasKey<'a> = dyn Fn(&[u8]) -> bool + Sync + 'a;

/// A version that is yet to be made, as far as it is known.
pub struct ExpectedVersion<'a> {
    /// What it would say of itself; its partitions do not count.
    pub manifest: &'a Manifest,
    /// All rows that come, and their bytes.
    pub rows: u64,
    pub bytes: u64,
    /// Whether these are counts.
    pub is_exact: bool,
    /// Of some of its columns, the share of nulls.
    pub nulls: Vec<(String, f64)>,
    /// What was counted of its columns.
    pub stats: &'a [ColumnStats],
    /// Some of the rows, drawn at random: their keys, each once.
    pub sample: &'a [(Vec<u8>, KeyOutcome)],
    /// Whether it has a key, where all its keys are known.
    pub has: Option<&'a HasKey<'a>>,
    /// It goes on with the version that serves: what no row names stays.
    pub goes_on: bool,
}

impl std::fmt::Debug for ExpectedVersion<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Expected({} rows, {} looked at)",
            self.rows,
            self.sample.len()
        )
    }
}

#[derive(Debug, Default)]
struct SampleLookups {
    lost: u64,
    added: u64,
    changed: u64,
}

/// Compares the version that serves with one that is expected. Of the older one, pages of about
/// `sample_rows` rows are looked at where all keys of the newer one are known. `advance` is told
/// how many rows more were looked at, by several threads.
pub fn compare_expected(
    before: &Arc<Version>,
    expected: &ExpectedVersion<'_>,
    sample_rows: u64,
    random: &dyn Random,
    advance: Advance<'_>,
) -> Result<Comparison, ReadError> {
    let (old, new) = (before.manifest(), expected.manifest);
    let was = row_estimate(before, sample_rows, random, advance)?;
    let mut comparison = Comparison {
        rows_before: was.rows,
        rows_after: expected.rows,
        rows_are_exact: expected.is_exact && old.is_merged() && !expected.goes_on,
        bytes_before: was.bytes,
        bytes_after: expected.bytes + if expected.goes_on { was.bytes } else { 0 },
        bytes_are_exact: expected.is_exact && old.is_merged(),
        lost: Share::default(),
        new: Share::default(),
        changed: Share::default(),
        nulls: null_shares(old, &expected.nulls),
        profiles: profile_pairs(&old.stats, expected.stats, &new.key),
        schema: SchemaChange::between(old, new),
    };
    let tally = look_up(before, expected, advance)?;
    if expected.goes_on {
        changes(&tally, expected, &mut comparison);
        return Ok(comparison);
    }
    let looked_at = expected.sample.len() as u64;
    let both = looked_at - tally.added;
    comparison.new = share(looked_at, tally.added);
    comparison.changed = share(both, tally.changed);
    comparison.lost = match expected.has {
        Some(has) => lost_keys(before, has, sample_rows, random, advance)?,
        // As many keys are in both as the sample says; the others of the older version are gone.
        None => {
            let all = looked_at.max(1) as f64;
            let kept = expected.rows as f64 * both as f64 / all;
            let lost = (1.0 - kept / was.rows.max(1) as f64).max(0.0);
            share(looked_at, (lost * looked_at as f64).round() as u64)
        }
    };
    Ok(comparison)
}

fn share(looked_at: u64, found: u64) -> Share {
    Share { looked_at, found }
}

/// Scales what was seen of the sample to all the rows that come.
fn changes(tally: &SampleLookups, expected: &ExpectedVersion<'_>, comparison: &mut Comparison) {
    let looked_at = expected.sample.len().max(1) as u128;
    let scaled = |found| (u128::from(expected.rows) * u128::from(found) / looked_at) as u64;
    let before = comparison.rows_before;
    let lost = scaled(tally.lost).min(before);
    let (added, both) = (scaled(tally.added), before - lost);
    comparison.rows_after = both.saturating_add(added);
    comparison.lost = share(before, lost);
    comparison.changed = share(both, scaled(tally.changed).min(both));
    comparison.new = share(both.saturating_add(added), added);
}

/// Looks the sample up, several keys at once: where a version lies in object storage, or was not
/// read for long, each page is waited for.
fn look_up(
    before: &Arc<Version>,
    expected: &ExpectedVersion<'_>,
    advance: Advance<'_>,
) -> Result<SampleLookups, ReadError> {
    let walk = |keys: &&[(Vec<u8>, KeyOutcome)]| -> Result<SampleLookups, ReadError> {
        let mut comparer = Comparer::new(before.manifest(), expected.manifest);
        let mut tally = SampleLookups::default();
        for (key, becomes) in *keys {
            look_at(before, &mut comparer, &mut tally, key, becomes)?;
            advance(1);
        }
        Ok(tally)
    };
    let stretch = expected.sample.len().div_ceil(AT_ONCE).max(1);
    let stretches: Vec<_> = expected.sample.chunks(stretch).collect();
    let mut sum = SampleLookups::default();
    for tally in side_by_side(&stretches, walk) {
        let tally = tally?;
        sum.lost += tally.lost;
        sum.added += tally.added;
        sum.changed += tally.changed;
    }
    Ok(sum)
}

fn look_at(
    before: &Version,
    comparer: &mut Comparer<'_>,
    tally: &mut SampleLookups,
    key: &[u8],
    becomes: &KeyOutcome,
) -> Outcome {
    match (before.get(key)?, becomes) {
        (None, KeyOutcome::Removed) => {}
        (None, _) => tally.added += 1,
        (Some(_), KeyOutcome::Removed) => tally.lost += 1,
        (Some(_), KeyOutcome::ValueIfNew(_)) => {}
        (Some(_), KeyOutcome::More) => tally.changed += 1,
        (Some(old), KeyOutcome::Value(new)) => {
            tally.changed += u64::from(comparer.compare(key, &old, new, |_| {})?);
        }
    }
    Ok(())
}

fn lost_keys(
    before: &Arc<Version>,
    has: &HasKey<'_>,
    sample_rows: u64,
    random: &dyn Random,
    advance: Advance<'_>,
) -> Result<Share, ReadError> {
    let mut lost = Share::default();
    visit_keys(before, sample_rows, random, &mut |key| {
        advance(1);
        if before.exists(key)? {
            lost.looked_at += 1;
            lost.found += u64::from(!has(key));
        }
        Ok(())
    })?;
    Ok(lost)
}

fn null_shares(old: &Manifest, new: &[(String, f64)]) -> Vec<NullShare> {
    let before = |column: &str| {
        let nulls = old.nulls(column)?;
        Some(nulls as f64 / old.rows().max(1) as f64)
    };
    let known = new.iter().map(|(column, after)| NullShare {
        column: column.clone(),
        before: before(column),
        after: Some(*after),
    });
    known.collect()
}
