//! Computes the figures of a column from its counts and its sample.

use std::collections::HashMap;

use forebay_engine::{ColumnProfile, MeasuredColumn, QUANTILE_PERCENTS, ValueRange};

use super::moments::Moments;
use super::sample::{DrawnValue, RowSample};

/// Returns the figures of the column at this index.
pub fn profile(
    of: MeasuredColumn,
    values: u64,
    moments: &Moments,
    sample: &RowSample,
    at: usize,
) -> ColumnProfile {
    let seen: Vec<DrawnValue> = sample
        .column(at)
        .iter()
        .copied()
        .filter(|seen| !seen.is_null())
        .collect();
    let counts = Occurrences::of(&seen);
    ColumnProfile {
        of,
        values,
        zeros: moments.zeros,
        negative: moments.negative,
        nan: moments.nan,
        infinite: moments.infinite,
        range: range(moments, &seen),
        looked_at: seen.len() as u64,
        common: counts.as_ref().map(|counts| rounded(counts.common)),
        distinct: counts.map(|counts| match sample.is_all() {
            true => counts.distinct,
            false => counts.estimate(values),
        }),
    }
}

fn range(moments: &Moments, seen: &[DrawnValue]) -> Option<ValueRange> {
    if moments.finite == 0 {
        return None;
    }
    let finite = seen
        .iter()
        .map(|seen| seen.number())
        .filter(|number| number.is_finite());
    let mut finite: Vec<f64> = finite.collect();
    finite.sort_unstable_by(f64::total_cmp);
    let quantile = |percent: u8| match finite.len() {
        // The sample has no finite number: finite numbers are rare.
        0 => moments.spread.map_or(moments.min, |spread| spread.mean),
        drawn => finite[(drawn * usize::from(percent) / 100).min(drawn - 1)],
    };
    Some(ValueRange {
        min: moments.min,
        max: moments.max,
        mean: moments.spread.map(|spread| rounded(spread.mean)),
        std: moments.std().map(rounded),
        quantiles: QUANTILE_PERCENTS.map(quantile),
    })
}

/// How often values occur in a sample.
struct Occurrences {
    distinct: u64,
    /// The number of values that occur once, and twice.
    once: u64,
    twice: u64,
    /// The share of the most frequent value.
    common: f64,
}

impl Occurrences {
    /// Returns `None` if the values have no hashes.
    fn of(seen: &[DrawnValue]) -> Option<Self> {
        if seen.iter().any(|seen| seen.hash == 1) {
            return None;
        }
        let mut counts: HashMap<u64, u64> = HashMap::with_capacity(seen.len());
        for seen in seen {
            *counts.entry(seen.hash).or_default() += 1;
        }
        let of = |wanted: u64| counts.values().filter(|count| **count == wanted).count() as u64;
        let most = counts.values().max().copied().unwrap_or(0);
        Some(Self {
            distinct: counts.len() as u64,
            once: of(1),
            twice: of(2),
            common: most as f64 / seen.len().max(1) as f64,
        })
    }

    /// Estimates the number of different values from the sample, after Chao: the more values occur
    /// only once, the more values the sample missed.
    fn estimate(&self, values: u64) -> u64 {
        let once = self.once as f64;
        let unmet = once * (once - 1.0).max(0.0) / (2.0 * (self.twice as f64 + 1.0));
        (self.distinct as f64 + unmet).round().min(values as f64) as u64
    }
}

/// Rounds to 12 digits: the digits after them depend on the order in which numbers were added.
fn rounded(number: f64) -> f64 {
    format!("{number:.11e}").parse().unwrap_or(number)
}
