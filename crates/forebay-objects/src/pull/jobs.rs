//! Threads that fetch or repair a version of a table.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use forebay_engine::{Pointer, RunId, TableName};
use forebay_io::start_behind;
use tracing::warn;

use super::pulled_store::PulledStore;
use super::{PullError, ServedVersions};

/// The pause after the first failure, which doubles.
const RETRY: Duration = Duration::from_secs(1);
const RETRY_MOST: Duration = Duration::from_secs(30);

/// The kind of a repair.
pub enum Repair {
    /// Files that are truncated or missing.
    Lengths,
    /// Damage that reading all files finds.
    Whole,
    /// Damage that readers found.
    Met(u64, Vec<RunId>),
}

/// A thread that fetches or repairs a version.
pub struct Job {
    cancelled: Arc<AtomicBool>,
    thread: JoinHandle<Result<(), PullError>>,
}

/// Returns the pause after this many failures.
pub fn pause(failures: u32) -> Duration {
    (RETRY * 2u32.pow(failures.min(5))).min(RETRY_MOST)
}

impl Job {
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// Waits for the thread, and returns its result.
    pub fn end(self) -> Result<(), PullError> {
        self.thread.join().unwrap_or(Err(PullError::BrokenThread))
    }
}

/// Records how a job ended.
pub fn report(pulled: &PulledStore, name: &TableName, ended: &Result<(), PullError>) {
    let problem = match ended {
        Err(PullError::Superseded) => None,
        ended => ended.as_ref().err().map(ToString::to_string),
    };
    if let Some(problem) = &problem {
        warn!(table = %name, problem, "not pulled; what is here serves on");
    }
    pulled.fetcher.shared.state.table(name, |state| {
        state.doing = None;
        state.problem = problem;
    });
}

pub fn started(name: &TableName, job: std::io::Result<Job>) -> Option<Job> {
    job.map_err(|error| warn!(table = %name, %error, "no thread for a pull"))
        .ok()
}

pub fn fetch_job(
    pulled: &Arc<PulledStore>,
    name: &TableName,
    pointer: Pointer,
    served: &Arc<dyn ServedVersions>,
) -> std::io::Result<Job> {
    spawn(pulled, name, served, move |pulled, name, stopped| {
        let Some(prepared) = pulled.prepare(name, &pointer, stopped)? else {
            return Ok(0);
        };
        pulled.activate(&prepared)?;
        Ok(prepared.repaired)
    })
}

pub fn repair_job(
    pulled: &Arc<PulledStore>,
    name: &TableName,
    repair: Repair,
    served: &Arc<dyn ServedVersions>,
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

/// Starts a thread for work that returns how many damaged files of the serving version it replaced.
fn spawn(
    pulled: &Arc<PulledStore>,
    name: &TableName,
    served: &Arc<dyn ServedVersions>,
    work: impl FnOnce(&PulledStore, &TableName, &AtomicBool) -> Result<u64, PullError> + Send + 'static,
) -> std::io::Result<Job> {
    let cancelled = Arc::new(AtomicBool::new(false));
    let (pulled, name, stopped) = (Arc::clone(pulled), name.clone(), Arc::clone(&cancelled));
    let served = Arc::clone(served);
    let fetch_version = move || {
        let repaired = work(&pulled, &name, &stopped)?;
        if repaired > 0 {
            served.reopen(&name);
            pulled
                .fetcher
                .shared
                .state
                .table(&name, |state| state.repaired += repaired);
        }
        Ok(())
    };
    let thread = start_behind("forebay-fetch", fetch_version)?;
    Ok(Job { cancelled, thread })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_in_a_job_is_a_reported_error() {
        let thread = start_behind("panics", || panic!("a fault")).unwrap();
        let job = Job {
            cancelled: Arc::default(),
            thread,
        };
        assert!(matches!(job.end(), Err(PullError::BrokenThread)));
    }
}
