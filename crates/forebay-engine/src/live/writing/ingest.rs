//! Adds runs that were built elsewhere.
//!
//! They are ordered like a write: earlier writes are older, later writes are newer. Memory is
//! flushed first. If more was written meanwhile, it is flushed again with writes to those
//! partitions paused. Then one replacement of the manifest adds the runs of all partitions, and
//! readers see all of them at once.

use std::collections::HashSet;
use std::sync::Arc;

use forebay_run::RunError;
use forebay_run::format::RunOptions;
use forebay_run::scan::{Cursor, Direction, ScanRange};
use forebay_run::{Run, RunScan};

use crate::keys::partition::PartitionId;
use crate::keys::route::Router;
use crate::live::basics::content::PartitionRun;
use crate::live::basics::error::LiveError;
use crate::live::basics::levels::level_of;
use crate::live::basics::manifest::LiveRunRef;
use crate::live::basics::removed::RemovedRanges;
use crate::live::maintenance::flush::Output;
use crate::live::memory::run::LiveRun;
use crate::live::partition::part::PartView;
use crate::live::partition::shared::LiveShared;
use crate::live::writing::pause::Pause;
use crate::name::RunId;
use crate::publishing::push::NewRun;

/// A finished run to be added to a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IngestRun {
    pub partition: PartitionId,
    pub id: RunId,
}

/// A key outside the bounds of its run's partition.
#[derive(Debug)]
struct OutsideKey {
    key: Vec<u8>,
    /// The partition that has the key, if this table holds it.
    lies_in: Option<usize>,
}

impl LiveShared {
    /// Returns an id and a path for a new run. Each call returns another one. The next opening of
    /// the table removes a run that was never added.
    pub fn new_run(&self) -> NewRun {
        let id = self.new_run_id();
        let path = self.files.run(&id);
        NewRun { id, path }
    }

    /// Returns the options for a run of this table with at most this many records, of this many
    /// bytes in all, and short keys.
    pub fn ingest_options(&self, records: u64, bytes: u64) -> RunOptions {
        self.run_options(&Output {
            level: 0,
            records,
            bytes,
            longest_key: 0,
            settled_ms: None,
            deltas_since_ms: None,
            removed: RemovedRanges::default(),
        })
    }

    /// See [`LiveTable::ingest`](crate::live::LiveTable::ingest).
    pub fn ingest(&self, runs: &[IngestRun]) -> Result<(), LiveError> {
        self.ingest_as(runs, None)
    }

    /// Like `ingest`, for the runs of a load, which the manifest then names.
    pub fn ingest_load(&self, runs: &[IngestRun], load: &RunId) -> Result<(), LiveError> {
        self.ingest_as(runs, Some(load))
    }

    fn ingest_as(&self, runs: &[IngestRun], load: Option<&RunId>) -> Result<(), LiveError> {
        if let Err(refused) = self.refuse_replicated("adding runs") {
            self.remove_runs_unless_named(runs.iter().map(|run| &run.id));
            return Err(refused);
        }
        let _one_at_a_time = self.ingesting.lock();
        self.check_new(runs.iter().map(|run| &run.id))?;
        let opened = self.open_ingested(runs);
        let added = opened.and_then(|opened| {
            self.flush()?;
            let places = opened.iter().map(|(place, _)| *place);
            let paused = Pause::new(self, places.collect());
            paused.flush()?;
            self.closing(self.add_runs(&opened, load))
        });
        if added.is_err() {
            self.remove_runs_unless_named(runs.iter().map(|run| &run.id));
        }
        added
    }

    /// Refuses a run that the table already has, or that is given twice: the first merge of one
    /// would remove the file of both.
    pub fn check_new<'a>(
        &self,
        mut runs: impl Iterator<Item = &'a RunId>,
    ) -> Result<(), LiveError> {
        let manifest = self.structure.lock();
        let mut ids: HashSet<&RunId> = manifest.runs().map(|run| &run.id).collect();
        match runs.find(|run| !ids.insert(run)) {
            Some(run) => Err(self.refused(format!(
                "run {run} is part of it already, or was given twice: write each to a path of its own"
            ))),
            None => Ok(()),
        }
    }

    pub fn open_ingested(
        &self,
        runs: &[IngestRun],
    ) -> Result<Vec<(usize, Arc<LiveRun>)>, LiveError> {
        let open = |new: &IngestRun| -> Result<(usize, Arc<LiveRun>), LiveError> {
            let place = self.parts.find(new.partition);
            let place = place.ok_or_else(|| self.no_partition(new.partition))?;
            let run = self.open_new(&PartitionRun::new(new.id.clone()))?;
            let router = self.parts.router();
            match self.end_outside(&router, place, &run.run)? {
                Some(OutsideKey { key, lies_in }) => Err(match lies_in {
                    None => self.shape.not_here(&key),
                    Some(_) => self.misplaced(&run.run, &key),
                }),
                None => Ok((place, run)),
            }
        };
        runs.iter().map(open).collect()
    }

    /// Opens a run that was written for this table and is not part of it yet.
    pub fn open_new(&self, new: &PartitionRun) -> Result<Arc<LiveRun>, LiveError> {
        let path = self.files.run(&new.id);
        let run = forebay_run::Run::open(&**self.disk(), &path);
        let run = run.map_err(|source| self.shape.run_error(source))?;
        let summary = *run.summary();
        let bytes = summary.file_bytes + summary.ext_bytes;
        let level_0_bytes = self.budget().memtable_share() / self.parts.places().max(1);
        let level = level_of(bytes, level_0_bytes as u64, u64::from(self.options.factor));
        let removed = RemovedRanges::try_from(new).map_err(|problem| self.refused(problem))?;
        self.open_run(LiveRunRef {
            id: new.id.clone(),
            level,
            deltas_since_ms: new.deltas_since_ms,
            range: None,
            removed,
            summary,
        })
    }

    /// Refuses a run with a key outside the partition.
    pub fn check_bounds(
        &self,
        router: &Router,
        partition: usize,
        run: &Arc<Run>,
    ) -> Result<(), LiveError> {
        match self.end_outside(router, partition, run)? {
            Some(outside) => Err(self.misplaced(run, &outside.key)),
            None => Ok(()),
        }
    }

    /// Returns a key of a run that is outside the partition. Checking the first and the last key is
    /// enough.
    fn end_outside(
        &self,
        router: &Router,
        partition: usize,
        run: &Arc<Run>,
    ) -> Result<Option<OutsideKey>, LiveError> {
        for direction in [Direction::Forward, Direction::Backward] {
            let mut scan = RunScan::new(Arc::clone(run), ScanRange::all(), direction);
            let found = scan
                .advance()
                .map_err(|source| self.shape.run_error(source))?;
            let hash = self.shape.place(scan.key()).hash;
            let lies_in = router.partition(hash, scan.key());
            if found && lies_in != Some(partition) {
                let key = scan.key().to_vec();
                return Ok(Some(OutsideKey { key, lies_in }));
            }
        }
        Ok(None)
    }

    fn misplaced(&self, run: &Run, key: &[u8]) -> LiveError {
        let what = format!(
            "its key {} does not lie in the partition that it is to be part of",
            crate::keys::key_text::show_key(key)
        );
        let refused = RunError::refused(run.path(), what);
        self.shape.run_error(refused)
    }

    fn add_runs(
        &self,
        added: &[(usize, Arc<LiveRun>)],
        load: Option<&RunId>,
    ) -> Result<(), LiveError> {
        let mut manifest = self.structure.lock();
        let mut next = manifest.clone();
        next.last_load = load.cloned().or(next.last_load);
        for (place, run) in added {
            let id = self.parts.id_at(*place);
            let runs = next.runs_of(id).ok_or_else(|| self.no_partition(id))?;
            runs.push(run.reference.clone());
        }
        self.replace_manifest(&next)?;
        *manifest = next;
        let mut parts = self.parts.lock_all();
        for (number, part) in parts.iter_mut().enumerate() {
            let new = added.iter().filter(|(partition, _)| *partition == number);
            let mut new = new.map(|(_, run)| Arc::clone(run)).peekable();
            if new.peek().is_none() {
                continue;
            }
            part.view = Arc::new(PartView {
                runs: part.view.runs.iter().cloned().chain(new).collect(),
                ..(*part.view).clone()
            });
            part.watchers.all_written();
        }
        drop(parts);
        self.check_views(&manifest);
        self.count_runs(&manifest);
        drop(manifest);
        self.notify(|_| ());
        Ok(())
    }

    fn refused(&self, problem: String) -> LiveError {
        LiveError::Ingest {
            table: self.shape.table.clone(),
            problem,
        }
    }

    pub fn no_partition(&self, id: PartitionId) -> LiveError {
        LiveError::Partition {
            table: self.shape.table.clone(),
            problem: format!("there is no partition {id} here"),
        }
    }
}
