//! Parses and prints limits.

use std::fmt;
use std::str::FromStr;

use forebay_engine::Altered;

use super::measure::{Measure, shortest};

/// A condition for the swap.
#[derive(Debug, Clone, PartialEq)]
pub enum Limit {
    /// `rows>-20%`
    Share(ShareLimit),
    /// `column-gone=hold`
    Schema(SchemaLimit),
}

/// A bound for a number.
#[derive(Debug, Clone, PartialEq)]
pub struct ShareLimit {
    pub metric: Metric,
    pub relation: Relation,
    /// As a fraction: 0.2 for 20%.
    pub value: f64,
}

/// The metric that a bound limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Metric {
    Rows,
    Bytes,
    Lost,
    New,
    Changed,
    /// A figure of each column, or of one.
    Column(Measure, Option<String>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relation {
    Above,
    Below,
}

/// The action for a difference of the schemas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaLimit {
    pub what: Altered,
    /// Applies only to this column and the columns nested in it.
    pub column: Option<String>,
    pub holds: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    #[error(
        "'{text}' is not a limit: write rows>-20%, bytes<50%, lost<10%, new<30%, changed<90%, nulls<5%, \
         nulls(COLUMN)<1% or mean(COLUMN)<20%, likewise zeros, negative, nan, inf, common, shift, std, min, \
         max, median, p5, p95, distinct, length; of the schema {}, each =hold or =report, as in \
         column-gone=report or type-changed(COLUMN)=hold",
        schema_words()
    )]
    Unknown { text: String },
    #[error(
        "'{text}' is refused: write more than 0% after <, as in {metric}<20%{}",
        if *is_share { "" } else { "; a fall is bounded by >, as in rows>-20%" }
    )]
    NothingBelow {
        text: String,
        metric: Metric,
        is_share: bool,
    },
    #[error(
        "'{text}' lets no version pass, as shares end at 100%: write less after >, as in {metric}>20%"
    )]
    NothingAbove { text: String, metric: Metric },
}

fn schema_words() -> String {
    Altered::ALL.map(Altered::word).join(", ")
}

impl FromStr for Limit {
    type Err = LimitError;

    fn from_str(text: &str) -> Result<Self, LimitError> {
        let text = text.to_owned();
        let parsed = match text.trim_end().strip_suffix('%') {
            Some(rest) => share(rest).map(Limit::Share),
            None => schema(&text).map(Limit::Schema),
        };
        match parsed {
            None => Err(LimitError::Unknown { text }),
            Some(Limit::Share(limit))
                if limit.relation == Relation::Below && limit.value <= 0.0 =>
            {
                Err(LimitError::NothingBelow {
                    text,
                    is_share: limit.metric.is_share(),
                    metric: limit.metric,
                })
            }
            Some(Limit::Share(limit))
                if limit.relation == Relation::Above
                    && limit.metric.is_share()
                    && limit.value >= 1.0 =>
            {
                Err(LimitError::NothingAbove {
                    text,
                    metric: limit.metric,
                })
            }
            Some(limit) => Ok(limit),
        }
    }
}

fn share(text: &str) -> Option<ShareLimit> {
    let (metric, rest) = text.split_at(text.rfind(['<', '>'])?);
    let relation = match rest.starts_with('>') {
        true => Relation::Above,
        false => Relation::Below,
    };
    let percent: f64 = rest[1..].trim().parse().ok()?;
    let metric = match metric.trim() {
        "rows" => Metric::Rows,
        "bytes" => Metric::Bytes,
        "lost" => Metric::Lost,
        "new" => Metric::New,
        "changed" => Metric::Changed,
        other => {
            let (word, rest) = other.split_at(other.find('(').unwrap_or(other.len()));
            let column = match rest {
                "" => None,
                rest => Some(in_brackets(rest)?.to_owned()),
            };
            Metric::Column(Measure::parse(word.trim_end())?, column)
        }
    };
    percent.is_finite().then(|| ShareLimit {
        metric,
        relation,
        value: percent / 100.0,
    })
}

fn schema(text: &str) -> Option<SchemaLimit> {
    let (left, verdict) = text.rsplit_once('=')?;
    let holds = match verdict.trim() {
        "hold" => true,
        "report" => false,
        _ => return None,
    };
    let left = left.trim();
    let (word, rest) = left.split_at(left.find('(').unwrap_or(left.len()));
    let what = Altered::ALL.into_iter().find(|what| what.word() == word)?;
    let column = match rest {
        "" => None,
        _ if !what.is_of_column() => return None,
        rest => Some(in_brackets(rest)?.to_owned()),
    };
    Some(SchemaLimit {
        what,
        column,
        holds,
    })
}

fn in_brackets(text: &str) -> Option<&str> {
    let inside = text.strip_prefix('(')?.strip_suffix(')')?;
    (!inside.is_empty()).then_some(inside)
}

impl Metric {
    /// Returns whether the metric is a share, from 0% to 100%.
    pub fn is_share(&self) -> bool {
        match self {
            Metric::Rows | Metric::Bytes => false,
            Metric::Lost | Metric::New | Metric::Changed => true,
            Metric::Column(measure, _) => measure.is_share(),
        }
    }
}

impl Limit {
    /// Returns whether both limit the same metric, so that one replaces the other.
    pub fn replaces(&self, other: &Limit) -> bool {
        match (self, other) {
            (Limit::Share(a), Limit::Share(b)) => a.metric == b.metric && a.relation == b.relation,
            (Limit::Schema(a), Limit::Schema(b)) => a.what == b.what && a.column == b.column,
            _ => false,
        }
    }
}

impl SchemaLimit {
    /// Returns whether the limit decides about a difference in this column.
    pub fn is_for(&self, what: Altered, column: Option<&str>) -> bool {
        let covers = |own: &str| {
            let rest = column.and_then(|column| column.strip_prefix(own));
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        self.what == what && self.column.as_deref().is_none_or(covers)
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Limit::Share(limit) => limit.fmt(f),
            Limit::Schema(limit) => limit.fmt(f),
        }
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Metric::Column(measure, None) => return measure.fmt(f),
            Metric::Column(measure, Some(column)) => return write!(f, "{measure}({column})"),
            Metric::Rows => "rows",
            Metric::Bytes => "bytes",
            Metric::Lost => "lost",
            Metric::New => "new",
            Metric::Changed => "changed",
        })
    }
}

impl fmt::Display for ShareLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let relation = match self.relation {
            Relation::Above => '>',
            Relation::Below => '<',
        };
        // Twelve digits are more than anyone writes. They hide the rounding of doubles.
        let percent = shortest(self.value * 100.0, 11);
        write!(f, "{}{relation}{percent}%", self.metric)
    }
}

impl fmt::Display for SchemaLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.what.word())?;
        if let Some(column) = &self.column {
            write!(f, "({column})")?;
        }
        f.write_str(if self.holds { "=hold" } else { "=report" })
    }
}
