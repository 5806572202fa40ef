//! Composes operations with times, and applies them to values.
//!
//! [`crate::operation`] defines the operations; this module defines the effect of their times.
//!
//! Every operation resets the expiry of its key: to its own, or to none. The value that a delta
//! meets may have expired when the delta was written; then the delta starts from nothing. The two
//! may be composed days later. To decide this then, a delta carries the time at which it was
//! written. Let a key have the value x that expires at e, and let an operation be written at t and
//! expire at u:
//!
//! | operation          | value absent | x, t < e | x, t >= e |
//! |--------------------|--------------|----------|-----------|
//! | `Update(a)`        | a until u    | a until u | a until u |
//! | `Insert(a)`        | a until u    | x until e | x until e |
//! | `Delete`           | none         | none     | none      |
//! | `Delta(d)`         | d until u    | x + d until u | d until u |
//! | `InsertDelta(a,d)` | a until u    | x + d until u | d until u |
//!
//! An operation without times has t = 0 and u = never. An insert treats any value that it meets as
//! not expired, because inserts at several times would not compose to an operation of this kind. So
//! a table whose records expire settles an insert by a read, when it is written. With this rule,
//! composition is associative and exact, as without times.

use std::borrow::Cow;

use crate::delta::{DeltaKind, OperandError};
use crate::operation::{CowOperation, Operation};
use crate::times::Times;

impl Operation<'_> {
    /// Returns the operation that does `older` and then `self`. Associative.
    pub fn after(
        &self,
        older: &Operation<'_>,
        kind: DeltaKind,
    ) -> Result<CowOperation<'static>, OperandError> {
        use Operation::{Delete, Delta, Insert, InsertDelta, Timed, Update};
        let owned = |bytes: &[u8]| Cow::Owned(bytes.to_vec());
        let add = |a: &[u8], b: &[u8]| kind.add(a, b).map(Cow::Owned);
        Ok(match (*older, *self) {
            (Timed(_), _) | (_, Timed(_)) => timed_after(*self, *older, kind)?,
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
            (Delta(c), Delta(d) | InsertDelta { delta: d, .. }) => {
                delta_operation(kind.join(c, d)?, kind)?
            }
            (InsertDelta { value, delta }, Delta(d) | InsertDelta { delta: d, .. }) => {
                insert_delta(add(value, d)?, Cow::Owned(kind.join(delta, d)?))
            }
        })
    }

    /// Returns the value of a key after this operation and its expiry, `u64::MAX` being never;
    /// `before` is its previous state. This implements the table of the module's documentation.
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
}

/// Returns an operation that writes `value` to an absent key and applies `delta` to a present one.
/// If both are equal, a plain `Delta` does the same, so the result is always that simpler form.
fn insert_delta<'a>(value: Cow<'a, [u8]>, delta: Cow<'a, [u8]>) -> CowOperation<'a> {
    if value == delta {
        CowOperation::Delta(delta)
    } else {
        CowOperation::InsertDelta { value, delta }
    }
}

/// Returns the operation of a delta, which may be a joined one.
fn delta_operation(delta: Vec<u8>, kind: DeltaKind) -> Result<CowOperation<'static>, OperandError> {
    Ok(if kind.is_value(&delta) {
        CowOperation::Delta(Cow::Owned(delta))
    } else {
        insert_delta(Cow::Owned(kind.value_of(&delta)?), Cow::Owned(delta))
    })
}

/// Returns the operation that does `older` and then `newer`, if one of them has times.
fn timed_after(
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
        Insert(_) => delta_operation(delta.to_vec(), kind)?,
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
