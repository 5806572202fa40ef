//! A push that tasks of another engine build, for the program that runs them.
//!
//! The driver begins it with the arguments of `forebay push`. Tasks need only the recipe. The tasks
//! of a load (`distributed_load`) work the same way.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use clap::Parser;
use forebay_engine::{Store, StoreError};
use forebay_io::{Random, SystemRandom};
use forebay_load::distributed::{self, Recipe};
use forebay_load::progress::{Progress, Silent};
use forebay_objects::{Joined, Patience};

use crate::cli::{Cli, Command};
use crate::commands::inspect::reading::WorkArgs;
use crate::commands::publish::push;
use crate::commands::publish::push_in_cluster::PushInCluster;
use crate::commands::publish::push_result::{held, notes, summary};
use crate::context::{Context, Listener};
use crate::embed::{CommandError, plain};
use crate::exit::Outcome;
use crate::global::Global;

pub use forebay_load::distributed::RowTask;

/// The default memory for the records of one task: an engine runs as many tasks as there are cores.
const TASK_MEMORY_BYTES: u64 = 256 << 20;

/// A running push, on its driver. If it is dropped before its commit, it leaves nothing.
#[derive(Debug)]
pub struct DistributedPush {
    push: distributed::DistributedPush,
    context: Context,
    in_cluster: Option<PushInCluster>,
    /// The store's name for tasks on other machines.
    store: String,
    /// Whether the push created the store.
    made: bool,
}

impl DistributedPush {
    /// Begins a push from the arguments of `forebay push` without sources. `name` is the name of
    /// the rows' source.
    pub fn begin(words: &[String], schema: SchemaRef, name: &str) -> Result<Self, CommandError> {
        let cli = parse(words)?;
        let Command::Push(mut args) = cli.command else {
            return Err(CommandError::Words(
                "these are no words of a push".to_owned(),
            ));
        };
        for_tasks(&mut args.work)?;
        let context = Context::embedded(&cli.global, Arc::new(Silent));
        Self::open(args, context, schema, name).map_err(CommandError::Failed)
    }

    fn open(
        args: push::Push,
        context: Context,
        schema: SchemaRef,
        name: &str,
    ) -> anyhow::Result<Self> {
        let draft = args.draft(&context)?;
        let creating = args.creating.creating();
        let mut request = args.request(&context)?;
        let store = context.whole_store_name()?;
        let drawing: Box<dyn Progress + Send> = Box::new(Silent);
        let drawing = Arc::new(drawing);
        let cluster = context.cluster_if_any(draft.clone(), &drawing)?;
        let in_cluster = cluster.map(|cluster| PushInCluster::begin(cluster, &mut request, &draft));
        let in_cluster = in_cluster.transpose()?;
        let (opened, made) = context.open_for_push(&drawing, creating)?;
        Ok(Self {
            push: distributed::DistributedPush::begin(request, opened, schema, name)?,
            context,
            in_cluster,
            store,
            made,
        })
    }

    pub fn needs_samples(&self) -> bool {
        self.push.needs_samples()
    }

    pub fn partitions(&self) -> anyhow::Result<usize> {
        Ok(self.push.partitions()?)
    }

    /// Sets the boundaries of partitions from samples, as
    /// [`distributed::DistributedPush::set_boundaries`] does.
    pub fn set_boundaries(&mut self, samples: &[RecordBatch], rows: u64) -> anyhow::Result<usize> {
        Ok(self.push.set_boundaries(samples, rows)?)
    }

    pub fn recipe(&self) -> anyhow::Result<Vec<u8>> {
        Ok(self.push.recipe(&self.store)?.to_bytes()?)
    }

    /// Publishes the version, and returns what `forebay push --json` prints.
    pub fn commit(
        self,
        reports: &[String],
        listener: Listener,
    ) -> anyhow::Result<(Outcome, String)> {
        let report = self.push.commit(reports, &listener)?;
        if self.made {
            listener.message(&self.context.store_made());
        }
        let in_cluster = self.in_cluster.as_ref();
        let ranges = in_cluster.map(|of| of.first_ranges(&report));
        for note in notes(&report)
            .into_iter()
            .chain(ranges.transpose()?.flatten())
        {
            listener.message(&note);
        }
        if report.held() {
            listener.message(&held(&report));
        }
        if let Some(undone) = &report.undone {
            let (problem, gave_way) = (undone.problem.clone(), undone.gave_way);
            return Err(StoreError::NotRolledOut { problem, gave_way }.into());
        }
        let rolled_out = in_cluster.map(PushInCluster::rolled_out);
        let rolled_out = rolled_out.transpose()?.flatten();
        let (outcome, pushed) = push::ended(&report, rolled_out, self.made);
        self.context.print(&pushed, || summary(&report))?;
        let text = String::from_utf8_lossy(&self.context.take_result()).into_owned();
        Ok((outcome, text))
    }
}

/// Parses arguments without sources.
pub(crate) fn parse(words: &[String]) -> Result<Cli, CommandError> {
    let line = ["forebay", "--json"].map(str::to_owned);
    // The parser requires a source.
    let line = line.iter().chain(words).cloned().chain(["data".to_owned()]);
    forebay_io::raw::raise_open_files_limit();
    Cli::try_parse_from(line).map_err(|error| CommandError::Words(plain(&error)))
}

/// Sets the limits of one task.
pub(crate) fn for_tasks(work: &mut WorkArgs) -> Result<(), CommandError> {
    if work.threads.is_some() {
        let text = "--threads is not for what tasks build: each runs on one core";
        return Err(CommandError::Words(text.to_owned()));
    }
    work.threads = Some(1);
    work.memory.get_or_insert(TASK_MEMORY_BYTES);
    Ok(())
}

/// Returns the task of one part of the source, a [`RowTask`].
pub fn row_task(recipe: &[u8], source: i64) -> anyhow::Result<RowTask> {
    Ok(RowTask::new(Recipe::parse(recipe)?, source)?)
}

/// The task of one or several partitions, on top of [`distributed::PartTask`].
#[derive(Debug)]
pub struct PartTask {
    // The order of the fields matters: the task's files are dropped before its part in the push
    // ends.
    task: distributed::PartTask,
    _joined: Option<Joined>,
}

impl PartTask {
    /// Begins a task. `scratch` is a directory of this machine; several tasks may share it.
    pub fn begin(recipe: &[u8], scratch: &Path) -> anyhow::Result<Self> {
        forebay_io::raw::raise_open_files_limit();
        let recipe = Recipe::parse(recipe)?;
        let (store, joined) = open(&recipe, scratch)?;
        Ok(Self {
            task: distributed::PartTask::new(recipe, store, scratch)?,
            _joined: joined,
        })
    }

    /// Adds a batch, and returns the number of records.
    pub fn add(&mut self, batch: &RecordBatch) -> anyhow::Result<u64> {
        Ok(self.task.add(batch)?)
    }

    pub fn finish(self) -> anyhow::Result<Vec<String>> {
        Ok(self.task.finish()?)
    }
}

/// Opens the store as a task uses it and, for a store in object storage, the task's part in the
/// push.
fn open(recipe: &Recipe, scratch: &Path) -> anyhow::Result<(Store, Option<Joined>)> {
    let place = format!("forebay-work-{:016x}", SystemRandom.next_u64());
    let work_dir = scratch.join(place);
    let context = Context::new(&Global {
        store: recipe.store.clone(),
        work_dir: Some(work_dir.clone()),
        json: true,
        quiet: true,
    });
    if !context.is_remote() {
        return Ok((context.open_store()?, None));
    }
    let (store, disk) = context.open_remote(Patience::Long, false)?;
    let table = recipe.ticket.table().as_str();
    let joined = disk.join(table, "a task of a push");
    let joined = joined.with_context(|| format!("cannot work in {}", work_dir.display()))?;
    Ok((store, Some(joined)))
}
