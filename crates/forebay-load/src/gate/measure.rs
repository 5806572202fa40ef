//! Computes the figures of a column that a limit can bound.

use std::fmt;

use forebay_engine::{
    ColumnProfile, MeasuredColumn, NullShare, ProfilePair, QUANTILE_PERCENTS, ValueRange,
};
use forebay_run::error::named_column;

/// A figure of a column that a limit bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// Shares of the rows.
    Nulls,
    /// Shares of the values that are not null.
    Zeros,
    Negative,
    Nan,
    Infinite,
    /// The share of the most frequent value.
    Common,
    /// How far the quantiles moved, as a share of the serving version's spread.
    Shift,
    Mean,
    Std,
    Min,
    Max,
    /// At one of [`QUANTILE_PERCENTS`].
    Quantile(u8),
    Distinct,
    /// The mean length.
    Length,
}

/// The number of values below which limits for all columns ignore a column's distribution.
pub const LEAST_VALUES: u64 = 100;
/// The number of different values below which `distinct` for all columns is not checked.
const LEAST_DISTINCT: u64 = 100;
/// The largest distance from the median to the 1% or 99% quantile, as a multiple of the spread. A
/// column with a longer tail has no stable standard deviation.
const LONGEST_TAIL: f64 = 2.5;

const WORDS: [(&str, Measure); 14] = [
    ("nulls", Measure::Nulls),
    ("zeros", Measure::Zeros),
    ("negative", Measure::Negative),
    ("nan", Measure::Nan),
    ("inf", Measure::Infinite),
    ("common", Measure::Common),
    ("shift", Measure::Shift),
    ("mean", Measure::Mean),
    ("std", Measure::Std),
    ("min", Measure::Min),
    ("max", Measure::Max),
    ("median", Measure::Quantile(50)),
    ("distinct", Measure::Distinct),
    ("length", Measure::Length),
];

/// One column in the serving version and in the new one.
pub struct Sides<'a> {
    pub column: &'a str,
    pub nulls: Option<&'a NullShare>,
    pub pair: Option<&'a ProfilePair>,
}

/// The result of a measure for a column.
pub struct Reading {
    /// A share, or a change, as a fraction.
    pub value: f64,
    /// The result in plain words.
    pub seen: String,
}

impl Measure {
    pub fn parse(word: &str) -> Option<Self> {
        if let Some((_, measure)) = WORDS.iter().find(|(known, _)| *known == word) {
            return Some(*measure);
        }
        let percent: u8 = word.strip_prefix('p')?.parse().ok()?;
        QUANTILE_PERCENTS
            .contains(&percent)
            .then_some(Self::Quantile(percent))
    }

    /// Returns whether the measure is a share of values, not a change of a figure.
    pub fn is_share(self) -> bool {
        use Measure::{Common, Infinite, Nan, Negative, Nulls, Zeros};
        matches!(self, Nulls | Zeros | Negative | Nan | Infinite | Common)
    }

    /// Returns whether columns of this kind have the figure.
    pub fn is_of(self, of: Option<MeasuredColumn>) -> bool {
        match (self, of) {
            (Measure::Nulls, _) => true,
            (_, None) => false,
            (Measure::Length, of) => of == Some(MeasuredColumn::Length),
            (Measure::Mean, of) => of != Some(MeasuredColumn::Length),
            _ => true,
        }
    }

    /// Returns a reading of the new version: a share as it is, or a change from the serving
    /// version. `None` if the figure is unknown in either version.
    pub fn of_column(self, sides: &Sides<'_>) -> Option<Reading> {
        if !self.is_share() {
            return self.change(sides);
        }
        let value = match self {
            Measure::Nulls => sides.nulls?.after?,
            _ => self.share(sides.pair?.after.as_ref()?)?,
        };
        let column = named_column(sides.column);
        let seen = format!("{}% of {column} {}", percent_text(value), self.are());
        Some(Reading { value, seen })
    }

    /// Returns the change from the serving version to the new one; shares in points. `None` if the
    /// figure is unknown in one version, or would say little.
    pub fn of_any_column(self, sides: &Sides<'_>) -> Option<Reading> {
        if self == Measure::Nulls {
            let nulls = sides.nulls?;
            return Some(self.rise(sides.column, nulls.before?, nulls.after?));
        }
        let (before, after) = both(sides)?;
        let few = before.values.min(after.values) < LEAST_VALUES;
        let is_time_or_truth = matches!(before.of, MeasuredColumn::Time | MeasuredColumn::Truth);
        match self {
            // Values that are not numbers matter even if there are few values.
            Measure::Nan | Measure::Infinite => {}
            // `lost` and `new` cover changes of keys.
            _ if few || sides.pair?.is_key => return None,
            // Such a column has a different figure, or none.
            _ if !self.is_of(Some(before.of)) => return None,
            // Times are later every night; for booleans `common` says the same.
            Measure::Zeros if is_time_or_truth => return None,
            Measure::Shift if is_time_or_truth => return None,
            // The lengths of most texts are nearly the same: one byte more is a large relative
            // change.
            Measure::Shift | Measure::Std if before.of == MeasuredColumn::Length => return None,
            Measure::Shift | Measure::Std if before.range.as_ref()?.spread() <= 0.0 => return None,
            // A few values dominate the deviation, and these differ every night.
            Measure::Std if is_heavy_tailed(before.range.as_ref()?) => return None,
            Measure::Distinct if before.distinct? < LEAST_DISTINCT => return None,
            _ => {}
        }
        match self.is_share() {
            true => Some(self.rise(sides.column, self.share(before)?, self.share(after)?)),
            false => self.change(sides),
        }
    }

    /// Returns whether a version has the figure of a column.
    pub fn is_known(self, profile: Option<&ColumnProfile>) -> bool {
        profile.is_some_and(|profile| match self {
            _ if self.is_share() => self.share(profile).is_some(),
            Measure::Shift => profile.range.is_some(),
            _ => self.figure(profile).is_some(),
        })
    }

    fn rise(self, column: &str, before: f64, after: f64) -> Reading {
        let value = match self {
            // A drop of the share, in which values lost their sign, is as wrong.
            Measure::Negative => (after - before).abs(),
            _ => after - before,
        };
        let (column, from, to) = (
            named_column(column),
            percent_text(before),
            percent_text(after),
        );
        let seen = match self {
            Measure::Nulls => format!("nulls of {column} from {from}% to {to}%"),
            _ => format!(
                "values of {column} that {} from {from}% to {to}%",
                self.are()
            ),
        };
        Reading { value, seen }
    }

    fn are(self) -> &'static str {
        match self {
            Measure::Nulls => "are null",
            Measure::Zeros => "are zero",
            Measure::Negative => "are negative",
            Measure::Nan => "are not a number",
            Measure::Infinite => "are infinite",
            _ => "are the most frequent value",
        }
    }

    fn share(self, profile: &ColumnProfile) -> Option<f64> {
        let count = match self {
            Measure::Zeros => profile.zeros,
            Measure::Negative => profile.negative,
            Measure::Nan => profile.nan,
            Measure::Infinite => profile.infinite,
            _ => return profile.common,
        };
        Some(profile.share(count))
    }

    fn change(self, sides: &Sides<'_>) -> Option<Reading> {
        let (before, after) = both(sides)?;
        let column = &named_column(sides.column);
        if self == Measure::Shift {
            return shift(column, before.range.as_ref()?, after.range.as_ref()?);
        }
        let was = self.figure(before)?;
        let Some(is) = self.figure(after) else {
            return self.overflow(column, was, after);
        };
        let value = match (was == is, was == 0.0) {
            (true, _) => 0.0,
            (_, true) => f64::INFINITY.copysign(is),
            _ => (is - was) / was.abs(),
        };
        let sign = if value > 0.0 { "+" } else { "" };
        let (from, to, change) = (shown(was), shown(is), percent_text(value));
        let seen = format!("{self} of {column} from {from} to {to} ({sign}{change}%)");
        Some(Reading { value, seen })
    }

    /// Returns the reading of a figure whose sums exceed the range of a double in the new version:
    /// no limit passes it.
    fn overflow(self, column: &str, was: f64, after: &ColumnProfile) -> Option<Reading> {
        let range = after.range.as_ref()?;
        let (from, least, greatest) = (shown(was), shown(range.min), shown(range.max));
        let seen = format!(
            "{self} of {column} from {from} to none: its values from {least} to {greatest} are too large to \
             be added up"
        );
        Some(Reading {
            value: f64::NAN,
            seen,
        })
    }

    fn figure(self, profile: &ColumnProfile) -> Option<f64> {
        if self == Measure::Distinct {
            return profile.distinct.map(|distinct| distinct as f64);
        }
        let range = profile.range.as_ref()?;
        Some(match self {
            Measure::Std => range.std?,
            Measure::Min => range.min,
            Measure::Max => range.max,
            Measure::Quantile(percent) => range.quantile(percent)?,
            _ => range.mean?,
        })
    }
}

/// Returns how far the quantiles moved. It is not a number, which no limit passes, if the quantiles
/// are too far apart to know that.
fn shift(column: &str, before: &ValueRange, after: &ValueRange) -> Option<Reading> {
    let (spread, distance) = (before.spread(), after.distance(before));
    let (value, how_far) = match (distance == 0.0, spread > 0.0) {
        (true, _) => (0.0, "did not move".to_owned()),
        (_, false) => (
            f64::INFINITY,
            "moved, and the serving version's 5% and 95% quantiles are equal".to_owned(),
        ),
        _ if !spread.is_finite() || !distance.is_finite() => {
            (f64::NAN, "lie too far apart to be compared".to_owned())
        }
        _ => {
            let value = distance / spread;
            let how_far = format!(
                "moved by {}% of the distance between the serving version's 5% and 95% quantiles",
                percent_text(value)
            );
            (value, how_far)
        }
    };
    let (from, to) = (shown(before.quantile(50)?), shown(after.quantile(50)?));
    let seen = format!("quantiles of {column} {how_far}; its median from {from} to {to}");
    Some(Reading { value, seen })
}

/// Returns whether the outer quantiles are so far from the median that the extreme values dominate
/// the standard deviation. No normal or exponential distribution has such quantiles.
fn is_heavy_tailed(range: &ValueRange) -> bool {
    let quantiles = (range.quantile(1), range.quantile(50), range.quantile(99));
    let (Some(first), Some(median), Some(last)) = quantiles else {
        return false;
    };
    (last - median).max(median - first) >= LONGEST_TAIL * range.spread()
}

fn both<'a>(sides: &Sides<'a>) -> Option<(&'a ColumnProfile, &'a ColumnProfile)> {
    let pair = sides.pair?;
    let (before, after) = (pair.before.as_ref()?, pair.after.as_ref()?);
    // A number and a text differ in the schema.
    (before.of == after.of).then_some((before, after))
}

/// Returns a fraction as a percentage with at most two digits after the point.
pub fn percent(fraction: f64) -> f64 {
    (fraction * 10_000.0).round() / 100.0
}

/// Returns the percentage as text. A share of less than 0.01% keeps two digits, and a change of a
/// million percent or more has an exponent.
pub fn percent_text(fraction: f64) -> String {
    let exact = fraction * 100.0;
    match exact.abs() {
        size if size >= 1e6 && size.is_finite() => format!("{exact:.1e}"),
        size if size > 0.0 && size < 0.01 => shortest(exact, 1),
        _ => (percent(fraction) + 0.0).to_string(),
    }
}

/// Formats a number with up to this many digits after the first one, without trailing zeros.
pub fn shortest(number: f64, digits: usize) -> String {
    let rounded: f64 = format!("{number:.digits$e}").parse().unwrap_or(number);
    rounded.to_string()
}

/// Formats a number with six digits.
pub fn shown(number: f64) -> String {
    // Zero has no sign.
    let number = number + 0.0;
    let size = number.abs();
    match (1e-4..1e15).contains(&size) || size == 0.0 {
        true => {
            let digits = (5 - size.max(1.0).log10() as i32).max(0) as usize;
            let text = format!("{number:.digits$}");
            match text.contains('.') {
                true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
                false => text,
            }
        }
        false => format!("{number:.5e}"),
    }
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match WORDS.iter().find(|(_, measure)| measure == self) {
            Some((word, _)) => f.write_str(word),
            None => match self {
                Measure::Quantile(percent) => write!(f, "p{percent}"),
                _ => Ok(()),
            },
        }
    }
}
