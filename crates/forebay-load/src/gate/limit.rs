//! How limits are written.

use std::fmt;
use std::str::FromStr;

use forebay_engine::Altered;

/// One condition for the swap.
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

/// What a bound looks at.
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

/// What a difference of the schemas does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaLimit {
    pub what: Altered,
    /// Only of this column, and of what is in it.
    pub column: Option<String>,
    pub holds: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{text}' is no limit: write rows>-20%, bytes<50%, lost<10%, new<30%, changed<90%, nulls<5% or \
     nulls(COLUMN)<1%; of the schema {}, each =hold or =report, as in column-gone=report or \
     type-changed(COLUMN)=hold",
    schema_words()
)]
pub struct LimitError {
    text: String,
}

fn schema_words() -> String {
    Altered::ALL.map(Altered::word).join(", ")
}

impl FromStr for Limit {
    type Err = LimitError;

    fn from_str(text: &str) -> Result<Self, LimitError> {
        let parsed = match text.trim_end().strip_suffix('%') {
            Some(rest) => share(rest).map(Limit::Share),
            None => schema(text).map(Limit::Schema),
        };
        parsed.ok_or_else(|| LimitError {
            text: text.to_owned(),
        })
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
        "nulls" => Metric::Nulls,
        other => Metric::NullsOf(in_brackets(other.strip_prefix("nulls")?)?.to_owned()),
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

impl Limit {
    /// Whether both are about the same, so that the one takes the place of the other.
    pub fn replaces(&self, other: &Limit) -> bool {
        match (self, other) {
            (Limit::Share(a), Limit::Share(b)) => a.metric == b.metric && a.relation == b.relation,
            (Limit::Schema(a), Limit::Schema(b)) => a.what == b.what && a.column == b.column,
            _ => false,
        }
    }
}

impl SchemaLimit {
    /// Whether it says what becomes of a difference in this column.
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

impl fmt::Display for ShareLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let relation = match self.relation {
            Relation::Above => '>',
            Relation::Below => '<',
        };
        write!(f, "{}{relation}{}%", self.metric, percent(self.value))
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

/// A fraction as a percentage with at most two digits behind the point.
pub fn percent(fraction: f64) -> f64 {
    (fraction * 10_000.0).round() / 100.0
}
