//! Writes records: those that can follow the logged ones go to the log, and into the index.

use super::index::LogIndex;
use super::record::{EntryPlace, GroupRecords, RecordReader, push_records};
use super::state::LogState;
use super::{LogEnds, MAX_PROMISE_BYTES, ReplicaLog, ReplicaLogError, ReplicaLogOptions};
use crate::live::log::{FramePlace, Lsn};

/// A buffer that is longer after a write is freed.
const KEPT_BUFFER_BYTES: usize = 1 << 20;

impl ReplicaLog {
    /// See [`ReplicaLog::append`].
    pub(super) fn write(
        &self,
        ends: &mut LogEnds,
        groups: &[GroupRecords<'_>],
    ) -> Result<Lsn, ReplicaLogError> {
        let mut buffer = std::mem::take(&mut ends.buffer);
        buffer.clear();
        let filled = self.fill(&mut buffer, &ends.index, groups);
        let written = filled.and_then(|()| {
            self.begin(ends)?;
            let (lsn, place) = self.log.append_placed(&buffer)?;
            self.take(ends, place, &buffer).map(|()| lsn)
        });
        if buffer.capacity() <= KEPT_BUFFER_BYTES {
            ends.buffer = buffer;
        }
        written
    }

    /// Encodes all records, each of which can follow the logged ones.
    fn fill(
        &self,
        buffer: &mut Vec<u8>,
        index: &LogIndex,
        groups: &[GroupRecords<'_>],
    ) -> Result<(), ReplicaLogError> {
        if let Some(group) = named_twice(groups) {
            let table = self.options.table.clone();
            return Err(ReplicaLogError::Twice { table, group });
        }
        for records in groups {
            let term_before = self.options.check(records, index)?;
            push_records(buffer, records, term_before);
        }
        Ok(())
    }

    /// Makes the state say that this boot writes and has not stopped, before the first record.
    fn begin(&self, ends: &mut LogEnds) -> Result<(), ReplicaLogError> {
        if ends.is_begun {
            return Ok(());
        }
        let mut state = self.state.lock();
        let begun = LogState {
            boot_id: self.options.boot_id,
            stopped_clean: false,
            ..state.state
        };
        let written = state.write(&*self.disk, begun);
        written.map_err(|error| self.options.refused(state.path(), error))?;
        ends.is_begun = true;
        Ok(())
    }

    /// Adds the written records to the index, as reading them back would.
    fn take(
        &self,
        ends: &mut LogEnds,
        place: FramePlace,
        payload: &[u8],
    ) -> Result<(), ReplicaLogError> {
        for record in RecordReader::new(payload).map_while(Result::ok) {
            debug_assert!(
                ends.is_begun,
                "a record is written, and the state does not say that this boot writes"
            );
            let taken = ends.index.apply(place, record);
            taken.map_err(|problem| self.options.damaged(self.state.lock().path(), &problem))?;
        }
        if place.offset + payload.len() as u64 >= self.segment_bytes() {
            self.log.roll();
        }
        Ok(())
    }
}

impl ReplicaLogOptions {
    /// Checks that the records can follow the logged ones. Returns the term before their first
    /// entry.
    fn check(&self, records: &GroupRecords<'_>, index: &LogIndex) -> Result<u64, ReplicaLogError> {
        let group = records.group;
        if let Some(bytes) = records.promise.map(<[u8]>::len)
            && bytes > MAX_PROMISE_BYTES
        {
            return Err(ReplicaLogError::PromiseBytes {
                table: self.table.clone(),
                group,
                bytes,
                greatest: MAX_PROMISE_BYTES,
            });
        }
        let refuse = |found, before| ReplicaLogError::Order {
            table: self.table.clone(),
            group,
            found,
            before,
        };
        if let Some(begins) = records.begins.filter(|begins| begins.index == u64::MAX) {
            return Err(refuse(begins, begins));
        }
        let Some(first) = records.entries.first() else {
            return Ok(0);
        };
        let known = index.groups.get(&group).filter(|_| !records.is_gone);
        let (last, before) = match (records.begins, known) {
            (Some(begins), _) => (begins, Some(begins)),
            (None, None) => (EntryPlace::default(), Some(EntryPlace::default())),
            (None, Some(known)) => {
                let index = first.place.index.wrapping_sub(1);
                (known.last(), known.place_of(index))
            }
        };
        let mut before = before.ok_or_else(|| refuse(first.place, last))?;
        let term_before = before.term;
        for entry in &records.entries {
            let found = entry.place;
            let follows = found.index.checked_sub(1) == Some(before.index);
            if !follows || found.index == u64::MAX || found.term < before.term {
                return Err(refuse(found, before));
            }
            before = found;
        }
        Ok(term_before)
    }
}

fn named_twice(groups: &[GroupRecords<'_>]) -> Option<u64> {
    if groups.len() < 2 {
        return None;
    }
    let mut named: Vec<u64> = groups.iter().map(|records| records.group).collect();
    named.sort_unstable();
    let twice = named.windows(2).find(|two| two[0] == two[1])?;
    Some(twice[0])
}
