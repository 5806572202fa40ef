//! Tables whose records expire.
//!
//! An operation carries the moment at which what it leaves expires: its own, or in a table that has
//! a lifetime, that long after it was written (`forebay_run::times`). `settle` has what that asks
//! of writes.

use std::fmt;

use forebay_run::operation::Operation;
use serde::{Deserialize, Serialize};

/// Whether the records of a table can expire.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Expiry {
    /// They last until they are deleted.
    #[default]
    Never,
    /// Those that are written with a moment at which they expire.
    PerRecord,
    /// So many milliseconds after they were last written, unless written with another moment.
    AfterMs(u64),
}

/// When an operation was written that makes something of what it meets; 0 where it does not say.
#[inline]
pub(crate) fn delta_written_ms(operation: Operation<'_>) -> Option<u64> {
    (!operation.is_final()).then(|| operation.times().written_ms)
}

/// The earliest of some moments, if there is one.
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

/// What a key holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    pub value: Vec<u8>,
    /// When it expires, in milliseconds since 1970-01-01 UTC; `u64::MAX` is never.
    pub expires_ms: u64,
}
