//! How an operation becomes a tag and a payload, and back (`docs/format.md`, section 3.2).

use std::borrow::Cow;

use crate::operation::{CowOperation, Operation};
use crate::page::OPERATION_MASK;

const UPDATE: u8 = 0;
const INSERT: u8 = 1;
const DELETE: u8 = 2;
const DELTA: u8 = 3;
/// The payload is the value's length (8 bytes), the value, the delta.
const INSERT_DELTA: u8 = 4;

#[inline]
pub fn encode<'a>(operation: Operation<'a>) -> (u8, Cow<'a, [u8]>) {
    match operation {
        Operation::Update(value) => (UPDATE, Cow::Borrowed(value)),
        Operation::Insert(value) => (INSERT, Cow::Borrowed(value)),
        Operation::Delete => (DELETE, Cow::Borrowed(&[])),
        Operation::Delta(delta) => (DELTA, Cow::Borrowed(delta)),
        Operation::InsertDelta { value, delta } => {
            let mut payload = (value.len() as u64).to_le_bytes().to_vec();
            payload.extend_from_slice(value);
            payload.extend_from_slice(delta);
            (INSERT_DELTA, Cow::Owned(payload))
        }
    }
}

/// The operation of a record over its whole payload.
#[inline]
pub fn decode(tag: u8, payload: &[u8]) -> Result<Operation<'_>, &'static str> {
    match tag & OPERATION_MASK {
        UPDATE => Ok(Operation::Update(payload)),
        INSERT => Ok(Operation::Insert(payload)),
        DELETE => Ok(Operation::Delete),
        DELTA => Ok(Operation::Delta(payload)),
        INSERT_DELTA => {
            let (len, rest) = payload
                .split_first_chunk()
                .ok_or("a payload without a length")?;
            let len = usize::try_from(u64::from_le_bytes(*len)).unwrap_or(usize::MAX);
            let (value, delta) = rest
                .split_at_checked(len)
                .ok_or("a value beyond its payload")?;
            Ok(Operation::InsertDelta { value, delta })
        }
        _ => Err("a record with an unknown operation"),
    }
}

/// [`decode`] for a payload that may be owned.
#[inline]
pub fn decode_cow(tag: u8, payload: Cow<'_, [u8]>) -> Result<CowOperation<'_>, &'static str> {
    match tag & OPERATION_MASK {
        UPDATE => Ok(CowOperation::Update(payload)),
        INSERT => Ok(CowOperation::Insert(payload)),
        DELETE => Ok(CowOperation::Delete),
        DELTA => Ok(CowOperation::Delta(payload)),
        _ => decode(tag, &payload).map(|operation| operation.to_owned()),
    }
}
