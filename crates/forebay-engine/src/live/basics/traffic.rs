//! Counts the reads and writes of partitions, so that a planner can place them by load.
//!
//! The counters of a partition are under its lock, which readers and writers take anyway, so
//! counting costs an addition. The length of a read value is known only after the lock is released:
//! one of 64 reads counts for all.

use forebay_run::operation::Operation;

/// One of this many reads counts the length of its value.
const LENGTHS: u64 = 64;

/// The reads and writes of a partition since the table was opened on this node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PartitionTraffic {
    /// Look-ups of keys. A look-up that waits for the device may count twice. Walks over ranges of
    /// keys are not counted.
    pub reads: u64,
    /// Operations; on a replica, those that it applied.
    pub writes: u64,
    /// Bytes of the values that were read, approximately: one look-up of 64 counts for all.
    pub read_bytes: u64,
    /// Bytes of keys and operands.
    pub written_bytes: u64,
}

/// A read whose value's length is counted, and the partition's place.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SampledRead {
    place: usize,
}

impl PartitionTraffic {
    /// Counts a look-up; returns whether its value's length is to be counted.
    #[inline]
    pub(crate) fn read(&mut self, place: usize) -> Option<SampledRead> {
        self.reads += 1;
        self.reads
            .is_multiple_of(LENGTHS)
            .then_some(SampledRead { place })
    }

    /// Counts several keys, the last of which may be sampled.
    #[inline]
    pub(crate) fn read_many(&mut self, keys: u64, place: usize) -> Option<SampledRead> {
        let before = self.reads / LENGTHS;
        self.reads += keys;
        (self.reads / LENGTHS > before).then_some(SampledRead { place })
    }

    /// Counts the value's length of a sampled read.
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
    fn one_of_64_reads_reports_the_length_of_its_value() {
        let mut traffic = PartitionTraffic::default();
        let reported = (0..640).filter(|_| traffic.read(0).is_some()).count();
        assert_eq!((reported, traffic.reads), (10, 640));
        let mut traffic = PartitionTraffic::default();
        let reported = (0..64).filter(|_| traffic.read_many(10, 0).is_some());
        assert_eq!((reported.count(), traffic.reads), (10, 640));
    }
}
