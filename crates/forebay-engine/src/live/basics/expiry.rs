//! The expiry of records.
//!
//! An operation carries the moment at which its result expires. It is given with the operation, or,
//! in a table with a TTL, is that long after the write (`forebay_run::times`). The module `settle`
//! has the rules for writes.

use std::fmt;

use forebay_run::operation::Operation;
use serde::{Deserialize, Serialize};

/// Whether the records of a table can expire, and when.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Expiry {
    /// Records last until they are deleted.
    #[default]
    Never,
    /// Only records that are written with a moment of expiry expire.
    PerRecord,
    /// This many milliseconds after a record was last written, unless it was written with another
    /// moment.
    AfterMs(u64),
}

/// Returns when an operation that combines with an older value was written; 0 if it does not say.
#[inline]
pub(crate) fn delta_written_ms(operation: Operation<'_>) -> Option<u64> {
    (!operation.is_final()).then(|| operation.times().written_ms)
}

/// Returns the earliest of some moments, if there is one.
#[inline]
pub(crate) fn earliest(moments: impl IntoIterator<Item = Option<u64>>) -> Option<u64> {
    moments.into_iter().flatten().min()
}

impl fmt::Display for Expiry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Expiry::Never => f.write_str("never"),
            Expiry::PerRecord => f.write_str("per-key"),
            Expiry::AfterMs(ms) => write!(f, "{ms}ms"),
        }
    }
}

/// The stored value of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    pub value: Vec<u8>,
    /// When it expires, in milliseconds since 1970-01-01 UTC; `u64::MAX` is never.
    pub expires_ms: u64,
}
