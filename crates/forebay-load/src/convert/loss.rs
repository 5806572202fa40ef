//! Defines how much a conversion may lose, and the result of converting one value.

use std::fmt;
use std::str::FromStr;

use arrow_schema::DataType;
use serde::{Deserialize, Serialize};

/// The loss allowed if a type cannot hold a value exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Loss {
    /// Nothing: the row is a bad row.
    #[default]
    None,
    /// To the nearest value of the type, halves away from zero; floats by IEEE's rule.
    Round,
    /// Towards zero; times towards the past.
    Truncate,
    /// A value that does not fit becomes null.
    Null,
    /// Times without a zone are UTC; those with one lose it.
    Utc,
}

impl Loss {
    pub(crate) const WORDS: &str = "round, truncate, null or utc";

    /// Returns whether the rule can affect columns of the type, or values nested in them.
    pub(crate) fn suits(self, data_type: &DataType) -> bool {
        let number = data_type.is_integer() || data_type.is_decimal();
        let moment = matches!(
            data_type,
            DataType::Timestamp(..) | DataType::Date32 | DataType::Date64
        );
        let span = matches!(
            data_type,
            DataType::Time32(_) | DataType::Time64(_) | DataType::Duration(_)
        );
        match self {
            _ if data_type.is_nested() => true,
            Loss::None | Loss::Null => true,
            Loss::Round => number || moment || span || data_type.is_floating(),
            Loss::Truncate => number || moment || span,
            Loss::Utc => moment,
        }
    }

    /// Names what happens to a value that does not fit.
    pub(super) fn outcome(self) -> &'static str {
        match self {
            Loss::None => "a bad row",
            Loss::Round => "the nearest",
            Loss::Truncate => "less exact",
            Loss::Null => "null",
            Loss::Utc => "a time in UTC",
        }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Loss::None => "exact",
            Loss::Round => "round",
            Loss::Truncate => "truncate",
            Loss::Null => "null",
            Loss::Utc => "utc",
        })
    }
}

impl FromStr for Loss {
    type Err = ();

    fn from_str(text: &str) -> Result<Loss, ()> {
        match text {
            "round" => Ok(Loss::Round),
            "truncate" => Ok(Loss::Truncate),
            "null" => Ok(Loss::Null),
            "utc" => Ok(Loss::Utc),
            _ => Err(()),
        }
    }
}

/// The result of converting one value to another type.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Fit<T> {
    Exact(T),
    /// A different value, as the rule allows.
    Changed(T),
    Misfit,
}

impl<T> Fit<T> {
    /// Converts further, to a narrower type that may not hold the value.
    pub fn and_then<U>(self, next: impl FnOnce(T) -> Option<U>) -> Fit<U> {
        match self {
            Fit::Exact(value) => next(value).map_or(Fit::Misfit, Fit::Exact),
            Fit::Changed(value) => next(value).map_or(Fit::Misfit, Fit::Changed),
            Fit::Misfit => Fit::Misfit,
        }
    }

    /// Applies a further step that may itself change the value.
    pub fn then<U>(self, next: impl FnOnce(T) -> Fit<U>) -> Fit<U> {
        match self {
            Fit::Exact(value) => next(value),
            Fit::Changed(value) => match next(value) {
                Fit::Exact(value) | Fit::Changed(value) => Fit::Changed(value),
                Fit::Misfit => Fit::Misfit,
            },
            Fit::Misfit => Fit::Misfit,
        }
    }

    /// Returns `value` as an exact result, or the result for a value that does not fit.
    pub fn of(value: Option<T>) -> Fit<T> {
        value.map_or(Fit::Misfit, Fit::Exact)
    }

    pub fn exact(self) -> Option<T> {
        match self {
            Fit::Exact(value) => Some(value),
            _ => None,
        }
    }
}
