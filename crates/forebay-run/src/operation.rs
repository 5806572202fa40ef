//! The operations a record can carry, and their composition.
//!
//! An operation is a function from "the value before, or none" to "the value after, or none". The
//! HugeDB paper (section 4) tags records with insert, update, delete and delta; an insert followed
//! by a delta is none of these four while the older runs are unknown, so the algebra here has a
//! fifth form, [`Operation::InsertDelta`], and is closed:
//!
//! | operation          | value absent before | value x before |
//! |--------------------|---------------------|----------------|
//! | `Insert(a)`        | a                   | x              |
//! | `Update(a)`        | a                   | a              |
//! | `Delete`           | none                | none           |
//! | `Delta(d)`         | d                   | x + d          |
//! | `InsertDelta(a,d)` | a                   | x + d          |
//!
//! A delta on an absent key counts from the kind's neutral element. That settles two oddities of the
//! paper: its "overwrite with 1" after a delete is `Update(d)` here, and its switch without breaks
//! means one case each.
//!
//! `+` is the table's [`DeltaKind`]. Where joined deltas are no value (saturating addition of both
//! signs), `Delta(d)` takes the form `InsertDelta(0 + d, d)`, so that whoever reads needs no kind.

use std::borrow::Cow;

pub use crate::delta::DeltaKind;
use crate::times::{self, CowTimed, Timed, Times};

/// A delta or a value of the wrong shape for the table's [`DeltaKind`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a value of {bytes} bytes is no operand of {kind:?}, which takes 8 bytes")]
pub struct OperandError {
    kind: DeltaKind,
    bytes: usize,
}

impl OperandError {
    pub(crate) fn new(kind: DeltaKind, operand: &[u8]) -> Self {
        Self {
            kind,
            bytes: operand.len(),
        }
    }
}

/// One record's operation over borrowed bytes; the table in the module's text gives the meaning.
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
    Timed(Timed<'a>),
}

/// An operation that owns its bytes, or borrows them.
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
    Timed(CowTimed<'a>),
}

/// `InsertDelta` in the one form that there is of it: where `value` is what the delta makes of an absent
/// key, it is a delta.
fn insert_delta<'a>(value: Cow<'a, [u8]>, delta: Cow<'a, [u8]>) -> CowOperation<'a> {
    if value == delta {
        CowOperation::Delta(delta)
    } else {
        CowOperation::InsertDelta { value, delta }
    }
}

/// The operation of a delta, which may be a joined one.
pub(crate) fn delta(
    delta: Vec<u8>,
    kind: DeltaKind,
) -> Result<CowOperation<'static>, OperandError> {
    Ok(if kind.is_value(&delta) {
        CowOperation::Delta(Cow::Owned(delta))
    } else {
        insert_delta(Cow::Owned(kind.value_of(&delta)?), Cow::Owned(delta))
    })
}

impl Operation<'_> {
    /// The operation that does `older` and then `self`. Associative.
    pub fn after(
        &self,
        older: &Operation<'_>,
        kind: DeltaKind,
    ) -> Result<CowOperation<'static>, OperandError> {
        use Operation::{Delete, Delta, Insert, InsertDelta, Timed, Update};
        let owned = |bytes: &[u8]| Cow::Owned(bytes.to_vec());
        let add = |a: &[u8], b: &[u8]| kind.add(a, b).map(Cow::Owned);
        Ok(match (*older, *self) {
            (Timed(_), _) | (_, Timed(_)) => times::after(*self, *older, kind)?,
            (_, Update(a)) => CowOperation::Update(owned(a)),
            (_, Delete) => CowOperation::Delete,
            (Delete, Insert(a)) => CowOperation::Update(owned(a)),
            (Delete, Delta(d)) => CowOperation::Update(Cow::Owned(kind.value_of(d)?)),
            (Delete, InsertDelta { value, .. }) => CowOperation::Update(owned(value)),
            (older, Insert(_)) => older.to_owned(),
            (Update(a), Delta(d) | InsertDelta { delta: d, .. }) => {
                CowOperation::Update(add(a, d)?)
            }
            (Insert(a), Delta(d) | InsertDelta { delta: d, .. }) => {
                insert_delta(add(a, d)?, owned(d))
            }
            (Delta(c), Delta(d) | InsertDelta { delta: d, .. }) => delta(kind.join(c, d)?, kind)?,
            (InsertDelta { value, delta }, Delta(d) | InsertDelta { delta: d, .. }) => {
                insert_delta(add(value, d)?, Cow::Owned(kind.join(delta, d)?))
            }
        })
    }

    /// What a key has after this operation: its value and when that expires, `u64::MAX` being never;
    /// `before` is what it had. The tables in the modules' texts, as code.
    pub fn apply(
        &self,
        before: Option<(&[u8], u64)>,
        kind: DeltaKind,
    ) -> Result<Option<(Vec<u8>, u64)>, OperandError> {
        use Operation::{Delete, Delta, Insert, InsertDelta, Timed, Update};
        let Times {
            written_ms,
            expires_ms,
        } = self.times();
        let value = match (self.plain(), before) {
            (Update(a), _) | (Insert(a), None) => a.to_vec(),
            (Insert(_), Some((x, expires_ms))) => return Ok(Some((x.to_vec(), expires_ms))),
            (Delta(d), None) => kind.value_of(d)?,
            (InsertDelta { value, .. }, None) => value.to_vec(),
            (Delta(d) | InsertDelta { delta: d, .. }, Some((x, until_ms))) => {
                if written_ms < until_ms {
                    kind.add(x, d)?
                } else {
                    kind.value_of(d)?
                }
            }
            (Delete | Timed(_), _) => return Ok(None),
        };
        Ok(Some((value, expires_ms)))
    }

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

    /// Whether what older runs hold cannot change the outcome.
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
    /// The value of a key whose whole history this operation is: none after a delete, none of what has
    /// expired. `now` gives the milliseconds since 1970-01-01 UTC and is asked when they matter.
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
