//! The two background threads of a live table: one flushes, one merges.
//!
//! A thread starts when something has changed, and ends soon after its work is done. Most of many
//! tables then have no threads, and a thread's memory is freed with it. The tables of a budget take
//! turns.
//!
//! With a budget that is driven by hand, tables have no threads. A caller does the same steps by
//! [`LiveTable::step`](crate::live::LiveTable::step), and a caller that would wait for a flush does
//! the flush.

use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use forebay_io::start_behind;
use forebay_run::RunError;
use tracing::{debug, info, warn};

use crate::live::LiveTable;
use crate::live::basics::error::LiveError;
use crate::live::basics::manifest::LiveManifest;
use crate::live::basics::turns::Turns;
use crate::live::partition::shared::{GATE_ENDED, LiveShared, Progress, Trouble};

/// The delay before the next try, after a failure that may pass, such as a full disk.
pub(crate) const RETRY: Duration = Duration::from_secs(1);
/// How long an idle thread waits before it ends.
const LINGER: Duration = Duration::from_millis(100);

/// A handle that keeps a table's threads running. Dropping it ends them, after they finish or
/// abandon what they are writing.
#[derive(Debug)]
pub(crate) struct Threads {
    shared: Arc<LiveShared>,
}

impl Threads {
    pub fn start(shared: Arc<LiveShared>) -> Self {
        let weak = Arc::downgrade(&shared);
        let is_by_hand = shared.budget().is_by_hand();
        if !is_by_hand {
            // Set once: a table is started only once.
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
            // The thread reported its panic itself.
            let _ = handle.join();
        }
    }
}

/// The work of a thread, and where it reports problems.
#[derive(Debug, Clone, Copy)]
struct Worker {
    name: &'static str,
    /// Its place in [`Progress::running`].
    place: usize,
    is_due: fn(&LiveShared) -> bool,
    step: fn(&LiveShared) -> Result<(), LiveError>,
    /// The turns that it takes, if any.
    turns: fn(&LiveShared) -> Option<&Turns>,
    trouble: fn(&mut Progress) -> &mut Trouble,
    /// Whether it reads runs. If so, a damaged run is no reason to refuse writes.
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
    // A rate-limited merge sleeps most of the time. Others must not wait for it.
    turns: |table| {
        let is_held_back = table.options.merge_bytes_per_second.is_some();
        (!is_held_back).then(|| table.budget().merge_turns())
    },
    trouble: |progress| &mut progress.merges,
    reads_runs: true,
};

impl LiveTable {
    /// Does one step of the background work, if one is due: writes one generation, or merges some
    /// runs. Returns whether there was any; after an error it may be due again. This is for tables
    /// of [`Budget::by_hand`](crate::live::Budget::by_hand): where threads do the work, it does
    /// nothing.
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
                    "generation {number} was written after generation {}",
                    progress.flushed
                );
                progress.flushed = number;
            });
        } else if std::mem::take(&mut self.progress.lock().tidy_asked) {
            self.tidy_memory()?;
        }
        Ok(())
    }

    /// Done every second: records pages that the system has dropped, and starts threads that could
    /// not be started earlier.
    fn look_around(&self) {
        self.sweep_pages();
        if WORKERS.iter().any(|worker| (worker.is_due)(self)) {
            self.start_workers();
        }
    }

    /// Resumes merges that a damaged run had stopped, if the table no longer has that run.
    pub fn resume_merges(&self, manifest: &LiveManifest) {
        let is_sound = self.damaged_of(manifest).is_empty();
        self.notify(|progress| {
            if is_sound && std::mem::take(&mut progress.merges.has_stopped) {
                progress.merges.problem = None;
                progress.running[MERGER.place] = false;
            }
        });
    }

    /// Starts the threads that do not run. Each checks whether there is work.
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
        // The table is being opened, or has no threads.
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

    /// Does a step whenever one is due, until the table is closed, has failed, or is idle.
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
                // Progress of other work, which may fail as well, is no reason to try again
                // earlier.
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

    /// Does a step on the caller's thread, if one is due. Returns whether one was.
    fn step_of(&self, worker: Worker) -> Result<bool, LiveError> {
        let has_ended = {
            let progress = self.progress.lock();
            // Without threads this means that a failed step is not tried again.
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

    /// Does one step of flushing, if one is due. Returns whether one was.
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

    /// Reports to the other tables of the budget that this table cannot free its memory now.
    pub fn is_stuck(&self, why: &str) {
        let table = &self.shape.table;
        self.memory.set_stuck(Some(format!(
            "the runs of table {table} cannot be written: {why}"
        )));
    }

    /// Passes on the outcome of work on runs that a caller did itself. Closes the table for an
    /// error that would close it in the background.
    pub fn closing<R>(&self, result: Result<R, LiveError>) -> Result<R, LiveError> {
        if let Err(error) = &result
            && matches!(consequence(error, true), Consequence::Fail)
        {
            self.fail(&error.to_string());
        }
        result
    }

    /// Records a step's outcome for writers. Returns whether there may be another step.
    fn note(&self, worker: Worker, result: &Result<(), LiveError>) -> bool {
        let Err(error) = result else {
            if !worker.reads_runs {
                self.memory.set_stuck(None);
            }
            let was = self.notify(|progress| (worker.trouble)(progress).problem.take());
            if was.is_some() {
                info!(table = %self.shape.table, "flushes or merges continue");
            }
            return true;
        };
        let text = error.to_string();
        let table = &self.shape.table;
        // A step that is tried again every second is reported once.
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

/// The consequence of a failed step.
enum Consequence {
    TryAgain,
    /// No merge until the table is reopened. Reads and writes continue.
    Stop,
    Fail,
}

/// Without space or open files, the same step may succeed later. A damaged run stays damaged, and
/// is no reason to refuse writes. After any other error of the device its content is unknown.
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
