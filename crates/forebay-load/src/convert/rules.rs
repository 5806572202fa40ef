//! What was said of columns: their types, and what may be lost in them.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use arrow_schema::DataType;
use serde::{Deserialize, Serialize};

use super::{Changes, Loss};

/// A type given for a column, or for a place in one, in place of what its sources say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Given {
    /// The column's name, or a path: `price.gross`, `tags[]`.
    pub path: String,
    pub data_type: DataType,
    pub loss: Loss,
}

impl Given {
    /// A type that values have to fit exactly.
    pub fn exact(path: impl Into<String>, data_type: DataType) -> Given {
        Given {
            path: path.into(),
            data_type,
            loss: Loss::None,
        }
    }
}

/// How many values of a column were changed, as was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lossy {
    pub column: String,
    pub how: Loss,
    pub values: u64,
}

/// What may be lost, and what was.
#[derive(Debug, Default)]
pub struct Rules {
    rules: Vec<Rule>,
}

#[derive(Debug)]
struct Rule {
    path: String,
    loss: Loss,
    values: AtomicU64,
}

impl Rules {
    pub fn new(losses: impl IntoIterator<Item = (String, Loss)>) -> Rules {
        let rule = |(path, loss)| Rule {
            path,
            loss,
            values: AtomicU64::new(0),
        };
        Rules {
            rules: losses.into_iter().map(rule).collect(),
        }
    }

    /// Those of the columns given that allow a loss.
    pub fn of_given(given: &[Given]) -> Rules {
        let lossy = given.iter().filter(|given| given.loss != Loss::None);
        Rules::new(lossy.map(|given| (given.path.clone(), given.loss)))
    }

    /// The rule of a place: its own, or that of the nearest place around it.
    pub(super) fn of(&self, path: &str) -> Option<usize> {
        let covers = |rule: &Rule| {
            let rest = path.strip_prefix(rule.path.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        let rules = self.rules.iter().enumerate();
        rules
            .filter(|(_, rule)| covers(rule))
            .max_by_key(|(_, rule)| rule.path.len())
            .map(|(index, _)| index)
    }

    pub(super) fn loss(&self, rule: usize) -> Loss {
        self.rules[rule].loss
    }

    /// Counts what became of rows that are kept.
    pub(crate) fn count(&self, changes: &Changes) {
        for (rule, values) in self.rules.iter().zip(&changes.0) {
            rule.values.fetch_add(*values, Relaxed);
        }
    }

    /// What was lost so far, a rule each.
    pub fn lossy(&self) -> Vec<Lossy> {
        let lossy = |rule: &Rule| Lossy {
            column: rule.path.clone(),
            how: rule.loss,
            values: rule.values.load(Relaxed),
        };
        self.rules.iter().map(lossy).collect()
    }
}
