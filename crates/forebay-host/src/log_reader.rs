//! The thread that reads entries from logs for peers that lag.
//!
//! It reads one part after the other, at the pace that client traffic allows.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::environment::ReadPace;

/// After this long without a part, the thread ends its pace. Consecutive parts have pauses between
/// them.
const LULL: Duration = Duration::from_secs(1);

/// A range of a log's entries: from `from` up to `to`, and about `bytes` bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LogPart {
    pub from: u64,
    pub to: u64,
    pub most_bytes: u64,
}

/// A group whose log the thread reads.
pub(crate) trait PartReader: Debug + Send + Sync {
    /// Reads a part and reports it to the replica. Waits for the pace between reads.
    fn read_part(self: Arc<Self>, part: LogPart, pace: &dyn ReadPace);
}

#[derive(Debug, Default)]
pub(crate) struct LogReader {
    waiting: Mutex<LogReadRequest>,
    came: Condvar,
}

#[derive(Debug, Default)]
struct LogReadRequest {
    parts: VecDeque<(Arc<dyn PartReader>, LogPart)>,
    is_closed: bool,
}

impl LogReader {
    pub fn push(&self, reader: Arc<dyn PartReader>, part: LogPart) {
        debug_assert!(part.from < part.to, "{part:?} has no entries");
        let mut waiting = self.waiting.lock();
        // After the close no thread would take the part, and the part holds the reader alive.
        if !waiting.is_closed {
            waiting.parts.push_back((reader, part));
            drop(waiting);
            self.came.notify_one();
        }
    }

    pub fn close(&self) {
        let mut waiting = self.waiting.lock();
        waiting.is_closed = true;
        let left = std::mem::take(&mut waiting.parts);
        drop(waiting);
        self.came.notify_all();
        // Drop them without the lock: the last one closes its log.
        drop(left);
    }

    /// Reads parts until the reader is closed.
    pub fn run(&self, pace: &dyn ReadPace) {
        while let Some((mut reader, mut part)) = self.take(None) {
            pace.begin();
            loop {
                reader.read_part(part, pace);
                match self.take(Some(LULL)) {
                    Some(next) => (reader, part) = next,
                    None => break,
                }
            }
            pace.end();
        }
    }

    /// Returns the next part, or `None` if the reader is closed or no part arrived within that
    /// time.
    fn take(&self, within: Option<Duration>) -> Option<(Arc<dyn PartReader>, LogPart)> {
        let mut waiting = self.waiting.lock();
        let is_idle = |waiting: &mut LogReadRequest| waiting.parts.is_empty() && !waiting.is_closed;
        match within {
            Some(time) => {
                self.came.wait_while_for(&mut waiting, is_idle, time);
            }
            None => self.came.wait_while(&mut waiting, is_idle),
        }
        waiting.parts.pop_front()
    }
}
