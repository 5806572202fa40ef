//! Checks a new version against limits before a swap: how far it may differ from the serving one.
//!
//! A limit for a number is written `METRIC>VALUE%` or `METRIC<VALUE%` and says what must hold:
//!
//! | metric          | what is compared with VALUE                                          |
//! |-----------------|----------------------------------------------------------------------|
//! | `rows`          | the change of the number of rows, relative to the serving version    |
//! | `bytes`         | the change of the bytes of keys and values, likewise                 |
//! | `lost`          | the share of the serving version's keys that the new one lacks       |
//! | `new`           | the share of the new version's keys that the serving one lacks       |
//! | `changed`       | of the keys in both, the share with another value                    |
//!
//! A limit for columns applies to every column, each alone. `METRIC(COLUMN)` applies to one column
//! and replaces the limit for all:
//!
//! | metric | for every column | for one column |
//! |--------|------------------|----------------|
//! | `nulls`, `zeros`, `negative`, `nan`, `inf`, `common` | the rise of the share of such values, in points (of `negative` the change) | the share in the new version |
//! | `shift` | how far the quantiles moved, as a share of the serving version's spread | likewise |
//! | `mean`, `std`, `min`, `max`, `median`, `p5`, `distinct`, `length` | the change relative to the serving version; `<` bounds it either way | likewise |
//!
//! Rows, bytes and nulls are exact. Shares of keys are estimated from a sample of keys; `common`,
//! `distinct` and quantiles from a sample of rows.
//!
//! A limit for the schema is written `WHAT=hold` or `WHAT=report`, with
//! [`forebay_engine::Altered::word`] for WHAT. It says what a difference of that kind does.
//! `column-gone(COLUMN)=report` applies to one column and the columns nested in it; it has
//! precedence over the limit for all.

mod columns;
mod limit;
mod measure;
mod paths;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod value_tests;

use forebay_engine::{Alteration, Comparison, ReadError, Share};
use serde::Serialize;

pub use columns::{GateError, check_columns};
pub use limit::{Limit, LimitError, Metric, Relation, SchemaLimit, ShareLimit};

use crate::near::is_word;
use columns::check_column;
pub use measure::{Measure, shown};
use measure::{percent, percent_text};
pub use paths::check_paths;

/// The limits in force, unless the caller gives others for the same metrics. A schema difference
/// holds the swap if existing queries would get no answer, or other answers. The limits for values
/// are those that docs/reference/column-limits.md tests on thirty nights of real data.
pub const DEFAULT_LIMITS: [&str; 21] = [
    "rows>-20%",
    "bytes>-30%",
    "lost<20%",
    "nulls<10%",
    "zeros<20%",
    "negative<50%",
    "nan<0.1%",
    "inf<0.1%",
    "common<30%",
    "shift<20%",
    "std>-60%",
    "std<200%",
    "distinct>-80%",
    "column-gone=hold",
    "column-new=report",
    "type-changed=hold",
    "type-widened=report",
    "value-kind=hold",
    "key-template=hold",
    "order-lost=hold",
    "order-gained=report",
];

/// Returns the defaults, with each of `given` in place of the limit it replaces: a default, or an
/// earlier one of `given`.
pub fn limits(given: &[Limit]) -> Vec<Limit> {
    let defaults = DEFAULT_LIMITS.iter();
    let defaults = defaults.filter_map(|text| text.parse::<Limit>().ok());
    let replaced = |limit: &Limit| given.iter().any(|new| new.replaces(limit));
    let last = given.iter().enumerate().filter(|(at, limit)| {
        let later = &given[at + 1..];
        !later.iter().any(|new| new.replaces(limit))
    });
    defaults
        .filter(|limit| !replaced(limit))
        .chain(last.map(|(_, limit)| limit.clone()))
        .collect()
}

/// The result of checking one limit.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// The limit as written.
    pub limit: String,
    /// In plain words.
    pub seen: String,
    /// Whether the version keeps the limit.
    pub passed: bool,
    /// Whether to report the result even if the version passed.
    #[serde(skip)]
    pub reported: bool,
    /// The limit that would let the version pass.
    #[serde(skip)]
    pub remedy: Option<String>,
}

/// The reason that holds a version if the serving version changed since its push began, in place of
/// a limit.
pub const MOVED_MEANWHILE: &str = "rolled back or swapped meanwhile";

/// Checks every limit against the comparison with the serving version.
pub fn check(limits: &[Limit], comparison: &Comparison) -> Vec<Finding> {
    let shares = limits.iter().flat_map(|limit| match limit {
        Limit::Share(limit) => check_share(limits, limit, comparison),
        Limit::Schema(_) => Vec::new(),
    });
    let alterations = comparison.schema.alterations.iter();
    let schema = alterations.filter_map(|alteration| check_alteration(limits, alteration));
    let unknown = values_unknown(comparison);
    shares.chain(schema).chain(unknown).collect()
}

/// Returns a finding if values could not be compared.
fn values_unknown(comparison: &Comparison) -> Option<Finding> {
    let profiles = &comparison.profiles;
    let (seen, reported) = match profiles.is_empty() {
        true => return None,
        false if profiles.iter().all(|pair| pair.before.is_none()) => (
            "not compared: the version that serves has no statistics of them; the next push is compared \
             with this one",
            true,
        ),
        false if profiles.iter().all(|pair| pair.after.is_none()) => (
            "not compared: of a version that goes on with another one they are not counted",
            false,
        ),
        false => return None,
    };
    Some(Finding {
        limit: "values of columns".to_owned(),
        seen: seen.to_owned(),
        passed: true,
        reported,
        remedy: None,
    })
}

/// Returns the finding for a serving version that cannot be read, so that no limit can be checked.
pub fn not_compared(serving: u64, error: &ReadError) -> Finding {
    Finding {
        limit: format!("a comparison with version {serving}"),
        seen: format!(
            "it serves, and cannot be read: {error} (push again if that has passed; forebay verify looks for damage)"
        ),
        passed: false,
        reported: false,
        remedy: None,
    }
}

/// Checks a difference of the schemas. The last of the limits for the longest path decides.
fn check_alteration(limits: &[Limit], alteration: &Alteration) -> Option<Finding> {
    let column = alteration.column.as_deref();
    let limits = limits.iter().filter_map(|limit| match limit {
        Limit::Schema(limit) if limit.is_for(alteration.what, column) => Some(limit),
        _ => None,
    });
    let limit = limits.max_by_key(|limit| limit.column.as_ref().map_or(0, String::len))?;
    let remedy = SchemaLimit {
        what: alteration.what,
        column: alteration.column.clone(),
        holds: false,
    };
    Some(Finding {
        limit: limit.to_string(),
        seen: alteration.to_string(),
        passed: !limit.holds,
        reported: true,
        remedy: (limit.holds && column.is_none_or(is_word)).then(|| remedy.to_string()),
    })
}

fn check_share(limits: &[Limit], limit: &ShareLimit, seen: &Comparison) -> Vec<Finding> {
    let relative = |what: &str, before: u64, after: u64| {
        let change = if before == after {
            0.0
        } else if before == 0 {
            f64::INFINITY
        } else {
            after as f64 / before as f64 - 1.0
        };
        let sign = if change > 0.0 { "+" } else { "" };
        let text = format!(
            "{what} {before} to {after} ({sign}{}%)",
            percent_text(change)
        );
        vec![finding(limit, change, text)]
    };
    let share = |share: &Share, what: &str| {
        let text = format!(
            "{}% {what} ({} looked at)",
            percent_text(share.fraction()),
            share.looked_at
        );
        vec![finding(limit, share.fraction(), text)]
    };
    match &limit.metric {
        Metric::Rows if seen.rows_are_exact => relative("rows", seen.rows_before, seen.rows_after),
        Metric::Rows => relative("rows, estimated,", seen.rows_before, seen.rows_after),
        Metric::Bytes if seen.bytes_are_exact => {
            relative("bytes", seen.bytes_before, seen.bytes_after)
        }
        Metric::Bytes => relative("bytes, estimated,", seen.bytes_before, seen.bytes_after),
        Metric::Lost => share(&seen.lost, "of the serving version's keys are gone"),
        Metric::New => share(&seen.new, "of the new version's keys are new"),
        Metric::Changed => share(&seen.changed, "of the values changed"),
        Metric::Column(measure, column) => {
            check_column(limits, limit, *measure, column.as_deref(), seen)
        }
    }
}

fn finding(limit: &ShareLimit, value: f64, seen: String) -> Finding {
    let passed = match limit.relation {
        Relation::Above => value > limit.value,
        Relation::Below => value < limit.value,
    };
    Finding {
        limit: limit.to_string(),
        seen,
        passed,
        reported: false,
        remedy: (!passed).then(|| remedy(limit, value)).flatten(),
    }
}

/// The largest change that a suggested limit may allow.
const MOST_CHANGE: f64 = 10.0;

/// Returns the next limit in whole percents that the value passes; `None` if it would let
/// everything pass.
fn remedy(limit: &ShareLimit, value: f64) -> Option<String> {
    let percent = percent(value);
    let percent = match limit.relation {
        Relation::Above => percent.ceil() - 1.0,
        Relation::Below => percent.floor() + 1.0,
    };
    let value = percent / 100.0;
    let limits_something = match (limit.relation, limit.metric.is_share()) {
        (Relation::Above, true) => value >= 0.0,
        (Relation::Above, false) => value > -1.0,
        (Relation::Below, true) => value <= 1.0,
        (Relation::Below, false) => value <= MOST_CHANGE,
    };
    let fits = match &limit.metric {
        Metric::Column(_, Some(column)) => is_word(column),
        _ => true,
    };
    let proposed = || ShareLimit {
        value,
        ..limit.clone()
    };
    (limits_something && fits).then(|| proposed().to_string())
}
