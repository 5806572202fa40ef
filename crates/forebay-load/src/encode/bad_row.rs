//! Defines the reasons for which a row is not stored.

use std::sync::Arc;

use forebay_run::format::MAX_KEY_BYTES;

/// An error of a row that its source could read.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum BadRow {
    #[error("the key column '{column}' is null")]
    NullKey { column: Arc<str> },
    #[error("the key is empty")]
    EmptyKey,
    #[error("the key has {bytes} bytes, and {} is the limit", MAX_KEY_BYTES)]
    LongKey { bytes: usize },
    #[error(
        "the key column '{column}' is negative, which does not sort when padded: leave the width out of the template"
    )]
    NegativeKey { column: Arc<str> },
    #[error(
        "the key column '{column}' is the float {value}, and floats make keys only when whole and below 2^53"
    )]
    FractionKey { column: Arc<str>, value: f64 },
    #[error("the key column '{column}' is in the year {year}, outside 0000 to 9999")]
    KeyYear { column: Arc<str>, year: i64 },
    #[error("the value column '{column}' is null")]
    NullValue { column: Arc<str> },
    #[error("the column '{column}' is null, which the table's columns of that name cannot be")]
    NullColumn { column: Arc<str> },
    #[error("the value column '{column}' holds {value}, and the table's values are {wanted}")]
    NoNumber {
        column: Arc<str>,
        value: String,
        wanted: &'static str,
    },
    #[error(
        "the value column '{column}' holds NaN, and deltas take no NaN: give a number, or leave the row out"
    )]
    NanNumber { column: Arc<str> },
    #[error(
        "the operation column '{column}' says '{word}': it must be insert, update, delete or delta"
    )]
    Operation { column: Arc<str>, word: String },
    #[error(
        "a delta, and the table was made without --delta, which says what deltas do: create it again with --delta"
    )]
    NoDelta,
    #[error(
        "an insert into a table whose rows may expire, and a load does not look whether what it finds has \
         expired: let the row update, or send it to the server as {instead}"
    )]
    NoInsert { instead: Arc<str> },
    #[error("the column '{column}' gives no time at which the row expires")]
    Expiry { column: Arc<str> },
    #[error("{reason}")]
    Unreadable { reason: String },
}
