//! Checks limits for figures of columns.

use std::collections::HashMap;

use arrow_schema::{DataType, SchemaRef};
use forebay_engine::{Comparison, NullShare, ProfilePair};
use forebay_run::error::named_column;

use super::limit::{Limit, Metric, Relation, ShareLimit};
use super::measure::{Measure, Reading, Sides};
use super::{Finding, finding};
use crate::column_profile::measured;
use crate::near;

/// An error of a limit that cannot be checked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GateError {
    #[error(
        "the limit {limit} names the column '{column}', which the rows do not have{}; they have: {}",
        near::hint(column, columns.iter().map(String::as_str)),
        near::listed(columns.iter().map(String::as_str))
    )]
    UnknownColumn {
        limit: String,
        column: String,
        columns: Vec<String>,
    },
    /// An error of a limit of the schema. `place` says which of the two versions lacks the column.
    #[error(
        "the limit {limit} names the column '{column}', which {place}{}; columns there: {}",
        near::hint(column, columns.iter().map(String::as_str)),
        near::listed(columns.iter().map(String::as_str))
    )]
    UnknownPath {
        limit: String,
        column: String,
        place: &'static str,
        columns: Vec<String>,
    },
    #[error("the limit {limit} is of no use for the column '{column}': {problem}")]
    Type {
        limit: String,
        column: String,
        problem: &'static str,
    },
}

/// Refuses limits for columns that a new version of this schema will not have, or will have with
/// another type. Only the first `stored` columns are those of the rows.
pub fn check_columns(limits: &[Limit], schema: &SchemaRef, stored: usize) -> Result<(), GateError> {
    let fields = || schema.fields().iter().take(stored);
    for limit in limits {
        let Limit::Share(share) = limit else { continue };
        let Metric::Column(measure, Some(column)) = &share.metric else {
            continue;
        };
        let Some(field) = fields().find(|field| field.name() == column) else {
            return Err(GateError::UnknownColumn {
                limit: limit.to_string(),
                column: column.clone(),
                columns: fields().map(|field| field.name().clone()).collect(),
            });
        };
        let of = measured(field.data_type());
        if let Some(problem) = never_has(*measure, field.data_type()) {
            return Err(GateError::Type {
                limit: limit.to_string(),
                column: column.clone(),
                problem,
            });
        }
        if !measure.is_of(of) {
            return Err(GateError::Type {
                limit: limit.to_string(),
                column: column.clone(),
                problem: match (measure, of) {
                    (_, None) => {
                        "its values have neither numbers nor lengths; nulls(COLUMN) can be limited"
                    }
                    (Measure::Mean, _) => {
                        "its values are not numbers; length(COLUMN) is their mean length"
                    }
                    _ => "its values are numbers; mean(COLUMN) is their mean",
                },
            });
        }
    }
    Ok(())
}

/// Returns why no column of this type has a figure.
fn never_has(measure: Measure, kind: &DataType) -> Option<&'static str> {
    match measure {
        Measure::Nan | Measure::Infinite if measured(kind).is_some() && !kind.is_floating() => {
            Some("its values are no floating-point numbers, and are always finite")
        }
        Measure::Common | Measure::Distinct if kind.is_list() => {
            Some("lists are not held against each other; length(COLUMN) is their mean length")
        }
        _ => None,
    }
}

/// Both sides of every column of a comparison.
struct Columns<'a> {
    names: Vec<&'a str>,
    nulls: HashMap<&'a str, &'a NullShare>,
    pairs: HashMap<&'a str, &'a ProfilePair>,
}

impl<'a> Columns<'a> {
    fn of(seen: &'a Comparison) -> Self {
        let nulls = seen.nulls.iter();
        let pairs = seen.profiles.iter();
        let mut names: Vec<&str> = nulls.clone().map(|nulls| &*nulls.column).collect();
        let more = pairs.clone().map(|pair| &*pair.column);
        let known: std::collections::HashSet<&str> = names.iter().copied().collect();
        names.extend(more.filter(|name| !known.contains(name)));
        Self {
            names,
            nulls: nulls.map(|nulls| (&*nulls.column, nulls)).collect(),
            pairs: pairs.map(|pair| (&*pair.column, pair)).collect(),
        }
    }

    fn sides(&self, column: &'a str) -> Sides<'a> {
        Sides {
            column,
            nulls: self.nulls.get(column).copied(),
            pair: self.pairs.get(column).copied(),
        }
    }
}

/// Checks a limit against columns. A limit for all columns skips those for which `limits` has one
/// of its own. It reports only the columns that break it, because a table may have hundreds.
pub fn check_column(
    limits: &[Limit],
    limit: &ShareLimit,
    measure: Measure,
    column: Option<&str>,
    seen: &Comparison,
) -> Vec<Finding> {
    let columns = Columns::of(seen);
    if let Some(column) = column {
        return vec![of_one(limit, measure, column, &columns.sides(column))];
    }
    let has_own = |name: &str| {
        limits.iter().any(|other| match other {
            Limit::Share(other) => {
                let own = Metric::Column(measure, Some(name.to_owned()));
                other.metric == own && other.relation == limit.relation
            }
            Limit::Schema(_) => false,
        })
    };
    let names = columns.names.iter().filter(|name| !has_own(name));
    let held = names.filter_map(|name| {
        let sides = columns.sides(name);
        let reading = measure.of_any_column(&sides)?;
        let found = judged(limit, measure, reading);
        (!found.passed).then(|| Finding {
            remedy: own_remedy(limit, measure, &sides),
            ..found
        })
    });
    held.collect()
}

fn of_one(limit: &ShareLimit, measure: Measure, column: &str, sides: &Sides<'_>) -> Finding {
    if let Some(reading) = measure.of_column(sides) {
        return judged(limit, measure, reading);
    }
    let (why, passed) = unknown(measure, sides.pair);
    Finding {
        limit: limit.to_string(),
        seen: format!("{measure} of column {}: {why}", named_column(column)),
        passed,
        reported: true,
        remedy: None,
    }
}

/// Explains why a figure of a column is not compared, and whether the version passes anyway. A
/// figure that can never be compared holds the version.
fn unknown(measure: Measure, pair: Option<&ProfilePair>) -> (&'static str, bool) {
    let (before, after) = match pair {
        Some(ProfilePair {
            before,
            after: Some(after),
            ..
        }) if measure != Measure::Nulls => (before.as_ref(), after),
        _ => return (NOT_COUNTED, false),
    };
    let Some(before) = before else {
        return (
            "not compared, as the version that serves has no figures of it",
            true,
        );
    };
    if before.of != after.of {
        return (
            "cannot be compared, as its values became of another kind",
            false,
        );
    }
    match (before.range.is_some(), after.range.is_some()) {
        (false, false) => (
            "none in both versions, as none of its values is finite",
            true,
        ),
        (true, false) => (
            "none in the new version, as none of its values is finite",
            false,
        ),
        (false, true) => (
            "none in the version that serves, as none of its values is finite there",
            false,
        ),
        (true, true) => (
            "none in the version that serves, as its values there are too large to be added up",
            false,
        ),
    }
}

const NOT_COUNTED: &str = "not counted in the new version, as a push onto another one (--onto) reads the rows that \
                           change and no others: leave out this limit, or push all rows";

fn judged(limit: &ShareLimit, measure: Measure, reading: Reading) -> Finding {
    let Reading { value, seen } = reading;
    // An upper bound limits changes in both directions.
    let bounded = match limit.relation {
        Relation::Below if !measure.is_share() => value.abs(),
        _ => value,
    };
    finding(limit, bounded, seen)
}

/// Returns a limit for this column alone that the version would keep.
fn own_remedy(limit: &ShareLimit, measure: Measure, sides: &Sides<'_>) -> Option<String> {
    let own = ShareLimit {
        metric: Metric::Column(measure, Some(sides.column.to_owned())),
        ..limit.clone()
    };
    judged(&own, measure, measure.of_column(sides)?).remedy
}
