//! The thread that writes a table's log.
//!
//! The writes that its groups request during one write and sync form the next one.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use forebay_io::{Clock, start_answering};
use forebay_replica::{GroupId, Persist};
use parking_lot::{Condvar, Mutex};
use tracing::{info, warn};

use crate::environment::{GroupLog, WriteError, Writing};

/// The time between two tries of a write that the disk has no space for.
const RETRY: Duration = Duration::from_millis(50);
/// After this long without disk space, callers get an error. Writes wait for less while the
/// memtable is flushed first.
const LASTS: Duration = Duration::from_secs(2);

/// A group whose writes the thread makes.
pub(crate) trait LogUser: Debug + Send + Sync {
    fn id(&self) -> GroupId;

    /// Returns whether the group has ended: the thread then drops its writes.
    fn is_ended(&self) -> bool;

    /// Reports that the writes up to this number are durable.
    fn persisted(self: Arc<Self>, number: u64);

    /// Runs work in which several groups of the host send messages, so that those leave together.
    fn together(&self, work: &mut dyn FnMut()) {
        work();
    }

    /// Reports that it is unknown what the log has.
    fn log_broke(&self, problem: &str);
}

/// The log of a table with the thread that writes it. When dropped, it writes what waits, and ends.
#[derive(Debug)]
pub struct TableLog {
    queue: Arc<WriteQueue>,
    thread: Option<JoinHandle<()>>,
    /// States are being persisted so that the log can be shortened.
    is_keeping: AtomicBool,
}

#[derive(Debug)]
struct WriteQueue {
    log: Arc<dyn GroupLog>,
    clock: Arc<dyn Clock>,
    waiting: Mutex<PendingWrites>,
    came: Condvar,
    /// Signals the end of a write.
    ended: Condvar,
    /// The reason why nothing can be written for now, if there is one.
    no_room: Mutex<Option<NoRoom>>,
}

#[derive(Debug)]
struct NoRoom {
    since: Duration,
    problem: String,
}

#[derive(Debug, Default)]
struct PendingWrites {
    all: Vec<LogWrite>,
    /// The groups whose writes are in progress.
    writing: BTreeSet<GroupId>,
    is_closed: bool,
}

impl TableLog {
    /// Starts the thread. It sleeps by the clock while the disk is full.
    pub fn start(log: Arc<dyn GroupLog>, clock: Arc<dyn Clock>) -> io::Result<Arc<Self>> {
        let queue = Arc::new(WriteQueue {
            log,
            clock,
            waiting: Mutex::default(),
            came: Condvar::new(),
            ended: Condvar::new(),
            no_room: Mutex::default(),
        });
        let thread = start_answering("forebay-log", {
            let queue = Arc::clone(&queue);
            move || queue.run()
        })?;
        Ok(Arc::new(Self {
            queue,
            thread: Some(thread),
            is_keeping: AtomicBool::new(false),
        }))
    }

    pub(crate) fn log(&self) -> &dyn GroupLog {
        &*self.queue.log
    }

    /// Returns why nothing can be written, if the disk has had no space for a while. The thread
    /// keeps trying.
    pub fn no_room(&self) -> Option<String> {
        let now = self.queue.clock.monotonic();
        let no_room = self.queue.no_room.lock();
        let lasting = no_room.as_ref().filter(|none| now >= none.since + LASTS);
        lasting.map(|none| none.problem.clone())
    }

    /// Waits until no write of a group is in progress. REQUIRES: the group has ended, and the
    /// caller is not the writing thread.
    pub(crate) fn settle(&self, group: GroupId) {
        let mut waiting = self.queue.waiting.lock();
        while waiting.writing.contains(&group) {
            self.queue.ended.wait(&mut waiting);
        }
    }

    /// Returns whether the caller is to persist the states: one caller at a time.
    pub(crate) fn begin_keeping(&self) -> bool {
        !self.is_keeping.swap(true, Ordering::AcqRel)
    }

    pub(crate) fn end_keeping(&self) {
        debug_assert!(
            self.is_keeping.load(Ordering::Acquire),
            "states were kept by two at a time"
        );
        self.is_keeping.store(false, Ordering::Release);
    }

    pub(crate) fn push(&self, group: Arc<dyn LogUser>, persist: Persist) {
        let mut waiting = self.queue.waiting.lock();
        waiting.all.push((group, persist));
        drop(waiting);
        self.queue.came.notify_one();
    }
}

impl Drop for TableLog {
    fn drop(&mut self) {
        self.queue.waiting.lock().is_closed = true;
        self.queue.came.notify_all();
        let this_thread = std::thread::current().id();
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != this_thread
        {
            // The panic was reported when it happened.
            let _ = thread.join();
        }
    }
}

/// A write with its group.
type LogWrite = (Arc<dyn LogUser>, Persist);

impl WriteQueue {
    fn run(&self) {
        while let Some(orders) = self.take() {
            let left = match self.write(&orders) {
                Err(WriteError::Full(problem)) => {
                    self.lacks_room(problem);
                    orders
                }
                written => {
                    if self.no_room.lock().take().is_some() {
                        info!("there is room for the log again");
                    }
                    if let Err(error) = written {
                        broke(orders.iter().map(|(group, _)| group), &error);
                    }
                    Vec::new()
                }
            };
            self.end_write(left);
        }
    }

    /// Logs a repeated failure once.
    fn lacks_room(&self, problem: String) {
        let mut no_room = self.no_room.lock();
        let since = match &*no_room {
            Some(none) => none.since,
            None => {
                warn!(
                    problem,
                    "the log of replicas has no space: this node's replicas accept no writes until \
                     there is room"
                );
                self.clock.monotonic()
            }
        };
        *no_room = Some(NoRoom { since, problem });
    }

    /// Returns the next writes. Drops those of groups that have ended.
    fn take(&self) -> Option<Vec<LogWrite>> {
        loop {
            let all = self.wait()?;
            let (ended, orders): (Vec<LogWrite>, Vec<LogWrite>) =
                all.into_iter().partition(|(group, _)| group.is_ended());
            // Drop it without the lock: the last write closes its log.
            drop(ended);
            let writing = orders.iter().map(|(group, _)| group.id()).collect();
            self.waiting.lock().writing = writing;
            self.ended.notify_all();
            if !orders.is_empty() {
                return Some(orders);
            }
        }
    }

    fn wait(&self) -> Option<Vec<LogWrite>> {
        let mut waiting = self.waiting.lock();
        while waiting.all.is_empty() && !waiting.is_closed {
            self.came.wait(&mut waiting);
        }
        debug_assert!(
            waiting.writing.is_empty(),
            "writes of {:?} are in progress, and others would begin",
            waiting.writing
        );
        let all = std::mem::take(&mut waiting.all);
        // A caller that ends one of these groups waits until its write has succeeded or failed.
        waiting.writing = all.iter().map(|(group, _)| group.id()).collect();
        (!all.is_empty()).then_some(all)
    }

    /// Tries writes that had no disk space again after a while, unless nothing waits for them.
    fn end_write(&self, mut left: Vec<LogWrite>) {
        let is_full = !left.is_empty();
        let mut waiting = self.waiting.lock();
        waiting.writing.clear();
        let dropped = match waiting.is_closed {
            true => std::mem::take(&mut left),
            false => Vec::new(),
        };
        left.append(&mut waiting.all);
        waiting.all = left;
        drop(waiting);
        drop(dropped);
        self.ended.notify_all();
        if is_full {
            self.clock.sleep(RETRY);
        }
    }

    fn write(&self, orders: &[LogWrite]) -> Result<(), WriteError> {
        debug_assert!(
            are_in_order(orders),
            "writes of a group are made out of their order"
        );
        let writings: Vec<Writing<'_>> = orders
            .iter()
            .map(|(group, persist)| Writing {
                group: group.id(),
                persist,
            })
            .collect();
        let awaited = orders.iter().filter(|(_, persist)| persist.is_awaited);
        let awaited: Vec<(Arc<dyn LogUser>, u64)> = awaited
            .map(|(group, persist)| (Arc::clone(group), persist.number))
            .collect();
        let reported = move |outcome| notify(&awaited, outcome);
        self.log.write(&writings, Box::new(reported))
    }
}

/// Returns whether the write numbers of each group increase. A group that ended meanwhile may have
/// another order.
fn are_in_order(orders: &[LogWrite]) -> bool {
    let mut last = BTreeMap::new();
    let mut running = orders.iter().filter(|(group, _)| !group.is_ended());
    running.all(|(group, persist)| {
        let before = last.insert(group.id(), persist.number);
        before.is_none_or(|before| before < persist.number)
    })
}

fn notify(awaited: &[(Arc<dyn LogUser>, u64)], outcome: Result<(), WriteError>) {
    match outcome {
        Ok(()) => {
            let mut report_all = || {
                let all = awaited.iter();
                all.for_each(|(group, number)| Arc::clone(group).persisted(*number));
            };
            match awaited {
                [(first, _), _, ..] => first.together(&mut report_all),
                _ => report_all(),
            }
        }
        Err(error) => broke(awaited.iter().map(|(group, _)| group), &error),
    }
}

fn broke<'a>(groups: impl Iterator<Item = &'a Arc<dyn LogUser>>, error: &WriteError) {
    groups.for_each(|group| group.log_broke(&error.to_string()));
}
