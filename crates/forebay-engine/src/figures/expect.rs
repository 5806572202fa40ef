//! Estimates from a sample of rows how a version that does not exist yet will differ.
//!
//! The result is the same [`Comparison`] as for two versions (`sample`), with estimates for the
//! unknown. Keys of the sample are looked up in the serving version and represent the others.

use std::sync::Arc;

use forebay_io::{Random, side_by_side};

use crate::documents::column_profile::{ColumnStats, profile_pairs};
use crate::documents::manifest::Manifest;
use crate::error::ReadError;
use crate::figures::compare::Comparer;
use crate::figures::row_estimate::row_estimate;
use crate::figures::sample::{Comparison, NullShare, Outcome, Share, visit_keys};
use crate::figures::sampled_pages::{AT_ONCE, Advance};
use crate::figures::schema_change::SchemaChange;
use crate::tables::version::Version;

/// The effect of a push on a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyOutcome {
    Value(Vec<u8>),
    /// The value that it gets if it has none.
    ValueIfNew(Vec<u8>),
    /// An addition to the value.
    More,
    Removed,
}

/// A function that returns whether a version has a key.
pub type HasKey<'a> = dyn Fn(&[u8]) -> bool + Sync + 'a;

/// A version that does not exist yet, as far as it is known.
pub struct ExpectedVersion<'a> {
    /// The manifest that it would have; its partitions are ignored.
    pub manifest: &'a Manifest,
    /// All rows of the push, and their bytes.
    pub rows: u64,
    pub bytes: u64,
    /// Whether these are counts.
    pub is_exact: bool,
    /// The share of nulls of some of its columns.
    pub nulls: Vec<(String, f64)>,
    /// The counts of its columns.
    pub stats: &'a [ColumnStats],
    /// The keys of some of the rows, drawn at random, each once.
    pub sample: &'a [(Vec<u8>, KeyOutcome)],
    /// Returns whether it has a key, if all its keys are known.
    pub has: Option<&'a HasKey<'a>>,
    /// It continues the serving version: keys that no row names stay.
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

/// Compares the serving version with an expected one. If all keys of the newer version are known,
/// pages of about `sample_rows` rows of the older one are read. `advance` receives the number of
/// additional rows read, from several threads.
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
        // The sample gives the number of keys in both; the other keys of the older version are
        // lost.
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

/// Scales the results of the sample to all rows of the push.
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

/// Looks up the sample, several keys at once. If a version is in object storage, or was not read
/// for long, each page takes a wait.
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
