//! How much a conversion may lose, and what came of one value.

use std::fmt;
use std::str::FromStr;

use arrow_schema::DataType;
use serde::{Deserialize, Serialize};

/// What may be lost where a type cannot hold a value exactly.
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
    /// What does not fit is null.
    Null,
    /// Times without a zone are UTC; those with one lose it.
    Utc,
}

impl Loss {
    pub(crate) const WORDS: &str = "round, truncate, null or utc";

    /// Whether it can change anything in columns of the type, or in places of it.
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

    /// What becomes of a value that does not fit.
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

/// What becomes of one value in another type.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Fit<T> {
    Exact(T),
    /// Not the same value, as was asked for.
    Changed(T),
    Misfit,
}

impl<T> Fit<T> {
    /// Goes on to a narrower type, which may hold the value or not.
    pub fn and_then<U>(self, next: impl FnOnce(T) -> Option<U>) -> Fit<U> {
        match self {
            Fit::Exact(value) => next(value).map_or(Fit::Misfit, Fit::Exact),
            Fit::Changed(value) => next(value).map_or(Fit::Misfit, Fit::Changed),
            Fit::Misfit => Fit::Misfit,
        }
    }

    /// Goes on by a step that may itself change the value.
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

    /// `value` where there is one.
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
