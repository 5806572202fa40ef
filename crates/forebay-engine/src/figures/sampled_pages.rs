//! Draws random pages from the runs of a version and divides them among threads.

use std::sync::Arc;

use forebay_io::Random;
use forebay_run::run::Run;

/// The number of threads that read a sample.
pub(crate) const AT_ONCE: usize = 32;
/// The fewest pages per thread.
const STRETCH_PAGES: usize = 8;

/// A callback that receives the number of additional rows read.
pub type Advance<'a> = &'a (dyn Fn(u64) + Sync);

/// Divides pages among several threads.
pub(crate) fn stretches<P>(pages: &[P]) -> Vec<&[P]> {
    let stretch = pages.len().div_ceil(AT_ONCE).max(STRETCH_PAGES);
    pages.chunks(stretch).collect()
}

/// Draws enough pages for about that many rows, in their order.
pub(crate) fn draw<'a>(
    runs: &'a [Arc<Run>],
    rows: u64,
    random: &dyn Random,
) -> Vec<(&'a Arc<Run>, usize)> {
    let pages: u64 = runs.iter().map(|run| run.summary().pages).sum();
    let records: u64 = runs.iter().map(|run| run.summary().records).sum();
    if pages == 0 || records == 0 {
        return Vec::new();
    }
    let wanted = (u128::from(rows) * u128::from(pages)).div_ceil(u128::from(records));
    let wanted = wanted.clamp(1, u128::from(pages)) as u64;
    let stretch =
        |number: u64| (u128::from(number) * u128::from(pages) / u128::from(wanted)) as u64;
    let drawn = (0..wanted).filter_map(|number| {
        let (start, end) = (stretch(number), stretch(number + 1));
        let page = start + random.next_u64() % (end - start).max(1);
        locate(runs, page)
    });
    drawn.collect()
}

/// Returns the run with the page of that number, and the page's number in the run.
fn locate(runs: &[Arc<Run>], mut page: u64) -> Option<(&Arc<Run>, usize)> {
    for run in runs {
        match page.checked_sub(run.summary().pages) {
            Some(rest) => page = rest,
            None => return Some((run, page as usize)),
        }
    }
    None
}
