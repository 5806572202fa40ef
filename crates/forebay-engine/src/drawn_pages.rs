//! Pages that are drawn at random from the runs of a version, and how threads share them.

use std::sync::Arc;

use forebay_io::Random;
use forebay_run::run::Run;

/// Threads that look at a sample,
pub(crate) const AT_ONCE: usize = 32;
/// and the fewest pages for which there is one.
const STRETCH_PAGES: usize = 8;

/// Told that so many rows more were looked at.
pub type Advance<'a> = &'a (dyn Fn(u64) + Sync);

/// Pages as several threads look at them.
pub(crate) fn stretches<P>(pages: &[P]) -> Vec<&[P]> {
    let stretch = pages.len().div_ceil(AT_ONCE).max(STRETCH_PAGES);
    pages.chunks(stretch).collect()
}

/// Draws as many pages as hold about that many rows, in their order.
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

/// The run that holds the page of that number, and the page's number there.
fn locate(runs: &[Arc<Run>], mut page: u64) -> Option<(&Arc<Run>, usize)> {
    for run in runs {
        match page.checked_sub(run.summary().pages) {
            Some(rest) => page = rest,
            None => return Some((run, page as usize)),
        }
    }
    None
}
