//! The gate before a swap: limits for how far a version may differ from the one that serves.
//!
//! A limit is written `METRIC>VALUE%` or `METRIC<VALUE%` and says what must hold:
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

use std::fmt;
use std::str::FromStr;

use forebay_engine::Comparison;
use serde::Serialize;

/// Limits in force unless others are given for the same metric and direction.
pub const DEFAULT_LIMITS: [&str; 4] = ["rows>-20%", "bytes>-30%", "lost<20%", "nulls<10%"];

/// What a limit looks at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Metric {
    Rows,
    Bytes,
    Lost,
    New,
    Changed,
    /// The rise of the null share of each column.
    Nulls,
    /// The null share of one column.
    NullsOf(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relation {
    Above,
    Below,
}

/// One condition for the swap.
#[derive(Debug, Clone, PartialEq)]
pub struct Limit {
    pub metric: Metric,
    pub relation: Relation,
    /// As a fraction: 0.2 for 20%.
    pub value: f64,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{text}' is no limit: write rows>-20%, bytes<50%, lost<10%, new<30%, changed<90%, nulls<5% or \
     nulls(COLUMN)<1%"
)]
pub struct LimitError {
    text: String,
}

impl FromStr for Limit {
    type Err = LimitError;

    fn from_str(text: &str) -> Result<Self, LimitError> {
        let wrong = || LimitError {
            text: text.to_owned(),
        };
        let at = text.rfind(['<', '>']).ok_or_else(wrong)?;
        let (metric, rest) = text.split_at(at);
        let relation = if rest.starts_with('>') {
            Relation::Above
        } else {
            Relation::Below
        };
        let number = rest[1..].trim().strip_suffix('%').ok_or_else(wrong)?;
        let percent: f64 = number.trim().parse().map_err(|_| wrong())?;
        if !percent.is_finite() {
            return Err(wrong());
        }
        let metric = match metric.trim() {
            "rows" => Metric::Rows,
            "bytes" => Metric::Bytes,
            "lost" => Metric::Lost,
            "new" => Metric::New,
            "changed" => Metric::Changed,
            "nulls" => Metric::Nulls,
            other => {
                let column = other
                    .strip_prefix("nulls(")
                    .and_then(|rest| rest.strip_suffix(')'));
                Metric::NullsOf(column.ok_or_else(wrong)?.to_owned())
            }
        };
        Ok(Self {
            metric,
            relation,
            value: percent / 100.0,
        })
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Metric::Rows => "rows",
            Metric::Bytes => "bytes",
            Metric::Lost => "lost",
            Metric::New => "new",
            Metric::Changed => "changed",
            Metric::Nulls => "nulls",
            Metric::NullsOf(column) => return write!(f, "nulls({column})"),
        })
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let relation = if self.relation == Relation::Above {
            '>'
        } else {
            '<'
        };
        write!(f, "{}{relation}{}%", self.metric, rounded(self.value))
    }
}

/// The defaults, with each of `given` in place of the one of its metric and direction.
pub fn limits(given: &[Limit]) -> Vec<Limit> {
    let defaults = DEFAULT_LIMITS
        .iter()
        .filter_map(|text| text.parse::<Limit>().ok());
    let replaced = |limit: &Limit| {
        given
            .iter()
            .any(|new| new.metric == limit.metric && new.relation == limit.relation)
    };
    defaults
        .filter(|limit| !replaced(limit))
        .chain(given.iter().cloned())
        .collect()
}

/// What one limit saw.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    pub limit: String,
    /// In plain words.
    pub seen: String,
    pub passed: bool,
}

/// Holds every limit against the comparison with the serving version.
pub fn check(limits: &[Limit], comparison: &Comparison) -> Vec<Finding> {
    limits
        .iter()
        .flat_map(|limit| check_one(limit, comparison))
        .collect()
}

fn check_one(limit: &Limit, seen: &Comparison) -> Vec<Finding> {
    let relative = |what: &str, before: u64, after: u64| {
        let change = if before == after {
            0.0
        } else if before == 0 {
            f64::INFINITY
        } else {
            after as f64 / before as f64 - 1.0
        };
        let sign = if change > 0.0 { "+" } else { "" };
        let text = format!("{what} {before} to {after} ({sign}{}%)", rounded(change));
        vec![finding(limit, change, text)]
    };
    let share = |share: &forebay_engine::Share, what: &str| {
        let text = format!(
            "{}% {what} ({} looked at)",
            rounded(share.fraction()),
            share.looked_at
        );
        vec![finding(limit, share.fraction(), text)]
    };
    match &limit.metric {
        Metric::Rows if seen.rows_are_exact => relative("rows", seen.rows_before, seen.rows_after),
        Metric::Rows => relative("rows, estimated,", seen.rows_before, seen.rows_after),
        Metric::Bytes => relative("bytes", seen.bytes_before, seen.bytes_after),
        Metric::Lost => share(&seen.lost, "of the serving version's keys are gone"),
        Metric::New => share(&seen.new, "of the new version's keys are new"),
        Metric::Changed => share(&seen.changed, "of the values changed"),
        Metric::Nulls => seen
            .nulls
            .iter()
            .filter_map(|nulls| null_rise(limit, nulls))
            .collect(),
        Metric::NullsOf(column) => {
            let of = seen.nulls.iter().find(|nulls| nulls.column == *column);
            let after = of.and_then(|nulls| nulls.after);
            vec![match after {
                Some(share) => {
                    let text = format!("{}% of {column} are null", rounded(share));
                    finding(limit, share, text)
                }
                None => Finding {
                    limit: limit.to_string(),
                    seen: format!("nulls of a column {column} are not known of the new version"),
                    passed: false,
                },
            }]
        }
    }
}

/// Told of only where there is something to tell: a table may have hundreds of columns.
fn null_rise(limit: &Limit, nulls: &forebay_engine::NullShare) -> Option<Finding> {
    let (before, after) = (nulls.before?, nulls.after?);
    let (before_text, after_text) = (rounded(before), rounded(after));
    let text = format!(
        "nulls of {} from {before_text}% to {after_text}%",
        nulls.column
    );
    let finding = finding(limit, after - before, text);
    (!finding.passed).then_some(finding)
}

fn finding(limit: &Limit, value: f64, seen: String) -> Finding {
    let passed = match limit.relation {
        Relation::Above => value > limit.value,
        Relation::Below => value < limit.value,
    };
    Finding {
        limit: limit.to_string(),
        seen,
        passed,
    }
}

/// A fraction as a percentage with at most two digits behind the point.
fn rounded(fraction: f64) -> f64 {
    (fraction * 10_000.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_engine::{NullShare, Share};
    use forebay_run::row::Schema;

    fn comparison() -> Comparison {
        let same = Schema::new(Vec::new());
        Comparison {
            rows_before: 1000,
            rows_after: 700,
            rows_are_exact: true,
            bytes_before: 0,
            bytes_after: 10,
            lost: Share {
                looked_at: 100,
                found: 31,
            },
            new: Share::default(),
            changed: Share {
                looked_at: 100,
                found: 100,
            },
            nulls: vec![
                NullShare {
                    column: "a".into(),
                    before: Some(0.1),
                    after: Some(0.5),
                },
                NullShare {
                    column: "b".into(),
                    before: Some(0.1),
                    after: Some(0.1),
                },
                NullShare {
                    column: "new".into(),
                    before: None,
                    after: Some(1.0),
                },
            ],
            schema: forebay_engine::SchemaChange::between(&same, &same),
        }
    }

    fn outcome(limit: &str) -> Vec<(String, bool)> {
        let findings = check(&[limit.parse().unwrap()], &comparison());
        findings
            .into_iter()
            .map(|finding| (finding.seen, finding.passed))
            .collect()
    }

    #[test]
    fn limits_say_what_they_saw() {
        assert_eq!(
            outcome("rows>-20%"),
            [("rows 1000 to 700 (-30%)".into(), false)]
        );
        assert_eq!(
            outcome("rows > -30.5%"),
            [("rows 1000 to 700 (-30%)".into(), true)]
        );
        assert!(!outcome("bytes<1000%")[0].1);
        assert!(!outcome("lost<30%")[0].1);
        assert!(outcome("new<1%")[0].1);
        assert!(!outcome("changed<100%")[0].1);
        assert_eq!(
            outcome("nulls<10%"),
            [("nulls of a from 10% to 50%".into(), false)]
        );
        assert!(outcome("nulls<41%").is_empty());
        assert_eq!(
            outcome("nulls(b)<11%"),
            [("10% of b are null".into(), true)]
        );
        assert!(!outcome("nulls(gone)<11%")[0].1);
    }

    #[test]
    fn limits_replace_the_default_of_their_kind() {
        let given: Vec<Limit> = ["rows>-50%", "rows<10%"]
            .map(|text| text.parse().unwrap())
            .into();
        let texts: Vec<String> = limits(&given).iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            [
                "bytes>-30%",
                "lost<20%",
                "nulls<10%",
                "rows>-50%",
                "rows<10%"
            ]
        );
    }

    #[test]
    fn what_is_no_limit_is_refused_with_examples() {
        for text in [
            "",
            "rows",
            "rows>",
            "rows>-20",
            "rows>x%",
            "cats<1%",
            "nulls(<1%",
            "rows>inf%",
        ] {
            let error = text.parse::<Limit>().unwrap_err().to_string();
            assert!(error.contains("rows>-20%"), "{error}");
        }
    }
}
