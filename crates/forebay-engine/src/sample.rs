//! An estimate of how a new version differs from the one that serves, for the gate before a swap.
//!
//! Rows, bytes and nulls are known exactly from the manifests. Which share of the keys is lost, new or
//! changed is estimated from whole pages: the pages of a version are cut into as many equal stretches
//! as pages are wanted, one page is drawn from each, and every key of it is looked up in the other
//! version. Neighbours in one version are neighbours in the other, so that a page costs a page or two
//! there, whatever the size of the tables.

use std::sync::Arc;

use forebay_run::io::Random;
use forebay_run::run::Run;
use forebay_run::scan::Cursor;

use crate::compare::{Comparer, SchemaChange};
use crate::error::ReadError;
use crate::manifest::Manifest;
use crate::version::Version;

/// How many of those looked at had the property asked for.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    pub looked_at: u64,
    pub found: u64,
}

/// The nulls of a column, as a fraction of the rows; `None` where they were not counted or the column
/// is not there.
#[derive(Debug, Clone, PartialEq)]
pub struct NullShare {
    pub column: String,
    pub before: Option<f64>,
    pub after: Option<f64>,
}

/// How two versions differ, by sampling.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    pub rows_before: u64,
    pub rows_after: u64,
    /// Keys and values, in bytes.
    pub bytes_before: u64,
    pub bytes_after: u64,
    /// Keys of the older version that the newer lacks.
    pub lost: Share,
    /// Keys of the newer version that the older lacks.
    pub new: Share,
    /// Keys in both whose values differ in a column that both have.
    pub changed: Share,
    pub nulls: Vec<NullShare>,
    pub schema: SchemaChange,
}

impl Share {
    /// From 0 to 1; 0 when nothing was looked at.
    pub fn fraction(&self) -> f64 {
        if self.looked_at == 0 {
            0.0
        } else {
            self.found as f64 / self.looked_at as f64
        }
    }

    fn add(&mut self, found: bool) {
        self.looked_at += 1;
        self.found += u64::from(found);
    }
}

/// Compares two versions by looking at about `sample_rows` rows of each; at all of them when there
/// are no more.
pub fn compare_sampled(
    before: &Arc<Version>,
    after: &Arc<Version>,
    sample_rows: u64,
    random: &dyn Random,
) -> Result<Comparison, ReadError> {
    let (old, new) = (before.manifest(), after.manifest());
    let mut comparison = Comparison {
        rows_before: old.rows(),
        rows_after: new.rows(),
        bytes_before: old.bytes(),
        bytes_after: new.bytes(),
        lost: Share::default(),
        new: Share::default(),
        changed: Share::default(),
        nulls: null_shares(old, new),
        schema: SchemaChange::between(&old.schema, &new.schema),
    };
    let mut comparer = Comparer::new(old, new);
    sample(before, sample_rows, random, |key, old_value| {
        let found = after.get(key)?;
        comparison.lost.add(found.is_none());
        if let Some(new_value) = found {
            comparison
                .changed
                .add(comparer.compare(key, old_value, &new_value, |_| {})?);
        }
        Ok(())
    })?;
    sample(after, sample_rows, random, |key, _| {
        comparison.new.add(!before.exists(key)?);
        Ok(())
    })?;
    Ok(comparison)
}

fn null_shares(old: &Manifest, new: &Manifest) -> Vec<NullShare> {
    let share = |manifest: &Manifest, column: &str| {
        let nulls = manifest.nulls(column)?;
        Some(if manifest.rows() == 0 {
            0.0
        } else {
            nulls as f64 / manifest.rows() as f64
        })
    };
    let gone = old
        .stats
        .iter()
        .filter(|stats| new.nulls(&stats.column).is_none());
    let columns = new
        .stats
        .iter()
        .chain(gone)
        .map(|stats| stats.column.clone());
    columns
        .map(|column| NullShare {
            before: share(old, &column),
            after: share(new, &column),
            column,
        })
        .collect()
}

/// Visits the rows of randomly drawn pages.
fn sample(
    version: &Arc<Version>,
    rows: u64,
    random: &dyn Random,
    mut visit: impl FnMut(&[u8], &[u8]) -> Result<(), ReadError>,
) -> Result<(), ReadError> {
    let runs: Vec<&Arc<Run>> = version.runs().collect();
    let pages: u64 = runs.iter().map(|run| run.summary().pages).sum();
    let records: u64 = runs.iter().map(|run| run.summary().records).sum();
    if pages == 0 || records == 0 {
        return Ok(());
    }
    let wanted = (u128::from(rows) * u128::from(pages)).div_ceil(u128::from(records));
    let wanted = wanted.clamp(1, u128::from(pages)) as u64;
    let stretch =
        |number: u64| (u128::from(number) * u128::from(pages) / u128::from(wanted)) as u64;
    for number in 0..wanted {
        let (start, end) = (stretch(number), stretch(number + 1));
        let page = start + random.next_u64() % (end - start).max(1);
        let Some((run, page)) = locate(&runs, page) else {
            continue;
        };
        let mut scan = run.scan_page(page);
        while scan.advance().map_err(|error| version.read_error(error))? {
            // What a reader sees of it: newer runs of its partition may have replaced it.
            if let Some(value) = version.get(scan.key())? {
                visit(scan.key(), &value)?;
            }
        }
    }
    Ok(())
}

/// The run that holds the page of that number, and the page's number there.
fn locate<'a>(runs: &[&'a Arc<Run>], mut page: u64) -> Option<(&'a Arc<Run>, usize)> {
    for run in runs {
        match page.checked_sub(run.summary().pages) {
            Some(rest) => page = rest,
            None => return Some((run, page as usize)),
        }
    }
    None
}
