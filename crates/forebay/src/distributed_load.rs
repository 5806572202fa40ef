//! A load into a live table of a cluster that tasks of another engine build.
//!
//! The program that runs the tasks begins it with the arguments of `forebay load`. Tasks need only
//! the recipe.

use std::sync::Arc;
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use forebay_cluster::model::GroupEntry;
use forebay_engine::TableName;
use forebay_load::distributed;
use forebay_load::progress::{Progress, Silent};

use crate::cli::Command;
use crate::cluster_handle::Drawing;
use crate::commands::live::load;
use crate::commands::live::load_in_cluster::{LoadInCluster, LoadPlan, ranges};
use crate::context::{Context, Listener};
use crate::distributed::{for_tasks, parse};
use crate::embed::CommandError;
use crate::inserting::InsertWay;

/// A running load, on its driver. If it is dropped before its commit, it leaves nothing.
pub struct DistributedLoad {
    load: distributed::DistributedLoad,
    in_cluster: LoadInCluster,
    table: TableName,
    /// The groups whose partitions divide the load.
    groups: Vec<GroupEntry>,
    plan: LoadPlan,
    context: Context,
    /// The store's name for tasks on other machines.
    store: String,
    started: Duration,
}

impl DistributedLoad {
    /// Begins a load from the arguments of `forebay load` without sources. `name` is the name of
    /// the rows' source.
    pub fn begin(words: &[String], schema: SchemaRef, name: &str) -> Result<Self, CommandError> {
        let cli = parse(words)?;
        let Command::Load(mut args) = cli.command else {
            return Err(CommandError::Words(
                "these are no words of a load".to_owned(),
            ));
        };
        for_tasks(&mut args.work)?;
        if args.rows.insert != InsertWay::Runs {
            return Err(CommandError::Words(
                "tasks build runs: leave insert=\"rows\" out, or load by one process".to_owned(),
            ));
        }
        let context = Context::embedded(&cli.global, Arc::new(Silent));
        Self::open(args, context, schema, name).map_err(CommandError::Failed)
    }

    fn open(
        args: load::Load,
        context: Context,
        schema: SchemaRef,
        name: &str,
    ) -> anyhow::Result<Self> {
        let started = context.clock.monotonic();
        let plan = args.load_plan(&context)?;
        let deadline = args.deadline;
        let request = args.request(&context)?;
        let table = request.table.clone();
        let drawing = drawing_of(Arc::new(Silent));
        let found = LoadInCluster::find(&table, (deadline, &plan), &context, &drawing)?;
        let Some(in_cluster) = found else {
            return Err(not_live(&table, &context));
        };
        let store = context.open_to_merge(&drawing)?;
        let (load, groups) = in_cluster.begin(&table, (&store, &context, &drawing))?;
        let load = distributed::DistributedLoad::begin(request, load, &store, schema, name)?;
        Ok(Self {
            load,
            in_cluster,
            table,
            groups,
            plan,
            store: context.whole_store_name()?,
            context,
            started,
        })
    }

    /// Returns whether the order of two rows of a key matters.
    pub fn is_by_age(&self) -> bool {
        self.load.is_by_age()
    }

    /// Returns whether [`DistributedLoad::make_ready`] must be called before rows are encoded.
    pub fn is_planned(&self) -> bool {
        !matches!(self.plan, LoadPlan::Nothing)
    }

    /// Returns whether the load needs samples.
    pub fn needs_samples(&self) -> bool {
        matches!(self.plan, LoadPlan::Auto(..))
    }

    pub fn partitions(&self) -> usize {
        self.load.partitions()
    }

    /// Has the table's partitions split and moved according to the plan, which may be made from
    /// samples of this many rows.
    pub fn make_ready(
        &mut self,
        samples: &[RecordBatch],
        rows: u64,
        listener: Listener,
    ) -> anyhow::Result<()> {
        let sample = self.load.sample(samples, rows)?;
        let drawing = drawing_of(listener);
        let cluster = self.context.cluster_drawn(&drawing);
        let ready = (self.in_cluster).make_ready(&self.table, &sample, &self.context, &drawing);
        drop(cluster);
        self.context.stop_drawing(drawing);
        self.groups = ready?;
        self.load.repartition(ranges(&self.groups));
        Ok(())
    }

    pub fn recipe(&self) -> anyhow::Result<Vec<u8>> {
        Ok(self.load.recipe(&self.store)?.to_bytes()?)
    }

    /// Has the cluster add the rows of the reports, and returns what `forebay load --json` prints.
    pub fn commit(self, reports: &[String], listener: Listener) -> anyhow::Result<String> {
        let built = self.load.build(reports)?;
        let drawing = drawing_of(listener);
        drop(self.context.cluster_drawn(&drawing)?);
        let added = self.in_cluster.add(built, &self.groups);
        self.context.stop_drawing(drawing);
        let mut report = added?;
        report.took(self.context.clock.monotonic() - self.started);
        self.context.print(&report, || load::summary(&report))?;
        Ok(String::from_utf8_lossy(&self.context.take_result()).into_owned())
    }
}

fn drawing_of(listener: Listener) -> Drawing {
    let drawing: Box<dyn Progress + Send> = Box::new(listener);
    Arc::new(drawing)
}

fn not_live(table: &TableName, context: &Context) -> anyhow::Error {
    crate::error_kind::WrongLine(format!(
        "{table} is not a live table of a cluster at {}, and tasks load only into such: tasks build versions of batch \
         tables by forebay.spark.push and forebay.ray.push, forebay.load and forebay load add rows to a live table \
         of one server, and forebay create --mode live makes one of a cluster",
        context.store_name()
    ))
    .into()
}
