//! The task of one partition, or of several: records become runs in the store.

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
use super::control::{Control, Controls};
use super::recipe::Recipe;
use super::report::Report;
use super::wire::{Arrived, CONTROL_ROW, WireRecord};
use crate::load::wants_filters;
use crate::progress::Silent;
use crate::push::build::{BuildJob, Outputs};
use crate::sort::{AsTheyAre, Boundaries, Collector, SortPlan, Tally};
use forebay_io::Throttle;

/// See the module's text. Dropped before it has finished, it removes what it wrote.
#[derive(Debug)]
pub struct PartTask {
    recipe: Recipe,
    store: Store,
    boundaries: Boundaries,
    plan: SortPlan,
    collector: Option<Collector>,
    parts: BTreeMap<u32, TaskPart>,
    /// Where the record before stood: its source and row.
    last: Option<(i64, i64)>,
    started: Mutex<Vec<NewRun>>,
}

/// What came to one partition.
#[derive(Debug)]
struct TaskPart {
    came: Tally,
    controls: Controls,
}

impl PartTask {
    /// `store` is that of the recipe. `scratch` is a directory of this machine, for what does not
    /// fit in memory; it is made where it is absent.
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

    /// Takes records in, and control rows among them. Where one of several records with the same
    /// key is to be chosen, they come in the order of source and row.
    pub fn add(&mut self, batch: &RecordBatch) -> Result<(), DistributedError> {
        let arrived = Arrived::new(batch)?;
        for index in 0..arrived.len() {
            let record = arrived.get(index);
            let partition = u32::try_from(record.partition)
                .ok()
                .filter(|partition| (*partition as usize) < self.boundaries.len());
            let partition = partition.ok_or_else(|| {
                let (partition, partitions) = (record.partition, self.boundaries.len());
                DistributedError::Batch(format!("partition {partition} of {partitions}"))
            })?;
            if record.row == CONTROL_ROW {
                self.control(partition, &record)?;
            } else {
                self.record(partition, &record)?;
            }
        }
        Ok(())
    }

    fn part(&mut self, partition: u32) -> &mut TaskPart {
        let columns = self.recipe.column_count();
        self.parts.entry(partition).or_insert_with(|| TaskPart {
            came: Tally::default(),
            controls: Controls::new(columns, self.recipe.losses.len()),
        })
    }

    fn control(&mut self, partition: u32, record: &WireRecord<'_>) -> Result<(), DistributedError> {
        let bad = |problem: String| DistributedError::Control { partition, problem };
        let control = Control::parse(record.record).map_err(bad)?;
        if control.stamp != self.recipe.ticket.stamp() {
            return Err(bad("a control row of another push or load".to_owned()));
        }
        if i64::from(control.source) != record.source {
            let (source, said) = (record.source, control.source);
            return Err(bad(format!("a control row of source {source} says {said}")));
        }
        self.part(partition).controls.add(partition, &control)
    }

    fn record(&mut self, partition: u32, record: &WireRecord<'_>) -> Result<(), DistributedError> {
        let key = record.key.unwrap_or_default();
        if key.is_empty() || key.len() > MAX_KEY_BYTES {
            let bytes = key.len();
            return Err(DistributedError::Batch(format!("a key of {bytes} bytes")));
        }
        self.place(record.source, record.row)?;
        let Some(collector) = self.collector.as_mut() else {
            return Err(DistributedError::Batch("records after the end".to_owned()));
        };
        let payload = match self.plan.with_operations {
            false => {
                collector.push(key, record.record)?;
                record.record
            }
            true => {
                let (operation, payload) = operation_of(record.record)?;
                if self.recipe.load.is_none() && !matches!(operation.plain(), Operation::Update(_))
                {
                    return Err(DistributedError::Batch(
                        "a record: it is no update".to_owned(),
                    ));
                }
                collector.push_operation(key, operation)?;
                payload
            }
        };
        self.part(partition).came.add(key, payload);
        Ok(())
    }

    /// Notes where a record stands, as far as age decides.
    fn place(&mut self, source: i64, row: i64) -> Result<(), DistributedError> {
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
            Some(last) if last >= (source, row) => {
                return Err(DistributedError::Batch(format!(
                    "row {row} of source {source} comes behind row {} of source {}: to choose among duplicates, \
                     records have to come in that order: sort each partition by source and row",
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
        self.last = Some((source, row));
        Ok(())
    }

    /// Writes the runs of the partitions that came, once it is sure that they came whole, and reads
    /// them back. The reports are for [`super::DistributedPush::commit`].
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
        // A version has one run a partition. Those of a live table lie beside others.
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

/// Whether the partitions came whole, from the same sources.
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

/// A record that carries an operation: its tag, then its payload.
fn operation_of(bytes: &[u8]) -> Result<(Operation<'_>, &[u8]), DistributedError> {
    let bad = |problem: &str| DistributedError::Batch(format!("a record: {problem}"));
    let (tag, payload) = bytes.split_first().ok_or_else(|| bad("it is empty"))?;
    let operation = record::decode(*tag, payload).map_err(bad)?;
    Ok((operation, payload))
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
