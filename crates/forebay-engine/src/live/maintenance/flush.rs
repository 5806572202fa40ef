//! Flushes memory to the disk.
//!
//! A *generation* is what was written between two freezes: a part of each partition's memory and
//! one segment of the log. It is flushed in four steps, and a crash may follow each:
//!
//! 1. [`LiveShared::freeze`] lets a new generation, and a new segment, take the writes.
//! 2. [`LiveShared::flush_oldest`] writes a run for each partition that has records, and syncs
//!    them.
//! 3. The manifest is replaced by one that names the new runs and the new first segment. From here
//!    on the runs count. Before, they are garbage that the next opening removes.
//! 4. Readers get the runs in place of the memory. The old segment is removed.
//!
//! In a replicated table a generation also has the place of each partition's state in its group's
//! log. The manifest names it along with the runs. A generation without memory is flushed, too, if
//! places have moved: whenever a flush is requested, and otherwise when they have moved far.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use forebay_io::{is_out_of_files, out_of_files, put_file};
use forebay_run::RunWriter;
use forebay_run::format::{RunOptions, RunSummary};
use forebay_run::merge::{Merge, Resolve};
use forebay_run::scan::{Cursor, Direction, ScanRange};
use forebay_run::settle::SettledCursor;
use parking_lot::MutexGuard;
use tracing::warn;

use crate::error::{At, StoreError};
use crate::live::basics::error::LiveError;
use crate::live::basics::expiry::earliest;
use crate::live::basics::manifest::{LiveManifest, LiveRunRef};
use crate::live::basics::promised_files::FilePromise;
use crate::live::basics::removed::RemovedRanges;
use crate::live::basics::shape::PartTime;
use crate::live::maintenance::background::RETRY;
use crate::live::memory::cursor::SourceCursor;
use crate::live::memory::mini::MiniRun;
use crate::live::memory::run::LiveRun;
use crate::live::partition::part::{Minis, PartView, mini_cursors};
use crate::live::partition::shared::{Frozen, LiveShared};
use crate::name::RunId;
use crate::publishing::cleanup::remove_if_there;

/// This many files stay free for merges, which reduce their number, for the manifest, and for
/// statistics. Each table also needs some for segments of the log.
const SPARE_FILES: u64 = 12;
const SPARE_FILES_A_TABLE: u64 = 2;
/// The interval of retries to open a directory.
const OPEN_RETRY: Duration = Duration::from_millis(100);

impl LiveShared {
    /// Flushes everything that is in memory now, and waits until it is on the disk. Of a replicated
    /// table the manifest then has the current places, or later ones.
    pub fn flush(&self) -> Result<(), LiveError> {
        self.flush_frozen(|shared| shared.freeze_moved(None, 1))
    }

    /// Like `flush`, for the partitions at these places. The log of a table that has one is shared
    /// by all partitions, so all of them are flushed then.
    pub fn flush_of(&self, places: &[usize]) -> Result<(), LiveError> {
        let only = self.options.replication.is_some().then_some(places);
        self.flush_frozen(|shared| shared.freeze_moved(only, 1))
    }

    /// Waits until a generation, and those before it, are flushed.
    fn flush_frozen(&self, freeze: impl FnOnce(&Self) -> u64) -> Result<(), LiveError> {
        let failures = self.progress.lock().flushes.failures;
        let number = freeze(self);
        if self.budget().is_by_hand() {
            return self.flush_by_hand(number);
        }
        // Without this, the next try after a failure would come later.
        self.notify(|progress| progress.asked += 1);
        let mut progress = self.progress.lock();
        while progress.flushed < number {
            if progress.failed.is_some() || progress.closing {
                drop(progress);
                return Err(self.ended());
            }
            if let Some(why) = &progress.flushes.problem
                && progress.flushes.failures > failures
            {
                return Err(self.full(why));
            }
            let idle = self.changed.wait_for(&mut progress, RETRY).timed_out();
            if idle {
                // A thread that could not be started earlier may start now.
                MutexGuard::unlocked(&mut progress, || self.start_workers());
            }
        }
        Ok(())
    }

    /// Flushes the oldest frozen generation; returns its number. One thread at a time may call it.
    pub fn flush_oldest(&self) -> Result<Option<u64>, LiveError> {
        let Some(frozen) = self.frozen.lock().front().cloned() else {
            return Ok(None);
        };
        debug_assert!(
            frozen.number > self.progress.lock().flushed,
            "generation {} is written again",
            frozen.number
        );
        let mut promise = self.promise_files()?;
        let mut written = Vec::new();
        let result = self.write_generation(&frozen, &mut promise, &mut written);
        if let Err(error) = result.and_then(|()| self.install_generation(&frozen, &written)) {
            self.remove_runs_unless_named(written.iter().flatten().map(|run| &run.reference.id));
            return Err(error);
        }
        let done = self.frozen.lock().pop_front();
        debug_assert_eq!(
            done.map(|done| done.number),
            Some(frozen.number),
            "another generation was written meanwhile"
        );
        self.memory.thaw(frozen.memory_bytes);
        if let Some(log) = &self.log
            && let Err(error) = log.remove_before(frozen.log_from)
        {
            warn!(table = %self.shape.table, %error, "a part of the log that is not needed stays for now");
        }
        Ok(Some(frozen.number))
    }

    /// Refuses a flush that would use up the open files: each run takes one.
    fn promise_files(&self) -> Result<FilePromise<'_>, LiveError> {
        let dir = &self.files.dir;
        let frozen = |view: &PartView| view.frozen.first().is_some_and(|minis| !minis.is_empty());
        let parts = self.parts.iter();
        let runs = parts.filter(|part| frozen(&part.lock().view)).count() as u64;
        let spare = SPARE_FILES + SPARE_FILES_A_TABLE * self.budget().tables() as u64;
        let promised = self.budget().promised_files();
        let promise = promised.promise(runs, spare, || self.disk().free_files());
        let promise = promise.at("count open files for", dir)?;
        Ok(promise.ok_or_else(out_of_files).at("open a run in", dir)?)
    }

    fn write_generation(
        &self,
        frozen: &Frozen,
        promise: &mut FilePromise<'_>,
        written: &mut Vec<Option<Arc<LiveRun>>>,
    ) -> Result<(), LiveError> {
        for (place, part) in self.parts.iter().enumerate() {
            let applied = frozen.applied_at(place);
            // Entries that are applied again after a crash are judged by times from there on.
            let time = applied.map_or(PartTime::CLOCK, |at| PartTime::stamp(at.stamp_ms));
            let now_ms = self.shape.now_ms(time);
            let (view, buffered) = {
                let part = part.lock();
                (Arc::clone(&part.view), part.memtable.deltas_since_ms())
            };
            let minis: Minis = view.frozen.first().cloned().unwrap_or_default();
            if minis.is_empty() {
                written.push(None);
                continue;
            }
            let mut removed = RemovedRanges::default();
            let way = (&ScanRange::all(), Direction::Forward);
            let cursors = mini_cursors(&self.shape, minis.iter().rev(), &mut removed, way);
            let cursors = cursors.into_iter().map(SourceCursor::Mini).collect();
            let records = minis.iter().map(|mini| mini.records()).sum();
            let bytes = minis.iter().map(|mini| mini.end() as u64).sum();
            let longest_key = minis.iter().map(|mini| mini.longest_key()).max();
            let since = |mini: &Arc<MiniRun>| mini.deltas_since_ms;
            let newer = view.all_minis().skip(minis.len()).map(since);
            let settled_ms = self.droppable_ms(now_ms, newer.chain([buffered]));
            let output = Output {
                level: 0,
                records,
                bytes,
                longest_key: longest_key.unwrap_or(0),
                settled_ms: view.runs.is_empty().then_some(settled_ms),
                deltas_since_ms: earliest(minis.iter().map(since)),
                removed,
            };
            written.push(self.write_run(cursors, output, &mut |_| Ok(()))?);
            promise.is_opened();
        }
        Ok(())
    }

    fn install_generation(
        &self,
        frozen: &Frozen,
        written: &[Option<Arc<LiveRun>>],
    ) -> Result<(), LiveError> {
        let mut manifest = self.structure.lock();
        let mut next = manifest.clone();
        debug_assert!(
            self.log.is_none() || frozen.log_from >= next.log_from,
            "the log is needed from segment {} on, and would be from {} on",
            next.log_from,
            frozen.log_from
        );
        next.log_from = next.log_from.max(frozen.log_from);
        for (place, run) in written.iter().enumerate() {
            let Some(run) = run else { continue };
            // A partition is released only when none of its memory waits to be flushed.
            let runs = next.runs_of(self.parts.id_at(place));
            let runs = runs.ok_or_else(|| self.no_partition(self.parts.id_at(place)))?;
            runs.push(run.reference.clone());
        }
        self.raise_places(&mut next, frozen);
        self.replace_manifest(&next)?;
        *manifest = next;
        // A partition that was adopted meanwhile counts this generation, too.
        for (place, part) in self.parts.iter().enumerate() {
            let new = written.get(place).and_then(Option::as_ref);
            let mut part = part.lock();
            debug_assert!(
                !part.view.frozen.is_empty(),
                "partition at {place} does not count generation {}",
                frozen.number
            );

            part.view = Arc::new(PartView {
                runs: part.view.runs.iter().chain(new).cloned().collect(),
                frozen: part.view.frozen.iter().skip(1).cloned().collect(),
                minis: Arc::clone(&part.view.minis),
            });
        }
        let bytes = written
            .iter()
            .flatten()
            .map(|run| run.reference.files_bytes())
            .sum();
        self.counts
            .flushed_bytes
            .fetch_add(bytes, Ordering::Relaxed);
        self.check_views(&manifest);
        self.count_runs(&manifest);
        Ok(())
    }

    /// Records the places of the flushed partitions. A partition that was released since, and may
    /// be back at another place, is left out.
    fn raise_places(&self, next: &mut LiveManifest, frozen: &Frozen) {
        for (place, applied) in frozen.applied.iter().enumerate() {
            let Some(applied) = applied else { continue };
            let part = self.parts.at(place).lock();
            let now = part.applied.as_ref().map(|now| now.place.position());
            debug_assert!(
                !part.is_here() || now >= Some(applied.position()),
                "partition at {place} has applied up to {now:?}, and its runs up to {applied:?}"
            );
            if part.is_here() {
                next.raise(self.parts.id_at(place), applied);
            }
        }
    }

    /// Merges the records of some cursors, oldest first, into a run. Returns `None` when no record
    /// remains, and nothing older is to be removed. `pace` is called every so many bytes with the
    /// number written, and may end the merge.
    pub fn write_run(
        &self,
        cursors: Vec<SourceCursor>,
        output: Output,
        pace: &mut dyn FnMut(u64) -> Result<(), LiveError>,
    ) -> Result<Option<Arc<LiveRun>>, LiveError> {
        let id = self.new_run_id();
        let options = self.run_options(&output);
        let writer = RunWriter::create(self.disk(), &self.files.run(&id), options);
        let writer = writer.map_err(|source| self.shape.run_error(source))?;
        let resolve = Resolve::Compose(self.shape.kind());
        let merge = Merge::new(cursors, resolve, Direction::Forward);
        let needed = output.settled_ms.is_none() && !output.removed.is_empty();
        let written = match output.settled_ms {
            Some(expired_ms) => {
                self.write_records(writer, SettledCursor::new(merge, expired_ms), needed, pace)
            }
            None => self.write_records(writer, merge, needed, pace),
        };
        let summary = match written {
            Ok(Some(summary)) => summary,
            nothing_or_error => {
                self.remove_run(&id);
                return nothing_or_error.map(|_| None);
            }
        };
        debug_assert!(
            summary.records <= output.records,
            "{} records became {} in a run",
            output.records,
            summary.records
        );
        let (deltas_since_ms, removed) = match output.settled_ms {
            Some(_) => (None, RemovedRanges::default()),
            None => (output.deltas_since_ms, output.removed),
        };
        let reference = LiveRunRef {
            id,
            level: output.level,
            deltas_since_ms,
            range: None,
            removed,
            summary,
        };
        let run = self.open_run(reference)?;
        run.run.trust_written();
        Ok(Some(run))
    }

    /// Writes merged records to a run. `needed`: the run is kept even without records.
    fn write_records(
        &self,
        mut writer: RunWriter,
        mut cursor: impl Cursor,
        needed: bool,
        pace: &mut dyn FnMut(u64) -> Result<(), LiveError>,
    ) -> Result<Option<RunSummary>, LiveError> {
        const PACE_BYTES: u64 = 64 << 10;
        let failed = |source| self.shape.run_error(source);
        let mut reported_bytes = 0;
        while cursor.advance().map_err(failed)? {
            let (tag, payload) = cursor.encoded();
            writer
                .push_encoded(cursor.hash(), cursor.key(), tag, &payload)
                .map_err(failed)?;
            if writer.len_bytes() - reported_bytes >= PACE_BYTES {
                reported_bytes = writer.len_bytes();
                pace(reported_bytes)?;
            }
        }
        if writer.records() == 0 && !needed {
            return Ok(None);
        }
        let summary = writer.finish().map_err(failed)?;
        pace(summary.file_bytes + summary.ext_bytes)?;
        Ok(Some(summary))
    }

    pub fn run_options(&self, output: &Output) -> RunOptions {
        let prefix = self.shape.hasher.prefix();
        let options = RunOptions::new(self.shape.order, self.options.compression, prefix);
        let record_bytes = output.bytes / output.records.max(1);
        let filter_bytes = output.records * forebay_run::filter::BITS_PER_KEY / 8;
        // Look-ups mostly end in the oldest run, so its filter would only help with absent keys.
        let share = if output.settled_ms.is_some() { 4 } else { 1 };
        let filtered = filter_bytes <= self.budget().run_room() as u64 / share;
        RunOptions {
            filter_records: filtered.then_some(output.records),
            write_back: true,
            ..options
                .for_records_of(record_bytes)
                .for_keys_of(output.longest_key)
        }
    }

    pub fn new_run_id(&self) -> RunId {
        RunId::plain(format!("{:016x}", self.store.random().next_u64()))
    }

    /// Writes the manifest. After an error the old one is in place, or the state is unknown and the
    /// table has failed. REQUIRES the structure's lock.
    pub fn replace_manifest(&self, next: &LiveManifest) -> Result<(), LiveError> {
        debug_assert!(
            self.structure.is_locked(),
            "the manifest is replaced without the structure's lock"
        );
        debug_assert_eq!(
            next.check_partitions(),
            Ok(()),
            "the manifest that is to be put in place cannot be read back"
        );
        if self.progress.lock().failed.is_some() {
            return Err(self.ended());
        }
        let path = self.files.live_manifest();
        let bytes = next.to_bytes().map_err(|problem| StoreError::Damaged {
            path: path.clone(),
            problem,
        })?;
        let runs = self.files.runs();
        self.disk().sync_dir(&runs).at("sync", &runs)?;
        let error = match put_file(&**self.disk(), &path, &bytes) {
            // Putting it in place opens no file, so the old one is still there.
            Err(error) if is_out_of_files(&error) => return Err(error).at("write", &path)?,
            put => match put.and_then(|()| self.sync_manifest()) {
                Ok(()) => return Ok(()),
                Err(error) => error,
            },
        };
        // A file that cannot be read may be the new one.
        if self.disk().read(&path).map_or(true, |found| found == bytes) {
            self.fail(&format!(
                "could not make sure of {}: {error}",
                path.display()
            ));
        }
        Err(error).at("write", &path).map_err(LiveError::from)
    }

    /// Makes the manifest's name, which readers already see, durable. This opens a directory, so it
    /// waits until one can be opened.
    fn sync_manifest(&self) -> io::Result<()> {
        loop {
            match self.disk().sync_dir(&self.files.dir) {
                Err(error) if is_out_of_files(&error) && !self.progress.lock().closing => {
                    self.clock().sleep(OPEN_RETRY);
                }
                synced => return synced,
            }
        }
    }

    /// Removes runs that were not added. They stay if the table has failed: the manifest on the
    /// disk may name them.
    pub fn remove_runs_unless_named<'a>(&self, ids: impl Iterator<Item = &'a RunId>) {
        if self.progress.lock().failed.is_none() {
            ids.for_each(|id| self.remove_run(id));
        }
    }

    /// Removes runs that the table no longer needs. A run stays if another partition shares it, or
    /// if a copy holds it: the last user removes it.
    pub fn remove_unnamed<'a>(&self, ids: impl Iterator<Item = &'a RunId>) {
        let manifest = self.structure.lock();
        let copied = self.copied.lock();
        let is_used = |id: &RunId| manifest.names(id) || copied.contains_key(id);
        let unnamed: Vec<&RunId> = ids.filter(|id| !is_used(id)).collect();
        drop((manifest, copied));
        unnamed.into_iter().for_each(|id| self.remove_run(id));
    }

    /// Removes a run that no manifest names. Its readers continue to read it. If it cannot be
    /// removed, the next opening of the table removes it.
    pub fn remove_run(&self, id: &RunId) {
        for path in [self.files.run(id), self.files.extent(id)] {
            if let Err(error) = remove_if_there(&**self.disk(), &path) {
                warn!(table = %self.shape.table, %error, "a run that is not needed stays for now");
            }
        }
    }

    /// Counts the runs that readers have to search.
    pub fn count_runs(&self, manifest: &LiveManifest) {
        let runs = manifest.partitions.iter();
        let most = runs.map(|partition| partition.runs.len()).max();
        let most = most.unwrap_or(0);
        self.counts.most_runs.store(most, Ordering::Relaxed);
        let mut shared = HashSet::new();
        let mut is_first =
            |run: &LiveRun| run.reference.range.is_none() || shared.insert(Arc::as_ptr(&run.run));
        let memory = self.parts.iter().map(|part| {
            let view = Arc::clone(&part.lock().view);
            let runs = view.runs.iter().filter(|run| is_first(run));
            runs.map(|run| run.run.memory_bytes()).sum::<usize>()
        });
        self.memory.set_run_bytes(memory.sum());
    }
}

/// The facts about a run that are known before it is written.
#[derive(Debug)]
pub(crate) struct Output {
    pub level: u32,
    /// An upper bound of its records, which have at most `bytes` bytes.
    pub records: u64,
    pub bytes: u64,
    /// The length of the longest key, at most.
    pub longest_key: usize,
    /// If set, no older source has its keys: deletes and records that had expired by this moment
    /// are dropped, and only values remain.
    pub settled_ms: Option<u64>,
    /// See [`LiveRunRef`]; of the records before they are settled.
    pub deltas_since_ms: Option<u64>,
    /// See [`LiveRunRef`]. Empty if nothing is older.
    pub removed: RemovedRanges,
}
