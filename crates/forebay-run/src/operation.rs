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

use std::borrow::Cow;

/// What `+` means for a table's deltas.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeltaKind {
    /// 8-byte little-endian integers, added modulo 2^64.
    AddI64,
    /// 8-byte little-endian floats. Associative but for rounding.
    AddF64,
    /// Bytes joined, older first.
    Append,
    /// 8-byte little-endian integers, the lesser.
    Min,
    /// 8-byte little-endian integers, the greater.
    Max,
}

/// A delta or a value of the wrong shape for the table's [`DeltaKind`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a value of {bytes} bytes is no operand of {kind:?}, which takes 8 bytes")]
pub struct OperandError {
    kind: DeltaKind,
    bytes: usize,
}

impl DeltaKind {
    /// Whether `operand` has the shape that this kind takes.
    pub fn check(self, operand: &[u8]) -> Result<(), OperandError> {
        if self == DeltaKind::Append || operand.len() == 8 {
            Ok(())
        } else {
            Err(OperandError {
                kind: self,
                bytes: operand.len(),
            })
        }
    }

    /// `older + newer`.
    pub fn add(self, older: &[u8], newer: &[u8]) -> Result<Vec<u8>, OperandError> {
        if self == DeltaKind::Append {
            return Ok([older, newer].concat());
        }
        let (a, b) = (self.word(older)?, self.word(newer)?);
        let sum = match self {
            DeltaKind::AddI64 => a.wrapping_add(b),
            DeltaKind::AddF64 => {
                let sum = f64::from_bits(a as u64) + f64::from_bits(b as u64);
                sum.to_bits() as i64
            }
            DeltaKind::Min => a.min(b),
            DeltaKind::Max | DeltaKind::Append => a.max(b),
        };
        Ok(sum.to_le_bytes().to_vec())
    }

    fn word(self, operand: &[u8]) -> Result<i64, OperandError> {
        let bytes = operand.try_into();
        bytes.map(i64::from_le_bytes).map_err(|_| OperandError {
            kind: self,
            bytes: operand.len(),
        })
    }
}

/// One record's operation over borrowed bytes; the table in the module's text gives the meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation<'a> {
    Update(&'a [u8]),
    Insert(&'a [u8]),
    Delete,
    Delta(&'a [u8]),
    InsertDelta { value: &'a [u8], delta: &'a [u8] },
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
}

impl Operation<'_> {
    /// The operation that does `older` and then `self`. Associative.
    pub fn after(
        &self,
        older: &Operation<'_>,
        kind: DeltaKind,
    ) -> Result<CowOperation<'static>, OperandError> {
        use Operation::{Delete, Delta, Insert, InsertDelta, Update};
        let owned = |bytes: &[u8]| Cow::Owned(bytes.to_vec());
        let add = |a: &[u8], b: &[u8]| kind.add(a, b).map(Cow::Owned);
        Ok(match (*older, *self) {
            (_, Update(a)) => CowOperation::Update(owned(a)),
            (_, Delete) => CowOperation::Delete,
            (Delete, Insert(a)) => CowOperation::Update(owned(a)),
            (Delete, Delta(d)) => CowOperation::Update(owned(d)),
            (Delete, InsertDelta { value, .. }) => CowOperation::Update(owned(value)),
            (older, Insert(_)) => older.to_owned(),
            (Update(a), Delta(d) | InsertDelta { delta: d, .. }) => {
                CowOperation::Update(add(a, d)?)
            }
            (Insert(a), Delta(d) | InsertDelta { delta: d, .. }) => CowOperation::InsertDelta {
                value: add(a, d)?,
                delta: owned(d),
            },
            (Delta(c), Delta(d) | InsertDelta { delta: d, .. }) => CowOperation::Delta(add(c, d)?),
            (InsertDelta { value, delta }, Delta(d) | InsertDelta { delta: d, .. }) => {
                CowOperation::InsertDelta {
                    value: add(value, d)?,
                    delta: add(delta, d)?,
                }
            }
        })
    }

    /// The value after this operation on `before`.
    pub fn apply(
        &self,
        before: Option<&[u8]>,
        kind: DeltaKind,
    ) -> Result<Option<Vec<u8>>, OperandError> {
        use Operation::{Delete, Delta, Insert, InsertDelta, Update};
        Ok(match (*self, before) {
            (Update(a), _) | (Insert(a), None) | (Delta(a), None) => Some(a.to_vec()),
            (InsertDelta { value, .. }, None) => Some(value.to_vec()),
            (Delete, _) => None,
            (Insert(_), Some(x)) => Some(x.to_vec()),
            (Delta(d) | InsertDelta { delta: d, .. }, Some(x)) => Some(kind.add(x, d)?),
        })
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
        }
    }

    /// Whether what older runs hold cannot change the outcome.
    pub fn is_final(&self) -> bool {
        matches!(self, Operation::Update(_) | Operation::Delete)
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
        }
    }
}

impl<'a> CowOperation<'a> {
    /// The value of a key whose whole history this operation is: none after a delete.
    pub fn into_value(self) -> Option<Cow<'a, [u8]>> {
        match self {
            CowOperation::Update(value)
            | CowOperation::Insert(value)
            | CowOperation::Delta(value)
            | CowOperation::InsertDelta { value, .. } => Some(value),
            CowOperation::Delete => None,
        }
    }
}
