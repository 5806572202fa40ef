//! Estimates how a new version differs from the serving one, for the gate before a swap.
//!
//! If runs are merged, the manifests give rows, bytes and nulls exactly. Otherwise rows and bytes
//! are estimated (`row_estimate`). The shares of lost, new and changed keys are estimated from
//! whole pages. The pages of a version are divided into as many equal stretches as pages are
//! wanted. One page is drawn from each, and every key of it is looked up in the other version.
//! Neighbours in one version are neighbours in the other. So a page costs one or two pages of the
//! other version, for tables of any size.

use std::sync::Arc;

use forebay_io::{Random, side_by_side};
use forebay_run::run::Run;
use forebay_run::scan::Cursor;

use crate::documents::column_profile::{ProfilePair, profile_pairs};
use crate::documents::manifest::{Manifest, RunRef};
use crate::error::ReadError;
use crate::figures::compare::Comparer;
use crate::figures::row_estimate::{Living, bytes, row_estimate};
use crate::figures::sampled_pages::{Advance, draw, stretches};
use crate::figures::schema_change::SchemaChange;
use crate::keys::partition::OpenPartitions;
use crate::name::RunId;
use crate::tables::version::Version;

pub(crate) type Outcome = Result<(), ReadError>;

/// The number of keys examined, and of those with a property.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    pub looked_at: u64,
    pub found: u64,
}

/// The nulls of a column, as a fraction of the rows; `None` if they were not counted or the column
/// does not exist.
#[derive(Debug, Clone, PartialEq)]
pub struct NullShare {
    pub column: String,
    pub before: Option<f64>,
    pub after: Option<f64>,
}

/// The difference between two versions, by sampling.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    pub rows_before: u64,
    pub rows_after: u64,
    /// Whether these are counts, not estimates.
    pub rows_are_exact: bool,
    /// Keys and values, in bytes.
    pub bytes_before: u64,
    pub bytes_after: u64,
    /// Whether these are counts.
    pub bytes_are_exact: bool,
    /// Keys of the older version that the newer lacks.
    pub lost: Share,
    /// Keys of the newer version that the older lacks.
    pub new: Share,
    /// Keys in both whose values differ in a column that both have.
    pub changed: Share,
    pub nulls: Vec<NullShare>,
    /// The statistics of column values.
    pub profiles: Vec<ProfilePair>,
    pub schema: SchemaChange,
}

impl Share {
    /// Returns the share, from 0 to 1; 0 if no key was examined.
    pub fn fraction(&self) -> f64 {
        if self.looked_at == 0 {
            0.0
        } else {
            self.found as f64 / self.looked_at as f64
        }
    }
}

/// Compares two versions by reading about `sample_rows` rows of each, or all if there are no more.
/// If both have the same older runs in a partition, only the newer runs are read, because the
/// differences are in them. `advance` receives the number of additional rows read, from several
/// threads.
pub fn compare_sampled(
    before: &Arc<Version>,
    after: &Arc<Version>,
    sample_rows: u64,
    random: &dyn Random,
    advance: Advance<'_>,
) -> Result<Comparison, ReadError> {
    let (old, new) = (before.manifest(), after.manifest());
    let parts = SampledParts::of(before, after);
    let was = row_estimate(before, sample_rows, random, advance)?;
    let is = match parts.news_bytes() {
        // Rows are estimated from the keys of the newer runs.
        Some(news) => Living {
            bytes: was.bytes + news,
            ..was
        },
        None => row_estimate(after, sample_rows, random, advance)?,
    };
    let mut comparison = Comparison {
        rows_before: was.rows,
        rows_after: is.rows,
        rows_are_exact: old.is_merged() && new.is_merged(),
        bytes_before: was.bytes,
        bytes_after: is.bytes,
        bytes_are_exact: old.is_merged() && (new.is_merged() || parts.news_bytes().is_some()),
        lost: Share::default(),
        new: Share::default(),
        changed: Share::default(),
        nulls: null_shares(old, new),
        profiles: profiles_of(old, new),
        schema: SchemaChange::between(old, new),
    };
    let look = Look {
        before,
        after,
        parts: &parts,
        advance,
    };
    let seen = KeysSeen {
        old: look.sample(before, &parts.before, sample_rows, random, Look::at_old)?,
        new: look.sample(after, &parts.after, sample_rows, random, Look::at_new)?,
        layers: look.sample(after, &parts.layers, sample_rows, random, Look::at_layer)?,
        gone: look.sample(before, &parts.gone, sample_rows, random, Look::at_gone)?,
    };
    seen.settle(&parts, &mut comparison);
    Ok(comparison)
}

/// The runs in which two versions differ.
#[derive(Default)]
struct SampledParts {
    /// All runs of either version, for partitions that do not share their oldest run.
    before: Vec<Arc<Run>>,
    after: Vec<Arc<Run>>,
    /// For other partitions: the newer version's runs that the older one lacks, and the reverse.
    layers: Vec<Arc<Run>>,
    gone: Vec<Arc<Run>>,
}

impl SampledParts {
    fn of(before: &Version, after: &Version) -> Self {
        let (old, new) = (before.manifest(), after.manifest());
        let alike = old.order == new.order
            && old
                .held(&OpenPartitions::All)
                .eq(new.held(&OpenPartitions::All));
        let mut parts = Self::default();
        if !alike {
            parts.before = before.runs().cloned().collect();
            parts.after = after.runs().cloned().collect();
            return parts;
        }
        let pairs = old.partitions.iter().zip(&new.partitions);
        for (at, (was, is)) in pairs.enumerate() {
            let (was_open, is_open) = (&before.parts[at].runs, &after.parts[at].runs);
            let oldest = |runs: &[RunRef]| runs.first().map(|run| run.id.clone());
            if was.runs.is_empty() || oldest(&was.runs) != oldest(&is.runs) {
                parts.before.extend(was_open.iter().cloned());
                parts.after.extend(is_open.iter().cloned());
                continue;
            }
            let lacks = |runs: &[RunRef], id: &RunId| runs.iter().all(|run| run.id != *id);
            let only = |runs: &[RunRef], open: &[Arc<Run>], others: &[RunRef]| {
                let only = runs.iter().zip(open);
                let only = only.filter(|(run, _)| lacks(others, &run.id));
                only.map(|(_, open)| Arc::clone(open)).collect::<Vec<_>>()
            };
            parts.gone.extend(only(&was.runs, was_open, &is.runs));
            parts.layers.extend(only(&is.runs, is_open, &was.runs));
        }
        parts
    }

    /// Returns the bytes that the newer version adds to the older one, if it only adds runs.
    fn news_bytes(&self) -> Option<u64> {
        let adds = self.after.is_empty() && self.gone.is_empty() && !self.layers.is_empty();
        adds.then(|| self.layers.iter().map(|run| bytes(run)).sum())
    }

    /// Returns whether the key is in the newer version's own runs, which then determine its change.
    fn is_in_layers(&self, after: &Version, key: &[u8]) -> Result<bool, ReadError> {
        let hash = after.router.hash(key);
        for run in &self.layers {
            let found = run.get(hash, key);
            if found.map_err(|error| after.read_error(error))?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// A look-up of one version's keys in the other, for several threads.
struct Look<'a> {
    before: &'a Version,
    after: &'a Version,
    parts: &'a SampledParts,
    advance: Advance<'a>,
}

/// A function that a thread calls for each key.
type Visit<'a> = fn(&Look<'a>, &mut Comparer<'_>, &mut SampleTally, &[u8]) -> Outcome;

impl<'a> Look<'a> {
    fn at_old(&self, comparer: &mut Comparer<'_>, tally: &mut SampleTally, key: &[u8]) -> Outcome {
        let Some(old_value) = self.before.get(key)? else {
            return Ok(());
        };
        tally.looked_at += 1;
        match self.after.get(key)? {
            None => tally.lost += 1,
            Some(new_value) if comparer.compare(key, &old_value, &new_value, |_| {})? => {
                tally.changed += 1;
            }
            Some(_) => {}
        }
        Ok(())
    }

    fn at_new(&self, _: &mut Comparer<'_>, tally: &mut SampleTally, key: &[u8]) -> Outcome {
        if self.after.get(key)?.is_some() {
            tally.looked_at += 1;
            tally.added += u64::from(!self.before.exists(key)?);
        }
        Ok(())
    }

    fn at_layer(
        &self,
        comparer: &mut Comparer<'_>,
        tally: &mut SampleTally,
        key: &[u8],
    ) -> Outcome {
        tally.looked_at += 1;
        self.differ(comparer, tally, key)
    }

    fn at_gone(&self, comparer: &mut Comparer<'_>, tally: &mut SampleTally, key: &[u8]) -> Outcome {
        tally.looked_at += 1;
        if self.parts.is_in_layers(self.after, key)? {
            return Ok(());
        }
        self.differ(comparer, tally, key)
    }

    fn differ(&self, comparer: &mut Comparer<'_>, tally: &mut SampleTally, key: &[u8]) -> Outcome {
        match (self.before.get(key)?, self.after.get(key)?) {
            (None, Some(_)) => tally.added += 1,
            (Some(_), None) => tally.lost += 1,
            (Some(old_value), Some(new_value))
                if comparer.compare(key, &old_value, &new_value, |_| {})? =>
            {
                tally.changed += 1;
            }
            _ => {}
        }
        Ok(())
    }

    /// Visits the keys of randomly drawn pages, several stretches of them at once. If a version is
    /// in object storage, or was not read for long, each page takes a wait.
    fn sample(
        &self,
        version: &Version,
        runs: &[Arc<Run>],
        rows: u64,
        random: &dyn Random,
        visit: Visit<'a>,
    ) -> Result<SampleTally, ReadError> {
        let pages = draw(runs, rows, random);
        let (old, new) = (self.before.manifest(), self.after.manifest());
        let walk = |pages: &&[(&Arc<Run>, usize)]| -> Result<SampleTally, ReadError> {
            let (mut comparer, mut tally) = (Comparer::new(old, new), SampleTally::default());
            for (run, page) in *pages {
                let mut scan = run.scan_page(*page);
                let mut rows = 0;
                while scan.advance().map_err(|error| version.read_error(error))? {
                    visit(self, &mut comparer, &mut tally, scan.key())?;
                    rows += 1;
                }
                (self.advance)(rows);
            }
            Ok(tally)
        };
        let mut sum = SampleTally::default();
        for tally in side_by_side(&stretches(&pages), walk) {
            sum.add(&tally?);
        }
        Ok(sum)
    }
}

#[derive(Default)]
struct SampleTally {
    looked_at: u64,
    lost: u64,
    added: u64,
    changed: u64,
}

impl SampleTally {
    fn add(&mut self, other: &Self) {
        self.looked_at += other.looked_at;
        self.lost += other.lost;
        self.added += other.added;
        self.changed += other.changed;
    }
}

#[derive(Default)]
struct KeysSeen {
    old: SampleTally,
    new: SampleTally,
    layers: SampleTally,
    gone: SampleTally,
}

impl KeysSeen {
    /// Scales the results of each set of runs to all its records, and adds up.
    fn settle(&self, parts: &SampledParts, comparison: &mut Comparison) {
        let share = |looked_at, found| Share { looked_at, found };
        if parts.layers.is_empty() && parts.gone.is_empty() {
            comparison.lost = share(self.old.looked_at, self.old.lost);
            comparison.changed = share(self.old.looked_at - self.old.lost, self.old.changed);
            comparison.new = share(self.new.looked_at, self.new.added);
            return;
        }
        let scaled = |tally: &SampleTally, runs: &[Arc<Run>], found: u64| {
            let records: u64 = runs.iter().map(|run| run.summary().records).sum();
            let all = u128::from(records) * u128::from(found);
            (all / u128::from(tally.looked_at.max(1))) as u64
        };
        let sum = |found: fn(&SampleTally) -> u64| {
            let sets = [
                (&self.old, &parts.before),
                (&self.new, &parts.after),
                (&self.layers, &parts.layers),
                (&self.gone, &parts.gone),
            ];
            sets.iter()
                .map(|(tally, runs)| scaled(tally, runs, found(tally)))
                .sum::<u64>()
        };
        let lost = sum(|tally| tally.lost);
        let changed = sum(|tally| tally.changed);
        let added = sum(|tally| tally.added);
        let before = comparison.rows_before;
        if !comparison.rows_are_exact {
            comparison.rows_after = before.saturating_sub(lost).saturating_add(added);
        }
        let both = before.saturating_sub(lost);
        comparison.lost = share(before, lost.min(before));
        comparison.changed = share(both, changed.min(both));
        comparison.new = share(both.saturating_add(added), added);
    }
}

/// Returns the profiles of the columns of two versions that have one in either.
pub fn profiles_of(before: &Manifest, after: &Manifest) -> Vec<ProfilePair> {
    profile_pairs(&before.stats, &after.stats, &after.key)
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

/// Visits the keys of randomly drawn pages with about so many rows. Keys that were removed since
/// are included.
pub(crate) fn visit_keys(
    version: &Version,
    rows: u64,
    random: &dyn Random,
    visit: &mut dyn FnMut(&[u8]) -> Outcome,
) -> Outcome {
    let runs: Vec<Arc<Run>> = version.runs().cloned().collect();
    for (run, page) in draw(&runs, rows, random) {
        let mut scan = run.scan_page(page);
        while scan.advance().map_err(|error| version.read_error(error))? {
            visit(scan.key())?;
        }
    }
    Ok(())
}
