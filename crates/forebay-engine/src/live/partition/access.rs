//! Locks a partition for a write or a read.
//!
//! A thread that was routed to a partition may find, once it has the lock, that the partition was
//! released or split. The router then says where the key is now. A partition is replaced while all
//! partitions are locked, so a thread that finds a released partition is routed elsewhere by the
//! new router.

use std::time::Duration;

use parking_lot::MutexGuard;

use crate::keys::route::Router;
use crate::live::basics::error::LiveError;
use crate::live::basics::shape::KeyPlace;
use crate::live::partition::entry::BoundEntry;
use crate::live::partition::part::{Access, LivePart};
use crate::live::partition::shared::{GATE_ENDED, LiveShared};

/// Whether a writer may wait: for memory, for runs that are being added, or for the device where it
/// reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    AsNeeded,
    Never,
}

/// The kind of a writer: whether it may wait, and the proposal that it is bound to, if any.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Writing<'b> {
    pub wait: Wait,
    pub bound: Option<&'b BoundEntry>,
}

/// The outcome of an attempt to lock a partition.
pub(crate) enum Attempt<T> {
    Done(T),
    /// The partition has left its place: ask the router again.
    Moved,
    /// The attempt would have to wait, and may not.
    Waits,
}

/// How long a thread that may not wait tries for a partition that another thread has locked. A
/// holder keeps the lock for a microsecond or two, unless it reads from the device or the system
/// stopped it.
pub(crate) const LOCK_TRY: Duration = Duration::from_micros(100);

impl LiveShared {
    /// Returns the place of the partition that has a key.
    #[inline]
    pub fn partition_at(&self, place: KeyPlace, key: &[u8]) -> Result<usize, LiveError> {
        let partition = self.parts.place_of(place.hash, key);
        partition.ok_or_else(|| self.shape.not_here(key))
    }

    /// Like the above, by a given router. With two routers, keys of one partition that is split
    /// meanwhile would be routed to several places.
    #[inline]
    pub fn partition_by(
        &self,
        router: &Router,
        place: KeyPlace,
        key: &[u8],
    ) -> Result<usize, LiveError> {
        let partition = router.partition(place.hash, key);
        partition.ok_or_else(|| self.shape.not_here(key))
    }

    /// Locks a partition for reading.
    #[inline]
    pub fn lock_to_read(&self, partition: usize, wait: bool) -> Attempt<MutexGuard<'_, LivePart>> {
        let part = self.parts.at(partition);
        let part = match wait {
            true => Some(part.lock()),
            false => part.try_lock_for(LOCK_TRY),
        };
        match part {
            Some(part) if part.access == Access::Released => Attempt::Moved,
            Some(part) => Attempt::Done(part),
            None => Attempt::Waits,
        }
    }

    /// Locks a partition whose writes may pass.
    #[inline]
    pub fn lock_to_write(
        &self,
        partition: usize,
        by: Writing<'_>,
    ) -> Result<Attempt<MutexGuard<'_, LivePart>>, LiveError> {
        let attempt = match by.wait {
            Wait::AsNeeded => {
                let part = self.lock_waiting(partition)?;
                part.map_or(Attempt::Moved, Attempt::Done)
            }
            Wait::Never => self.try_lock_to_write(partition)?,
        };
        if let Attempt::Done(part) = &attempt {
            self.admit(part, partition, by.bound)?;
        }
        Ok(attempt)
    }

    fn try_lock_to_write(
        &self,
        partition: usize,
    ) -> Result<Attempt<MutexGuard<'_, LivePart>>, LiveError> {
        let part = match self.lock_to_read(partition, false) {
            Attempt::Done(part) => part,
            other => return Ok(other),
        };
        match self.gate.reasons() {
            0 if part.access == Access::Paused => Ok(Attempt::Waits),
            0 => Ok(Attempt::Done(part)),
            reasons if reasons & GATE_ENDED != 0 => Err(self.ended()),
            _ => Ok(Attempt::Waits),
        }
    }

    /// Locks the partition of a key when its writes may pass. Returns its place, too.
    #[inline]
    pub fn lock_key(
        &self,
        place: KeyPlace,
        key: &[u8],
        bound: Option<&BoundEntry>,
    ) -> Result<(usize, MutexGuard<'_, LivePart>), LiveError> {
        loop {
            let partition = self.partition_at(place, key)?;
            if let Some(part) = self.lock_waiting(partition)? {
                self.admit(&part, partition, bound)?;
                return Ok((partition, part));
            }
        }
    }

    /// `None`: the partition has left its place.
    #[inline]
    fn lock_waiting(
        &self,
        partition: usize,
    ) -> Result<Option<MutexGuard<'_, LivePart>>, LiveError> {
        loop {
            let part = self.parts.at(partition).lock();
            match part.access {
                Access::Open => {}
                Access::Released => return Ok(None),
                Access::Paused => {
                    drop(part);
                    self.wait_while_paused(partition)?;
                    continue;
                }
            }
            if self.gate.reasons() == 0 {
                return Ok(Some(part));
            }
            drop(part);
            self.wait_at_gate()?;
        }
    }
}
