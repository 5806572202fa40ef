//! Holds the rules given for columns: their types, and the losses allowed in them.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use arrow_schema::DataType;
use serde::{Deserialize, Serialize};

use super::{Changes, Loss};

/// A type given for a column or a place within it, which replaces the type in its sources.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GivenType {
    /// The column's name, or a path: `price.gross`, `tags[]`.
    pub path: String,
    pub data_type: DataType,
    pub loss: Loss,
}

impl GivenType {
    /// Creates a rule for a type that values have to fit exactly.
    pub fn exact(path: impl Into<String>, data_type: DataType) -> GivenType {
        GivenType {
            path: path.into(),
            data_type,
            loss: Loss::None,
        }
    }
}

/// The number of values of a column that a conversion changed, as a rule allows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lossy {
    /// The column, or the path of a field.
    pub column: String,
    /// The loss that was applied.
    pub how: Loss,
    /// How many.
    pub values: u64,
}

/// Returns whether a place equals another, or is within it.
pub(crate) fn holds(path: &str, place: &str) -> bool {
    let rest = place.strip_prefix(path);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

/// Splits a path into the column and the place within it. The column is the one with exactly this
/// name, else the longest one that the path begins with, else one that does not exist.
pub(crate) fn split_path(path: &str, is_column: impl Fn(&str) -> bool) -> (&str, &str) {
    if is_column(path) {
        return (path, "");
    }
    let ends = path.rmatch_indices(['.', '[']).map(|(at, _)| at);
    let end = ends.into_iter().find(|at| is_column(&path[..*at]));
    path.split_at(end.unwrap_or(path.len()))
}

/// The losses allowed, and the losses that happened.
#[derive(Debug, Default)]
pub struct Rules {
    rules: Vec<Rule>,
}

#[derive(Debug)]
struct Rule {
    path: String,
    /// The length in bytes of the column's name, with which the path begins.
    column: usize,
    loss: Loss,
    values: AtomicU64,
}

impl Rules {
    /// Creates rules from places and the losses allowed there. `is_column` says which names are
    /// columns. A column whose name is the whole path has precedence over a place within another
    /// column.
    pub fn new(
        losses: impl IntoIterator<Item = (String, Loss)>,
        is_column: impl Fn(&str) -> bool,
    ) -> Rules {
        let rule = |(path, loss): (String, Loss)| Rule {
            column: split_path(&path, &is_column).0.len(),
            path,
            loss,
            values: AtomicU64::new(0),
        };
        Rules {
            rules: losses.into_iter().map(rule).collect(),
        }
    }

    /// Creates the rules of those given columns that allow a loss.
    pub fn of_given(given: &[GivenType], is_column: impl Fn(&str) -> bool) -> Rules {
        let lossy = given.iter().filter(|given| given.loss != Loss::None);
        let losses = lossy.map(|given| (given.path.clone(), given.loss));
        Rules::new(losses, is_column)
    }

    /// Returns the rule of a place in a column: its own, or that of the nearest enclosing place.
    pub(super) fn of(&self, column: &str, path: &str) -> Option<usize> {
        let covers = |rule: &Rule| rule.path[..rule.column] == *column && holds(&rule.path, path);
        let rules = self.rules.iter().enumerate();
        rules
            .filter(|(_, rule)| covers(rule))
            .max_by_key(|(_, rule)| rule.path.len())
            .map(|(index, _)| index)
    }

    pub(super) fn loss(&self, rule: usize) -> Loss {
        self.rules[rule].loss
    }

    /// Counts the changes in rows that are kept.
    pub(crate) fn count(&self, changes: &Changes) {
        for (rule, values) in self.rules.iter().zip(&changes.0) {
            rule.values.fetch_add(*values, Relaxed);
        }
    }

    /// Returns the losses so far, one entry for each rule.
    pub fn lossy(&self) -> Vec<Lossy> {
        let lossy = |rule: &Rule| Lossy {
            column: rule.path.clone(),
            how: rule.loss,
            values: rule.values.load(Relaxed),
        };
        self.rules.iter().map(lossy).collect()
    }
}
