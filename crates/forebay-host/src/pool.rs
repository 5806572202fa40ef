//! A pool of a few threads that change states.
//!
//! The entries of each group are applied in their order, by one thread at a time.
//!
//! Some steps wait long for the disk: a load adds runs, a partition is split, a copy is installed.
//! Separate threads do these, so that the other threads can apply the entries of other groups.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use forebay_io::Clock;
use parking_lot::{Condvar, Mutex};

/// The time between two tries of work that had no disk space.
const RETRY: Duration = Duration::from_millis(50);

/// A group whose state the pool changes.
pub(crate) trait StateKeeper: Debug + Send + Sync {
    /// Does the queued work, as far as the thread may.
    fn work(self: Arc<Self>, patience: Patience) -> TaskOutcome;
}

/// How long a thread may be kept by work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Patience {
    /// It serves connections, and waits for nothing.
    None,
    /// It waits for memory and the device, and leaves long steps to others.
    Some,
    /// It does long steps.
    Much,
}

/// The outcome of a step of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TaskOutcome {
    All,
    /// The step cannot be done now. The pool tries again soon.
    RetryLater,
    /// The next step is for the threads that may take long.
    TakesLong,
    /// The next step is for a thread that may wait.
    Waits,
}

#[derive(Debug)]
pub(crate) struct WorkerPool {
    clock: Arc<dyn Clock>,
    due: Mutex<PoolTask>,
    came: Condvar,
    long_came: Condvar,
}

#[derive(Debug, Default)]
struct PoolTask {
    groups: VecDeque<Arc<dyn StateKeeper>>,
    /// The groups whose next step takes long.
    long: VecDeque<Arc<dyn StateKeeper>>,
    /// The groups whose work had no disk space and that wait for the next try.
    short: Vec<Arc<dyn StateKeeper>>,
    /// A thread sleeps until the next try is due. The others work on groups that have space.
    is_awaited: bool,
    is_closed: bool,
}

impl WorkerPool {
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            due: Mutex::default(),
            came: Condvar::new(),
            long_came: Condvar::new(),
        }
    }

    /// Queues a group. REQUIRES: the group is not queued, and no thread works on it.
    pub fn line_up(&self, group: Arc<dyn StateKeeper>) {
        let mut due = self.due.lock();
        // After the close no thread would take the group, and the group holds the pool alive.
        if !due.is_closed {
            due.groups.push_back(group);
            drop(due);
            self.came.notify_one();
        }
    }

    pub fn close(&self) {
        let mut due = self.due.lock();
        due.is_closed = true;
        let left = (
            std::mem::take(&mut due.groups),
            std::mem::take(&mut due.long),
            std::mem::take(&mut due.short),
        );
        drop(due);
        self.came.notify_all();
        self.long_came.notify_all();
        // Drop them without the lock: the last one closes its log, whose thread may queue others.
        drop(left);
    }

    pub fn is_closed(&self) -> bool {
        self.due.lock().is_closed
    }

    /// Works on queued groups until the pool is closed.
    pub fn run(&self) {
        while let Some(group) = self.take(|due| &mut due.groups, &self.came) {
            self.see_to(group, Patience::Some);
        }
    }

    /// Works on the long steps of groups until the pool is closed.
    pub fn run_long(&self) {
        while let Some(group) = self.take(|due| &mut due.long, &self.long_came) {
            self.see_to(group, Patience::Much);
        }
    }

    /// Does a group's work. What the thread has no patience for is left to others.
    pub fn see_to(&self, group: Arc<dyn StateKeeper>, patience: Patience) {
        match Arc::clone(&group).work(patience) {
            TaskOutcome::All => (),
            TaskOutcome::Waits => self.line_up(group),
            TaskOutcome::RetryLater if patience == Patience::None => self.line_up(group),
            TaskOutcome::RetryLater => self.try_later(group),
            TaskOutcome::TakesLong => {
                let mut due = self.due.lock();
                if !due.is_closed {
                    due.long.push_back(group);
                    drop(due);
                    self.long_came.notify_one();
                }
            }
        }
    }

    fn take(
        &self,
        line: impl Fn(&mut PoolTask) -> &mut VecDeque<Arc<dyn StateKeeper>>,
        came: &Condvar,
    ) -> Option<Arc<dyn StateKeeper>> {
        let mut due = self.due.lock();
        loop {
            if due.is_closed {
                return None;
            }
            if let Some(group) = line(&mut due).pop_front() {
                return Some(group);
            }
            came.wait(&mut due);
        }
    }

    /// Queues a group for the next try. One thread waits for all of them.
    fn try_later(&self, group: Arc<dyn StateKeeper>) {
        {
            let mut due = self.due.lock();
            if due.is_closed {
                // Release the lock first, as above.
                drop(due);
                return;
            }
            debug_assert!(
                due.is_awaited || due.short.is_empty(),
                "{} groups lack room, and nobody tries again",
                due.short.len()
            );
            due.short.push(group);
            if std::mem::replace(&mut due.is_awaited, true) {
                return;
            }
        }
        self.clock.sleep(RETRY);
        let mut due = self.due.lock();
        debug_assert!(
            due.is_awaited,
            "two threads waited for room: {} groups lack it",
            due.short.len()
        );
        due.is_awaited = false;
        let short = std::mem::take(&mut due.short);
        due.groups.extend(short);
        drop(due);
        self.came.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::sync::mpsc::{Receiver, Sender, channel};

    use forebay_io::{SystemClock, start_thread};

    use super::*;

    /// A group without disk space until the test provides it.
    #[derive(Debug)]
    struct Short {
        has_room: Arc<AtomicBool>,
        tries: Arc<AtomicUsize>,
        done: Sender<()>,
    }

    impl StateKeeper for Short {
        fn work(self: Arc<Self>, _: Patience) -> TaskOutcome {
            self.tries.fetch_add(1, Ordering::SeqCst);
            if !self.has_room.load(Ordering::SeqCst) {
                return TaskOutcome::RetryLater;
            }
            self.done.send(()).unwrap();
            TaskOutcome::All
        }
    }

    /// A group that waits until the test lets it continue.
    #[derive(Debug)]
    struct Long {
        may_continue: Mutex<Receiver<()>>,
        done: Sender<()>,
    }

    impl StateKeeper for Long {
        fn work(self: Arc<Self>, patience: Patience) -> TaskOutcome {
            if patience < Patience::Much {
                return TaskOutcome::TakesLong;
            }
            self.may_continue.lock().recv().unwrap();
            self.done.send(()).unwrap();
            TaskOutcome::All
        }
    }

    #[test]
    fn a_long_step_blocks_no_other_group() {
        let pool = Arc::new(WorkerPool::new(Arc::new(SystemClock)));
        let runs = [WorkerPool::run, WorkerPool::run_long].map(|run| {
            let pool = Arc::clone(&pool);
            start_thread("worker", move || run(&pool)).unwrap()
        });
        let ((done, is_done), (go, may_continue)) = (channel(), channel());
        let (long_done, is_long_done) = channel();
        pool.line_up(Arc::new(Long {
            may_continue: Mutex::new(may_continue),
            done: long_done,
        }));
        pool.line_up(Arc::new(Short {
            has_room: Arc::new(AtomicBool::new(true)),
            tries: Arc::default(),
            done,
        }));
        // The long step cannot have ended.
        is_done.recv().unwrap();
        go.send(()).unwrap();
        is_long_done.recv().unwrap();
        pool.close();
        runs.into_iter().for_each(|run| run.join().unwrap());
    }

    #[test]
    fn groups_without_disk_space_block_no_other_group() {
        let pool = Arc::new(WorkerPool::new(Arc::new(SystemClock)));
        let runs = [(); 2].map(|()| {
            let pool = Arc::clone(&pool);
            start_thread("worker", move || pool.run()).unwrap()
        });
        let (done, is_done) = channel();
        let (has_room, tries) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let group = |has_room: &Arc<AtomicBool>| {
            Arc::new(Short {
                has_room: Arc::clone(has_room),
                tries: Arc::clone(&tries),
                done: done.clone(),
            })
        };
        // More groups than threads.
        (0..5).for_each(|_| pool.line_up(group(&has_room)));
        while tries.load(Ordering::SeqCst) < 20 {
            std::thread::yield_now();
        }
        pool.line_up(group(&Arc::new(AtomicBool::new(true))));
        is_done.recv().unwrap();
        has_room.store(true, Ordering::SeqCst);
        (0..5).for_each(|_| is_done.recv().unwrap());
        pool.close();
        runs.into_iter().for_each(|run| run.join().unwrap());
    }
}
