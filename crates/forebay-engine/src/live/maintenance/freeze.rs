//! Ends a generation: its memory waits to be flushed, and a new generation takes the writes.
//!
//! All partitions end it together, as they share the segments of the log. Partitions of a
//! replicated table have logs of their own, so a single partition can end it: when it is split,
//! copied or released, the others keep their memory. They still count the generation, as one in
//! which they have nothing.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::MutexGuard;

use crate::live::basics::applied::AppliedPlace;
use crate::live::log::Log;
use crate::live::partition::entry::MOVED_PROPOSALS;
use crate::live::partition::part::LivePart;
use crate::live::partition::shared::{Frozen, LiveShared};

impl LiveShared {
    /// Ends the generation that takes writes. Returns its number, or that of the last frozen one
    /// when there is nothing new.
    pub fn freeze(&self) -> u64 {
        self.freeze_moved(None, MOVED_PROPOSALS)
    }

    /// Like `freeze`, for the partitions at some places, or for all. A partition that has moved at
    /// least this far in its group's log without a write counts as new. REQUIRES: the table is
    /// replicated, unless all are frozen.
    pub fn freeze_moved(&self, only: Option<&[usize]>, least_moved: u64) -> u64 {
        debug_assert!(
            only.is_none() || self.options.replication.is_some(),
            "partitions {only:?} alone end a generation whose log is common to all"
        );
        let is_of = |place: usize| only.is_none_or(|only| only.contains(&place));
        let mut frozen = self.frozen.lock();
        let mut parts = self.parts.lock_all();
        let chosen = parts.iter_mut().enumerate().filter(|(at, _)| is_of(*at));
        for (_, part) in chosen {
            part.seal(&self.memory);
        }
        let last = self.progress.lock().frozen;
        let mut chosen = parts.iter().enumerate().filter(|(at, _)| is_of(*at));
        if !chosen.any(|(_, part)| is_new(part, least_moved)) {
            if only.is_none() {
                self.memory.has_nothing();
            }
            return last;
        }
        let log_from = self.log.as_ref().map_or(0, Log::roll);
        let mut bytes = 0;
        for (at, part) in parts.iter_mut().enumerate() {
            match is_of(at) {
                true => bytes += part.freeze(&self.memory),
                false => part.sit_out(),
            }
        }
        debug_assert!(
            match only {
                None => bytes == self.memory.memtable_bytes(),
                Some(_) => bytes <= self.memory.memtable_bytes(),
            },
            "{bytes} bytes of generations end, and {} are counted",
            self.memory.memtable_bytes()
        );
        let applied = self.applied_of(&mut parts, is_of);
        let memory_bytes = match only {
            None => self.memory.freeze(),
            Some(_) => self.memory.freeze_some(bytes),
        };
        if only.is_none() {
            self.counts.memory_is_read.store(false, Ordering::Relaxed);
        }
        drop(parts);
        let number = last + 1;
        debug_assert!(
            (frozen.back()).is_none_or(|back| back.number == last && back.log_from <= log_from),
            "generation {number}, from segment {log_from} on, follows {:?}",
            frozen.back()
        );
        frozen.push_back(Frozen {
            number,
            log_from,
            memory_bytes,
            applied,
        });
        self.notify(|progress| progress.frozen = number);
        number
    }

    /// Returns the places of replicated partitions, which a generation records.
    fn applied_of(
        &self,
        parts: &mut [MutexGuard<'_, LivePart>],
        is_of: impl Fn(usize) -> bool,
    ) -> Arc<[Option<AppliedPlace>]> {
        if self.options.replication.is_none() {
            return Arc::default();
        }
        let taken = parts.iter_mut().enumerate().map(|(at, part)| {
            let applied = part.applied.as_mut().filter(|_| is_of(at))?;
            applied.unwritten = 0;
            Some(applied.place.clone())
        });
        taken.collect()
    }
}

fn is_new(part: &LivePart, least_moved: u64) -> bool {
    let applied = part.applied.as_ref();
    let has_moved = applied.is_some_and(|applied| applied.unwritten >= least_moved);
    !part.view.minis.is_empty() || has_moved
}
