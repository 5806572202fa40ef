//! A node's state of one table, and its work for it.

use std::sync::Arc;
use std::time::Duration;

use forebay_engine::{Pointer, RunId, TableName};
use object_store::UpdateVersion;

use super::jobs::{Job, Repair, fetch_job, pause, repair_job, report, started};
use super::pulled_store::{PulledStore, parse_pointer};
use super::{PullError, ServedVersions};
use crate::announcing::pointer_name;
use crate::objects::News;
use crate::tables_document::TableEntry;

/// The time between two checks of the lengths of the serving files, and between two readings of
/// them.
const LENGTHS: Duration = Duration::from_secs(5);
const READING: Duration = Duration::from_secs(24 * 3600);

#[derive(Default)]
pub struct WatchedTable {
    pub seen: Option<UpdateVersion>,
    /// The last seen pointer; `None`: it was not requested, or did not exist.
    pub pointer: Option<Pointer>,
    /// The pointer's content, while its version does not serve from the cache.
    wanted: Option<Pointer>,
    retry_at: Duration,
    failures: u32,
    /// The store has no pointer.
    pub absent: bool,
    fetching: Option<Job>,
    repairing: Option<Job>,
    /// Runs of a version in which readers found damage.
    pub met: Option<(u64, Vec<RunId>)>,
    /// The earliest time of a repair.
    repair_at: Duration,
    repair_failures: u32,
    /// When lengths are checked next, and when files are read.
    lengths_at: Duration,
    reading_at: Duration,
}

impl WatchedTable {
    /// Records a change of a pointer.
    pub fn received(&mut self, pulled: &PulledStore, name: &TableName, news: News) {
        let (bytes, seen) = match news {
            News::Content(bytes, seen) => (bytes, seen),
            News::Absent => {
                (self.absent, self.pointer) = (true, None);
                return;
            }
            News::Same => return,
        };
        let state = &pulled.fetcher.shared.state;
        self.absent = false;
        match parse_pointer(&pointer_name(name), &bytes) {
            Ok(pointer) => {
                (self.seen, self.pointer) = (Some(seen), Some(pointer.clone()));
                if pointer.serving.is_none() || pointer.dropped {
                    return;
                }
                state.table(name, |state| {
                    state.wanted = pointer.serving;
                    state.problem = None;
                });
                self.wanted = Some(pointer);
                (self.retry_at, self.failures) = (Duration::ZERO, 0);
                if let Some(job) = &self.fetching {
                    job.cancel();
                }
            }
            Err(error) => state.table(name, |state| state.problem = Some(error.to_string())),
        }
    }

    /// Returns the entry of the table in the document of all tables.
    pub fn entry(&self) -> Option<TableEntry> {
        self.pointer.as_ref().and_then(TableEntry::of)
    }

    /// Returns whether the table is being dropped in the store.
    pub fn is_dropping(&self) -> bool {
        self.pointer.as_ref().is_some_and(|pointer| pointer.dropped)
    }

    /// Stops the running job.
    pub fn stop(&mut self) {
        let jobs = [self.fetching.take(), self.repairing.take()];
        for job in jobs.into_iter().flatten() {
            job.cancel();
            let _ = job.end();
        }
    }

    /// Ends jobs that are done, and begins what is due.
    pub fn work(
        &mut self,
        pulled: &Arc<PulledStore>,
        served: &Arc<dyn ServedVersions>,
        name: &TableName,
        now: Duration,
    ) {
        let watched = self;
        // A version that the cache has needs no job: a rollback is instant even while another
        // version is pulled.
        if let Some(pointer) = &watched.wanted
            && now >= watched.retry_at
            && watched.fetching.as_ref().is_none_or(Job::is_cancelled)
            && pulled.activate_if_here(name, pointer).unwrap_or(false)
        {
            watched.wanted = None;
        }
        if let Some(job) = watched.fetching.take_if(|job| job.is_finished()) {
            let cancelled = job.is_cancelled();
            let ended = job.end();
            report(pulled, name, &ended);
            match ended {
                Ok(()) if !cancelled => (watched.wanted, watched.failures) = (None, 0),
                Ok(()) | Err(PullError::Superseded) => {}
                Err(_) => {
                    watched.retry_at = now + pause(watched.failures);
                    watched.failures += 1;
                }
            }
        }
        watched.end_mending(pulled, name, now);
        if let Some(repair) = watched.next_mend(now) {
            watched.repairing = started(name, repair_job(pulled, name, repair, served));
        }
        if watched.fetching.is_none()
            && now >= watched.retry_at
            && !watched.is_to_mend(now)
            && let Some(pointer) = watched.wanted.clone()
        {
            watched.fetching = started(name, fetch_job(pulled, name, pointer, served));
        }
    }

    fn end_mending(&mut self, pulled: &PulledStore, name: &TableName, now: Duration) {
        let Some(job) = self.repairing.take_if(|job| job.is_finished()) else {
            return;
        };
        let ended = job.end();
        // It is checked again before it is believed.
        self.met = None;
        match &ended {
            // The message of a pull stays.
            Ok(()) if self.repair_failures == 0 => {
                pulled
                    .fetcher
                    .shared
                    .state
                    .table(name, |state| state.doing = None);
            }
            ended => report(pulled, name, ended),
        }
        match ended {
            Ok(()) => self.repair_failures = 0,
            Err(_) => {
                self.repair_at = now + pause(self.repair_failures);
                (self.lengths_at, self.reading_at) = (self.repair_at, self.repair_at);
                self.repair_failures += 1;
            }
        }
    }

    /// Returns whether damage that readers found waits for repair.
    fn is_to_mend(&self, now: Duration) -> bool {
        self.met.is_some() && now >= self.repair_at
    }

    /// Returns what to repair now. A pull yields to damage that readers found; its fetched files
    /// stay.
    fn next_mend(&mut self, now: Duration) -> Option<Repair> {
        if self.repairing.is_some() || now < self.repair_at {
            return None;
        }
        if self.met.is_some() {
            if let Some(job) = &self.fetching {
                job.cancel();
                return None;
            }
            return self
                .met
                .take()
                .map(|(version, runs)| Repair::Met(version, runs));
        }
        if now >= self.reading_at {
            (self.lengths_at, self.reading_at) = (now + LENGTHS, now + READING);
            return Some(Repair::Whole);
        }
        if now >= self.lengths_at {
            self.lengths_at = now + LENGTHS;
            return Some(Repair::Lengths);
        }
        None
    }
}
