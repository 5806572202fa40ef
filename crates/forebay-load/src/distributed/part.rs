//! Runs the task of one or several partitions: writes their records to runs in the store.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::RecordBatch;
use forebay_engine::{NewRun, Store};
use forebay_run::format::MAX_KEY_BYTES;
use forebay_run::operation::Operation;
use forebay_run::record;
use tracing::warn;

use super::DistributedError;
use super::chunk::Unpacked;
use super::control::{Control, Controls};
use super::recipe::Recipe;
use super::report::Report;
use super::wire::{Arrived, CONTROL_SEQUENCE, WireRow};
use crate::load::wants_filters;
use crate::progress::Silent;
use crate::push::build::{BuildJob, Outputs};
use crate::sort::{AsTheyAre, Boundaries, Collector, SortPlan, Tally};
use forebay_io::Throttle;

/// A task that writes the runs of partitions. If it is dropped before it has finished, it removes
/// what it wrote.
#[derive(Debug)]
pub struct PartTask {
    recipe: Recipe,
    store: Store,
    boundaries: Boundaries,
    plan: SortPlan,
    collector: Option<Collector>,
    parts: BTreeMap<u32, TaskPart>,
    /// The position of the previous chunk: its source, and its place in that source's sequence.
    last: Option<(i64, i64)>,
    started: Mutex<Vec<NewRun>>,
}

/// The records that one partition received.
#[derive(Debug)]
struct TaskPart {
    came: Tally,
    controls: Controls,
}

impl PartTask {
    /// Creates a task. `store` is that of the recipe. `scratch` is a directory on this machine for
    /// data that does not fit in memory; it is created if absent.
    pub fn new(recipe: Recipe, store: Store, scratch: &Path) -> Result<Self, DistributedError> {
        let boundaries = recipe.boundaries()?;
        let name = format!("forebay-{:016x}", store.random().next_u64());
        let scratch = scratch.join(name);
        let made = store.disk().create_dir_all(&scratch);
        made.map_err(|error| DistributedError::Scratch {
            path: scratch.clone(),
            error,
        })?;
        let plan = recipe.sort_plan(Arc::clone(store.disk()), scratch);
        let mut collector = Collector::new(&plan);
        collector.start_unit(0);
        Ok(Self {
            recipe,
            store,
            boundaries,
            collector: Some(collector),
            plan,
            parts: BTreeMap::new(),
            last: None,
            started: Mutex::default(),
        })
    }

    /// Adds chunks of records and control rows; returns the number of records. If one of several
    /// records with the same key has to be chosen, they arrive in the order of source and sequence.
    pub fn add(&mut self, batch: &RecordBatch) -> Result<u64, DistributedError> {
        let arrived = Arrived::new(batch)?;
        let mut records = 0;
        for index in 0..arrived.len() {
            let row = arrived.get(index);
            let partition = u32::try_from(row.partition)
                .ok()
                .filter(|partition| (*partition as usize) < self.boundaries.len());
            let partition = partition.ok_or_else(|| {
                let (partition, partitions) = (row.partition, self.boundaries.len());
                DistributedError::Batch(format!("partition {partition} of {partitions}"))
            })?;
            if row.sequence == CONTROL_SEQUENCE {
                self.control(partition, &row)?;
            } else {
                records += self.chunk(partition, &row)?;
            }
        }
        Ok(records)
    }

    fn part(&mut self, partition: u32) -> &mut TaskPart {
        let losses = self.recipe.losses.len();
        self.parts.entry(partition).or_insert_with(|| TaskPart {
            came: Tally::default(),
            controls: Controls::new(losses),
        })
    }

    fn control(&mut self, partition: u32, row: &WireRow<'_>) -> Result<(), DistributedError> {
        let bad = |problem: String| DistributedError::Control { partition, problem };
        let control = Control::parse(row.records).map_err(bad)?;
        if control.stamp != self.recipe.ticket.stamp() {
            return Err(bad("a control row of another push or load".to_owned()));
        }
        if i64::from(control.source) != row.source {
            let (source, said) = (row.source, control.source);
            return Err(bad(format!("a control row of source {source} says {said}")));
        }
        self.part(partition).controls.add(partition, &control)
    }

    fn chunk(&mut self, partition: u32, row: &WireRow<'_>) -> Result<u64, DistributedError> {
        self.place(row.source, row.sequence)?;
        let Some(collector) = self.collector.as_mut() else {
            return Err(DistributedError::Batch("records after the end".to_owned()));
        };
        let before = collector.seen();
        let is_push = self.recipe.load.is_none();
        for record in Unpacked::new(row.records) {
            let (key, record) = record?;
            if key.is_empty() || key.len() > MAX_KEY_BYTES {
                let bytes = key.len();
                return Err(DistributedError::Batch(format!("a key of {bytes} bytes")));
            }
            if !self.plan.with_operations {
                collector.push(key, record)?;
                continue;
            }
            let operation = operation_of(record)?;
            if is_push && !matches!(operation.plain(), Operation::Update(_)) {
                return Err(DistributedError::Batch(
                    "a record: it is no update".to_owned(),
                ));
            }
            collector.push_operation(key, operation)?;
        }
        let came = collector.seen().without(&before);
        self.part(partition).came.merge(&came);
        Ok(came.records)
    }

    /// Records the position of a chunk, if age decides between records.
    fn place(&mut self, source: i64, sequence: i64) -> Result<(), DistributedError> {
        if !self.recipe.duplicates.is_by_age() {
            return Ok(());
        }
        let number = u32::try_from(source).map_err(|_| {
            DistributedError::Batch(format!(
                "source {source}: parts have numbers from 0 to {}",
                u32::MAX
            ))
        })?;
        match self.last {
            Some(last) if last >= (source, sequence) => {
                return Err(DistributedError::Batch(format!(
                    "chunk {sequence} of source {source} follows chunk {} of source {}: to choose among \
                     duplicates, chunks must come in ascending order: sort each partition by source and sequence",
                    last.1, last.0
                )));
            }
            Some((before, _)) if before == source => {}
            _ => {
                if let Some(collector) = self.collector.as_mut() {
                    collector.start_unit(number);
                }
            }
        }
        self.last = Some((source, sequence));
        Ok(())
    }

    /// Checks that the received partitions are complete, writes their runs and reads them back. The
    /// reports are for [`super::DistributedPush::commit`].
    pub fn finish(mut self) -> Result<Vec<String>, DistributedError> {
        let parts = std::mem::take(&mut self.parts);
        check(&parts)?;
        let Some(whole) = parts.values().next().map(|part| &part.controls.whole) else {
            return Ok(Vec::new());
        };
        self.plan.settle_pages(&whole.sent.into());
        let mut outputs = self.write()?;
        self.recipe.ticket.sync(&self.store)?;
        let mut reports = Vec::new();
        let mut left_out = 0;
        for (&partition, part) in &parts {
            let Controls { sources, whole, .. } = &part.controls;
            let ticket = &self.recipe.ticket;
            let mut report = Report::new(ticket, partition, *sources, whole.clone());
            report.profile.clone_from(&part.controls.profile);
            report.came = part.came.into();
            report.run = outputs.runs[partition as usize].take();
            report.note_dropped(self.plan.duplicates);
            left_out += report.dropped.records;
            let checked = report.check(ticket, self.boundaries.len(), self.plan.duplicates);
            let text = checked.and_then(|()| report.to_text());
            reports.push(text.map_err(|problem| DistributedError::Control { partition, problem })?);
        }
        if outputs.runs.iter().any(Option::is_some) || left_out != outputs.duplicates {
            return Err(DistributedError::Batch(
                "it had records under another partition than their keys'".to_owned(),
            ));
        }
        lock(&self.started).clear();
        Ok(reports)
    }

    fn write(&mut self) -> Result<Outputs, DistributedError> {
        let collected = match self.collector.take() {
            Some(collector) => vec![collector.finish()?],
            None => Vec::new(),
        };
        // A version has one run a partition. Runs of a live table are read together with others.
        let filters =
            self.recipe.load.is_some() && wants_filters(&collected, self.recipe.memory_bytes);
        let job = BuildJob {
            plan: &self.plan,
            finish: &AsTheyAre { filters },
            throttle: &Throttle::new(None, Arc::clone(self.store.clock())),
            progress: &Silent,
        };
        let new_run = |partition| {
            let run = self.recipe.ticket.new_run(&self.store, partition);
            lock(&self.started).push(run.clone());
            run
        };
        Ok(job.build(&collected, &self.boundaries, &new_run)?)
    }
}

impl Drop for PartTask {
    fn drop(&mut self) {
        let disk = self.store.disk();
        let mut outcome = disk.remove_dir_all(&self.plan.scratch);
        for run in lock(&self.started).iter() {
            for path in [run.path.clone(), run.path.with_extension("ext")] {
                if !disk.exists(&path).unwrap_or(false) {
                    continue;
                }
                outcome = outcome.and(disk.remove(&path));
            }
        }
        if let Err(error) = outcome {
            let scratch = self.plan.scratch.display();
            warn!(%scratch, %error, "a task left files; those of the store go with the push");
        }
    }
}

/// Checks that the partitions are complete, and from the same sources.
fn check(parts: &BTreeMap<u32, TaskPart>) -> Result<(), DistributedError> {
    let mut first: Option<(u32, &Controls)> = None;
    for (&partition, part) in parts {
        let (sent, came) = (part.controls.sent, part.came.into());
        if sent != came {
            return Err(DistributedError::Shuffle {
                partition,
                sent,
                came,
            });
        }
        let (other, others) = *first.get_or_insert((partition, &part.controls));
        if part.controls.sources != others.sources {
            return Err(DistributedError::Sources {
                partition,
                found: part.controls.sources,
                other,
                others: others.sources,
            });
        }
    }
    Ok(())
}

/// Parses a record that carries an operation: its tag, then its payload.
fn operation_of(bytes: &[u8]) -> Result<Operation<'_>, DistributedError> {
    let bad = |problem: &str| DistributedError::Batch(format!("a record: {problem}"));
    let (tag, payload) = bytes.split_first().ok_or_else(|| bad("it is empty"))?;
    record::decode(*tag, payload).map_err(bad)
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
