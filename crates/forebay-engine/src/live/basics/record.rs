//! The encoding of a record in memory and in the log.
//!
//! ```text
//! record = tag (1 byte), key length (LEB128), payload length (LEB128), key, payload
//! ```
//!
//! Tag and payload are those of a run's record (`docs/reference/run-format.md`, section 3.2).

use forebay_run::bytes::append_bytes;
use forebay_run::operation::Operation;
use forebay_run::record::{decode, encode};

/// A record within the bytes that contain it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Record<'a> {
    pub key: &'a [u8],
    pub tag: u8,
    pub payload: &'a [u8],
    /// The length of the whole record.
    pub len_bytes: usize,
}

impl<'a> Record<'a> {
    /// Decodes the record that begins at `at`; `None` if the bytes are not a record.
    #[inline]
    pub fn read(bytes: &'a [u8], at: usize) -> Option<Self> {
        let bytes = bytes.get(at..)?;
        let (tag, key_bytes, payload_bytes, rest) = match bytes.split_first_chunk() {
            Some((&[tag, key, payload], rest)) if (key | payload) & 0x80 == 0 => {
                (tag, usize::from(key), usize::from(payload), rest)
            }
            _ => {
                let (&tag, rest) = bytes.split_first()?;
                let (key_bytes, rest) = read_length(rest)?;
                let (payload_bytes, rest) = read_length(rest)?;
                (tag, key_bytes, payload_bytes, rest)
            }
        };
        let (key, rest) = rest.split_at_checked(key_bytes)?;
        let payload = rest.get(..payload_bytes)?;
        let len_bytes = bytes.len() - rest.len() + payload_bytes;
        Some(Self {
            key,
            tag,
            payload,
            len_bytes,
        })
    }

    #[inline]
    pub fn operation(&self) -> Option<Operation<'a>> {
        decode(self.tag, self.payload).ok()
    }
}

#[inline]
pub(crate) fn append(out: &mut Vec<u8>, key: &[u8], operation: Operation<'_>) {
    let (tag, payload) = encode(operation);
    append_raw(out, key, tag, &payload);
}

#[inline]
pub(crate) fn append_raw(out: &mut Vec<u8>, key: &[u8], tag: u8, payload: &[u8]) {
    if let (Ok(key), Ok(payload)) = (key.try_into(), payload.try_into()) {
        return append_words(out, tag, key, payload);
    }
    if key.len() < 0x80 && payload.len() < 0x80 {
        out.extend_from_slice(&[tag, key.len() as u8, payload.len() as u8]);
    } else {
        out.push(tag);
        append_length(out, key.len());
        append_length(out, payload.len());
    }
    append_bytes(out, key);
    append_bytes(out, payload);
}

/// Two numbers in one move each.
#[inline]
fn append_words(out: &mut Vec<u8>, tag: u8, key: &[u8; 8], payload: &[u8; 8]) {
    let mut record = [0; 19];
    record[..3].copy_from_slice(&[tag, 8, 8]);
    record[3..11].copy_from_slice(key);
    record[11..].copy_from_slice(payload);
    out.extend_from_slice(&record);
}

#[inline]
fn append_length(out: &mut Vec<u8>, mut length: usize) {
    while length >= 0x80 {
        out.push(length as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
}

#[inline]
fn read_length(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (&first, mut rest) = bytes.split_first()?;
    let mut length = usize::from(first & 0x7f);
    let mut last = first;
    let mut shift = 7;
    while last & 0x80 != 0 {
        let (&next, behind) = rest.split_first()?;
        (last, rest) = (next, behind);
        if shift > 56 {
            return None;
        }
        length |= usize::from(last & 0x7f) << shift;
        shift += 7;
    }
    Some((length, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_record_is_read_back_whole_or_not_at_all(
            key in proptest::collection::vec(any::<u8>(), 0..300),
            value in proptest::collection::vec(any::<u8>(), 0..300),
            before in 0usize..5,
        ) {
            let mut bytes = vec![0xee; before];
            append(&mut bytes, &key, Operation::Update(&value));
            let record = Record::read(&bytes, before).expect("whole");
            prop_assert_eq!((record.key, record.operation()), (&key[..], Some(Operation::Update(&value))));
            prop_assert_eq!(before + record.len_bytes, bytes.len());
            prop_assert!(Record::read(&bytes[..bytes.len() - 1], before).is_none());
        }

        #[test]
        fn any_bytes_are_a_record_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Some(record) = Record::read(&bytes, 0) {
                prop_assert!(record.len_bytes <= bytes.len());
            }
        }
    }
}
