//! Chooses the parts of the sources that a dry run reads: some rows of many parts, spread over all.

use super::Extent;
use crate::sources::SourceUnit;

/// The number of rows in a sample.
pub const SAMPLE_ROWS: u64 = 100_000;
/// The fewest parts that a sample is spread over, if there are that many.
const SPREAD: u64 = 64;
/// A part without a row count is read to its end, to relate its rows to its bytes. The limit is
/// this many times the sample.
const MOST_SAMPLES: u64 = 10;

/// A part to read.
#[derive(Debug)]
pub struct Visit<'a> {
    pub number: u32,
    pub unit: &'a SourceUnit,
    /// The number of rows to read, from its beginning.
    pub rows: u64,
}

/// Returns the parts to read, in order.
pub fn visits(units: &[SourceUnit], extent: Extent) -> Vec<Visit<'_>> {
    let visit = |(number, rows): (usize, u64)| Visit {
        number: number as u32,
        unit: &units[number],
        rows,
    };
    let counts: Option<Vec<u64>> = units.iter().map(SourceUnit::rows).collect();
    places(units.len(), counts.as_deref(), extent)
        .into_iter()
        .map(visit)
        .collect()
}

/// Returns the indices of parts, and the number of rows to read of each.
fn places(parts: usize, counts: Option<&[u64]>, extent: Extent) -> Vec<(usize, u64)> {
    if extent == Extent::All {
        return (0..parts).map(|number| (number, u64::MAX)).collect();
    }
    match counts {
        None => scattered(parts)
            .map(|number| (number, MOST_SAMPLES * SAMPLE_ROWS))
            .collect(),
        Some(counts) => {
            let total: u64 = counts.iter().sum();
            if total <= SAMPLE_ROWS {
                return (0..parts).map(|number| (number, u64::MAX)).collect();
            }
            let mean = (total / parts.max(1) as u64).max(1);
            let visits = SPREAD.max(SAMPLE_ROWS.div_ceil(mean)).min(parts as u64);
            let each = SAMPLE_ROWS.div_ceil(visits);
            (0..visits)
                .map(|visit| ((visit * parts as u64 / visits) as usize, each))
                .collect()
        }
    }
}

/// Returns all numbers below `parts`, beginning with zero; any few consecutive ones are far apart.
fn scattered(parts: usize) -> impl Iterator<Item = usize> {
    // The golden section. A step that shares no divisor with the number of parts visits each of
    // them once.
    let near = (parts as f64 * 0.618) as usize;
    let coprime = |step: &usize| divisor(*step, parts) == 1;
    let step = (near.max(1)..).find(coprime).unwrap_or(1);
    (0..parts).map(move |visit| visit * step % parts.max(1))
}

fn divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_unknown_rows_are_chosen_in_any_order_each_once() {
        for parts in [0, 1, 2, 7, 64, 1000] {
            let mut numbers: Vec<usize> = scattered(parts).collect();
            assert_eq!(numbers.first().copied(), (parts > 0).then_some(0));
            if parts == 1000 {
                let (least, most) = (numbers[..4].iter().min(), numbers[..4].iter().max());
                assert!(most.unwrap() - least.unwrap() > 500, "{:?}", &numbers[..4]);
            }
            numbers.sort_unstable();
            assert!(numbers.into_iter().eq(0..parts));
        }
    }

    #[test]
    fn a_sample_is_spread_over_the_parts_and_small_sources_are_read_whole() {
        let all = |parts| (0..parts).map(|n| (n, u64::MAX)).collect::<Vec<_>>();
        assert_eq!(places(3, Some(&[10, 20, 30]), Extent::Sample), all(3));
        assert_eq!(places(3, Some(&[1 << 40; 3]), Extent::All), all(3));
        assert_eq!(places(0, Some(&[]), Extent::Sample), []);
        let one = places(1, Some(&[1 << 30]), Extent::Sample);
        assert_eq!(one, [(0, SAMPLE_ROWS)]);
        for (parts, rows) in [(100, 1 << 20), (5000, 1000), (70, 2000)] {
            let visits = places(parts, Some(&vec![rows; parts]), Extent::Sample);
            let read: u64 = visits.iter().map(|visit| visit.1.min(rows)).sum();
            assert!((SAMPLE_ROWS..SAMPLE_ROWS + 5000).contains(&read), "{read}");
            assert!(visits.len() >= 64 && visits.windows(2).all(|two| two[0].0 < two[1].0));
            assert!(visits.last().unwrap().0 >= parts - parts.div_ceil(64) - 1);
        }
    }
}
