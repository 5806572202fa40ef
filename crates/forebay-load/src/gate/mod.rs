//! The gate before a swap: limits for how far a version may differ from the one that serves.
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
//! | `nulls`         | for every column, the rise of its share of nulls, in points          |
//! | `nulls(COLUMN)` | the share of nulls of that column in the new version                 |
//!
//! Rows, bytes and nulls are exact; shares of keys are estimated from a sample.
//!
//! A limit for the schema is written `WHAT=hold` or `WHAT=report`, with
//! [`forebay_engine::Altered::word`] for WHAT, and says what a difference of that kind does.
//! `column-gone(COLUMN)=report` is for one column, and what is in it; it comes before the one for
//! all.

mod limit;

#[cfg(test)]
mod tests;

use forebay_engine::{Alteration, Comparison, NullShare, ReadError, Share};
use serde::Serialize;

pub use limit::{Limit, LimitError, Metric, Relation, SchemaLimit, ShareLimit};

use limit::percent;

/// Limits in force unless others are given for the same. A schema holds the swap where readers who
/// ask as they did would get nothing, or other answers.
pub const DEFAULT_LIMITS: [&str; 12] = [
    "rows>-20%",
    "bytes>-30%",
    "lost<20%",
    "nulls<10%",
    "column-gone=hold",
    "column-new=report",
    "type-changed=hold",
    "type-widened=report",
    "value-kind=hold",
    "key-template=hold",
    "order-lost=hold",
    "order-gained=report",
];

/// The defaults, with each of `given` in place of the one that it replaces.
pub fn limits(given: &[Limit]) -> Vec<Limit> {
    let defaults = DEFAULT_LIMITS.iter();
    let defaults = defaults.filter_map(|text| text.parse::<Limit>().ok());
    let replaced = |limit: &Limit| given.iter().any(|new| new.replaces(limit));
    defaults
        .filter(|limit| !replaced(limit))
        .chain(given.iter().cloned())
        .collect()
}

/// What one limit saw.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// The limit, as it is given.
    pub limit: String,
    /// In plain words.
    pub seen: String,
    /// Whether the version keeps it.
    pub passed: bool,
    /// Whether it is told even when it passed.
    #[serde(skip)]
    pub reported: bool,
    /// The limit that would let it pass.
    #[serde(skip)]
    pub remedy: Option<String>,
}

/// Holds every limit against the comparison with the serving version.
pub fn check(limits: &[Limit], comparison: &Comparison) -> Vec<Finding> {
    let shares = limits.iter().flat_map(|limit| match limit {
        Limit::Share(limit) => check_share(limit, comparison),
        Limit::Schema(_) => Vec::new(),
    });
    let alterations = comparison.schema.alterations.iter();
    let schema = alterations.filter_map(|alteration| check_alteration(limits, alteration));
    shares.chain(schema).collect()
}

/// Of a version that serves and cannot be read, so that no limit can be held against anything.
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

/// The last of the limits for the longest path decides.
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
        remedy: limit.holds.then(|| remedy.to_string()),
    })
}

fn check_share(limit: &ShareLimit, seen: &Comparison) -> Vec<Finding> {
    let relative = |what: &str, before: u64, after: u64| {
        let change = if before == after {
            0.0
        } else if before == 0 {
            f64::INFINITY
        } else {
            after as f64 / before as f64 - 1.0
        };
        let sign = if change > 0.0 { "+" } else { "" };
        let text = format!("{what} {before} to {after} ({sign}{}%)", percent(change));
        vec![finding(limit, change, text)]
    };
    let share = |share: &Share, what: &str| {
        let text = format!(
            "{}% {what} ({} looked at)",
            percent(share.fraction()),
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
        Metric::Nulls => seen
            .nulls
            .iter()
            .filter_map(|nulls| null_rise(limit, nulls))
            .collect(),
        Metric::NullsOf(column) => vec![nulls_of(limit, column, seen)],
    }
}

/// Told of only where there is something to tell: a table may have hundreds of columns.
fn null_rise(limit: &ShareLimit, nulls: &NullShare) -> Option<Finding> {
    let (before, after) = (nulls.before?, nulls.after?);
    let text = format!(
        "nulls of {} from {}% to {}%",
        nulls.column,
        percent(before),
        percent(after)
    );
    let finding = finding(limit, after - before, text);
    (!finding.passed).then_some(finding)
}

fn nulls_of(limit: &ShareLimit, column: &str, seen: &Comparison) -> Finding {
    let of = seen.nulls.iter().find(|nulls| nulls.column == column);
    match of.and_then(|nulls| nulls.after) {
        Some(share) => {
            let text = format!("{}% of {column} are null", percent(share));
            finding(limit, share, text)
        }
        None => Finding {
            limit: limit.to_string(),
            seen: format!("nulls of a column {column} are not known of the new version"),
            passed: false,
            reported: false,
            remedy: None,
        },
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

/// The next limit in whole percents that the value passes.
fn remedy(limit: &ShareLimit, value: f64) -> Option<String> {
    let percent = percent(value);
    let percent = match limit.relation {
        Relation::Above => percent.ceil() - 1.0,
        Relation::Below => percent.floor() + 1.0,
    };
    percent.is_finite().then(|| {
        let value = percent / 100.0;
        ShareLimit {
            value,
            ..limit.clone()
        }
        .to_string()
    })
}
