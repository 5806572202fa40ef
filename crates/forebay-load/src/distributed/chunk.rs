//! Packs records of one partition into one value, a chunk.
//!
//! The cost of moving and sorting in an engine depends on the number of rows more than on their
//! bytes.

use super::DistributedError;

/// The bytes before each record: the lengths of its key (16 bits) and of the rest (32 bits).
const HEAD_BYTES: usize = 6;
/// The most bytes in a chunk: a longer value fits neither Arrow's 32-bit offsets nor Spark.
const MOST_BYTES: usize = i32::MAX as usize - (1 << 10);

/// Appends a record to the chunk. REQUIRES a key that a run accepts.
pub(super) fn pack(chunk: &mut Vec<u8>, key: &[u8], record: &[u8]) -> Result<(), String> {
    let bytes = HEAD_BYTES + key.len() + record.len();
    if bytes > MOST_BYTES {
        return Err(format!(
            "a record of {bytes} bytes: tasks send each other records of less than 2 GiB"
        ));
    }
    chunk.extend_from_slice(&(key.len() as u16).to_le_bytes());
    chunk.extend_from_slice(&(record.len() as u32).to_le_bytes());
    chunk.extend_from_slice(key);
    chunk.extend_from_slice(record);
    Ok(())
}

/// An iterator over the records of a chunk, key and rest, in the order in which they were packed.
pub(super) struct Unpacked<'a> {
    rest: &'a [u8],
}

impl<'a> Unpacked<'a> {
    pub fn new(chunk: &'a [u8]) -> Self {
        Self { rest: chunk }
    }

    fn take(&mut self) -> Option<(&'a [u8], &'a [u8])> {
        let (key_bytes, rest) = self.rest.split_first_chunk()?;
        let (record_bytes, rest) = rest.split_first_chunk()?;
        let (key, rest) = rest.split_at_checked(u16::from_le_bytes(*key_bytes).into())?;
        let (record, rest) = rest.split_at_checked(u32::from_le_bytes(*record_bytes) as usize)?;
        self.rest = rest;
        Some((key, record))
    }
}

impl<'a> Iterator for Unpacked<'a> {
    type Item = Result<(&'a [u8], &'a [u8]), DistributedError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let taken = self.take();
        Some(taken.ok_or_else(|| {
            self.rest = &[];
            DistributedError::Batch("a chunk that ends within a record".to_owned())
        }))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Record = (Vec<u8>, Vec<u8>);

    fn unpacked(chunk: &[u8]) -> Result<Vec<Record>, DistributedError> {
        let owned = |(key, record): (&[u8], &[u8])| (key.to_vec(), record.to_vec());
        Unpacked::new(chunk).map(|each| each.map(owned)).collect()
    }

    proptest! {
        #[test]
        fn packed_records_are_unpacked_and_truncation_is_detected(
            records in prop::collection::vec(
                (prop::collection::vec(any::<u8>(), 0..30), prop::collection::vec(any::<u8>(), 0..300)),
                1..20,
            ),
            at in any::<prop::sample::Index>(),
        ) {
            let (mut chunk, mut ends) = (Vec::new(), vec![0]);
            for (key, record) in &records {
                pack(&mut chunk, key, record).unwrap();
                ends.push(chunk.len());
            }
            prop_assert_eq!(unpacked(&chunk).unwrap(), records.clone());
            let cut = at.index(chunk.len());
            match ends.iter().position(|end| *end == cut) {
                Some(whole) => prop_assert_eq!(&unpacked(&chunk[..cut]).unwrap(), &records[..whole]),
                None => prop_assert!(unpacked(&chunk[..cut]).is_err()),
            }
        }

        #[test]
        fn unpacking_random_bytes_ends(junk in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(Unpacked::new(&junk).count() <= 1 + junk.len() / HEAD_BYTES);
        }
    }
}
