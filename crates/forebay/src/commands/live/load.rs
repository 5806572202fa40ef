//! `forebay load`: adds rows from files to a live table at one moment.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use forebay_engine::{TableName, Ttl};
use forebay_load::encode::Verb;
use forebay_load::key::KeyTemplate;
use forebay_load::load::{LoadReport, LoadRequest, load};
use forebay_load::sort::Duplicates;
use forebay_load::sources::{Batches, Input};

use super::index_loads::{IndexArg, IndexArgs};
use super::insert_planning::{PlanningArgs, check_for};
use super::load_in_cluster::{IfWorth, LoadInCluster, LoadPlan};
use super::load_rows::{self, RowsArgs};
use crate::choices::{DUPLICATES, VERBS};
use crate::commands::cluster::read_plan;
use crate::commands::inspect::reading::{SourceArgs, WorkArgs};
use crate::commands::publish::push_result::changed;
use crate::context::Context;
use crate::exit::Outcome;
use crate::printing::human;
use crate::rollout_args::parse_deadline;

/// Load rows from files into a live table, whether it is being served or not
///
/// The rows are sorted, written as runs and verified beside the table, then added to it at one
/// moment. Writes before that moment are older than the load, writes after it are newer. A load
/// that fails or is killed adds nothing; if the server was adding it already, it adds all of it. If
/// no server has the table open, the command opens it.
///
/// In a cluster the runs are staged in the store, and its nodes fetch them. Then each partition
/// adds its runs at one moment; two partitions may do so at different moments. No partition adds
/// anything before all can. If the command is killed meanwhile, the cluster continues: forebay
/// cluster status shows the load.
///
/// forebay load people people.parquet --key '{id}'
///
/// forebay load clicks counts.csv --key '{page}' --value n --as delta
///
/// With --json one object {table, rows, bytes, updates, inserts, deletes, deltas, rejected, lossy,
/// duplicates, seconds}; rows counts keys. With --index it has indexes, a list of such objects;
/// seconds is the time of all together.
#[derive(Debug, Args)]
pub struct Load {
    /// The live table, created by forebay create
    pub table: TableName,

    /// Files, directories, globs ('days/*.parquet', quoted), s3://, gs://, az://, http:// or
    /// https:// URLs, or, for standard input, -
    #[arg(required = true, value_name = "SOURCE")]
    pub sources: Vec<String>,

    /// The key, as a template over columns: '{carrier}/{flight:05}' pads flight with zeros to five
    #[arg(long, value_name = "TEMPLATE", help_heading = "Rows")]
    pub key: KeyTemplate,

    /// The column of the values, in a table whose values are not rows [default: the one column that
    /// is not in the key]
    #[arg(long, value_name = "COLUMN", help_heading = "Rows")]
    pub value: Option<String>,

    /// What rows do: update, insert (only if the key is absent), or delta (add to the value, by the
    /// table's kind)
    #[arg(
        long = "as",
        value_parser = VERBS.parser(),
        default_value = "update",
        conflicts_with = "op",
        help_heading = "Rows"
    )]
    pub verb: Verb,

    /// The column with the operation of a row: insert, update, delete or delta. Rows of one key are
    /// combined in the order of the sources
    #[arg(long, value_name = "COLUMN", help_heading = "Rows")]
    pub op: Option<String>,

    /// Which of several updates of one key to keep, in the order of the sources, or fail [default:
    /// last]. Other operations of one key are combined
    #[arg(
        long,
        value_parser = DUPLICATES.parser(),
        conflicts_with = "op",
        help_heading = "Rows"
    )]
    pub duplicates: Option<Duplicates>,

    /// When the rows expire, counted from now: 7d, 12h, 90m, 30s [default: the table's TTL]
    #[arg(long, value_name = "TIME", value_parser = human::parse_lifetime, help_heading = "Rows")]
    pub ttl: Option<Duration>,

    /// The column that says when a row expires: a time, or a number of seconds from now. If it is
    /// null, the table's TTL applies
    #[arg(
        long,
        value_name = "COLUMN",
        conflicts_with = "ttl",
        help_heading = "Rows"
    )]
    pub ttl_column: Option<String>,

    #[command(flatten)]
    pub of_indexes: IndexArgs,

    /// In a cluster, what is done before rows are added, so that all nodes share the work. auto:
    /// split and move the table's partitions according to the rows read (forebay plan insert), if
    /// that saves more time than it takes; always: do so in any case; FILE: carry out a plan
    /// written by forebay plan insert; none: leave the partitions where they are
    #[arg(
        long,
        value_name = "auto|always|none|FILE",
        default_value = "none",
        help_heading = "Cluster"
    )]
    pub plan: String,

    #[command(flatten)]
    pub planning: PlanningArgs,

    #[command(flatten)]
    pub rows: RowsArgs,

    /// In a cluster: the load fails if there is no progress for this long before anything is added:
    /// 1s to 30d [default: 30m]
    #[arg(long, value_name = "TIME", value_parser = parse_deadline, help_heading = "Cluster")]
    pub deadline: Option<Duration>,

    #[command(flatten)]
    pub reading: SourceArgs,

    #[command(flatten)]
    pub work: WorkArgs,
}

pub fn run(args: Load, context: &Context) -> anyhow::Result<Outcome> {
    let chosen = args.chosen(context)?;
    let request = args.request(context)?;
    carry_out(&request, &chosen, context)
}

/// Loads batches in place of files. `args` has a placeholder for sources, which is ignored.
pub fn run_batches(args: Load, batches: Batches, context: &Context) -> anyhow::Result<Outcome> {
    let chosen = args.chosen(context)?;
    let mut request = args.request(context)?;
    request.sources = Input::Batches(batches);
    carry_out(&request, &chosen, context)
}

/// The options that need a cluster.
struct ChosenInCluster {
    deadline: Option<Duration>,
    plan: LoadPlan,
    rows: RowsArgs,
    indexes: Vec<IndexArg>,
}

fn carry_out(
    request: &LoadRequest,
    chosen: &ChosenInCluster,
    context: &Context,
) -> anyhow::Result<Outcome> {
    let rows = chosen.rows.chosen(request)?;
    let drawing = Arc::new(context.progress());
    let plan = (chosen.deadline, &chosen.plan);
    let found = LoadInCluster::find(&request.table, plan, context, &drawing)?;
    let report = match (found, rows) {
        (Some(_), Some(_)) if !chosen.indexes.is_empty() => {
            wrong!("--index goes with runs: load the index by itself with --insert rows")
        }
        (Some(found), Some(rows)) => {
            let report = load_rows::carry_out(&found, request, rows, context, &drawing)?;
            context.stop_drawing(drawing);
            return context.print_done(Outcome::Done, &report, || summary(&report.load));
        }
        (Some(found), None) => {
            if !chosen.indexes.is_empty() {
                drawing.message(&what_leaves_indexes(&chosen.indexes));
            }
            let reports = found.carry_out(request, &chosen.indexes, context, &drawing)?;
            context.stop_drawing(drawing);
            return reported(&reports, context);
        }
        (None, rows) => {
            if let Some(option) = chosen.first_given(rows.is_some()) {
                wrong!(
                    "{option} is about the nodes of a cluster, and {} is no live table of one: create it first \
                     (forebay create), or leave the option out",
                    request.table
                );
            }
            load(request, &context.open_store()?, &**drawing)?
        }
    };
    context.stop_drawing(drawing);
    context.print_done(Outcome::Done, &report, || summary(&report))
}

/// Returns a note of the writes that do not reach the indexes of a table.
fn what_leaves_indexes(indexes: &[IndexArg]) -> String {
    let names: Vec<&str> = indexes.iter().map(|index| index.table.as_str()).collect();
    format!(
        "{}: only loads with --index change it; writes of clients to the table do not, and an update leaves the row's \
         earlier index key",
        names.join(", ")
    )
}

/// Prints the reports of the table and of its indexes.
fn reported(reports: &[LoadReport], context: &Context) -> anyhow::Result<Outcome> {
    let Some((report, indexes)) = reports.split_first() else {
        anyhow::bail!("internal error: nothing was loaded");
    };
    let mut object = serde_json::to_value(report)?;
    if let (Some(object), false) = (object.as_object_mut(), indexes.is_empty()) {
        object.insert("indexes".to_owned(), serde_json::to_value(indexes)?);
    }
    context.print_done(Outcome::Done, &object, || {
        let lines: Vec<String> = reports.iter().map(summary).collect();
        lines.join("\n")
    })
}

impl ChosenInCluster {
    fn first_given(&self, sends_rows: bool) -> Option<&'static str> {
        let given = [
            (sends_rows, "--insert rows"),
            (!matches!(self.plan, LoadPlan::Nothing), "--plan"),
            (!self.indexes.is_empty(), "--index"),
            (self.deadline.is_some(), "--deadline"),
        ];
        let mut given = given.into_iter();
        given.find_map(|(is_given, name)| is_given.then_some(name))
    }
}

impl Load {
    fn chosen(&self, context: &Context) -> anyhow::Result<ChosenInCluster> {
        context.log_in(&self.rows.login);
        Ok(ChosenInCluster {
            deadline: self.deadline,
            plan: self.load_plan(context)?,
            rows: self.rows.clone(),
            indexes: self.of_indexes.indexes.clone(),
        })
    }

    pub(crate) fn load_plan(&self, context: &Context) -> anyhow::Result<LoadPlan> {
        if let Some(option) = self.planning.first_given()
            && !["auto", "always"].contains(&self.plan.as_str())
        {
            wrong!("{option} goes with --plan auto: the plan is made then");
        }
        Ok(match self.plan.as_str() {
            "none" => LoadPlan::Nothing,
            "auto" => LoadPlan::Auto(self.planning.clone(), IfWorth::Only),
            "always" => LoadPlan::Auto(self.planning.clone(), IfWorth::OrNot),
            path => {
                let plan = read_plan(Path::new(path), context)?;
                let indexes = self.of_indexes.indexes.iter();
                let indexes = indexes.map(|index| &index.table).collect();
                if let Err(problem) = check_for(&plan, &self.table, &indexes) {
                    wrong!("--plan {path}: {problem}");
                }
                LoadPlan::Made(Box::new(plan))
            }
        })
    }

    pub(crate) fn request(self, context: &Context) -> anyhow::Result<LoadRequest> {
        if self.duplicates.is_some() && self.verb != Verb::Update {
            wrong!(
                "--duplicates says which of several updates of a key holds, and with --as {} rows of one key \
                 are composed: leave it out",
                VERBS.name_of(self.verb)
            );
        }
        let source_options = self.reading.options(context)?;
        let work = self.work.settle(context)?;
        Ok(LoadRequest {
            table: self.table,
            sources: self.sources.into(),
            source_options,
            key: self.key,
            value_column: self.value,
            leaves_out: false,
            verb: self.verb,
            operation_column: self.op,
            ttl: match (self.ttl, self.ttl_column) {
                (Some(time), _) => Some(Ttl::AfterMs(time.as_millis() as u64)),
                (None, column) => column.map(Ttl::Column),
            },
            duplicates: self.duplicates.unwrap_or(Duplicates::Last),
            bad_rows: work.bad_rows,
            memory_bytes: work.memory_bytes,
            threads: work.threads,
            rate_bytes: work.rate_bytes,
        })
    }
}

pub(crate) fn summary(report: &LoadReport) -> String {
    let (rows, bytes) = (
        human::counted(report.rows, "key"),
        human::bytes(report.bytes),
    );
    let time = human::duration(Duration::from_secs_f64(report.seconds.max(0.0)));
    let (table, applied) = (&report.table, &report.applied);
    let mut text = match applied.inserts == report.rows && report.rows > 0 {
        // A load does not check which keys existed.
        true => format!(
            "{table} took inserts of {rows}, {bytes}, in {time}: keys that were there keep their values"
        ),
        false => format!("{table} has {rows} more written, {bytes}, in {time}"),
    };
    if applied.updates.max(applied.inserts) < report.rows {
        text += &format!(": {applied}");
    }
    if report.rejected > 0 {
        text += &format!("; {} rejected", human::counted(report.rejected, "bad row"));
    }
    text += &changed(&report.lossy);
    if report.duplicates > 0 {
        let what = human::counted(report.duplicates, "row");
        text += &format!("; {what} more of the same keys");
    }
    text
}
