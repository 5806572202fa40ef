//! Gathers the records of a source task into chunks of a useful size for each partition.

use arrow_array::RecordBatch;

use super::DistributedError;
use super::chunk::pack;
use super::wire::{CONTROL_SEQUENCE, WireRows};

/// A chunk of this size is sent: a JVM's heap treats objects of half a MiB as a special case.
const CHUNK_BYTES: usize = 256 << 10;
/// A batch of chunks of this size is sent.
const BATCH_BYTES: usize = 8 << 20;

/// The records of one source that it has not sent yet.
#[derive(Debug)]
pub(super) struct Gatherer {
    source: u32,
    /// One chunk for each partition.
    chunks: Vec<Vec<u8>>,
    held_bytes: usize,
    most_bytes: usize,
    /// The sequence number of the next chunk, for any partition.
    sequence: i64,
    rows: WireRows,
    ready: Vec<RecordBatch>,
}

impl Gatherer {
    /// Creates a gatherer that holds at most `most_bytes` of records, plus one batch.
    pub fn new(source: u32, partitions: usize, most_bytes: usize) -> Self {
        Self {
            source,
            chunks: vec![Vec::new(); partitions],
            held_bytes: 0,
            most_bytes,
            sequence: 0,
            rows: WireRows::new(source),
            ready: Vec::new(),
        }
    }

    pub fn push(
        &mut self,
        partition: usize,
        key: &[u8],
        record: &[u8],
    ) -> Result<(), DistributedError> {
        let chunk = &mut self.chunks[partition];
        let before = chunk.len();
        // With a long record after it, a chunk would be too long.
        if before > 0 && before + key.len() + record.len() > CHUNK_BYTES {
            self.send(partition)?;
        }
        let chunk = &mut self.chunks[partition];
        let before = chunk.len();
        let packed = pack(chunk, key, record);
        packed.map_err(|problem| DistributedError::Source {
            source_number: self.source.into(),
            problem,
        })?;
        self.held_bytes += chunk.len() - before;
        if chunk.len() > CHUNK_BYTES {
            self.send(partition)?;
        }
        if self.held_bytes > self.most_bytes {
            self.send_all()?;
        }
        Ok(())
    }

    fn send(&mut self, partition: usize) -> Result<(), DistributedError> {
        // The allocation is dropped, too: the allocations of all partitions may exceed the limit.
        let chunk = std::mem::take(&mut self.chunks[partition]);
        self.held_bytes -= chunk.len();
        self.sequence += 1;
        self.row(partition, &chunk, self.sequence - 1)
    }

    fn send_all(&mut self) -> Result<(), DistributedError> {
        for partition in 0..self.chunks.len() {
            if !self.chunks[partition].is_empty() {
                self.send(partition)?;
            }
        }
        Ok(())
    }

    fn row(
        &mut self,
        partition: usize,
        bytes: &[u8],
        sequence: i64,
    ) -> Result<(), DistributedError> {
        if !self.rows.is_empty() && self.rows.bytes() + bytes.len() > BATCH_BYTES {
            self.end_batch()?;
        }
        self.rows.push(partition, bytes, sequence);
        Ok(())
    }

    fn end_batch(&mut self) -> Result<(), DistributedError> {
        let rows = std::mem::replace(&mut self.rows, WireRows::new(self.source));
        self.ready.push(rows.finish()?);
        Ok(())
    }

    /// Returns the batches that are ready to be sent.
    pub fn take_ready(&mut self) -> Vec<RecordBatch> {
        std::mem::take(&mut self.ready)
    }

    /// Returns all remaining records, followed by a control row for each partition.
    pub fn finish(
        mut self,
        controls: impl Iterator<Item = Vec<u8>>,
    ) -> Result<Vec<RecordBatch>, DistributedError> {
        self.send_all()?;
        for (partition, control) in controls.enumerate() {
            self.row(partition, &control, CONTROL_SEQUENCE)?;
        }
        self.end_batch()?;
        Ok(self.ready)
    }
}
