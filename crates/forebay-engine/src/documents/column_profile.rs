//! Statistics of column values, which a manifest keeps from the time that it was made.

use serde::{Deserialize, Serialize};

/// The quantiles that are kept, in percent. Between the first and the last one they are evenly
/// spaced.
pub const QUANTILE_PERCENTS: [u8; 21] = [
    1, 5, 10, 15, 20, 25, 30, 35, 40, 45, 50, 55, 60, 65, 70, 75, 80, 85, 90, 95, 99,
];

/// The statistics of one column.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ColumnStats {
    pub column: String,
    pub nulls: u64,
    /// Absent in versions of older programs, and if the type has neither numbers nor lengths.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub values: Option<ColumnProfile>,
}

/// The quantity that the figures of a profile measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MeasuredColumn {
    /// The numbers themselves; for durations and times of day, their units.
    Number,
    /// Dates and timestamps, in their units since 1970-01-01.
    Time,
    /// False as 0, true as 1.
    Truth,
    /// The lengths of texts and bytes in bytes, of lists and maps in items.
    Length,
}

/// The values of one column that are not null.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ColumnProfile {
    pub of: MeasuredColumn,
    pub values: u64,
    pub zeros: u64,
    pub negative: u64,
    pub nan: u64,
    pub infinite: u64,
    /// Absent if no value is finite.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<ValueRange>,
    /// The number of values from which quantiles, `common` and `distinct` were estimated. If these
    /// are all values, the figures are exact.
    pub looked_at: u64,
    /// The share of the most frequent value, from 0 to 1; absent for lists and maps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub common: Option<f64>,
    /// The number of distinct values; absent for lists and maps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distinct: Option<u64>,
}

/// The distribution of the finite values.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ValueRange {
    pub min: f64,
    pub max: f64,
    /// Absent, like `std`, if sums exceeded the range of a double.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean: Option<f64>,
    /// The standard deviation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub std: Option<f64>,
    /// At [`QUANTILE_PERCENTS`].
    pub quantiles: [f64; 21],
}

/// The profiles of one column in two versions.
#[derive(Debug, Clone, PartialEq)]
pub struct ProfilePair {
    pub column: String,
    /// Whether the newer version's keys contain this column.
    pub is_key: bool,
    pub before: Option<ColumnProfile>,
    pub after: Option<ColumnProfile>,
}

impl ColumnProfile {
    /// Returns a count as a share of the values.
    pub fn share(&self, count: u64) -> f64 {
        count as f64 / self.values.max(1) as f64
    }

    pub(crate) fn check(&self) -> bool {
        let counts = [self.zeros, self.negative, self.nan, self.infinite];
        let sum = counts.into_iter().fold(0, u64::saturating_add);
        // An infinity may be negative, too.
        sum.saturating_sub(self.infinite.min(self.negative)) <= self.values
            && self.looked_at <= self.values
    }
}

impl ValueRange {
    /// Returns the quantile at this percentage, if it is one of those that are kept.
    pub fn quantile(&self, percent: u8) -> Option<f64> {
        let at = QUANTILE_PERCENTS.iter().position(|kept| *kept == percent)?;
        Some(self.quantiles[at])
    }

    /// Returns the distance from the 5% quantile to the 95% quantile.
    pub fn spread(&self) -> f64 {
        self.quantiles[19] - self.quantiles[1]
    }

    /// Returns the mean distance of the quantiles from 5% to 95% from those of `other`.
    pub fn distance(&self, other: &ValueRange) -> f64 {
        let pairs = self.quantiles[1..20].iter().zip(&other.quantiles[1..20]);
        pairs.map(|(a, b)| (a - b).abs()).sum::<f64>() / 19.0
    }
}

/// Returns the profiles of all columns that have one in either version. `key` is the template of
/// the newer version.
pub(crate) fn profile_pairs(
    before: &[ColumnStats],
    after: &[ColumnStats],
    key: &str,
) -> Vec<ProfilePair> {
    let of = |stats: &[ColumnStats], column: &str| {
        let found = stats.iter().find(|stats| stats.column == column);
        found.and_then(|stats| stats.values.clone())
    };
    let gone = before
        .iter()
        .filter(|old| !after.iter().any(|new| new.column == old.column));
    let pairs = after.iter().chain(gone).map(|stats| ProfilePair {
        before: of(before, &stats.column),
        after: of(after, &stats.column),
        is_key: [
            format!("{{{}}}", stats.column),
            format!("{{{}:", stats.column),
        ]
        .iter()
        .any(|part| key.contains(part)),
        column: stats.column.clone(),
    });
    pairs
        .filter(|pair| pair.before.is_some() || pair.after.is_some())
        .collect()
}
