//! How much partitions are read and written, for who places them by it.
//!
//! Numbers of a partition stand under its lock, which whoever reads or writes has taken anyway, so
//! counting costs an addition. How long values are that were read is known without the lock only:
//! of 64 reads one counts for all.

use forebay_run::operation::Operation;

use crate::live::LiveTable;
use crate::live::shared::LiveShared;
use crate::partition::PartitionId;

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
pub(crate) struct SampledRead(usize);

impl PartitionTraffic {
    /// Counts a look-up; returns whether its value's length is to be told.
    #[inline]
    pub(crate) fn read(&mut self, place: usize) -> Option<SampledRead> {
        self.reads += 1;
        self.reads
            .is_multiple_of(LENGTHS)
            .then_some(SampledRead(place))
    }

    /// The same of several keys, the last of which may tell.
    #[inline]
    pub(crate) fn read_many(&mut self, keys: u64, place: usize) -> Option<SampledRead> {
        let before = self.reads / LENGTHS;
        self.reads += keys;
        (self.reads / LENGTHS > before).then_some(SampledRead(place))
    }

    #[inline]
    pub(crate) fn wrote(&mut self, operations: u64, bytes: usize) {
        self.writes += operations;
        self.written_bytes += bytes as u64;
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

impl LiveTable {
    /// What was done in the partitions that are here, since the table was opened.
    pub fn traffic(&self) -> Vec<(PartitionId, PartitionTraffic)> {
        self.shared().traffic()
    }
}

impl LiveShared {
    fn traffic(&self) -> Vec<(PartitionId, PartitionTraffic)> {
        let places = 0..self.parts.places();
        let counted = places.filter_map(|place| {
            let part = self.parts.at(place).lock();
            let traffic = part.is_here().then_some(part.traffic)?;
            drop(part);
            Some((self.parts.id_at(place), traffic))
        });
        counted.collect()
    }

    /// Tells how long the value of a read was that tells it; not while another thread has the
    /// partition, as who reads may be one that must not wait.
    #[inline]
    pub fn count_length(&self, sampled: Option<SampledRead>, value: Option<&[u8]>) {
        if let (Some(SampledRead(place)), Some(value)) = (sampled, value) {
            if let Some(mut part) = self.parts.at(place).try_lock() {
                part.traffic.read_bytes += LENGTHS * value.len() as u64;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_64_reads_one_tells_the_length_of_its_value() {
        let mut traffic = PartitionTraffic::default();
        let told = (0..640).filter(|_| traffic.read(0).is_some()).count();
        assert_eq!((told, traffic.reads), (10, 640));
        let mut traffic = PartitionTraffic::default();
        let told = (0..64).filter(|_| traffic.read_many(10, 0).is_some());
        assert_eq!((told.count(), traffic.reads), (10, 640));
    }
}
