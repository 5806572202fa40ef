//! A batch of operations that take effect together.

use forebay_run::operation::Operation;

use crate::live::basics::record::{Record, append};

/// A list of operations that are done in order and all at once. A reader or a crash sees all of
/// them or none. All keys of a batch must be in one partition. In hashed tables, keys with the same
/// hashtag are in one partition.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Batch {
    /// Records, in the encoding of the log.
    bytes: Vec<u8>,
    operations: usize,
}

impl Batch {
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the number of operations.
    pub fn len(&self) -> usize {
        self.operations
    }

    pub fn is_empty(&self) -> bool {
        self.operations == 0
    }

    pub fn clear(&mut self) {
        self.bytes.clear();
        self.operations = 0;
    }

    pub fn push(&mut self, key: &[u8], operation: Operation<'_>) {
        append(&mut self.bytes, key, operation);
        self.operations += 1;
    }

    /// Adds an operation that sets a key's value if the key is absent.
    pub fn insert(&mut self, key: &[u8], value: &[u8]) {
        self.push(key, Operation::Insert(value));
    }

    /// Adds an operation that sets a key's value.
    pub fn update(&mut self, key: &[u8], value: &[u8]) {
        self.push(key, Operation::Update(value));
    }

    pub fn delete(&mut self, key: &[u8]) {
        self.push(key, Operation::Delete);
    }

    /// Adds an operation that adds to a key's value, by the table's kind of deltas.
    pub fn delta(&mut self, key: &[u8], delta: &[u8]) {
        self.push(key, Operation::Delta(delta));
    }

    /// Parses operations in the encoding of the log; `None` if the bytes are anything else.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut records = Records::new(bytes);
        let operations = records.by_ref().count();
        records.is_at_end().then(|| Self {
            bytes: bytes.to_vec(),
            operations,
        })
    }

    /// Returns the operations in the encoding of the log.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the keys with their operations, in order.
    pub fn records(&self) -> impl Iterator<Item = (&[u8], Operation<'_>)> {
        Records {
            bytes: &self.bytes,
            at: 0,
        }
    }
}

/// An iterator over consecutive records in some bytes. It ends at the first bytes that are not a
/// record.
#[derive(Debug)]
pub(crate) struct Records<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Records<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Returns whether all bytes were records.
    pub fn is_at_end(&self) -> bool {
        self.at == self.bytes.len()
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = (&'a [u8], Operation<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let record = Record::read(self.bytes, self.at)?;
        let operation = record.operation()?;
        self.at += record.len_bytes;
        Some((record.key, operation))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_holds_its_operations_in_order() {
        let mut batch = Batch::new();
        batch.insert(b"a", b"1");
        batch.delta(b"a", b"2");
        batch.delete(b"b");
        let records: Vec<_> = batch.records().collect();
        let wanted = [
            (&b"a"[..], Operation::Insert(&b"1"[..])),
            (b"a", Operation::Delta(b"2")),
            (b"b", Operation::Delete),
        ];
        assert_eq!(records, wanted);
        assert_eq!(batch.len(), 3);
        batch.clear();
        assert!(batch.is_empty() && batch.records().next().is_none());
    }

    #[test]
    fn bytes_that_are_no_record_end_the_list_before_its_end() {
        let mut batch = Batch::new();
        batch.update(b"k", b"v");
        let mut bytes = batch.bytes().to_vec();
        bytes.push(0xff);
        let mut records = Records::new(&bytes);
        assert_eq!(records.by_ref().count(), 1);
        assert!(!records.is_at_end());
    }
}
