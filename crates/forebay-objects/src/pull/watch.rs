//! Looking at the pointers there, and seeing that what they name comes here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use forebay_engine::{Pointer, RunId, TableName};
use forebay_io::start_behind;
use object_store::UpdateVersion;
use tracing::{info, warn};

use super::pulled_store::{PulledStore, parse_pointer, pointer_name};
use super::{PullError, Served};
use crate::objects::News;

/// Between two looks for new tables.
const LIST: Duration = Duration::from_secs(5);
/// Between two looks at the lengths of the files that serve, and two readings of them.
const LENGTHS: Duration = Duration::from_secs(5);
const READING: Duration = Duration::from_secs(24 * 3600);
/// After a failure, doubling.
const RETRY: Duration = Duration::from_secs(1);
const RETRY_MOST: Duration = Duration::from_secs(30);

pub struct Watcher {
    pulled: Arc<PulledStore>,
    poll: Duration,
    served: Arc<dyn Served>,
    stop: Arc<AtomicBool>,
    tables: BTreeMap<TableName, Watched>,
    list_at: Duration,
}

#[derive(Default)]
struct Watched {
    seen: Option<UpdateVersion>,
    /// What the pointer says, while that does not serve here.
    wanted: Option<Pointer>,
    retry_at: Duration,
    failures: u32,
    /// There is no pointer there.
    absent: bool,
    bringing: Option<Job>,
    repairing: Option<Job>,
    /// Runs of a version in which readers met damage.
    met: Option<(u64, Vec<RunId>)>,
    /// No repairing before that.
    repair_at: Duration,
    repair_failures: u32,
    /// When lengths are looked at next, and when files are read.
    lengths_at: Duration,
    reading_at: Duration,
}

/// What is repaired.
enum Repair {
    /// Files cut or missing.
    Lengths,
    /// What a reading of all files finds.
    Whole,
    /// What readers met.
    Met(u64, Vec<RunId>),
}

/// A thread that brings or repairs a version.
struct Job {
    cancelled: Arc<AtomicBool>,
    thread: JoinHandle<Result<(), PullError>>,
}

impl Watcher {
    pub fn new(
        pulled: Arc<PulledStore>,
        poll: Duration,
        served: Arc<dyn Served>,
        stop: Arc<AtomicBool>,
    ) -> Self {
        Self {
            pulled,
            poll,
            served,
            stop,
            tables: BTreeMap::new(),
            list_at: Duration::ZERO,
        }
    }

    pub fn run(&mut self) {
        // What is here is looked after even when the object store is never reached.
        for table in self.pulled.bringer.local().tables().unwrap_or_default() {
            self.tables.entry(table).or_default();
        }
        let clock = Arc::clone(self.pulled.bringer.local().clock());
        while !self.stop.load(Ordering::Relaxed) {
            let begun = clock.monotonic();
            self.look(begun);
            let rest = self.poll.saturating_sub(clock.monotonic() - begun);
            clock.sleep(rest.max(Duration::from_millis(10)));
        }
        for watched in self.tables.values_mut() {
            let jobs = [watched.bringing.take(), watched.repairing.take()];
            for job in jobs.into_iter().flatten() {
                job.cancel();
                let _ = job.end();
            }
        }
    }

    fn look(&mut self, now: Duration) {
        if now >= self.list_at {
            let listed = self.pulled.tables();
            self.reached(listed.as_ref().err());
            if let Ok(names) = listed {
                self.list_at = now + LIST;
                self.drop_gone(&names.iter().cloned().collect());
                for name in names {
                    self.tables.entry(name).or_default();
                }
            }
        }
        for watched in self.tables.values_mut() {
            watched.met = None;
        }
        for (name, version, runs) in self.served.damaged() {
            self.tables.entry(name).or_default().met = Some((version, runs));
        }
        let names: Vec<TableName> = self.tables.keys().cloned().collect();
        for name in names {
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            self.look_at(&name, now);
        }
    }

    fn reached(&self, problem: Option<&PullError>) {
        let text = problem.map(ToString::to_string);
        if self.pulled.bringer.shared.state.store(text.clone()) {
            match text {
                Some(problem) => warn!(
                    problem,
                    "the object store is out of reach; what is here serves on"
                ),
                None => info!("the object store can be looked at"),
            }
        }
    }

    fn look_at(&mut self, name: &TableName, now: Duration) {
        let asked = {
            let Some(watched) = self.tables.get(name) else {
                return;
            };
            self.pulled
                .objects
                .news(&pointer_name(name), watched.seen.as_ref())
        };
        match asked {
            Ok(news) => {
                self.reached(None);
                self.heard(name, news);
            }
            Err(source) => self.reached(Some(&PullError::Request {
                name: pointer_name(name),
                source,
            })),
        }
        self.work(name, now);
    }

    /// Takes note of a pointer's news.
    fn heard(&mut self, name: &TableName, news: News) {
        let Some(watched) = self.tables.get_mut(name) else {
            return;
        };
        let (bytes, seen) = match news {
            News::Content(bytes, seen) => (bytes, seen),
            News::Absent => {
                watched.absent = true;
                return;
            }
            News::Same => return,
        };
        watched.absent = false;
        match parse_pointer(&pointer_name(name), &bytes) {
            Ok(pointer) if pointer.serving.is_some() && !pointer.dropped => {
                watched.seen = Some(seen);
                self.pulled.bringer.shared.state.table(name, |state| {
                    state.wanted = pointer.serving;
                    state.problem = None;
                });
                watched.wanted = Some(pointer);
                (watched.retry_at, watched.failures) = (Duration::ZERO, 0);
                if let Some(job) = &watched.bringing {
                    job.cancel();
                }
            }
            Ok(_) => watched.seen = Some(seen),
            Err(error) => self
                .pulled
                .bringer
                .shared
                .state
                .table(name, |state| state.problem = Some(error.to_string())),
        }
    }

    /// Ends jobs that are done, and begins what is due.
    fn work(&mut self, name: &TableName, now: Duration) {
        let Some(watched) = self.tables.get_mut(name) else {
            return;
        };
        let pulled = &self.pulled;
        // A version that is here needs no job: a rollback is instant even while another one is
        // pulled.
        if let Some(pointer) = &watched.wanted
            && now >= watched.retry_at
            && watched.bringing.as_ref().is_none_or(Job::is_cancelled)
            && pulled.activate_if_here(name, pointer).unwrap_or(false)
        {
            watched.wanted = None;
        }
        if let Some(job) = watched.bringing.take_if(|job| job.thread.is_finished()) {
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
            watched.repairing = started(name, repair_job(pulled, name, repair, &self.served));
        }
        if watched.bringing.is_none()
            && now >= watched.retry_at
            && !watched.is_to_mend(now)
            && let Some(pointer) = watched.wanted.clone()
        {
            watched.bringing = started(name, bring_job(pulled, name, pointer, &self.served));
        }
    }

    /// Tables that are no longer there go here too, while the store itself is there.
    fn drop_gone(&mut self, there: &BTreeSet<TableName>) {
        for name in self.pulled.bringer.local().tables().unwrap_or_default() {
            let absent = self.tables.get(&name).is_some_and(|watched| watched.absent);
            if there.contains(&name) && !(absent && self.is_emptied(&name)) {
                continue;
            }
            match self.pulled.bringer.local().drop_table(&name) {
                Ok(()) => info!(table = %name, "it was dropped in the object store"),
                Err(error) => warn!(table = %name, %error, "a dropped table stays for now"),
            }
            self.tables.remove(&name);
            self.pulled.bringer.shared.state.forget(&name);
        }
    }

    /// Whether nothing but locks is left of a table there: some stores list what is empty.
    fn is_emptied(&self, name: &TableName) -> bool {
        let objects = &self.pulled.objects;
        let none = |dir: &str| {
            let found = objects.list(&format!("tables/{name}/{dir}"));
            found.is_ok_and(|names| names.is_empty())
        };
        none("versions") && none("runs")
    }
}

impl Watched {
    fn end_mending(&mut self, pulled: &PulledStore, name: &TableName, now: Duration) {
        let Some(job) = self.repairing.take_if(|job| job.thread.is_finished()) else {
            return;
        };
        let ended = job.end();
        // Looked at anew before it is believed.
        self.met = None;
        match &ended {
            // What a pull has to say stays.
            Ok(()) if self.repair_failures == 0 => {
                pulled
                    .bringer
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

    /// Whether damage waits to be repaired that readers met.
    fn is_to_mend(&self, now: Duration) -> bool {
        self.met.is_some() && now >= self.repair_at
    }

    /// What to repair now. A pull gives way to what readers met; what it brought stays.
    fn next_mend(&mut self, now: Duration) -> Option<Repair> {
        if self.repairing.is_some() || now < self.repair_at {
            return None;
        }
        if self.met.is_some() {
            if let Some(job) = &self.bringing {
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

/// How long something is left alone that failed so many times before.
fn pause(failures: u32) -> Duration {
    (RETRY * 2u32.pow(failures.min(5))).min(RETRY_MOST)
}

impl Job {
    fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    fn end(self) -> Result<(), PullError> {
        self.thread.join().unwrap_or(Err(PullError::Superseded))
    }
}

/// Notes how a job ended.
fn report(pulled: &PulledStore, name: &TableName, ended: &Result<(), PullError>) {
    let problem = match ended {
        Err(PullError::Superseded) => None,
        ended => ended.as_ref().err().map(ToString::to_string),
    };
    if let Some(problem) = &problem {
        warn!(table = %name, problem, "not pulled; what is here serves on");
    }
    pulled.bringer.shared.state.table(name, |state| {
        state.doing = None;
        state.problem = problem;
    });
}

fn started(name: &TableName, job: std::io::Result<Job>) -> Option<Job> {
    job.map_err(|error| warn!(table = %name, %error, "no thread for a pull"))
        .ok()
}

fn bring_job(
    pulled: &Arc<PulledStore>,
    name: &TableName,
    pointer: Pointer,
    served: &Arc<dyn Served>,
) -> std::io::Result<Job> {
    spawn(pulled, name, served, move |pulled, name, stopped| {
        let Some(prepared) = pulled.prepare(name, &pointer, stopped)? else {
            return Ok(0);
        };
        pulled.activate(&prepared)?;
        Ok(prepared.repaired)
    })
}

fn repair_job(
    pulled: &Arc<PulledStore>,
    name: &TableName,
    repair: Repair,
    served: &Arc<dyn Served>,
) -> std::io::Result<Job> {
    spawn(
        pulled,
        name,
        served,
        move |pulled, name, stopped| match repair {
            Repair::Lengths => pulled.repair(name, false, stopped),
            Repair::Whole => pulled.repair(name, true, stopped),
            Repair::Met(version, runs) => pulled.repair_met(name, (version, runs), stopped),
        },
    )
}

/// Starts a thread for work that says how many damaged files of what serves it replaced.
fn spawn(
    pulled: &Arc<PulledStore>,
    name: &TableName,
    served: &Arc<dyn Served>,
    work: impl FnOnce(&PulledStore, &TableName, &AtomicBool) -> Result<u64, PullError> + Send + 'static,
) -> std::io::Result<Job> {
    let cancelled = Arc::new(AtomicBool::new(false));
    let (pulled, name, stopped) = (Arc::clone(pulled), name.clone(), Arc::clone(&cancelled));
    let served = Arc::clone(served);
    let bring = move || {
        let repaired = work(&pulled, &name, &stopped)?;
        if repaired > 0 {
            served.reopen(&name);
            pulled
                .bringer
                .shared
                .state
                .table(&name, |state| state.repaired += repaired);
        }
        Ok(())
    };
    let thread = start_behind("forebay-bring", bring)?;
    Ok(Job { cancelled, thread })
}
