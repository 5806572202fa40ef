//! Merges runs in memory, so that look-ups never have to search many.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tracing::warn;

use crate::live::basics::error::LiveError;
use crate::live::memory::mini::MiniRun;
use crate::live::partition::part::merge_minis;
use crate::live::partition::shared::LiveShared;

/// From this many sorted buffers of a partition on, they are merged whether that pays or not: each
/// new one copies their list. A generation of some 80 MiB has fewer.
const MOST_BUFFERS: usize = 1024;

impl LiveShared {
    /// Merges some of the partition's sorted buffers when there are many and it pays: keys repeat,
    /// or the table is read. Otherwise all of them are merged once, when they are flushed. If
    /// another thread does the same, the first outcome is used.
    pub fn compact_memory(&self, partition: usize) -> Result<(), LiveError> {
        let part = self.parts.at(partition).lock();
        let is_read = self.counts.memory_is_read.load(Ordering::Relaxed);
        if !part.is_repetitive && !is_read && part.view.minis.len() < MOST_BUFFERS {
            return Ok(());
        }
        let view = Arc::clone(&part.view);
        drop(part);
        match view.due_buffers() {
            Some((minis, level)) => self.merge_in_memory(partition, minis, level),
            None => Ok(()),
        }
    }

    /// Merges the small buffers that snapshots have sealed. There may be many, and the table is
    /// read.
    pub fn compact_memory_after_snapshot(&self) {
        for partition in 0..self.parts.places() {
            let view = Arc::clone(&self.parts.at(partition).lock().view);
            if let Some((minis, level)) = view.due_buffers()
                && let Err(error) = self.merge_in_memory(partition, minis, level)
            {
                warn!(table = %self.shape.table, %error, "runs in memory were not merged");
            }
        }
    }

    /// Merges runs in memory, of all partitions, while some are due.
    pub fn tidy_memory(&self) -> Result<(), LiveError> {
        for partition in 0..self.parts.places() {
            loop {
                let view = Arc::clone(&self.parts.at(partition).lock().view);
                let due = view.due_buffers().or_else(|| view.due_large_minis());
                let Some((minis, level)) = due else { break };
                self.merge_in_memory(partition, minis, level)?;
            }
        }
        Ok(())
    }

    fn merge_in_memory(
        &self,
        partition: usize,
        minis: &[Arc<MiniRun>],
        level: u32,
    ) -> Result<(), LiveError> {
        let merged = merge_minis(&self.shape, minis, level);
        let merged = Arc::new(merged.map_err(|source| self.shape.run_error(source))?);
        let bytes = merged.memory_bytes();
        let old: usize = minis.iter().map(|mini| mini.memory_bytes()).sum();
        let mut part = self.parts.at(partition).lock();
        if part.replace_minis(minis, merged) {
            self.memory.regrow(old, bytes);
            if part.view.due_large_minis().is_some() {
                drop(part);
                self.notify(|progress| progress.tidy_asked = true);
            }
        }
        Ok(())
    }
}
