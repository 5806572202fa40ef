//! The last events of a server: the lines of its log at level INFO or worse.
//!
//! Each event has a sequence number, one more than that of the previous event. The first number is
//! the start time in milliseconds. So numbers of a later process are greater, and a reader with a
//! number of an earlier process learns of the gap.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::Serialize;
use serde_json::{Map, Value};
use tokio::sync::watch;

/// The most events that are kept, and their approximate size in bytes.
const MOST_EVENTS: usize = 2000;
const MOST_BYTES: usize = 1 << 20;
/// The size of an event beside its texts.
const EVENT_BYTES: usize = 128;

/// An event, before it has a number.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct EventDraft {
    pub unix_ms: u64,
    /// `INFO`, `WARN` or `ERROR`.
    pub level: &'static str,
    pub message: String,
    /// Table, node, user and other fields, as in the log line.
    pub fields: Map<String, Value>,
}

/// An event of a server.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Event {
    pub sequence: u64,
    #[serde(flatten)]
    pub draft: EventDraft,
}

impl Event {
    /// Returns the event's table.
    pub fn table(&self) -> Option<&str> {
        self.draft.fields.get("table")?.as_str()
    }

    fn bytes(&self) -> usize {
        let fields = self.draft.fields.iter();
        let fields = fields.map(|(name, value)| {
            let text = value.as_str().map_or(8, str::len);
            name.len() + text
        });
        EVENT_BYTES + self.draft.message.len() + fields.sum::<usize>()
    }
}

/// The last events, limited in number and size.
#[derive(Debug)]
pub struct EventRing {
    kept: Mutex<KeptEvents>,
    /// The number of the last event.
    newest: watch::Sender<u64>,
}

#[derive(Debug)]
struct KeptEvents {
    events: VecDeque<Arc<Event>>,
    bytes: usize,
    next: u64,
}

/// Events after a number.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EventsAfter {
    pub events: Vec<Arc<Event>>,
    /// Whether events between the number and these are no longer kept.
    pub has_gap: bool,
    /// The number for the next request.
    pub last: u64,
}

impl EventRing {
    pub fn new(start_unix_ms: u64) -> Self {
        let next = start_unix_ms.max(1);
        Self {
            kept: Mutex::new(KeptEvents {
                events: VecDeque::new(),
                bytes: 0,
                next,
            }),
            newest: watch::Sender::new(next - 1),
        }
    }

    pub fn push(&self, draft: EventDraft) {
        let mut kept = self.kept.lock();
        let sequence = kept.next;
        kept.next += 1;
        let event = Event { sequence, draft };
        kept.bytes += event.bytes();
        kept.events.push_back(Arc::new(event));
        while kept.events.len() > MOST_EVENTS || kept.bytes > MOST_BYTES {
            let Some(oldest) = kept.events.pop_front() else {
                break;
            };
            kept.bytes -= oldest.bytes();
        }
        self.newest.send_replace(sequence);
    }

    /// Returns the events after that number; without a number, all that are kept.
    pub fn after(&self, sequence: Option<u64>) -> EventsAfter {
        let kept = self.kept.lock();
        let last = kept.next - 1;
        let oldest = kept
            .events
            .front()
            .map_or(kept.next, |event| event.sequence);
        let has_gap = sequence.is_some_and(|sequence| sequence > last || sequence + 1 < oldest);
        let from = match sequence {
            Some(sequence) if !has_gap => sequence + 1 - oldest,
            _ => 0,
        };
        EventsAfter {
            events: kept.events.iter().skip(from as usize).cloned().collect(),
            has_gap,
            last,
        }
    }

    /// Waits for an event after that number.
    pub async fn newer(&self, than: u64) {
        let mut newest = self.newest.subscribe();
        // The sender lives as long as the ring.
        let _ = newest.wait_for(|newest| *newest > than).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draft(message: &str) -> EventDraft {
        EventDraft {
            level: "INFO",
            message: message.to_owned(),
            ..EventDraft::default()
        }
    }

    fn numbers(after: &EventsAfter) -> Vec<u64> {
        after.events.iter().map(|event| event.sequence).collect()
    }

    #[test]
    fn a_reader_resumes_after_its_last_event() {
        let ring = EventRing::new(500);
        assert_eq!(ring.after(None).last, 499);
        assert_eq!(
            ring.after(Some(499)),
            EventsAfter {
                last: 499,
                ..EventsAfter::default()
            }
        );
        for number in 0..3 {
            ring.push(draft(&number.to_string()));
        }
        let all = ring.after(None);
        assert_eq!(
            (numbers(&all), all.has_gap, all.last),
            (vec![500, 501, 502], false, 502)
        );
        let rest = ring.after(Some(500));
        assert_eq!((numbers(&rest), rest.has_gap), (vec![501, 502], false));
        assert_eq!(numbers(&ring.after(Some(502))), [0u64; 0]);
        assert!(!ring.after(Some(502)).has_gap);
    }

    #[test]
    fn discarded_events_are_reported_as_a_gap() {
        let ring = EventRing::new(1000);
        for _ in 0..MOST_EVENTS + 5 {
            ring.push(draft("x"));
        }
        assert_eq!(ring.after(None).events.len(), MOST_EVENTS);
        assert!(!ring.after(Some(1004)).has_gap);
        assert!(ring.after(Some(1003)).has_gap);
        assert_eq!(numbers(&ring.after(Some(1003)))[0], 1005);
        // From the previous process, and from one whose clock was ahead.
        assert!(ring.after(Some(7)).has_gap);
        assert!(ring.after(Some(u64::MAX)).has_gap);
    }

    #[test]
    fn large_events_are_bounded_by_their_size() {
        let ring = EventRing::new(1);
        for _ in 0..100 {
            ring.push(draft(&"x".repeat(MOST_BYTES / 10)));
        }
        assert_eq!(ring.after(None).events.len(), 9);
        ring.push(draft(&"x".repeat(2 * MOST_BYTES)));
        assert_eq!(ring.after(None).events.len(), 0);
        assert_eq!(ring.after(None).last, 101);
    }
}
