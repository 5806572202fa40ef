//! A few threads that change states: each group's entries in their order, one thread at a time.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use forebay_io::Clock;
use parking_lot::{Condvar, Mutex};

/// Between two tries of what had no room.
const RETRY: Duration = Duration::from_millis(50);

/// Whose state is changed.
pub(crate) trait StateKeeper: Debug + Send + Sync {
    /// Does what waits. False: there was no room, and it is to be tried again soon.
    fn work(self: Arc<Self>) -> bool;
}

#[derive(Debug)]
pub(crate) struct Crew {
    clock: Arc<dyn Clock>,
    due: Mutex<Due>,
    came: Condvar,
}

#[derive(Debug, Default)]
struct Due {
    groups: VecDeque<Arc<dyn StateKeeper>>,
    is_closed: bool,
}

impl Crew {
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            due: Mutex::default(),
            came: Condvar::new(),
        }
    }

    /// REQUIRES: the group is not in the line, and no thread is at it.
    pub fn line_up(&self, group: Arc<dyn StateKeeper>) {
        let mut due = self.due.lock();
        // Nobody would come for it, and it holds the crew.
        if !due.is_closed {
            due.groups.push_back(group);
            drop(due);
            self.came.notify_one();
        }
    }

    pub fn close(&self) {
        let mut due = self.due.lock();
        due.is_closed = true;
        let left = std::mem::take(&mut due.groups);
        drop(due);
        self.came.notify_all();
        // Without the lock: the last of them closes its log, whose thread may line up others.
        drop(left);
    }

    pub fn is_closed(&self) -> bool {
        self.due.lock().is_closed
    }

    /// What one of its threads does.
    pub fn run(&self) {
        while let Some(group) = self.take() {
            while !Arc::clone(&group).work() && !self.is_closed() {
                self.clock.sleep(RETRY);
            }
        }
    }

    fn take(&self) -> Option<Arc<dyn StateKeeper>> {
        let mut due = self.due.lock();
        loop {
            if due.is_closed {
                return None;
            }
            if let Some(group) = due.groups.pop_front() {
                return Some(group);
            }
            self.came.wait(&mut due);
        }
    }
}
