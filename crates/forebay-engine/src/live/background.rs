//! The two threads of a live table: one flushes, one merges.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use forebay_io::{may_pass, start_thread};
use forebay_run::RunError;
use tracing::{debug, info, warn};

use crate::error::StoreError;
use crate::live::error::LiveError;
use crate::live::shared::{GATE_ENDED, LiveShared, Progress, Trouble};

/// After a failure that may pass, such as a full disk, the next try comes this much later.
const RETRY: Duration = Duration::from_secs(1);

/// The threads; dropping them ends them, after what they are writing was given up or finished.
#[derive(Debug)]
pub(crate) struct Threads {
    shared: Arc<LiveShared>,
    handles: Vec<JoinHandle<()>>,
}

impl Threads {
    pub fn start(shared: Arc<LiveShared>) -> Result<Self, LiveError> {
        let weak = Arc::downgrade(&shared);
        shared.memory.on_asked(move || {
            if let Some(shared) = weak.upgrade() {
                shared.tell(|progress| progress.freeze_asked = true);
            }
        });
        let mut threads = Self {
            shared,
            handles: Vec::new(),
        };
        threads.spawn("flush", FLUSHER)?;
        threads.spawn("merge", MERGER)?;
        Ok(threads)
    }

    #[inline]
    pub fn shared(&self) -> &LiveShared {
        &self.shared
    }

    fn spawn(&mut self, what: &str, worker: Worker) -> Result<(), LiveError> {
        let shared = Arc::clone(&self.shared);
        let name = format!("{what} {}", self.shared.shape.table);
        let thread = start_thread(name, move || shared.work(worker));
        self.handles
            .push(thread.map_err(|source| LiveError::Thread {
                table: self.shared.shape.table.clone(),
                source,
            })?);
        Ok(())
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.shared.gate.close(GATE_ENDED);
        self.shared.tell(|progress| progress.closing = true);
        for handle in self.handles.drain(..) {
            // A panic there was reported there; there is nothing to add here.
            let _ = handle.join();
        }
    }
}

/// What a thread does, and where it tells of its problems.
#[derive(Debug, Clone, Copy)]
struct Worker {
    is_due: fn(&LiveShared) -> bool,
    step: fn(&LiveShared) -> Result<(), LiveError>,
    trouble: fn(&mut Progress) -> &mut Trouble,
    /// Done between steps, every second or so.
    between: fn(&LiveShared),
    /// Whether it reads runs, so that a damaged one is no reason to refuse writes.
    reads_runs: bool,
}

const FLUSHER: Worker = Worker {
    is_due: LiveShared::is_flush_due,
    step: LiveShared::flush_step,
    trouble: |progress| &mut progress.flushes,
    between: LiveShared::sweep_pages,
    reads_runs: false,
};

const MERGER: Worker = Worker {
    is_due: LiveShared::is_merge_due,
    step: LiveShared::compact_once,
    trouble: |progress| &mut progress.merges,
    between: |_| (),
    reads_runs: true,
};

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
            self.tell(|progress| progress.flushed = number);
        } else if std::mem::take(&mut self.progress.lock().tidy_asked) {
            self.tidy_memory()?;
        }
        Ok(())
    }

    /// Does a step whenever one is due, until the table is closed or has failed.
    fn work(&self, worker: Worker) {
        loop {
            let (seen, asked) = {
                let progress = self.progress.lock();
                (progress.events, progress.asked)
            };
            let mut failed = false;
            if (worker.is_due)(self) {
                let result = (worker.step)(self);
                failed = result.is_err();
                if !self.note(worker, result) {
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
                self.changed.wait_for(&mut progress, RETRY);
            }
            drop(progress);
            (worker.between)(self);
        }
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
    fn note(&self, worker: Worker, result: Result<(), LiveError>) -> bool {
        let Err(error) = result else {
            if !worker.reads_runs {
                self.memory.set_stuck(None);
            }
            let was = self.tell(|progress| (worker.trouble)(progress).problem.take());
            if was.is_some() {
                info!(table = %self.shape.table, "flushes, or merges, go on");
            }
            return true;
        };
        let text = error.to_string();
        let table = &self.shape.table;
        // What is tried again every second is told of once.
        match (worker.trouble)(&mut self.progress.lock()).problem {
            None => warn!(%table, error = text, "a flush or a merge failed"),
            Some(_) => debug!(%table, error = text, "a flush or a merge failed again"),
        }
        if !worker.reads_runs {
            self.is_stuck(&text);
        }
        let consequence = consequence(&error, worker.reads_runs);
        if let Consequence::Fail = consequence {
            self.fail(&text);
        }
        self.tell(|progress| {
            let trouble = (worker.trouble)(progress);
            trouble.failures += 1;
            trouble.problem = Some(text);
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
    let passes = match error {
        LiveError::Run {
            source: RunError::Io { source, .. },
            ..
        }
        | LiveError::Store(StoreError::Io { source, .. }) => may_pass(source),
        _ => false,
    };
    match error {
        _ if passes => Consequence::TryAgain,
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
