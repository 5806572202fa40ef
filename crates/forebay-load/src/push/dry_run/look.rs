//! Reads the sources for a dry run: it encodes rows as a push does, counts them and drops them.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arrow_array::RecordBatch;
use forebay_io::{Clock, Random, pool};
use forebay_run::hash::KeyHasher;
use forebay_run::operation::Operation;
use forebay_run::record::encode;

use super::Extent;
use super::choose::{SAMPLE_ROWS, Visit, visits};
use super::keys::Keys;
use super::reservoir::{Drawing, Reservoir, SampledRow};
use crate::column_profile::{BatchCounts, TableProfile};
use crate::convert::Lossy;
use crate::encode::{RowEncoder, Verb};
use crate::progress::{Progress, Unit as Counts};
use crate::push::read::row_number;
use crate::push::rejects::{NotedRow, Rejects};
use crate::push::{ComposedRows, PushError};
use crate::sort::SortError;
use crate::sources::{Feed, Origin, SourceError, SourceSet};
use forebay_io::Throttle;

/// The most time that a sample takes.
const SAMPLE_TIME: Duration = Duration::from_secs(10);
/// The most bad rows that a dry run reports.
const NOTED_ROWS: usize = 5;
const EXAMPLES: usize = 5;

/// The counts of the rows that were read.
#[derive(Debug)]
pub struct SeenSources {
    /// Rows read, including bad ones.
    pub rows: u64,
    /// Whether these are all rows.
    pub is_all: bool,
    /// The number of rows of the sources, if known.
    pub total_rows: Option<u64>,
    /// Rows that can be stored, and the bytes of their keys and values.
    pub stored: u64,
    pub bytes: u64,
    /// The operations of those rows.
    pub verbs: ComposedRows,
    pub rejected: u64,
    pub bad_rows: Vec<NotedRow>,
    /// Values that conversions changed, as the rules allow.
    pub lossy: Vec<Lossy>,
    pub profile: TableProfile,
    pub keys: Keys,
    pub sample: Vec<SampledRow>,
    pub examples: Vec<SampledRow>,
    pub took: Duration,
}

/// The limits of a dry run's reading.
#[derive(Debug, Clone, Copy)]
pub struct Lens<'a> {
    pub extent: Extent,
    pub threads: usize,
    /// The memory for the keys seen.
    pub memory_bytes: u64,
    pub keeps_first: bool,
    pub drawing: Drawing,
    /// The number of rows to draw.
    pub drawn_rows: usize,
    pub hasher: &'a KeyHasher,
    pub throttle: &'a Throttle,
    pub clock: &'a dyn Clock,
    pub random: &'a dyn Random,
}

/// The reason for which a unit was not read to its end.
enum Halt {
    Enough,
    Failed(PushError),
}

impl From<SourceError> for Halt {
    fn from(error: SourceError) -> Self {
        Halt::Failed(error.into())
    }
}

impl From<PushError> for Halt {
    fn from(error: PushError) -> Self {
        Halt::Failed(error)
    }
}

/// The counts that all threads share.
#[derive(Debug)]
struct SurveySums {
    stored: u64,
    bytes: u64,
    verbs: ComposedRows,
    profile: TableProfile,
    keys: Keys,
    reservoir: Reservoir,
    /// Rows and bytes of the units that were read to their ends, and the number of those units.
    whole_rows: u64,
    whole_bytes: u64,
    whole_units: usize,
}

/// The rows of a batch, encoded.
#[derive(Debug, Default)]
struct EncodedBatch {
    rows: Vec<EncodedRow>,
    /// Keys and payloads, concatenated.
    bytes: Vec<u8>,
}

#[derive(Debug)]
struct EncodedRow {
    place: u64,
    tag: u8,
    verb: Verb,
    /// The start of its bytes, and the end of its key.
    start: usize,
    key_end: usize,
    end: usize,
}

struct Survey<'a> {
    lens: Lens<'a>,
    visits: Vec<Visit<'a>>,
    next: AtomicUsize,
    feed: Option<Feed<'a>>,
    rejects: Rejects,
    rows: AtomicU64,
    started: Duration,
    progress: &'a dyn Progress,
    sums: Mutex<SurveySums>,
}

/// Reads as much as the extent says.
pub fn look(
    sources: &SourceSet,
    encoder: &RowEncoder,
    lens: Lens<'_>,
    progress: &dyn Progress,
) -> Result<SeenSources, PushError> {
    progress.stage("looking", None, Counts::Rows);
    let visits = visits(&sources.units, lens.extent);
    let survey = Survey {
        next: AtomicUsize::new(0),
        // Batches come one after another from their reader.
        feed: sources.units.is_empty().then(|| sources.feed()),
        visits,
        rejects: Rejects::noting(NOTED_ROWS),
        rows: AtomicU64::new(0),
        started: lens.clock.monotonic(),
        progress,
        sums: Mutex::new(SurveySums {
            stored: 0,
            bytes: 0,
            verbs: ComposedRows::default(),
            profile: TableProfile::new(encoder.schema().columns().len()),
            keys: Keys::new(lens.memory_bytes, lens.keeps_first),
            reservoir: Reservoir::new(lens.drawing, lens.drawn_rows, EXAMPLES),
            whole_rows: 0,
            whole_bytes: 0,
            whole_units: 0,
        }),
        lens,
    };
    let ended = pool(lens.threads, || survey.work(encoder.clone()));
    let mut came_to_end = true;
    for end in ended {
        came_to_end &= end?;
    }
    Ok(survey.finish(sources, came_to_end))
}

impl Survey<'_> {
    /// Reads units until there are enough rows; returns whether all units were read.
    fn work(&self, mut encoder: RowEncoder) -> Result<bool, PushError> {
        loop {
            if self.is_enough() {
                return Ok(false);
            }
            let ended = match &self.feed {
                Some(feed) => match feed.next()? {
                    None => return Ok(true),
                    Some((number, unit)) => {
                        let visit = Visit {
                            number,
                            unit: &unit,
                            rows: u64::MAX,
                        };
                        self.visit(&visit, &mut encoder)
                    }
                },
                None => match self.visits.get(self.next.fetch_add(1, Relaxed)) {
                    None => return Ok(true),
                    Some(visit) => self.visit(visit, &mut encoder),
                },
            };
            match ended {
                Ok(()) | Err(Halt::Enough) => {}
                Err(Halt::Failed(error)) => return Err(error),
            }
        }
    }

    fn is_enough(&self) -> bool {
        self.lens.extent == Extent::Sample
            && (self.rows.load(Relaxed) >= SAMPLE_ROWS || self.is_late())
    }

    fn is_late(&self) -> bool {
        let now = self.lens.clock.monotonic();
        self.lens.extent == Extent::Sample && now.saturating_sub(self.started) >= SAMPLE_TIME
    }

    fn sums(&self) -> MutexGuard<'_, SurveySums> {
        self.sums.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn visit(&self, visit: &Visit<'_>, encoder: &mut RowEncoder) -> Result<(), Halt> {
        let mut left = visit.rows;
        let mut read = 0;
        let rejected = AtomicU64::new(0);
        visit.unit.read::<Halt>(
            |batch, origin| {
                let rows = (batch.num_rows() as u64).min(left);
                self.take(
                    &batch.slice(0, rows as usize),
                    origin,
                    visit.number,
                    encoder,
                )?;
                left -= rows;
                read += rows;
                match left == 0 || self.is_late() {
                    true => Err(Halt::Enough),
                    false => Ok(()),
                }
            },
            |reject| {
                rejected.fetch_add(1, Relaxed);
                self.rows.fetch_add(1, Relaxed);
                Ok(self.rejects.unread(&reject)?)
            },
        )?;
        let mut sums = self.sums();
        sums.whole_rows += read + rejected.load(Relaxed);
        sums.whole_bytes += visit.unit.bytes();
        sums.whole_units += 1;
        Ok(())
    }

    fn take(
        &self,
        batch: &RecordBatch,
        origin: &Origin,
        unit: u32,
        encoder: &mut RowEncoder,
    ) -> Result<(), Halt> {
        if self.progress.is_cancelled() {
            return Err(PushError::from(SortError::Stopped).into());
        }
        let mut encoded = EncodedBatch::default();
        let first = row_number(unit, origin.first_row);
        encoder.encode::<PushError>(
            batch,
            |row, key, operation| {
                encoded.push(first + row as u64, key, operation);
                Ok(())
            },
            |row, bad| self.rejects.unstored(origin, batch, row, &bad.to_string()),
        )?;
        let counts = BatchCounts::of(batch, encoder.schema().columns().len());
        let mut sums = self.sums();
        sums.profile.add(batch, &counts, first);
        for row in &encoded.rows {
            sums.add(row, &encoded.bytes, &self.lens);
        }
        drop(sums);
        let rows = batch.num_rows() as u64;
        self.rows.fetch_add(rows, Relaxed);
        self.progress.advance(rows);
        self.lens.throttle.take(encoded.bytes.len() as u64);
        Ok(())
    }

    fn finish(self, sources: &SourceSet, came_to_end: bool) -> SeenSources {
        let took = self.lens.clock.monotonic().saturating_sub(self.started);
        let (rows, units) = (self.rows.into_inner(), sources.units.len());
        let sums = self.sums.into_inner();
        let sums = sums.unwrap_or_else(PoisonError::into_inner);
        let is_all = match self.feed {
            Some(_) => came_to_end,
            None => sums.whole_units >= units,
        };
        let by_bytes = || {
            let share = sources.total_bytes as f64 / sums.whole_bytes as f64;
            (sums.whole_bytes > 0).then_some((sums.whole_rows as f64 * share).round() as u64)
        };
        let (sample, examples) = sums.reservoir.finish();
        SeenSources {
            rows,
            is_all,
            total_rows: match is_all {
                true => Some(rows),
                false => sources.total_rows.or_else(by_bytes),
            },
            stored: sums.stored,
            bytes: sums.bytes,
            verbs: sums.verbs,
            rejected: self.rejects.count(),
            bad_rows: self.rejects.noted(),
            lossy: sources.lossy(),
            profile: sums.profile,
            keys: sums.keys,
            sample,
            examples,
            took,
        }
    }
}

impl EncodedBatch {
    fn push(&mut self, place: u64, key: &[u8], operation: Operation<'_>) {
        let start = self.bytes.len();
        let verb = verb_of(operation);
        let (tag, payload) = encode(operation);
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        self.bytes.extend_from_slice(&payload);
        self.rows.push(EncodedRow {
            place,
            tag,
            verb,
            start,
            key_end,
            end: self.bytes.len(),
        });
    }
}

impl SurveySums {
    fn add(&mut self, row: &EncodedRow, bytes: &[u8], lens: &Lens<'_>) {
        let (key, payload) = (&bytes[row.start..row.key_end], &bytes[row.key_end..row.end]);
        let verb = match row.verb {
            Verb::Update => &mut self.verbs.updates,
            Verb::Insert => &mut self.verbs.inserts,
            Verb::Delete => &mut self.verbs.deletes,
            Verb::Delta => &mut self.verbs.deltas,
        };
        *verb += 1;
        self.stored += 1;
        self.bytes += (row.end - row.start) as u64;
        let hash = lens.hasher.hash64(key);
        self.keys.add(hash, key, row.place, row.end - row.start);
        self.reservoir.offer(row.place, lens.random, || SampledRow {
            place: row.place,
            key: key.to_vec(),
            tag: row.tag,
            payload: payload.to_vec(),
        });
    }
}

/// Returns the kind of a row's operation.
fn verb_of(operation: Operation<'_>) -> Verb {
    match operation.plain() {
        Operation::Update(_) => Verb::Update,
        Operation::Insert(_) => Verb::Insert,
        Operation::Delete => Verb::Delete,
        _ => Verb::Delta,
    }
}
