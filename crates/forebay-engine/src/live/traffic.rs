//! How much partitions are read and written, for who places them by it.
//!
//! Numbers of a partition stand under its lock, which whoever reads or writes has taken anyway, so
//! counting costs an addition. How long values are that were read is known without the lock only:
//! of 64 reads one counts for all.

use forebay_run::operation::Operation;

/// One of so many reads tells how long its value was.
const LENGTHS: u64 = 64;

/// What was done in a partition since the table was opened here.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PartitionTraffic {
    /// Keys that were looked up. One that waits for the device may count twice. Walks over ranges
    /// of keys are not in it.
    pub reads: u64,
    /// Operations; on a replica those that it applied.
    pub writes: u64,
    /// Of values that were read, about: one look-up of 64 counts for all.
    pub read_bytes: u64,
    /// Of keys and operands.
    pub written_bytes: u64,
}

/// A read whose value's length counts, and the partition's place.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SampledRead {
    place: usize,
}

impl PartitionTraffic {
    /// Counts a look-up; returns whether its value's length is to be told.
    #[inline]
    pub(crate) fn read(&mut self, place: usize) -> Option<SampledRead> {
        self.reads += 1;
        self.reads
            .is_multiple_of(LENGTHS)
            .then_some(SampledRead { place })
    }

    /// The same of several keys, the last of which may tell.
    #[inline]
    pub(crate) fn read_many(&mut self, keys: u64, place: usize) -> Option<SampledRead> {
        let before = self.reads / LENGTHS;
        self.reads += keys;
        (self.reads / LENGTHS > before).then_some(SampledRead { place })
    }

    /// Counts the value's length of such a read.
    #[inline]
    pub(crate) fn add_length(&mut self, bytes: usize) {
        self.read_bytes += LENGTHS * bytes as u64;
    }

    #[inline]
    pub(crate) fn wrote(&mut self, operations: u64, bytes: usize) {
        self.writes += operations;
        self.written_bytes += bytes as u64;
    }
}

impl SampledRead {
    pub(crate) fn place(self) -> usize {
        self.place
    }
}

#[inline]
pub(crate) fn operand_bytes(operation: Operation<'_>) -> usize {
    match operation.plain() {
        Operation::Update(bytes) | Operation::Insert(bytes) | Operation::Delta(bytes) => {
            bytes.len()
        }
        Operation::InsertDelta { value, delta } => value.len() + delta.len(),
        Operation::Delete | Operation::Timed(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_64_reads_one_tells_the_length_of_its_value() {
        let mut traffic = PartitionTraffic::default();
        let reported = (0..640).filter(|_| traffic.read(0).is_some()).count();
        assert_eq!((reported, traffic.reads), (10, 640));
        let mut traffic = PartitionTraffic::default();
        let reported = (0..64).filter(|_| traffic.read_many(10, 0).is_some());
        assert_eq!((reported.count(), traffic.reads), (10, 640));
    }
}
