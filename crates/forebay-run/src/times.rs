//! Operations that expire.
//!
//! Every operation sets the expiry of its key anew: to its own, or to none. What a delta meets may have
//! expired when the delta was written, and then it counts from nothing; so that this can be told when
//! the two are composed, maybe days later, a delta carries the time at which it was written. Let a key
//! have the value x that expires at e, and let an operation be written at t and expire at u:
//!
//! | operation          | value absent | x, t < e | x, t >= e |
//! |--------------------|--------------|----------|-----------|
//! | `Update(a)`        | a until u    | a until u | a until u |
//! | `Insert(a)`        | a until u    | x until e | x until e |
//! | `Delete`           | none         | none     | none      |
//! | `Delta(d)`         | d until u    | x + d until u | d until u |
//! | `InsertDelta(a,d)` | a until u    | x + d until u | d until u |
//!
//! An operation without times has t = 0 and u = never. An insert takes whatever it meets for alive, since
//! inserts at several times would not compose to anything of this kind: a table whose records expire
//! settles an insert by reading, when it is written. With that, composition is associative and exact, as
//! without times.

use std::borrow::Cow;

use crate::operation::{CowOperation, DeltaKind, OperandError, Operation};

/// When an operation was written and when what it leaves expires, in milliseconds since 1970-01-01 UTC.
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
enum Form {
    Update,
    Insert,
    Delta,
    InsertDelta,
}

/// An operation with times; see [`Operation::with_times`] and [`Operation::plain`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timed<'a> {
    form: Form,
    /// Of a delta, the delta.
    value: &'a [u8],
    /// Of an insert with delta only.
    delta: &'a [u8],
    times: Times,
}

/// [`Timed`] that owns its bytes, or borrows them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CowTimed<'a> {
    form: Form,
    value: Cow<'a, [u8]>,
    delta: Cow<'a, [u8]>,
    times: Times,
}

impl<'a> Operation<'a> {
    /// The operation at these times, in place of those that it has. A delete takes none.
    pub fn with_times(self, times: Times) -> Operation<'a> {
        let none: &[u8] = &[];
        let (form, value, delta) = match self.plain() {
            Operation::Update(value) => (Form::Update, value, none),
            Operation::Insert(value) => (Form::Insert, value, none),
            Operation::Delta(delta) => (Form::Delta, delta, none),
            Operation::InsertDelta { value, delta } => (Form::InsertDelta, value, delta),
            other @ (Operation::Delete | Operation::Timed(_)) => return other,
        };
        let times = kept(form, times);
        if times == Times::NONE {
            return self.plain();
        }
        Operation::Timed(Timed {
            form,
            value,
            delta,
            times,
        })
    }

    /// The operation without its times.
    pub fn plain(self) -> Operation<'a> {
        let Operation::Timed(timed) = self else {
            return self;
        };
        let Timed { value, delta, .. } = timed;
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

    /// What a key has whose whole history this operation is: its value, and when it expires.
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
            CowOperation::Timed(CowTimed {
                form, value, delta, ..
            }) => (form, value, delta),
            CowOperation::Delete => return CowOperation::Delete,
        };
        let times = kept(form, times);
        if times != Times::NONE {
            return CowOperation::Timed(CowTimed {
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

impl<'a> CowTimed<'a> {
    pub(crate) fn borrow(&self) -> Timed<'_> {
        Timed {
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

/// The times that matter to an operation.
fn kept(form: Form, times: Times) -> Times {
    match form {
        Form::Update | Form::Insert => Times::until(times.expires_ms),
        Form::Delta | Form::InsertDelta => times,
    }
}

/// The operation that does `older` and then `newer`, where one of them has times.
pub(crate) fn after(
    newer: Operation<'_>,
    older: Operation<'_>,
    kind: DeltaKind,
) -> Result<CowOperation<'static>, OperandError> {
    use Operation::{Delete, Delta, Insert, InsertDelta, Update};
    let (written_ms, expires_ms) = (newer.times().written_ms, newer.times().expires_ms);
    let (past, present) = (older.plain(), newer.plain());
    let delta = match (past, present) {
        (_, Update(_) | Delete) => return Ok(newer.to_owned()),
        (Delete, _) => {
            return Ok(present.after(&past, kind)?.with_times(newer.times()));
        }
        (_, Delta(delta) | InsertDelta { delta, .. }) => delta,
        _ => return Ok(older.to_owned()),
    };
    let alive = written_ms < older.times().expires_ms;
    let composed = match past {
        _ if alive => present.after(&past, kind)?,
        Insert(_) => crate::operation::delta(delta.to_vec(), kind)?,
        _ => CowOperation::Update(Cow::Owned(kind.value_of(delta)?)),
    };
    let written_ms = match past {
        Insert(_) => written_ms,
        _ => older.times().written_ms,
    };
    Ok(composed.with_times(Times {
        written_ms,
        expires_ms,
    }))
}
