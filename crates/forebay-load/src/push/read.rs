//! Reads the sources, the first half of a push: threads read units, encode rows and collect them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::RecordBatch;
use forebay_engine::Store;
use forebay_io::pool;
use forebay_run::operation::Operation;

use super::dry_run::ROW_BITS;
use super::rejects::Rejects;
use super::{BadRows, PushError};
use crate::column_profile::{BatchCounts, TableProfile};
use crate::convert::Lossy;
use crate::encode::RowEncoder;
use crate::progress::{Progress, Unit};
use crate::sort::{CollectedRecords, Collector, SortError, SortPlan};
use crate::sources::{Feed, Origin, SourceError, SourceSet};
use forebay_io::Throttle;

/// The result of reading the sources.
#[derive(Debug)]
pub struct ReadRows {
    pub collected: Vec<CollectedRecords>,
    pub rejected: u64,
    pub profile: TableProfile,
    /// Values that conversions changed, as the rules allow.
    pub lossy: Vec<Lossy>,
    /// The names of the files.
    pub files: Vec<Arc<str>>,
}

struct PushReading<'a> {
    feed: Feed<'a>,
    /// Whether progress counts rows; otherwise it counts bytes.
    counts_rows: bool,
    /// The bytes of the units that were read.
    done_bytes: AtomicU64,
    plan: &'a SortPlan,
    rejects: &'a Rejects,
    throttle: &'a Throttle,
    progress: &'a dyn Progress,
    failed: AtomicBool,
    profile: Mutex<TableProfile>,
}

/// Reads all sources. Stops at the first error of any thread.
pub fn read(
    bad_rows: &BadRows,
    plan: &SortPlan,
    sources: &SourceSet,
    encoder: &RowEncoder,
    throttle: &Throttle,
    store: &Store,
    progress: &dyn Progress,
) -> Result<ReadRows, PushError> {
    let rejects = Rejects::new(bad_rows, &**store.disk())?;
    let (total, unit) = sources.extent();
    progress.stage("reading", total, unit);
    let reading = PushReading {
        plan,
        rejects: &rejects,
        throttle,
        progress,
        feed: sources.feed(),
        counts_rows: unit == Unit::Rows,
        done_bytes: AtomicU64::new(0),
        failed: AtomicBool::new(false),
        profile: Mutex::new(TableProfile::new(encoder.schema().columns().len())),
    };
    let results = pool(plan.reading_threads(), || {
        let result = reading.work(encoder.clone());
        reading.failed.fetch_or(result.is_err(), Relaxed);
        result
    });
    let collected = match first_error_last(results) {
        Err(error @ PushError::Source(SourceError::GuessFailed { .. })) => {
            rejects.discard(&**store.disk())?;
            return Err(error);
        }
        collected => collected.map_err(|error| error.in_files(&sources.files))?,
    };
    if let (false, Some(total_bytes)) = (reading.counts_rows, total) {
        // Headers and the like belong to no unit.
        progress.advance(total_bytes.saturating_sub(reading.done_bytes.load(Relaxed)));
    }
    rejects.finish()?;
    sources.confirm()?;
    let profile = reading
        .profile
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    Ok(ReadRows {
        collected,
        rejected: rejects.count(),
        profile,
        lossy: sources.lossy(),
        files: sources.files.clone(),
    })
}

/// Returns all results, or the error that was the cause: threads that merely stopped do not count.
fn first_error_last(
    results: Vec<Result<CollectedRecords, PushError>>,
) -> Result<Vec<CollectedRecords>, PushError> {
    let mut stopped = None;
    let mut collected = Vec::new();
    for result in results {
        match result {
            Ok(part) => collected.push(part),
            Err(PushError::Sort(SortError::Stopped)) => stopped = Some(SortError::Stopped),
            Err(error) => return Err(error),
        }
    }
    match stopped {
        Some(stopped) => Err(stopped.into()),
        None => Ok(collected),
    }
}

/// Returns the number of a row, by which the profile draws it. It is unique among the sources'
/// rows.
pub fn row_number(unit: u32, row: u64) -> u64 {
    u64::from(unit) << ROW_BITS | row
}

impl PushReading<'_> {
    fn work(&self, mut encoder: RowEncoder) -> Result<CollectedRecords, PushError> {
        let mut collector = Collector::new(self.plan);
        while let Some((number, unit)) = self.feed.next()? {
            collector.start_unit(number);
            unit.read(
                |batch, origin| {
                    let first = row_number(number, origin.first_row);
                    self.take(&batch, origin, first, &mut encoder, &mut collector)
                },
                |reject| self.rejects.unread(&reject),
            )?;
            if !self.counts_rows {
                self.progress.advance(unit.bytes());
                self.done_bytes.fetch_add(unit.bytes(), Relaxed);
            }
        }
        Ok(collector.finish()?)
    }

    fn take(
        &self,
        batch: &RecordBatch,
        origin: &Origin,
        first: u64,
        encoder: &mut RowEncoder,
        collector: &mut Collector,
    ) -> Result<(), PushError> {
        if self.failed.load(Relaxed) || self.progress.is_cancelled() {
            return Err(SortError::Stopped.into());
        }
        let mut bytes = 0;
        encoder.encode::<PushError>(
            batch,
            |_, key, operation| {
                bytes += key.len() as u64 + operation.value().map_or(0, |(v, _)| v.len() as u64);
                let pushed = match operation {
                    Operation::Update(value) if !self.plan.with_operations => {
                        collector.push(key, value)
                    }
                    operation => collector.push_operation(key, operation),
                };
                Ok(pushed?)
            },
            |row, bad| self.rejects.unstored(origin, batch, row, &bad.to_string()),
        )?;
        let counts = BatchCounts::of(batch, encoder.schema().columns().len());
        let mut profile = self.profile.lock().unwrap_or_else(PoisonError::into_inner);
        profile.add(batch, &counts, first);
        drop(profile);
        if self.counts_rows {
            self.progress.advance(batch.num_rows() as u64);
        }
        self.throttle.take(bytes);
        Ok(())
    }
}
