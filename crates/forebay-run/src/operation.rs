//! The operations of records, and their composition.
//!
//! An operation is a function from "the value before, or none" to "the value after, or none". The
//! HugeDB paper (section 4) tags records with insert, update, delete and delta. An insert followed
//! by a delta is none of these four while the older runs are unknown. So this algebra has a fifth
//! form, [`Operation::InsertDelta`], and is closed:
//!
//! | operation          | value absent before | value x before |
//! |--------------------|---------------------|----------------|
//! | `Insert(a)`        | a                   | x              |
//! | `Update(a)`        | a                   | a              |
//! | `Delete`           | none                | none           |
//! | `Delta(d)`         | d                   | x + d          |
//! | `InsertDelta(a,d)` | a                   | x + d          |
//!
//! A delta on an absent key starts from the kind's neutral element. This resolves two oddities of
//! the paper: its "overwrite with 1" after a delete is `Update(d)` here, and its switch without
//! breaks means one case each.
//!
//! `+` is the table's [`DeltaKind`]. If joined deltas are not a value (saturating addition of both
//! signs), `Delta(d)` has the form `InsertDelta(0 + d, d)`, so that readers need no kind.

use std::borrow::Cow;

pub use crate::delta::{DeltaKind, OperandError};
use crate::times::{CowTimedOperation, Form, TimedOperation, Times};

/// A record's operation over borrowed bytes; the table in the module docs defines its meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation<'a> {
    Update(&'a [u8]),
    Insert(&'a [u8]),
    Delete,
    Delta(&'a [u8]),
    InsertDelta {
        value: &'a [u8],
        delta: &'a [u8],
    },
    /// One of these, with times.
    Timed(TimedOperation<'a>),
}

/// An operation that owns or borrows its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CowOperation<'a> {
    Update(Cow<'a, [u8]>),
    Insert(Cow<'a, [u8]>),
    Delete,
    Delta(Cow<'a, [u8]>),
    InsertDelta {
        value: Cow<'a, [u8]>,
        delta: Cow<'a, [u8]>,
    },
    Timed(CowTimedOperation<'a>),
}

impl Operation<'_> {
    pub fn to_owned(&self) -> CowOperation<'static> {
        let owned = |bytes: &[u8]| Cow::Owned(bytes.to_vec());
        match *self {
            Operation::Update(a) => CowOperation::Update(owned(a)),
            Operation::Insert(a) => CowOperation::Insert(owned(a)),
            Operation::Delete => CowOperation::Delete,
            Operation::Delta(d) => CowOperation::Delta(owned(d)),
            Operation::InsertDelta { value, delta } => CowOperation::InsertDelta {
                value: owned(value),
                delta: owned(delta),
            },
            Operation::Timed(timed) => {
                let plain = Operation::Timed(timed).plain().to_owned();
                plain.with_times(self.times())
            }
        }
    }

    /// Returns whether the result does not depend on older runs.
    pub fn is_final(&self) -> bool {
        matches!(self.plain(), Operation::Update(_) | Operation::Delete)
    }
}

impl CowOperation<'_> {
    pub fn borrow(&self) -> Operation<'_> {
        match self {
            CowOperation::Update(a) => Operation::Update(a),
            CowOperation::Insert(a) => Operation::Insert(a),
            CowOperation::Delete => Operation::Delete,
            CowOperation::Delta(d) => Operation::Delta(d),
            CowOperation::InsertDelta { value, delta } => Operation::InsertDelta { value, delta },
            CowOperation::Timed(timed) => Operation::Timed(timed.borrow()),
        }
    }
}

impl<'a> CowOperation<'a> {
    /// Returns the value of a key whose only operation this is: none after a delete, none if it has
    /// expired. `now` returns the milliseconds since 1970-01-01 UTC and is called only if needed.
    pub fn into_value(self, now: impl FnOnce() -> u64) -> Option<Cow<'a, [u8]>> {
        match self {
            CowOperation::Update(value)
            | CowOperation::Insert(value)
            | CowOperation::Delta(value)
            | CowOperation::InsertDelta { value, .. } => Some(value),
            CowOperation::Delete => None,
            CowOperation::Timed(timed) => timed.into_value(now()),
        }
    }
}

impl<'a> Operation<'a> {
    /// Returns the operation with these times instead of its own. A delete has none.
    pub fn with_times(self, times: Times) -> Operation<'a> {
        let none: &[u8] = &[];
        let (form, value, delta) = match self.plain() {
            Operation::Update(value) => (Form::Update, value, none),
            Operation::Insert(value) => (Form::Insert, value, none),
            Operation::Delta(delta) => (Form::Delta, delta, none),
            Operation::InsertDelta { value, delta } => (Form::InsertDelta, value, delta),
            other @ (Operation::Delete | Operation::Timed(_)) => return other,
        };
        let times = times.kept_by(form);
        if times == Times::NONE {
            return self.plain();
        }
        Operation::Timed(TimedOperation {
            form,
            value,
            delta,
            times,
        })
    }

    /// Returns the operation without its times.
    pub fn plain(self) -> Operation<'a> {
        let Operation::Timed(timed) = self else {
            return self;
        };
        let TimedOperation { value, delta, .. } = timed;
        match timed.form {
            Form::Update => Operation::Update(value),
            Form::Insert => Operation::Insert(value),
            Form::Delta => Operation::Delta(value),
            Form::InsertDelta => Operation::InsertDelta { value, delta },
        }
    }

    pub fn times(&self) -> Times {
        match self {
            Operation::Timed(timed) => timed.times,
            _ => Times::NONE,
        }
    }

    /// Returns the value and expiry time of a key whose only operation this is.
    #[inline]
    pub fn value(self) -> Option<(&'a [u8], u64)> {
        match self {
            Operation::Update(value)
            | Operation::Insert(value)
            | Operation::Delta(value)
            | Operation::InsertDelta { value, .. } => Some((value, u64::MAX)),
            Operation::Delete => None,
            Operation::Timed(timed) => Some((timed.value, timed.times.expires_ms)),
        }
    }
}

impl<'a> CowOperation<'a> {
    /// [`Operation::with_times`].
    pub fn with_times(self, times: Times) -> CowOperation<'a> {
        let none = || Cow::Borrowed(&[][..]);
        let (form, value, delta) = match self {
            CowOperation::Update(value) => (Form::Update, value, none()),
            CowOperation::Insert(value) => (Form::Insert, value, none()),
            CowOperation::Delta(delta) => (Form::Delta, delta, none()),
            CowOperation::InsertDelta { value, delta } => (Form::InsertDelta, value, delta),
            CowOperation::Timed(CowTimedOperation {
                form, value, delta, ..
            }) => (form, value, delta),
            CowOperation::Delete => return CowOperation::Delete,
        };
        let times = times.kept_by(form);
        if times != Times::NONE {
            return CowOperation::Timed(CowTimedOperation {
                form,
                value,
                delta,
                times,
            });
        }
        match form {
            Form::Update => CowOperation::Update(value),
            Form::Insert => CowOperation::Insert(value),
            Form::Delta => CowOperation::Delta(value),
            Form::InsertDelta => CowOperation::InsertDelta { value, delta },
        }
    }
}
