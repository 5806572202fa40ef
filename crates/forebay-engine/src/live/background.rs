//! The two threads of a live table: one flushes, one merges. Each is started when something has
//! changed, and ends soon after it had something to do: most of many tables have none, and what a
//! thread's work took goes back with it. The tables of a budget take turns.
//!
//! Of a budget that is driven by hand no table has threads. The same steps are done by whoever asks
//! for one, and whoever would wait for a flush does it.

use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use forebay_io::start_behind;
use forebay_run::RunError;
use tracing::{debug, info, warn};

use crate::live::LiveTable;
use crate::live::error::LiveError;
use crate::live::manifest::LiveManifest;
use crate::live::shared::{GATE_ENDED, LiveShared, Progress, Trouble};
use crate::live::turns::Turns;

/// After a failure that may pass, such as a full disk, the next try comes this much later.
pub(crate) const RETRY: Duration = Duration::from_secs(1);
/// How long a thread that has nothing to do waits before it ends.
const LINGER: Duration = Duration::from_millis(100);

/// Keeps a table's threads going; dropping it ends them, after what they are writing was given up
/// or finished.
#[derive(Debug)]
pub(crate) struct Threads {
    shared: Arc<LiveShared>,
}

impl Threads {
    pub fn start(shared: Arc<LiveShared>) -> Self {
        let weak = Arc::downgrade(&shared);
        let is_by_hand = shared.budget().is_by_hand();
        if !is_by_hand {
            // Set once: a table is started once.
            let _ = shared.workers.table.set(Weak::clone(&weak));
        }
        let with = move |act: fn(&LiveShared)| {
            let weak = Weak::clone(&weak);
            move || {
                if let Some(shared) = weak.upgrade() {
                    act(&shared);
                }
            }
        };
        shared.memory.on_asked(with(|shared| {
            shared.notify(|progress| progress.freeze_asked = true);
        }));
        if !is_by_hand {
            shared.memory.on_second(with(LiveShared::look_around));
            shared.look_around();
        }
        Self { shared }
    }

    #[inline]
    pub fn shared(&self) -> &LiveShared {
        &self.shared
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.shared.memory.leave_alone();
        self.shared.gate.close(GATE_ENDED);
        self.shared.notify(|progress| progress.closing = true);
        let handles = std::mem::take(&mut *self.shared.workers.handles.lock());
        for handle in handles {
            // A panic there was reported there; there is nothing to add here.
            let _ = handle.join();
        }
    }
}

/// What a thread does, and where it tells of its problems.
#[derive(Debug, Clone, Copy)]
struct Worker {
    name: &'static str,
    /// Its place in [`Progress::running`].
    place: usize,
    is_due: fn(&LiveShared) -> bool,
    step: fn(&LiveShared) -> Result<(), LiveError>,
    /// Where it takes its turn, if it does.
    turns: fn(&LiveShared) -> Option<&Turns>,
    trouble: fn(&mut Progress) -> &mut Trouble,
    /// Whether it reads runs, so that a damaged one is no reason to refuse writes.
    reads_runs: bool,
}

const WORKERS: [Worker; 2] = [FLUSHER, MERGER];

const FLUSHER: Worker = Worker {
    name: "flush",
    place: 0,
    is_due: LiveShared::is_flush_due,
    step: LiveShared::flush_step,
    turns: |table| Some(table.budget().flush_turns()),
    trouble: |progress| &mut progress.flushes,
    reads_runs: false,
};

const MERGER: Worker = Worker {
    name: "merge",
    place: 1,
    is_due: LiveShared::is_merge_due,
    step: LiveShared::compact_once,
    // What is held to a rate sleeps most of the time, and others are not to wait for that.
    turns: |table| {
        let is_held_back = table.options.merge_bytes_per_second.is_some();
        (!is_held_back).then(|| table.budget().merge_turns())
    },
    trouble: |progress| &mut progress.merges,
    reads_runs: true,
};

impl LiveTable {
    /// Does one piece of the background work, where some is due: one generation is written, or some
    /// runs are merged. Returns whether there was any; after an error it may be due again. For
    /// tables of [`Budget::by_hand`](crate::live::Budget::by_hand): nothing is done where threads
    /// do it.
    pub fn step(&self) -> Result<bool, LiveError> {
        let shared = self.shared();
        if !shared.budget().is_by_hand() {
            return Ok(false);
        }
        Ok(shared.step_of(FLUSHER)? || shared.step_of(MERGER)?)
    }
}

impl LiveShared {
    fn is_flush_due(&self) -> bool {
        let progress = self.progress.lock();
        progress.freeze_asked || progress.tidy_asked || progress.flushed < progress.frozen
    }

    fn flush_step(&self) -> Result<(), LiveError> {
        if std::mem::take(&mut self.progress.lock().freeze_asked) {
            self.freeze();
        }
        if let Some(number) = self.flush_oldest()? {
            self.notify(|progress| {
                debug_assert!(
                    progress.flushed < number,
                    "generation {number} was written behind generation {}",
                    progress.flushed
                );
                progress.flushed = number;
            });
        } else if std::mem::take(&mut self.progress.lock().tidy_asked) {
            self.tidy_memory()?;
        }
        Ok(())
    }

    /// Done every second: takes note of pages that the system has dropped, and starts threads that
    /// could not be started when there was something to do.
    fn look_around(&self) {
        self.sweep_pages();
        if WORKERS.iter().any(|worker| (worker.is_due)(self)) {
            self.start_workers();
        }
    }

    /// Merges go on that a damaged run had stopped, if it is no run of the table any more.
    pub fn resume_merges(&self, manifest: &LiveManifest) {
        let is_sound = self.damaged_of(manifest).is_empty();
        self.notify(|progress| {
            if is_sound && std::mem::take(&mut progress.merges.has_stopped) {
                progress.merges.problem = None;
                progress.running[MERGER.place] = false;
            }
        });
    }

    /// Starts the threads that do not run. Each looks for itself whether there is something to do.
    pub fn start_workers(&self) {
        for worker in WORKERS {
            let mut progress = self.progress.lock();
            let ends = progress.closing || progress.failed.is_some();
            if ends || std::mem::replace(&mut progress.running[worker.place], true) {
                continue;
            }
            drop(progress);
            if let Err(error) = self.start_worker(worker) {
                let (table, name) = (&self.shape.table, worker.name);
                warn!(%table, %error, "no thread to {name}: tried again soon");
                self.progress.lock().running[worker.place] = false;
            }
        }
    }

    fn start_worker(&self, worker: Worker) -> io::Result<()> {
        // While it is being opened, and where nothing is done by threads.
        let Some(shared) = self.workers.table.get().and_then(Weak::upgrade) else {
            self.progress.lock().running[worker.place] = false;
            return Ok(());
        };
        let name = format!("{} {}", worker.name, self.shape.table);
        let mut handles = self.workers.handles.lock();
        handles.retain(|handle| !handle.is_finished());
        handles.push(start_behind(name, move || shared.work(worker))?);
        Ok(())
    }

    /// Does a step whenever one is due, until the table is closed or has failed, or nothing
    /// happens.
    fn work(&self, worker: Worker) {
        loop {
            let (seen, asked) = {
                let progress = self.progress.lock();
                (progress.events, progress.asked)
            };
            let mut failed = false;
            if (worker.is_due)(self) {
                let turns = (worker.turns)(self);
                let turn = turns.map(|turns| turns.take(|| !self.progress.lock().closing));
                let result = (worker.step)(self);
                drop(turn);
                failed = result.is_err();
                if !self.note(worker, &result) {
                    return;
                }
            }
            let mut progress = self.progress.lock();
            if progress.closing || progress.failed.is_some() {
                return;
            }
            if failed {
                // What others do, failing as well perhaps, is no reason to try again before.
                let nothing_new = |progress: &mut Progress| {
                    progress.asked == asked && !progress.closing && progress.failed.is_none()
                };
                let changed = &self.changed;
                changed.wait_while_for(&mut progress, nothing_new, RETRY);
            } else if progress.events == seen {
                let idle = self.changed.wait_for(&mut progress, LINGER).timed_out();
                if idle && progress.events == seen {
                    progress.running[worker.place] = false;
                    return;
                }
            }
        }
    }

    /// Does a step on the caller's thread, where one is due; returns whether.
    fn step_of(&self, worker: Worker) -> Result<bool, LiveError> {
        let has_ended = {
            let progress = self.progress.lock();
            // Without threads that is said of what is not tried again.
            progress.closing || progress.failed.is_some() || progress.running[worker.place]
        };
        if has_ended || !(worker.is_due)(self) {
            return Ok(false);
        }
        let result = (worker.step)(self);
        if !self.note(worker, &result) {
            self.progress.lock().running[worker.place] = true;
        }
        result.map(|()| true)
    }

    /// Does what is due of flushes, one step; returns whether that was anything.
    pub fn step_flush(&self) -> Result<bool, LiveError> {
        self.step_of(FLUSHER)
    }

    /// Flushes up to a generation, without threads.
    pub fn flush_by_hand(&self, number: u64) -> Result<(), LiveError> {
        while self.progress.lock().flushed < number {
            let stepped = self.step_flush();
            let has_failed = self.progress.lock().failed.is_some();
            match stepped {
                Ok(true) => {}
                Err(error) if !has_failed => return Err(self.full(&error.to_string())),
                _ => return Err(self.ended()),
            }
        }
        Ok(())
    }

    /// Lets the other tables of the budget know that this one's memory does not come back now.
    pub fn is_stuck(&self, why: &str) {
        let table = &self.shape.table;
        self.memory.set_stuck(Some(format!(
            "the runs of table {table} cannot be written: {why}"
        )));
    }

    /// Passes on what came of work on the runs that a caller did itself; closes the table where the
    /// same in the background would have.
    pub fn closing<R>(&self, result: Result<R, LiveError>) -> Result<R, LiveError> {
        if let Err(error) = &result
            && matches!(consequence(error, true), Consequence::Fail)
        {
            self.fail(&error.to_string());
        }
        result
    }

    /// What a step's outcome means for writers. Returns whether there may be another step.
    fn note(&self, worker: Worker, result: &Result<(), LiveError>) -> bool {
        let Err(error) = result else {
            if !worker.reads_runs {
                self.memory.set_stuck(None);
            }
            let was = self.notify(|progress| (worker.trouble)(progress).problem.take());
            if was.is_some() {
                info!(table = %self.shape.table, "flushes, or merges, go on");
            }
            return true;
        };
        let text = error.to_string();
        let table = &self.shape.table;
        // What is tried again every second is told of once.
        match (worker.trouble)(&mut self.progress.lock()).problem {
            None if matches!(error, LiveError::Closed { .. }) => {
                debug!(%table, "a flush or a merge ended as the table is being closed");
            }
            None => warn!(%table, error = text, "a flush or a merge failed"),
            Some(_) => debug!(%table, error = text, "a flush or a merge failed again"),
        }
        if !worker.reads_runs {
            self.is_stuck(&text);
        }
        let consequence = consequence(error, worker.reads_runs);
        if let Consequence::Fail = consequence {
            self.fail(&text);
        }
        self.notify(|progress| {
            let trouble = (worker.trouble)(progress);
            trouble.failures += 1;
            trouble.problem = Some(text);
            trouble.has_stopped = matches!(consequence, Consequence::Stop);
        });
        matches!(consequence, Consequence::TryAgain)
    }
}

/// What follows from a failed step.
enum Consequence {
    TryAgain,
    /// No merge until the table is opened anew; reads and writes go on.
    Stop,
    Fail,
}

/// For want of space or of open files the same step may succeed later. A damaged run stays damaged,
/// and is no reason to refuse writes. After any other error of the device nobody knows what it
/// holds.
fn consequence(error: &LiveError, reads_runs: bool) -> Consequence {
    match error {
        _ if error.may_pass() => Consequence::TryAgain,
        LiveError::Closed { .. } => Consequence::Stop,
        LiveError::Run {
            source: RunError::Io { .. },
            ..
        }
        | LiveError::Store(_) => Consequence::Fail,
        LiveError::Run { .. } if reads_runs => Consequence::Stop,
        _ => Consequence::Fail,
    }
}
