//! Estimates the rows of a version whose runs are not merged.
//!
//! If a partition has several runs, a key may be in more than one of them, and there are fewer rows
//! than records. The estimate reads every record of some pages. A record counts as one row if
//! readers find its key, and as a half if two runs have it.

use std::sync::Arc;

use forebay_io::{Random, side_by_side};
use forebay_run::run::Run;
use forebay_run::scan::Cursor;

use crate::error::ReadError;
use crate::figures::sampled_pages::{Advance, draw, stretches};
use crate::tables::version::Version;

/// The rows that readers find.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Living {
    pub rows: u64,
    /// Keys and values.
    pub bytes: u64,
}

#[derive(Default)]
struct RowEstimate {
    looked_at: u64,
    rows: f64,
}

/// Returns the rows of a version and their bytes. For partitions with several runs, it reads about
/// so many of their records. `advance` receives the number of additional records, from several
/// threads.
pub(crate) fn row_estimate(
    version: &Version,
    sample_rows: u64,
    random: &dyn Random,
    advance: Advance<'_>,
) -> Result<Living, ReadError> {
    let mut estimate = Living::default();
    let mut several: Vec<Arc<Run>> = Vec::new();
    for (part, opened) in version.manifest().partitions.iter().zip(&version.parts) {
        if opened.runs.len() > 1 {
            several.extend(opened.runs.iter().cloned());
            continue;
        }
        estimate.rows += part.rows_between().1;
        estimate.bytes += opened.runs.iter().map(|run| bytes(run)).sum::<u64>();
    }
    let pages = draw(&several, sample_rows, random);
    let walk = |pages: &&[(&Arc<Run>, usize)]| count(version, pages, advance);
    let mut all = RowEstimate::default();
    for counted in side_by_side(&stretches(&pages), walk) {
        let counted = counted?;
        all.looked_at += counted.looked_at;
        all.rows += counted.rows;
    }
    let share = all.rows / all.looked_at.max(1) as f64;
    let scaled = |of: fn(&Run) -> u64| {
        let sum: u64 = several.iter().map(|run| of(run)).sum();
        (sum as f64 * share).round() as u64
    };
    estimate.rows += scaled(|run| run.summary().records);
    estimate.bytes += scaled(bytes);
    Ok(estimate)
}

/// Returns the bytes of the keys and values of a run.
pub(crate) fn bytes(run: &Run) -> u64 {
    run.summary().key_bytes + run.summary().value_bytes
}

fn count(
    version: &Version,
    pages: &[(&Arc<Run>, usize)],
    advance: Advance<'_>,
) -> Result<RowEstimate, ReadError> {
    let reported = |error| version.read_error(error);
    let mut counted = RowEstimate::default();
    for (run, page) in pages {
        let mut scan = run.scan_page(*page);
        let before = counted.looked_at;
        while scan.advance().map_err(reported)? {
            let key = scan.key();
            counted.looked_at += 1;
            if version.exists(key)? {
                counted.rows += 1.0 / runs_with(version, key)?.max(1) as f64;
            }
        }
        advance(counted.looked_at - before);
    }
    Ok(counted)
}

/// Returns the number of runs of its partition that have a key.
fn runs_with(version: &Version, key: &[u8]) -> Result<usize, ReadError> {
    let hash = version.router.hash(key);
    let Some(partition) = version.router.partition(hash, key) else {
        return Ok(0);
    };
    let mut with = 0;
    for run in &version.parts[partition].runs {
        let found = run.get(hash, key);
        let found = found.map_err(|error| version.read_error(error))?;
        with += usize::from(found.is_some());
    }
    Ok(with)
}
