//! Reads a group's log for a peer that lags.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use forebay_replica::Event;

use crate::environment::{NoEntries, ReadPace};
use crate::group::HostedGroup;
use crate::log_reader::{LogPart, PartReader};

impl PartReader for HostedGroup {
    fn read_part(self: Arc<Self>, part: LogPart, pace: &dyn ReadPace) {
        if self.is_halted() {
            return;
        }
        let read = self
            .log
            .log()
            .entries(self.group(), (part.from, part.to), part.most_bytes);
        let event = match read {
            Ok(found) if !found.entries.is_empty() => {
                debug_assert!(
                    found
                        .entries
                        .iter()
                        .all(|entry| entry.place.index < part.to),
                    "entries behind those of {part:?} were read"
                );
                pace.wait(found.bytes);
                let counts = &self.core.counts;
                counts.tail_bytes.fetch_add(found.bytes, Ordering::Relaxed);
                Event::EntriesCame(found.entries)
            }
            // The requested entries are decided, so they were in the log once.
            Ok(_) => Event::EntriesGone { through: part.from },
            Err(NoEntries { through }) => Event::EntriesGone {
                through: through.max(part.from),
            },
        };
        self.notify(event);
    }
}
