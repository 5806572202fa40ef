//! Transactions on many keys of one partition that do not hold all of their values.
//!
//! [`LiveTable::transact`] reads all keys before it calls `decide`. In this module each value is
//! read on request, under the same lock, and the caller can drop it at any time.

use std::sync::Arc;

use forebay_run::operation::CowOperation;

use crate::live::LiveTable;
use crate::live::basics::batch::Batch;
use crate::live::basics::error::LiveError;
use crate::live::basics::expiry::Stored;
use crate::live::basics::shape::KeyPlace;
use crate::live::partition::access::{Attempt, Wait, Writing};
use crate::live::partition::part::{LivePart, PartFound};
use crate::live::partition::shared::LiveShared;
use crate::live::writing::commit::Commit;

/// The most bytes of values that are read into memory before the lock is taken.
const WARM_BYTES: usize = 64 << 20;

/// The keys of a locked partition, to be read one by one.
#[derive(Debug)]
pub struct LockedKeys<'a> {
    shared: &'a LiveShared,
    part: &'a LivePart,
    waits: bool,
}

impl LockedKeys<'_> {
    /// Returns the value of a key; `None` if it is not known without waiting, and this may not
    /// wait. REQUIRES: the key is one of those that were named.
    pub fn stored(&self, key: &[u8]) -> Result<Option<Option<Stored>>, LiveError> {
        let shape = &self.shared.shape;
        let place = shape.place(key);
        let newest = self.part.memtable.get(place, key);
        let newest = newest.map(|found| found.to_owned());
        let view = &self.part.view;
        let shape = (&**shape, self.part.time());
        view.stored(shape, place, key, newest, self.waits)
    }
}

impl LiveTable {
    /// [`LiveTable::transact`] where `decide` reads the keys itself. Pages are read into memory
    /// before the partition is locked, unless they have a great many bytes. REQUIRES: there is a
    /// key.
    pub fn transact_reading<R>(
        &self,
        keys: &[&[u8]],
        decide: impl FnOnce(&LockedKeys<'_>) -> (Batch, R),
    ) -> Result<(Commit<'_>, R), LiveError> {
        let shared = self.shared();
        let done = shared.transact_reading(keys, self.writer(Wait::AsNeeded), decide)?;
        done.ok_or_else(|| shared.ended())
    }

    /// [`LiveTable::transact_reading`] from a thread that must not wait. Returns `None`, and does
    /// nothing, if it would have to wait for the partition. Reads of `decide` report keys that
    /// would have to be waited for.
    pub fn try_transact_reading<R>(
        &self,
        keys: &[&[u8]],
        decide: impl FnOnce(&LockedKeys<'_>) -> (Batch, R),
    ) -> Result<Option<(Commit<'_>, R)>, LiveError> {
        let by = self.writer(Wait::Never);
        self.shared().transact_reading(keys, by, decide)
    }
}

impl LiveShared {
    fn transact_reading<R>(
        &self,
        keys: &[&[u8]],
        by: Writing<'_>,
        decide: impl FnOnce(&LockedKeys<'_>) -> (Batch, R),
    ) -> Result<Option<(Commit<'_>, R)>, LiveError> {
        let Some(&first) = keys.first() else {
            return Ok(None);
        };
        let (located, mut part) = loop {
            let (located, places) = self.locate_all(first, keys)?;
            if by.wait == Wait::AsNeeded {
                self.warm(located.partition, &places, keys)?;
            }
            match self.lock_to_write(located.partition, by)? {
                Attempt::Done(part) => break (located, part),
                Attempt::Moved => {}
                Attempt::Waits => return Ok(None),
            }
        };
        part.memtable.note_look();
        let (batch, outcome) = decide(&LockedKeys {
            shared: self,
            part: &part,
            waits: by.wait == Wait::AsNeeded,
        });
        let commit = self.write_decided(part, located, &[], (&batch, by.bound))?;
        Ok(Some((commit, outcome)))
    }

    /// Reads the pages of keys into memory, while others write.
    fn warm(&self, partition: usize, places: &[KeyPlace], keys: &[&[u8]]) -> Result<(), LiveError> {
        let (view, time) = {
            let part = self.parts.at(partition).lock();
            (Arc::clone(&part.view), part.time())
        };
        let shape = (&*self.shape, time);
        let mut bytes = 0;
        for (&place, key) in places.iter().zip(keys) {
            let found = view.get(shape, place, key, None::<CowOperation<'_>>, true)?;
            if let PartFound::Value(Some(value)) = found {
                bytes += value.len();
            }
            if bytes > WARM_BYTES {
                break;
            }
        }
        Ok(())
    }
}
