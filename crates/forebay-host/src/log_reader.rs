//! The thread that reads entries from logs for peers that are behind: one part after the other, as
//! fast as serving bears.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::outside::ReadPace;

/// Who has read nothing for so long reads for nobody: parts follow each other with pauses.
const LULL: Duration = Duration::from_secs(1);

/// Entries of a log: from the first on, up to the other, and about so many bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LogPart {
    pub from: u64,
    pub to: u64,
    pub most_bytes: u64,
}

/// Whose log is read.
pub(crate) trait PartReader: Debug + Send + Sync {
    /// Reads and tells; waits for the pace in between.
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
        // Nobody would come for it, and it holds the reader.
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
        // Without the lock: the last of them closes its log.
        drop(left);
    }

    /// What its thread does.
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

    /// The next part; `None`: it is closed, or none came within that time.
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
