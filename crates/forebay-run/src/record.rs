//! Encodes an operation as a tag and a payload, and decodes it.
//!
//! `docs/reference/run-format.md`, section 3.2, specifies the encoding.

use std::borrow::Cow;

use crate::operation::{CowOperation, Operation};
use crate::times::Times;

const UPDATE: u8 = 0;
const INSERT: u8 = 1;
const DELETE: u8 = 2;
pub const DELTA: u8 = 3;
/// The bits of a record's tag for its operation and its payload's form.
pub const OPERATION_MASK: u8 = 0x67;
/// The payload is the value's length (8 bytes), the value, the delta.
const INSERT_DELTA: u8 = 4;
/// The payload begins with the expiry time (8 bytes).
const EXPIRES: u8 = 0x20;
/// Then follows the time at which the operation was written (8 bytes).
const WRITTEN: u8 = 0x40;

/// Always inlined: passing an operation through memory costs more than the rest of this function.
#[inline(always)]
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
        Operation::Timed(_) => encode_timed(operation),
    }
}

/// Returns whether the tag is of an operation without times whose payload is its only operand,
/// which may be any bytes.
#[inline]
pub fn is_plain(tag: u8) -> bool {
    tag <= DELTA
}

/// Returns the value of a key whose only operation is this record, which must decode: see
/// [`Operation::value`].
#[inline]
pub fn value_of(tag: u8, payload: &[u8]) -> Option<(&[u8], u64)> {
    match tag {
        UPDATE | INSERT | DELTA => Some((payload, u64::MAX)),
        DELETE => None,
        _ => composed_value(tag, payload),
    }
}

#[cold]
#[inline(never)]
fn composed_value(tag: u8, payload: &[u8]) -> Option<(&[u8], u64)> {
    decode(tag, payload).ok()?.value()
}

/// Returns a record with nothing older: one that sets the resulting value.
#[inline]
pub(crate) fn settled<'a>((tag, payload): (u8, Cow<'a, [u8]>)) -> (u8, Cow<'a, [u8]>) {
    match tag {
        UPDATE | INSERT | DELTA => (UPDATE, payload),
        DELETE => (DELETE, payload),
        _ => settled_composed(tag, &payload),
    }
}

#[cold]
fn settled_composed(tag: u8, payload: &[u8]) -> (u8, Cow<'static, [u8]>) {
    let Some((value, expires_ms)) = value_of(tag, payload) else {
        return (DELETE, Cow::Borrowed(&[]));
    };
    let (tag, payload) = encode(Operation::Update(value).with_times(Times::until(expires_ms)));
    (tag, Cow::Owned(payload.into_owned()))
}

fn encode_timed(operation: Operation<'_>) -> (u8, Cow<'static, [u8]>) {
    let (mut tag, rest) = encode(operation.plain());
    let times = operation.times();
    let mut payload = Vec::with_capacity(16 + rest.len());
    if times.expires_ms != Times::NONE.expires_ms {
        tag |= EXPIRES;
        payload.extend_from_slice(&times.expires_ms.to_le_bytes());
    }
    if times.written_ms != Times::NONE.written_ms {
        tag |= WRITTEN;
        payload.extend_from_slice(&times.written_ms.to_le_bytes());
    }
    payload.extend_from_slice(&rest);
    (tag, Cow::Owned(payload))
}

/// Returns the operation of a record with its whole payload.
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
        operation if operation & (EXPIRES | WRITTEN) != 0 => decode_timed(operation, payload),
        _ => Err("a record with an unknown operation"),
    }
}

fn decode_timed(tag: u8, mut payload: &[u8]) -> Result<Operation<'_>, &'static str> {
    let mut times = Times::NONE;
    for (bit, time) in [
        (EXPIRES, &mut times.expires_ms),
        (WRITTEN, &mut times.written_ms),
    ] {
        if tag & bit != 0 {
            let (word, rest) = payload
                .split_first_chunk()
                .ok_or("a payload without the times that its tag declares")?;
            *time = u64::from_le_bytes(*word);
            payload = rest;
        }
    }
    let plain = tag & !(EXPIRES | WRITTEN);
    let operation = decode(plain, payload)?.with_times(times);
    // Each record has only one encoding, so that its content sum follows from its bytes.
    let said = (tag & EXPIRES != 0, tag & WRITTEN != 0);
    let reported = (
        times.expires_ms != Times::NONE.expires_ms,
        times.written_ms != Times::NONE.written_ms,
    );
    if operation.times() != times || said != reported {
        return Err("a record with times that its operation cannot have");
    }
    Ok(operation)
}

/// A record that a look-up found, with its operation still encoded: most callers need only the
/// value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundRecord<'a> {
    /// One of the constants above; a word wide, so that it has a register of its own.
    operation: usize,
    payload: Cow<'a, [u8]>,
}

impl<'a> FoundRecord<'a> {
    #[inline]
    pub(crate) fn new(tag: u8, payload: Cow<'a, [u8]>) -> Result<Self, &'static str> {
        let operation = tag & OPERATION_MASK;
        if operation >= INSERT_DELTA {
            decode(tag, &payload)?;
        }
        Ok(Self {
            operation: usize::from(operation),
            payload,
        })
    }

    /// `tag` is not above [`DELTA`].
    #[inline(always)]
    pub(crate) fn plain(tag: u8, payload: &'a [u8]) -> Self {
        Self {
            operation: usize::from(tag),
            payload: Cow::Borrowed(payload),
        }
    }

    /// Returns the value of a key whose only operation is this record: none after a delete, none if
    /// it has expired. `now` returns the milliseconds since 1970-01-01 UTC and is called only if
    /// needed.
    #[inline]
    pub fn into_value(self, now: impl FnOnce() -> u64) -> Option<Cow<'a, [u8]>> {
        match self.operation as u8 {
            UPDATE | INSERT | DELTA => Some(self.payload),
            DELETE => None,
            _ => self.into_composed_value(now),
        }
    }

    fn into_composed_value(self, now: impl FnOnce() -> u64) -> Option<Cow<'a, [u8]>> {
        let Cow::Borrowed(payload) = self.payload else {
            return self.into_operation().into_value(now);
        };
        // `new` has checked that it decodes.
        let (value, expires_ms) = decode(self.operation as u8, payload).ok()?.value()?;
        (expires_ms == u64::MAX || now() < expires_ms).then_some(Cow::Borrowed(value))
    }

    /// Returns the operation, to be composed with others.
    pub fn into_operation(self) -> CowOperation<'a> {
        match self.operation as u8 {
            UPDATE => CowOperation::Update(self.payload),
            INSERT => CowOperation::Insert(self.payload),
            DELTA => CowOperation::Delta(self.payload),
            DELETE => CowOperation::Delete,
            // `new` has checked that it decodes.
            _ => decode(self.operation as u8, &self.payload)
                .map_or(CowOperation::Delete, |operation| operation.to_owned()),
        }
    }

    /// Returns the record with a payload of its own.
    pub(crate) fn into_owned(self) -> FoundRecord<'static> {
        FoundRecord {
            operation: self.operation,
            payload: Cow::Owned(self.payload.into_owned()),
        }
    }
}
