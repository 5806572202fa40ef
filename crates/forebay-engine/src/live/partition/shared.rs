//! The state of an open live table, which its handles and its background threads share.
//!
//! Locks are taken in this order: `ingesting`, `compacting`, `structure`, `frozen`, those of the
//! partitions by place, `progress`.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::JoinHandle;

use forebay_io::{Clock, Disk, Lock, Throttle, give_way};
use forebay_run::verify::read_back;
use parking_lot::{Condvar, Mutex};
use tracing::error;

use crate::documents::layout::TableFiles;
use crate::keys::partition::PartitionId;
use crate::keys::route::Router;
use crate::live::basics::applied::AppliedPlace;
use crate::live::basics::error::LiveError;
use crate::live::basics::manifest::{LiveManifest, LivePartition, LiveRunRef};
use crate::live::basics::options::LiveOptions;
use crate::live::basics::shape::Shape;
use crate::live::log::Log;
use crate::live::memory::run::{LiveRun, open_file};
use crate::live::partition::budget::{Budget, Member};
use crate::live::partition::parts::LiveParts;
use crate::name::RunId;
use crate::tables::store::Store;

/// The shared state of an open live table.
#[derive(Debug)]
pub(crate) struct LiveShared {
    pub shape: Arc<Shape>,
    pub options: LiveOptions,
    pub store: Store,
    pub files: TableFiles,
    pub parts: LiveParts,
    /// Absent in a table without a log, and in a replicated one.
    pub log: Option<Log>,
    /// The content of the manifest on the disk. Held while it is replaced.
    pub structure: Mutex<LiveManifest>,
    /// Held by a thread that merges runs, so that no two merge the same ones.
    pub compacting: Mutex<()>,
    pub merge_throttle: Throttle,
    /// Held by a thread that adds runs, or adopts or releases partitions.
    pub ingesting: Mutex<()>,
    /// Generations that wait to be flushed, oldest first.
    pub frozen: Mutex<VecDeque<Frozen>>,
    pub memory: Member,
    pub gate: Gate,
    pub progress: Mutex<Progress>,
    pub changed: Condvar,
    pub workers: Workers,
    pub counts: Counts,
    pub _lock: Box<dyn Lock>,
    /// Runs whose files stay after a merge, with the number of copies that hold each. The lock is
    /// taken last.
    pub copied: Mutex<HashMap<RunId, usize>>,
    /// The lock that shows that requests of other processes are served. Taken at the first look for
    /// requests.
    pub asks_lock: Mutex<Option<Box<dyn Lock>>>,
}

/// The table's threads, as far as they run.
#[derive(Debug, Default)]
pub(crate) struct Workers {
    /// The table that they work on; not set while the table is being opened.
    pub table: OnceLock<Weak<LiveShared>>,
    pub handles: Mutex<Vec<JoinHandle<()>>>,
}

/// A generation that takes no more writes.
#[derive(Debug, Clone)]
pub(crate) struct Frozen {
    /// Counted from 1 since the table was opened.
    pub number: u64,
    /// The first segment of the log that has none of its records.
    pub log_from: u64,
    pub memory_bytes: usize,
    /// The positions of the replicated partitions, by their places among the partitions: those of
    /// their runs once it is flushed. Empty if the table is not replicated.
    pub applied: Arc<[Option<AppliedPlace>]>,
}

impl Frozen {
    pub fn applied_at(&self, place: usize) -> Option<&AppliedPlace> {
        self.applied.get(place)?.as_ref()
    }
}

/// The failures of a kind of background work.
#[derive(Debug, Default)]
pub(crate) struct Trouble {
    /// How many steps failed.
    pub failures: u64,
    /// Why the last step failed, if it did.
    pub problem: Option<String>,
    /// Set if there are no more steps: the same step would fail again.
    pub has_stopped: bool,
}

/// The progress of the background work.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Generations frozen and flushed since the table was opened.
    pub frozen: u64,
    pub flushed: u64,
    pub flushes: Trouble,
    pub merges: Trouble,
    /// The number of failed flushes when a write was last refused. Writes before the next try are
    /// refused at once, so that a pipeline of many does not wait for each.
    pub refused_after: u64,
    /// How often a caller asked for a flush, to wait for it.
    pub asked: u64,
    /// How often any of this has changed.
    pub events: u64,
    /// Which of the table's threads run.
    pub running: [bool; 2],
    /// Why the table takes no more writes.
    pub failed: Option<String>,
    /// Why a write was last refused because the log had no room.
    pub no_room: Option<String>,
    pub closing: bool,
    /// Another table needs memory: freeze the generation.
    pub freeze_asked: bool,
    /// Large runs in memory are to be merged.
    pub tidy_asked: bool,
}

/// A gate for writes: 0 if they may pass, or the reasons why not.
#[derive(Debug, Default)]
pub(crate) struct Gate(AtomicU32);

/// Memory is at its limit: wait until runs are written.
pub(crate) const GATE_FULL: u32 = 1;
/// No write passes any more: see [`Progress`].
pub(crate) const GATE_ENDED: u32 = 4;

impl Gate {
    #[inline]
    pub fn reasons(&self) -> u32 {
        self.0.load(Ordering::Acquire)
    }

    pub fn close(&self, reason: u32) {
        self.0.fetch_or(reason, Ordering::AcqRel);
    }

    pub fn open(&self, reason: u32) {
        self.0.fetch_and(!reason, Ordering::AcqRel);
    }
}

/// Counters since the table was opened.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Runs in the partition that has most of them.
    pub most_runs: AtomicUsize,
    pub flushed_bytes: AtomicU64,
    pub merged_bytes: AtomicU64,
    pub merges: AtomicU64,
    /// How many threads wait for merges to end.
    pub merges_awaited: AtomicUsize,
    /// By the table's clock; 0: never.
    pub merges_put_off_until_us: AtomicU64,
    pub delayed_us: AtomicU64,
    /// The pauses that writers must take.
    pub owed_ns: AtomicU64,
    /// Whether the generation that takes writes was read.
    pub memory_is_read: AtomicBool,
    /// How often requests of other processes were looked for.
    pub looks: AtomicU64,
    /// How often the pages of runs were checked.
    pub sweeps: AtomicU64,
}

impl LiveShared {
    pub fn disk(&self) -> &Arc<dyn Disk> {
        self.store.disk()
    }

    pub fn clock(&self) -> &Arc<dyn Clock> {
        self.store.clock()
    }

    pub fn budget(&self) -> &Arc<Budget> {
        self.memory.budget()
    }

    /// Stops writes for good; reads continue. The first reason is kept.
    pub fn fail(&self, why: &str) {
        self.is_stuck(why);
        self.notify(|progress| {
            if progress.failed.is_none() {
                error!(table = %self.shape.table, why, "no more writes are taken");
                progress.failed = Some(why.to_owned());
            }
            // A thread that finds the gate closed finds the reason, too.
            self.gate.close(GATE_ENDED);
        });
    }

    /// Changes the progress and wakes all threads that wait for it.
    pub fn notify<R>(&self, change: impl FnOnce(&mut Progress) -> R) -> R {
        let mut progress = self.progress.lock();
        progress.events += 1;
        let result = change(&mut progress);
        debug_assert!(
            progress.flushed <= progress.frozen,
            "{} generations are written, of {} that were frozen",
            progress.flushed,
            progress.frozen
        );
        let ends = progress.closing || progress.failed.is_some();
        let all_run = progress.running.iter().all(|runs| *runs);
        drop(progress);
        self.changed.notify_all();
        if !ends && !all_run {
            self.start_workers();
        }
        result
    }

    /// Returns why writes are refused for good.
    pub fn ended(&self) -> LiveError {
        let table = self.shape.table.clone();
        match &self.progress.lock().failed {
            Some(why) => LiveError::Failed {
                table,
                why: why.clone(),
            },
            None => LiveError::Closed { table },
        }
    }

    /// See [`LiveTable::verify`](crate::live::LiveTable::verify).
    pub fn verify(
        &self,
        advance: &mut dyn FnMut(u64),
    ) -> Result<(usize, Vec<LiveError>), LiveError> {
        let _no_merges = self.hold_merges();
        let manifest = self.structure.lock().clone();
        let (mut runs, mut problems) = (HashSet::new(), Vec::new());
        for partition in &manifest.partitions {
            for reference in &partition.runs {
                // Shared runs are read once.
                if runs.insert(&reference.id) {
                    let verified = self.verify_run(partition, reference, advance);
                    problems.extend(verified.err());
                }
            }
        }
        Ok((runs.len(), problems))
    }

    fn verify_run(
        &self,
        partition: &LivePartition,
        reference: &LiveRunRef,
        advance: &mut dyn FnMut(u64),
    ) -> Result<(), LiveError> {
        let path = self.files.run(&reference.id);
        let read = read_back(&**self.disk(), &path, self.shape.order, advance);
        let run = read.map_err(|source| self.shape.run_error(source))?;
        if *run.summary() != reference.summary {
            let what = "it is not the run that the table's manifest names";
            return Err(self
                .shape
                .run_error(forebay_run::RunError::refused(&path, what)));
        }
        // If a run also has records of other partitions, only damage in this partition's part
        // counts.
        if reference.range.is_some() {
            return Ok(());
        }
        let only = std::iter::once((0, &partition.bounds));
        let router = Router::new(&self.shape.table, self.shape.order, only);
        self.check_bounds(&router, 0, &run)
    }

    /// See [`LiveTable::damaged`](crate::live::LiveTable::damaged).
    pub fn damaged_of(&self, manifest: &LiveManifest) -> Vec<(PartitionId, String)> {
        let met = self.shape.damage.all();
        let problem = |partition: &LivePartition| {
            let mut runs = partition.runs.iter();
            let problem = runs.find_map(|run| met.get(&run.id))?;
            Some((partition.id, problem.clone()))
        };
        manifest.partitions.iter().filter_map(problem).collect()
    }

    /// See [`LiveTable::check_run`](crate::live::LiveTable::check_run).
    pub fn check_run(&self, id: &RunId) -> Result<(), LiveError> {
        let path = self.files.run(id);
        let read = read_back(&**self.disk(), &path, self.shape.order, &mut |_| give_way());
        read.map(drop)
            .map_err(|source| self.shape.run_error(source))
    }

    /// Checks that readers have the runs that the manifest names. REQUIRES the structure's lock,
    /// and no partition's.
    pub fn check_views(&self, manifest: &LiveManifest) {
        debug_assert_eq!(
            self.wrong_view(manifest),
            None,
            "the runs of a partition are not those that the manifest names"
        );
    }

    fn wrong_view(&self, manifest: &LiveManifest) -> Option<String> {
        for partition in &manifest.partitions {
            let id = partition.id;
            let Some(place) = self.parts.find(id) else {
                return Some(format!("partition {id} is not here"));
            };
            let view = Arc::clone(&self.parts.at(place).lock().view);
            let open = view.runs.iter().map(|run| &run.reference);
            if !open.eq(&partition.runs) {
                let open: Vec<&RunId> = view.runs.iter().map(|run| &run.reference.id).collect();
                return Some(format!("partition {id} reads {open:?}"));
            }
        }
        let here = self.parts.iter().filter(|part| part.lock().is_here());
        let here = here.count();
        let named = manifest.partitions.len();
        (here != named).then(|| format!("{here} partitions are here, and {named} are named"))
    }

    /// Opens the files of a run and compares them with its entry in the manifest.
    pub fn open_run(&self, reference: LiveRunRef) -> Result<Arc<LiveRun>, LiveError> {
        let run = open_file(&**self.disk(), &self.files, &self.shape, &reference)?;
        Ok(Arc::new(LiveRun::new(run, reference)))
    }
}
