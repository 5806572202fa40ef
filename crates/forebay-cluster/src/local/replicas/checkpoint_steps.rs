//! Checkpoints of live tables: the parts that each node leads, all from one moment.
//!
//! 1. Each node flushes the memtables of the partitions that it leads (`flush`), so that
//!    the next steps have little to write.
//! 2. Each node blocks the writes to these partitions (`hold`). The moment is reached when
//!    all nodes do.
//! 3. Each node checks whether it has led all of them since, keeps their runs, and unblocks
//!    the writes (`take`).
//! 4. The client reads the files, and ends the checkpoint. Without a client, it ends after a
//!    timeout.
//!
//! The client has to check whether the parts of all nodes make up the whole table. A partition may
//! have moved or changed its leader meanwhile.

use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use forebay_engine::live::{LiveTable, PartCheckpoint};
use forebay_engine::{PartitionId, TableName};
use forebay_replica::GroupId;

use super::LocalReplicas;
use super::checkpoints::{CheckpointState, Checkpoints, HeldGroup, PartError};
use super::commons::ReplicaCommons;

/// The maximum time for which writes are blocked.
const HELD: Duration = Duration::from_secs(3);

impl LocalReplicas {
    /// Flushes the memtables of the partitions that this node leads.
    pub fn flush_led(&self, table: &TableName) -> Result<(), PartError> {
        let open = self.open_table(table)?;
        let led = self.commons.led_here(table);
        let ids: Vec<PartitionId> = led.iter().map(|(_, partition)| *partition).collect();
        open.checkpoint_of(&ids)?;
        Ok(())
    }

    /// Blocks the writes to the partitions that this node leads, for at most some seconds.
    pub fn hold_led(&self, table: &TableName, id: &str) -> Result<(), PartError> {
        self.open_table(table)?;
        let (host, now) = (&self.commons.host, self.clock.monotonic());
        let held = self.commons.led_here(table).into_iter();
        let held = held.filter_map(|(group, partition)| {
            let term = host.hold(group, HELD)?;
            Some(HeldGroup {
                group,
                partition,
                term,
            })
        });
        let held: Vec<HeldGroup> = held.collect();
        let put =
            self.checkpoints()
                .put((table, id), now, &held, CheckpointState::Held(held.clone()));
        put.inspect_err(|_| self.release(&held))
    }

    /// Keeps the runs of the held partitions, and unblocks the writes. Returns the content: see
    /// [`PartCheckpoint::to_bytes`].
    pub fn take_held(&self, table: &TableName, id: &str) -> Result<Vec<u8>, PartError> {
        let held = self.checkpoints().held(table, id)?;
        let taken = self.take(table, &held);
        self.release(&held);
        let taken = taken.inspect_err(|_| self.checkpoints().end(table, id))?;
        let bytes = taken.to_bytes()?;
        let state = CheckpointState::Taken(Arc::new(taken));
        let now = self.clock.monotonic();
        self.checkpoints().put((table, id), now, &held, state)?;
        Ok(bytes)
    }

    fn take(&self, table: &TableName, held: &[HeldGroup]) -> Result<PartCheckpoint, PartError> {
        let open = self.open_table(table)?;
        let overtaken = |why: &str| PartError::Overtaken(why.to_owned());
        for held in held {
            if !self.leads_still(*held) {
                return Err(overtaken("another node leads a partition now"));
            }
        }
        let ids: Vec<PartitionId> = held.iter().map(|held| held.partition).collect();
        let taken = open.checkpoint_of(&ids)?;
        let is_held = |held: &HeldGroup| self.commons.host.is_held(held.group);
        match held.iter().all(is_held) {
            true => Ok(taken),
            false => Err(overtaken("it took too long, and writes continued")),
        }
    }

    /// Returns whether this node has led the group ever since its writes were blocked. It must lead
    /// in the same term, and a majority must confirm that now.
    fn leads_still(&self, held: HeldGroup) -> bool {
        let host = &self.commons.host;
        let (done, answer) = sync_channel(1);
        host.read(
            held.group,
            Box::new(move |leave| {
                let _ = done.send(leave.is_ok());
            }),
        );
        if !answer.recv_timeout(HELD).unwrap_or(false) {
            return false;
        }
        let facts = host.facts(held.group);
        facts.is_some_and(|facts| facts.term == held.term && facts.leader == Some(facts.me))
    }

    /// Reads a part of a file of a checkpoint. Also returns the length of the whole file.
    pub fn read_taken(
        &self,
        (table, id): (&TableName, &str),
        file: &str,
        offset: u64,
        bytes: usize,
    ) -> Result<(Vec<u8>, u64), PartError> {
        let part = self
            .checkpoints()
            .taken((table, id), self.clock.monotonic())?;
        let file = part.open(file)?;
        let len_bytes = file.len_bytes();
        let left = len_bytes.saturating_sub(offset).min(bytes as u64);
        let mut buffer = vec![0; left as usize];
        file.read_exact_at(&mut buffer, offset)?;
        self.commons.throttle.take_here(left);
        Ok((buffer, len_bytes))
    }

    /// Restarts the timeout of a checkpoint, as a read does.
    pub fn touch_checkpoint(&self, table: &TableName, id: &str) -> Result<(), PartError> {
        let now = self.clock.monotonic();
        self.checkpoints().taken((table, id), now).map(drop)
    }

    /// Ends a checkpoint, and unblocks writes that are blocked for it.
    pub fn end_checkpoint(&self, table: &TableName, id: &str) {
        if let Ok(held) = self.checkpoints().held(table, id) {
            self.release(&held);
        }
        self.checkpoints().end(table, id);
    }

    fn release(&self, held: &[HeldGroup]) {
        held.iter()
            .for_each(|held| self.commons.host.release(held.group));
    }

    fn checkpoints(&self) -> &Checkpoints {
        &self.commons.checkpoints
    }

    fn open_table(&self, table: &TableName) -> Result<LiveTable, PartError> {
        let open = self.commons.tables.load().get(table).cloned();
        open.ok_or_else(|| PartError::NoTable(table.clone()))
    }
}

impl ReplicaCommons {
    /// Returns the groups of a table that this node leads, with their partitions.
    fn led_here(&self, table: &TableName) -> Vec<(GroupId, PartitionId)> {
        let running = self.running.lock();
        let of_table = running
            .iter()
            .filter(|(_, replica)| replica.table == *table);
        let led =
            of_table.filter(|(group, replica)| self.host.leader(**group) == Some(replica.peer));
        led.map(|(group, replica)| (*group, replica.partition))
            .collect()
    }
}
