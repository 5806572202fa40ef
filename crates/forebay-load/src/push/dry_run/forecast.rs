//! Forecasts the result of a push from the rows that a dry run read.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use forebay_engine::{
    ColumnStats, Comparison, ExpectedVersion, KeyOutcome, Manifest, ReadError, Version,
    compare_expected, compare_sampled,
};
use forebay_run::error::named_key;
use forebay_run::format::MIN_PAGE_BYTES;
use forebay_run::operation::Operation;
use forebay_run::record::decode;

use super::look::SeenSources;
use super::reservoir::SampledRow;
use super::trial::{self, Trial};
use super::{DryRunContext, DryRunSetup, ExpectedEnd, Forecast, Room};
use crate::encode::RowEncoder;
use crate::gate::{self, Finding, Limit, Measure, Metric};
use crate::progress::{Progress, Unit};
use crate::push::publish::beside_serving;
use crate::push::report::rounded;
use crate::push::source_reader::of_table;
use crate::push::{BadRows, ComposedRows, GATE_SAMPLE_ROWS, PushError};
use crate::sort::{Duplicates, SortError, Tally, record_memory};

/// The records that the push would write, as far as their number is known.
#[derive(Debug, Clone, Copy)]
struct ExpectedTotals {
    rows: Option<u64>,
    bytes: Option<u64>,
    /// Rows of the sources for each row that was read.
    scale: Option<f64>,
    is_exact: bool,
}

impl ExpectedTotals {
    fn of(looked: &SeenSources) -> Self {
        let kept = looked.stored - looked.keys.repeated;
        let bytes = looked.bytes - looked.keys.repeated_bytes;
        let scale = looked.total_rows;
        let scale = scale.map(|rows| rows as f64 / looked.rows.max(1) as f64);
        let scaled = |n: u64| scale.map(|scale| (n as f64 * scale).round() as u64);
        match looked.is_all {
            true => Self {
                rows: Some(kept),
                bytes: Some(bytes),
                scale: Some(1.0),
                is_exact: !looked.keys.is_full,
            },
            false => Self {
                rows: scaled(kept),
                bytes: scaled(bytes),
                scale,
                is_exact: false,
            },
        }
    }

    fn tally(&self) -> Tally {
        Tally {
            records: self.rows.unwrap_or_default(),
            bytes: self.bytes.unwrap_or_default(),
            ..Tally::default()
        }
    }
}

impl DryRunSetup<'_> {
    /// Extrapolates, compares and judges. `opened` is the time until the reading that completed
    /// began.
    pub(super) fn forecast(
        &self,
        encoder: &RowEncoder,
        looked: SeenSources,
        opened: Duration,
        progress: &dyn Progress,
    ) -> Result<Forecast, PushError> {
        let totals = ExpectedTotals::of(&looked);
        let (request, layer, clock) = (self.request, self.layer(), &**self.ground.clock);
        let (sample, boundaries) = (&looked.sample, self.boundaries.clone());
        let trial = trial::write(request, layer, sample, &totals.tally(), boundaries, clock)?;
        let mut manifest = self.manifest(encoder);
        if layer.is_none() {
            manifest.stats = column_stats(encoder, &looked);
        }
        let (compared_with, gate) = self.compare(&looked, &manifest, totals, progress)?;
        let room = self.room(&trial, totals);
        let applied = layer
            .and(totals.scale)
            .map(|scale| scaled(looked.verbs, scale));
        Ok(Forecast {
            table: request.table.clone(),
            rows_read: looked.rows,
            is_all: looked.is_all,
            seconds: 0.0,
            examples: looked.examples.iter().map(example).collect(),
            rows_between: self.rows_between(totals, applied),
            bytes: totals.bytes,
            is_exact: totals.is_exact,
            partitions: trial.partitions,
            applied,
            rejected: looked.rejected,
            duplicates: looked.keys.repeated,
            compared_with,
            room,
            push_seconds: self.push_seconds(&looked, &trial, totals, opened),
            outlook: self.outlook(&looked, &gate, room),
            bad_rows: looked.bad_rows,
            lossy: looked.lossy,
            gate,
            manifest,
        })
    }

    /// Returns the number of rows as a manifest counts them: the effect of new records on older
    /// rows is not known.
    fn rows_between(
        &self,
        totals: ExpectedTotals,
        applied: Option<ComposedRows>,
    ) -> Option<(u64, u64)> {
        let rows = totals.rows?;
        match (self.layer(), applied) {
            (Some(layer), Some(applied)) => {
                let (least, most) = layer.base.manifest().rows_between();
                let news = rows.saturating_sub(applied.deletes);
                Some((least.saturating_sub(applied.deletes), most + news))
            }
            _ => Some((rows, rows)),
        }
    }

    fn compare(
        &self,
        looked: &SeenSources,
        manifest: &Manifest,
        totals: ExpectedTotals,
        progress: &dyn Progress,
    ) -> Result<(Option<u64>, Vec<Finding>), PushError> {
        let Some(table) = &self.table else {
            return Ok((None, Vec::new()));
        };
        let mut limits = gate::limits(&self.request.limits);
        if totals.rows.is_none() {
            limits.retain(|limit| !needs_totals(limit));
        }
        if !looked.is_all {
            limits.retain(|limit| !needs_all_values(limit));
        }
        beside_serving(table, &limits, |serving| {
            progress.stage("comparing", None, Unit::Rows);
            self.compare_with(serving, looked, manifest, totals, progress)
        })
    }

    fn compare_with(
        &self,
        serving: &Arc<Version>,
        looked: &SeenSources,
        manifest: &Manifest,
        totals: ExpectedTotals,
        progress: &dyn Progress,
    ) -> Result<Comparison, ReadError> {
        let advance = |rows| progress.advance(rows);
        let (rows, bytes) = (totals.rows.unwrap_or(0), totals.bytes.unwrap_or(0));
        let random = self.ground.random;
        let base = self.layer().map(|layer| &layer.base);
        if let Some(base) = base
            && base.version() != serving.version()
        {
            // If the base version does not serve, this comparison leaves out the records added to
            // it.
            let mut seen = compare_sampled(serving, base, GATE_SAMPLE_ROWS, random, &advance)?;
            seen.rows_are_exact = false;
            seen.bytes_after += bytes;
            return Ok(seen);
        }
        let sample = self.becomes(&looked.sample);
        let hasher = self.hasher();
        let has = |key: &[u8]| looked.keys.has(hasher.hash64(key));
        let expected = ExpectedVersion {
            manifest,
            rows,
            bytes,
            is_exact: totals.is_exact,
            stats: &manifest.stats,
            nulls: match base {
                None => null_shares(manifest, looked),
                Some(_) => Vec::new(),
            },
            sample: &sample,
            has: (looked.is_all && !looked.keys.is_full).then_some(&has),
            goes_on: base.is_some(),
        };
        compare_expected(serving, &expected, GATE_SAMPLE_ROWS, random, &advance)
    }

    /// Returns the drawn rows; for each key, only the row that stays.
    fn becomes(&self, sample: &[SampledRow]) -> Vec<(Vec<u8>, KeyOutcome)> {
        let mut rows: Vec<&SampledRow> = sample.iter().collect();
        let keeps_first = self.request.duplicates == Duplicates::First;
        rows.sort_by(|a, b| {
            let age = a.place.cmp(&b.place);
            a.key
                .cmp(&b.key)
                .then(if keeps_first { age } else { age.reverse() })
        });
        rows.dedup_by(|later, kept| later.key == kept.key);
        let goes_on = self.layer().is_some();
        rows.into_iter()
            .map(|row| (row.key.clone(), becomes(row, goes_on)))
            .collect()
    }

    fn room(&self, trial: &Trial, totals: ExpectedTotals) -> Room {
        let ratio = trial.file_bytes as f64 / trial.payload_bytes.max(1) as f64;
        // Each run but one begins another page.
        let pages = (trial.partitions as u64).saturating_sub(1) * u64::from(MIN_PAGE_BYTES);
        let files = |bytes: u64| (bytes as f64 * ratio) as u64 + pages;
        let held = record_memory(self.request.memory_bytes, self.request.threads) as u64;
        // Records that do not fit in memory are spilled, and the spill exists until the runs do.
        let spilled = |bytes: u64| if bytes > held { bytes } else { 0 };
        let free = self
            .ground
            .room_at
            .and_then(|path| free_bytes(&self.ground, path));
        Room {
            needed_bytes: totals.bytes.map(|bytes| files(bytes) + spilled(bytes)),
            free_bytes: free,
        }
    }

    /// Returns the time for opening, reading and building at the measured rates, or at the allowed
    /// rate.
    fn push_seconds(
        &self,
        looked: &SeenSources,
        trial: &Trial,
        totals: ExpectedTotals,
        opened: Duration,
    ) -> Option<f64> {
        let (scale, rows, bytes) = (totals.scale?, totals.rows?, totals.bytes?);
        let threads = self.request.threads.max(1).min(trial.partitions.max(1)) as f64;
        let build = trial.took.as_secs_f64() / threads * rows as f64 / trial.records.max(1) as f64;
        let read = looked.took.as_secs_f64() * scale;
        let allowed = self.request.rate_bytes;
        let paced = allowed.map_or(0.0, |rate| bytes as f64 / rate.max(1) as f64);
        let all = opened.as_secs_f64() + read.max(paced) + build.max(paced);
        Some(rounded(all))
    }

    fn outlook(&self, looked: &SeenSources, gate: &[Finding], room: Room) -> ExpectedEnd {
        if let Some(problem) = self.failure(looked, room) {
            return ExpectedEnd::Fail(problem);
        }
        let holds = gate.iter().any(|finding| !finding.passed);
        match (holds, self.request.force, self.request.swap) {
            (true, false, _) | (true, true, false) => ExpectedEnd::Hold,
            (_, _, true) => ExpectedEnd::Swap,
            (_, _, false) => ExpectedEnd::Keep,
        }
    }

    /// Returns the error that would end the push.
    fn failure(&self, looked: &SeenSources, room: Room) -> Option<String> {
        let refuses = self.request.bad_rows == BadRows::Fail;
        if let Some(row) = looked.bad_rows.first()
            && refuses
        {
            let error = PushError::from(row.clone());
            // The types of an existing table cannot be given.
            let error = match self.layer() {
                Some(_) => of_table(error),
                None => error,
            };
            return Some(error.to_string());
        }
        if looked.is_all && looked.stored == 0 && looked.rejected > 0 {
            return Some(PushError::NothingLeft.to_string());
        }
        if let Some(key) = &looked.keys.example
            && self.layer().is_none()
            && self.request.duplicates == Duplicates::Fail
        {
            let key = named_key(key);
            return Some(SortError::Duplicate { key }.to_string());
        }
        let (needed, free) = (room.needed_bytes?, room.free_bytes?);
        (needed > free).then(|| {
            format!(
                "it needs about {needed} bytes of room, and {free} are free: make room, or name another store"
            )
        })
    }
}

fn column_stats(encoder: &RowEncoder, looked: &SeenSources) -> Vec<ColumnStats> {
    let (schema, arrow) = (encoder.schema(), encoder.batch_schema());
    looked.profile.stats(schema, arrow, looked.rows)
}

fn null_shares(manifest: &Manifest, looked: &SeenSources) -> Vec<(String, f64)> {
    let nulls = looked.profile.nulls();
    let columns = manifest.schema.columns().iter().zip(&nulls);
    let share = |nulls: u64| match looked.is_all {
        // As a manifest counts them: over the rows that are stored.
        true => nulls.min(looked.stored) as f64 / looked.stored.max(1) as f64,
        false => nulls as f64 / looked.rows.max(1) as f64,
    };
    columns
        .map(|(column, nulls)| (column.name.clone(), share(*nulls)))
        .collect()
}

fn needs_totals(limit: &Limit) -> bool {
    match limit {
        Limit::Share(limit) => matches!(limit.metric, Metric::Rows | Metric::Bytes | Metric::Lost),
        Limit::Schema(_) => false,
    }
}

/// Returns whether the limit needs all values: a sample shows neither the extremes nor the number
/// of different values.
fn needs_all_values(limit: &Limit) -> bool {
    match limit {
        Limit::Share(limit) => matches!(
            limit.metric,
            Metric::Column(Measure::Min | Measure::Max | Measure::Distinct, _)
        ),
        Limit::Schema(_) => false,
    }
}

fn becomes(row: &SampledRow, goes_on: bool) -> KeyOutcome {
    let operation = decode(row.tag, &row.payload).unwrap_or(Operation::Delete);
    match operation.plain() {
        Operation::Delete => KeyOutcome::Removed,
        Operation::Update(value) => KeyOutcome::Value(value.to_vec()),
        Operation::Insert(value) if goes_on => KeyOutcome::ValueIfNew(value.to_vec()),
        Operation::Insert(value) => KeyOutcome::Value(value.to_vec()),
        _ => KeyOutcome::More,
    }
}

fn example(row: &SampledRow) -> (Vec<u8>, Option<Vec<u8>>) {
    let operation = decode(row.tag, &row.payload).unwrap_or(Operation::Delete);
    let value = operation.value().map(|(value, _)| value.to_vec());
    (row.key.clone(), value)
}

fn scaled(verbs: ComposedRows, scale: f64) -> ComposedRows {
    let scaled = |n: u64| (n as f64 * scale).round() as u64;
    ComposedRows {
        updates: scaled(verbs.updates),
        inserts: scaled(verbs.inserts),
        deletes: scaled(verbs.deletes),
        deltas: scaled(verbs.deltas),
    }
}

/// Returns the free bytes where a path is, or will be.
fn free_bytes(ground: &DryRunContext<'_>, path: &Path) -> Option<u64> {
    let exists = |path: &&Path| ground.disk.exists(path).unwrap_or(false);
    let found = path.ancestors().find(exists)?;
    ground.disk.free_bytes(found).ok().flatten()
}
