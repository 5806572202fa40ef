//! Makes records durable: one sync serves all waiting threads (group commit).
//!
//! A thread that finds no sync in progress leads one. The sync covers every record that was written
//! when it begins, including those of other threads. Threads that arrive meanwhile wait, and one of
//! them leads the next sync. The log's own thread leads syncs for callbacks, and those of
//! [`Durability::EveryMs`](super::Durability).

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use forebay_io::{is_out_of_files, may_pass, start_answering};
use parking_lot::{Condvar, Mutex, MutexGuard};
use tracing::warn;

use super::error::LogError;
use super::frame::FramePlace;
use super::writer::{OpenSegment, SyncWork};
use super::{LogShared, Lsn, segment_path};

/// The interval of retries to open a file.
const RETRY: Duration = Duration::from_millis(100);

/// A function that is called when a record is durable, or when that failed.
pub type Callback = Box<dyn FnOnce(Result<(), LogError>) + Send>;

/// How long the thread of an idle log waits before it ends.
const LINGER: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Commits {
    /// The position up to which the log is written.
    pub written: AtomicU64,
    /// Whether the thread waits for work, or does not run.
    asleep: AtomicBool,
    state: Mutex<CommitState>,
    /// Notified when a sync ends.
    progress: Condvar,
    /// Notified when there is work for the thread.
    work: Condvar,
}

#[derive(Default)]
struct CommitState {
    /// The position up to which the log is durable.
    synced: u64,
    /// Whether a sync is in progress.
    leading: bool,
    failure: Option<LogError>,
    callbacks: Vec<(Lsn, Callback)>,
    /// Whether the log's thread runs.
    running: bool,
    stop: bool,
}

impl fmt::Debug for CommitState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CommitState")
            .field("synced", &self.synced)
            .field("leading", &self.leading)
            .field("failure", &self.failure)
            .field("callbacks", &self.callbacks.len())
            .finish()
    }
}

impl Default for Commits {
    fn default() -> Self {
        Self {
            written: AtomicU64::new(0),
            asleep: AtomicBool::new(true),
            state: Mutex::default(),
            progress: Condvar::new(),
            work: Condvar::new(),
        }
    }
}

impl Commits {
    pub fn is_synced(&self, lsn: Lsn) -> bool {
        self.state.lock().synced >= lsn.0
    }

    pub fn failure(&self) -> Option<LogError> {
        self.state.lock().failure.clone()
    }

    /// Waits until the thread, woken by a first record, waits for the next sync to be due.
    #[cfg(test)]
    pub fn await_pause(&self) {
        while self.asleep.load(SeqCst) {
            std::thread::yield_now();
        }
        // The thread holds the lock until its pause.
        drop(self.state.lock());
    }

    /// Asks the thread to end. It does nothing more, even if it ends later.
    pub fn stop(&self) {
        self.state.lock().stop = true;
        self.work.notify_all();
    }
}

impl CommitState {
    /// Returns the outcome for `lsn`, if it is known.
    fn outcome(&self, lsn: Lsn) -> Option<Result<(), LogError>> {
        if self.synced >= lsn.0 {
            return Some(Ok(()));
        }
        self.failure.clone().map(Err)
    }

    fn take_ready(&mut self) -> Vec<(Result<(), LogError>, Callback)> {
        let mut ready = Vec::new();
        for (lsn, then) in std::mem::take(&mut self.callbacks) {
            match self.outcome(lsn) {
                Some(outcome) => ready.push((outcome, then)),
                None => self.callbacks.push((lsn, then)),
            }
        }
        ready
    }
}

impl LogShared {
    pub fn wait(&self, lsn: Lsn) -> Result<(), LogError> {
        self.check_written(lsn);
        let mut state = self.commits.state.lock();
        loop {
            if let Some(outcome) = state.outcome(lsn) {
                return outcome;
            }
            if state.leading {
                self.commits.progress.wait(&mut state);
            } else {
                state = self.lead(state);
            }
        }
    }

    pub fn call_back(self: &Arc<Self>, lsn: Lsn, then: Callback) {
        self.check_written(lsn);
        let mut state = self.commits.state.lock();
        match state.outcome(lsn) {
            Some(outcome) => {
                drop(state);
                then(outcome);
            }
            None => {
                state.callbacks.push((lsn, then));
                self.wake(state);
            }
        }
    }

    /// Checks that nobody waits for an unwritten record: no sync would ever cover it.
    #[inline]
    fn check_written(&self, lsn: Lsn) {
        debug_assert!(
            lsn.0 <= self.commits.written.load(SeqCst),
            "record {lsn:?} is waited for, and the log is written up to {:?}",
            self.commits.written
        );
    }

    /// Wakes the log's thread, or starts it if it has ended. If no thread can be started, this one
    /// syncs.
    fn wake(self: &Arc<Self>, mut state: MutexGuard<'_, CommitState>) {
        if state.running || state.stop {
            self.commits.work.notify_one();
            return;
        }
        let (inside, table) = (Arc::clone(self), &self.options.table);
        let started = start_answering(format!("log of {table}"), move || inside.run_thread());
        match started {
            Ok(_) => state.running = true,
            Err(error) => {
                warn!(%table, %error, "no thread to sync the log: writers do");
                while state.leading {
                    self.commits.progress.wait(&mut state);
                }
                drop(self.lead(state));
            }
        }
    }

    /// Syncs everything written until now, notifies all, and returns with the lock.
    fn lead<'a>(&'a self, mut state: MutexGuard<'a, CommitState>) -> MutexGuard<'a, CommitState> {
        debug_assert!(!state.leading, "two threads sync one log at a time");
        state.leading = true;
        drop(state);
        let outcome = self.sync_files();
        let mut state = self.commits.state.lock();
        debug_assert!(state.leading, "another thread ended this one's sync");
        state.leading = false;
        debug_assert!(
            !outcome
                .as_ref()
                .is_ok_and(|written| *written < state.synced),
            "a sync covers {outcome:?}, and an earlier one covered {}",
            state.synced
        );
        match outcome {
            Ok(written) => state.synced = state.synced.max(written),
            Err(error) => {
                state.failure.get_or_insert(error);
            }
        }
        self.notify(state);
        self.commits.state.lock()
    }

    fn notify(&self, mut state: MutexGuard<'_, CommitState>) {
        let ready = state.take_ready();
        self.commits.progress.notify_all();
        self.commits.work.notify_all();
        drop(state);
        for (outcome, then) in ready {
            then(outcome);
        }
    }

    /// Reports that the log is closed.
    pub fn fail(&self, error: &LogError) {
        let mut state = self.commits.state.lock();
        state.failure.get_or_insert_with(|| error.clone());
        self.notify(state);
    }

    fn sync_files(&self) -> Result<u64, LogError> {
        let work = {
            let mut writer = self.writer.lock();
            if let Some(closed) = writer.closed() {
                return Err(closed.clone());
            }
            writer.take_sync_work()
        };
        let synced = self.do_sync(&work);
        let mut writer = self.writer.lock();
        match synced {
            Ok(()) => {
                writer.synced(work.place);
                drop(writer);
                self.note(work.place);
                Ok(work.written)
            }
            Err((path, source)) => {
                let error = LogError::Closed {
                    table: self.options.table.clone(),
                    action: "sync",
                    path: path.to_path_buf(),
                    source: Arc::new(source),
                };
                writer.close(&error);
                Err(error)
            }
        }
    }

    pub(super) fn do_sync<'a>(
        &'a self,
        work: &'a SyncWork,
    ) -> Result<(), (&'a Path, std::io::Error)> {
        for open in &work.files {
            let synced = open.file.sync().and_then(|()| self.check_named(open));
            synced.map_err(|error| (&*open.path, error))?;
        }
        if work.new_names {
            let synced = self.sync_names();
            synced.map_err(|error| (&*self.dir, error))?;
        }
        Ok(())
    }

    /// Syncs the directory. This opens the directory: while no file can be opened, the threads that
    /// wait for the sync keep waiting.
    fn sync_names(&self) -> std::io::Result<()> {
        let mut reported = false;
        loop {
            match self.disk.sync_dir(&self.dir) {
                Err(error) if is_out_of_files(&error) && !self.commits.state.lock().stop => {
                    if !std::mem::replace(&mut reported, true) {
                        tracing::warn!(table = %self.options.table, dir = %self.dir.display(), %error,
                            "writes wait: their log cannot be synced until a file can be opened");
                    }
                    self.clock.sleep(RETRY);
                }
                synced => return synced,
            }
        }
    }

    /// Makes durable what an earlier process had written: it is about to be read, and marks will
    /// say that it is durable.
    pub fn sync_recovered(&self) -> Result<(), LogError> {
        let (segments, end) = self.writer.lock().recovered();
        let failed = |path: &Path, source| LogError::Io {
            table: self.options.table.clone(),
            action: "sync",
            path: path.to_path_buf(),
            source: Arc::new(source),
        };
        for number in &segments {
            let path = segment_path(&self.dir, *number);
            let file = self.disk.open_log(&path);
            let synced = file.and_then(|file| file.sync());
            synced.map_err(|error| failed(&path, error))?;
        }
        if !segments.is_empty() {
            let synced = self.disk.sync_dir(&self.dir);
            synced.map_err(|error| failed(&self.dir, error))?;
            self.writer.lock().synced(end);
        }
        let Some(end) = end else { return Ok(()) };
        let mut note = self.note.lock();
        match note.settle(&*self.disk, end) {
            // A full disk is no reason not to read it.
            Err(error) if may_pass(&error) => self.note_failed(note.path(), &error),
            settled => settled.map_err(|error| LogError::Io {
                table: self.options.table.clone(),
                action: "write",
                path: note.path().to_path_buf(),
                source: Arc::new(error),
            })?,
        }
        Ok(())
    }

    /// Returns an error if another process has removed the file of a needed segment.
    fn check_named(&self, open: &OpenSegment) -> std::io::Result<()> {
        let gone = !open.file.has_name()? && self.writer.lock().counts(open.number);
        match gone {
            true => Err(std::io::Error::other(
                "the file was removed while it was written",
            )),
            false => Ok(()),
        }
    }

    /// Records in the note how far the log is durable. The note only helps to detect damage: the
    /// log is valid without it.
    fn note(&self, place: Option<FramePlace>) {
        let Some(place) = place else { return };
        let mut note = self.note.lock();
        if let Err(error) = note.write(&*self.disk, place) {
            self.note_failed(note.path(), &error);
        }
    }

    /// Closes the files, which cuts off the reserved space. The log's own thread may hold this for
    /// a while yet, and another process may read the files by then.
    pub fn close_files(&self) {
        let mut state = self.commits.state.lock();
        while state.leading {
            self.commits.progress.wait(&mut state);
        }
        drop(state);
        self.writer.lock().close_files();
    }

    pub fn close_note(&self) {
        let mut note = self.note.lock();
        if let Err(error) = note.close(&*self.disk) {
            self.note_failed(note.path(), &error);
        }
    }

    fn note_failed(&self, path: &Path, error: &std::io::Error) {
        tracing::warn!(table = %self.options.table, file = %path.display(), %error,
            "how far the log is durable is not noted now: should its end get lost, that may not be noticed");
    }

    pub fn remove_before(&self, segment: u64) -> Result<(), LogError> {
        let gone = self.writer.lock().forget_before(segment);
        for (at, (number, _)) in gone.iter().enumerate() {
            let path = segment_path(&self.dir, *number);
            if let Err(source) = self.disk.remove(&path) {
                self.writer.lock().remember(&gone[at..]);
                return Err(LogError::Io {
                    table: self.options.table.clone(),
                    action: "remove",
                    path,
                    source: Arc::new(source),
                });
            }
        }
        Ok(())
    }

    /// Called after a write: the thread of a log that is synced periodically may be waiting for it.
    #[inline]
    pub fn wake_thread(self: &Arc<Self>) {
        if self.options.durability.pause().is_some() && self.commits.asleep.load(SeqCst) {
            self.wake(self.commits.state.lock());
        }
    }

    fn has_work(&self, state: &CommitState) -> bool {
        match self.options.durability.pause() {
            Some(_) => self.commits.written.load(SeqCst) > state.synced,
            None => !state.callbacks.is_empty(),
        }
    }

    /// Runs the log's thread. It syncs when a sync is due, until the log is dropped or closed, or
    /// nothing is written for a while.
    fn run_thread(&self) {
        let mut state = self.commits.state.lock();
        debug_assert!(state.running, "the log's thread runs and is not noted");
        self.commits.asleep.store(false, SeqCst);
        loop {
            while !state.stop && state.failure.is_none() && !self.has_work(&state) {
                // From here on a writer sees that it has to wake this thread, or this thread sees
                // its record.
                self.commits.asleep.store(true, SeqCst);
                if !self.has_work(&state)
                    && self.commits.work.wait_for(&mut state, LINGER).timed_out()
                    && !self.has_work(&state)
                {
                    state.running = false;
                    return;
                }
                self.commits.asleep.store(false, SeqCst);
            }
            if state.stop || state.failure.is_some() {
                return;
            }
            if let Some(pause) = self.options.durability.pause() {
                drop(state);
                self.clock.sleep(pause);
                state = self.commits.state.lock();
            }
            while state.leading && !state.stop {
                self.commits.progress.wait(&mut state);
            }
            if !state.stop && state.failure.is_none() && self.has_work(&state) {
                state = self.lead(state);
            }
        }
    }
}
