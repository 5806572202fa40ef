//! The times of operations that expire, and the form of those that have some. What composing them
//! means is told in
//! [`crate::compose`].

use std::borrow::Cow;

/// When an operation was written and when what it leaves expires, in milliseconds since 1970-01-01
/// UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// Only deltas keep it.
    pub written_ms: u64,
    /// From this moment on the key reads as absent.
    pub expires_ms: u64,
}

impl Times {
    /// Those of an operation that has none.
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

/// What an operation with times does apart from them; a delete has none.
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
    /// Of a delta, the delta.
    pub(crate) value: &'a [u8],
    /// Of an insert with delta only.
    pub(crate) delta: &'a [u8],
    pub(crate) times: Times,
}

/// [`TimedOperation`] that owns its bytes, or borrows them.
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

    /// The value of a key whose whole history this operation is, while it lasts.
    pub(crate) fn into_value(self, now_ms: u64) -> Option<Cow<'a, [u8]>> {
        (now_ms < self.times.expires_ms).then_some(self.value)
    }
}

impl Times {
    /// Those that matter to an operation.
    pub(crate) fn kept_by(self, form: Form) -> Times {
        match form {
            Form::Update | Form::Insert => Times::until(self.expires_ms),
            Form::Delta | Form::InsertDelta => self,
        }
    }
}
