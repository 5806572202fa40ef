//! The write and expiry times of operations, and the form of operations that have them.
//!
//! [`crate::compose`] defines how they compose.

use std::borrow::Cow;

/// The time at which an operation was written and the time at which its result expires, in
/// milliseconds since 1970-01-01 UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// Only deltas keep it.
    pub written_ms: u64,
    /// From this time on the key reads as absent.
    pub expires_ms: u64,
}

impl Times {
    /// The times of an operation that has none.
    pub const NONE: Times = Times {
        written_ms: 0,
        expires_ms: u64::MAX,
    };

    pub fn until(expires_ms: u64) -> Self {
        Self {
            expires_ms,
            ..Self::NONE
        }
    }
}

/// The kind of an operation with times; a delete has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Update,
    Insert,
    Delta,
    InsertDelta,
}

/// An operation with times; see [`crate::operation::Operation::with_times`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimedOperation<'a> {
    pub(crate) form: Form,
    /// The value; for a delta, the delta.
    pub(crate) value: &'a [u8],
    /// Only for an insert with delta.
    pub(crate) delta: &'a [u8],
    pub(crate) times: Times,
}

/// A [`TimedOperation`] that owns or borrows its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CowTimedOperation<'a> {
    pub(crate) form: Form,
    pub(crate) value: Cow<'a, [u8]>,
    pub(crate) delta: Cow<'a, [u8]>,
    pub(crate) times: Times,
}

impl<'a> CowTimedOperation<'a> {
    pub(crate) fn borrow(&self) -> TimedOperation<'_> {
        TimedOperation {
            form: self.form,
            value: &self.value,
            delta: &self.delta,
            times: self.times,
        }
    }

    /// Returns the value of a key whose only operation this is, unless it has expired.
    pub(crate) fn into_value(self, now_ms: u64) -> Option<Cow<'a, [u8]>> {
        (now_ms < self.times.expires_ms).then_some(self.value)
    }
}

impl Times {
    /// Returns the times that an operation of this form keeps.
    pub(crate) fn kept_by(self, form: Form) -> Times {
        match form {
            Form::Update | Form::Insert => Times::until(self.expires_ms),
            Form::Delta | Form::InsertDelta => self,
        }
    }
}
