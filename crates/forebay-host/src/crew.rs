//! A few threads that change states: each group's entries in their order, one thread at a time.
//!
//! Some steps wait for the disk for long: runs of a load that are added, a partition that is cut, a
//! copy that is put in place. Each is done by a thread of its own, so that the few go on with the
//! entries of other groups.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use forebay_io::{Clock, start_thread};
use parking_lot::{Condvar, Mutex};
use tracing::warn;

/// Between two tries of what had no room.
const RETRY: Duration = Duration::from_millis(50);

/// Whose state is changed.
pub(crate) trait StateKeeper: Debug + Send + Sync {
    /// Does what waits, if need be on a thread of its own (`is_apart`).
    fn work(self: Arc<Self>, is_apart: bool) -> Worked;
}

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Worked {
    All,
    /// It is to be tried again soon.
    NoRoom,
    /// What comes next wants a thread of its own.
    TakesLong,
}

#[derive(Debug)]
pub(crate) struct Crew {
    clock: Arc<dyn Clock>,
    due: Mutex<Due>,
    came: Condvar,
    apart: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct Due {
    groups: VecDeque<Arc<dyn StateKeeper>>,
    /// What had no room, and waits for the next try.
    short: Vec<Arc<dyn StateKeeper>>,
    /// A thread sleeps until that is due. The others go on with what has room.
    is_awaited: bool,
    is_closed: bool,
}

impl Crew {
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            due: Mutex::default(),
            came: Condvar::new(),
            apart: Mutex::default(),
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
        let left = (
            std::mem::take(&mut due.groups),
            std::mem::take(&mut due.short),
        );
        drop(due);
        self.came.notify_all();
        // Without the lock: the last of them closes its log, whose thread may line up others.
        drop(left);
    }

    pub fn is_closed(&self) -> bool {
        self.due.lock().is_closed
    }

    /// What one of its threads does.
    pub fn run(self: &Arc<Self>) {
        while let Some(group) = self.take() {
            self.see_to(group, false);
        }
    }

    fn see_to(self: &Arc<Self>, group: Arc<dyn StateKeeper>, is_apart: bool) {
        match Arc::clone(&group).work(is_apart) {
            Worked::All => (),
            Worked::NoRoom => self.try_later(group),
            Worked::TakesLong => self.set_apart(group),
        }
    }

    /// Where no thread can be started, it is done here.
    fn set_apart(self: &Arc<Self>, group: Arc<dyn StateKeeper>) {
        let (crew, its) = (Arc::clone(self), Arc::clone(&group));
        match start_thread("forebay-change", move || crew.see_to(its, true)) {
            Ok(thread) => {
                let mut apart = self.apart.lock();
                apart.retain(|thread| !thread.is_finished());
                apart.push(thread);
            }
            Err(error) => {
                warn!(%error, "no thread for what takes long: others wait for it");
                self.see_to(group, true);
            }
        }
    }

    /// The threads that were started for single steps.
    pub fn take_apart(&self) -> Vec<JoinHandle<()>> {
        std::mem::take(&mut *self.apart.lock())
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

    /// Puts a group behind the others that had no room. One thread waits for all of them.
    fn try_later(&self, group: Arc<dyn StateKeeper>) {
        {
            let mut due = self.due.lock();
            if due.is_closed {
                // Its lock is let go of first, as above.
                drop(due);
                return;
            }
            due.short.push(group);
            if std::mem::replace(&mut due.is_awaited, true) {
                return;
            }
        }
        self.clock.sleep(RETRY);
        let mut due = self.due.lock();
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

    use forebay_io::SystemClock;

    use super::*;

    /// Has no room until it is told.
    #[derive(Debug)]
    struct Short {
        has_room: Arc<AtomicBool>,
        tries: Arc<AtomicUsize>,
        done: Sender<()>,
    }

    impl StateKeeper for Short {
        fn work(self: Arc<Self>, _: bool) -> Worked {
            self.tries.fetch_add(1, Ordering::SeqCst);
            if !self.has_room.load(Ordering::SeqCst) {
                return Worked::NoRoom;
            }
            self.done.send(()).unwrap();
            Worked::All
        }
    }

    /// Waits until it is told to go on.
    #[derive(Debug)]
    struct Long {
        goes_on: Mutex<Receiver<()>>,
        done: Sender<()>,
    }

    impl StateKeeper for Long {
        fn work(self: Arc<Self>, is_apart: bool) -> Worked {
            if !is_apart {
                return Worked::TakesLong;
            }
            self.goes_on.lock().recv().unwrap();
            self.done.send(()).unwrap();
            Worked::All
        }
    }

    #[test]
    fn what_takes_long_holds_up_no_others() {
        let crew = Arc::new(Crew::new(Arc::new(SystemClock)));
        let runs = {
            let crew = Arc::clone(&crew);
            start_thread("crew", move || crew.run()).unwrap()
        };
        let ((done, is_done), (go, goes_on)) = (channel(), channel());
        let (long_done, is_long_done) = channel();
        crew.line_up(Arc::new(Long {
            goes_on: Mutex::new(goes_on),
            done: long_done,
        }));
        crew.line_up(Arc::new(Short {
            has_room: Arc::new(AtomicBool::new(true)),
            tries: Arc::default(),
            done,
        }));
        // The long one cannot have ended.
        is_done.recv().unwrap();
        go.send(()).unwrap();
        is_long_done.recv().unwrap();
        crew.close();
        runs.join().unwrap();
        let apart = crew.take_apart();
        assert_eq!(apart.len(), 1);
        apart.into_iter().for_each(|thread| thread.join().unwrap());
    }

    #[test]
    fn groups_without_room_hold_up_no_others() {
        let crew = Arc::new(Crew::new(Arc::new(SystemClock)));
        let runs = [(); 2].map(|()| {
            let crew = Arc::clone(&crew);
            start_thread("crew", move || crew.run()).unwrap()
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
        // More of them than threads.
        (0..5).for_each(|_| crew.line_up(group(&has_room)));
        while tries.load(Ordering::SeqCst) < 20 {
            std::thread::yield_now();
        }
        crew.line_up(group(&Arc::new(AtomicBool::new(true))));
        is_done.recv().unwrap();
        has_room.store(true, Ordering::SeqCst);
        (0..5).for_each(|_| is_done.recv().unwrap());
        crew.close();
        runs.into_iter().for_each(|run| run.join().unwrap());
    }
}
