//! The arguments of `forebay plan insert`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use forebay_engine::TableName;
use forebay_load::key::KeyTemplate;
use forebay_load::load::Sampler;
use forebay_plan::insert::Mode;

use crate::choices::SAMPLERS;
use crate::commands::inspect::reading::{SourceArgs, WorkArgs};
use crate::commands::live::index_loads::IndexArgs;
use crate::commands::live::insert_planning::PlanningArgs;

/// Plan splits and moves before a bulk insert, update or delete
///
/// For a live table of a cluster: the command asks the nodes for the table's present content,
/// samples keys of the sources, and makes the plan from both. Nothing is changed. forebay load
/// --plan FILE carries out the plan and loads; forebay cluster apply FILE carries it out without
/// the load.
///
///   forebay plan insert people new.parquet --key '{id}' --output plan.json --draw plan.svg
///
/// With --input it reads one JSON object (docs/reference/plan-json.md describes it): machines, and
/// either partitions with their existing and new records and their machine, or tables with
/// boundaries and samples.
///
/// Prints the cost of the plan, the cost without moves, the lower bound of any plan, and a drawing
/// of it. With --json one object {dest, moves, cost, cost_no_moves, lower_bound, s_max, o_max,
/// splits, partitions, plan}, and for a table also {table, rows, bytes, exact, rejected,
/// partition_bytes, copied_bytes}.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct Insert {
    /// A live table of the cluster
    #[arg(required_unless_present = "input")]
    pub table: Option<TableName>,

    /// The sources to load, as for forebay load
    #[arg(value_name = "SOURCE", required_unless_present = "input")]
    pub sources: Vec<String>,

    #[command(flatten)]
    pub of_table: TableArgs,

    /// A JSON file in place of a table; - is standard input
    #[arg(long, value_name = "FILE", conflicts_with = "table")]
    pub input: Option<PathBuf>,

    /// paper: the algorithm of the paper; fast: a better one; polish: improve the plan until
    /// --seconds are over
    #[arg(long, default_value = "fast")]
    pub mode: Mode,

    /// How long to polish [default: from half a second to 10, by the number of partitions]
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub seconds: Option<Duration>,

    /// Divide the plan into batches that copy at most this many bytes each, such as 512M; with
    /// --json
    #[arg(long, value_name = "BYTES", value_parser = crate::printing::human::parse_room, requires = "json")]
    pub batch_bytes: Option<u64>,

    /// Draw the plan to an SVG file; for further regions the file's name gets -1, -2 and so on
    #[arg(long, value_name = "FILE.svg")]
    pub draw: Option<PathBuf>,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok();
    let seconds = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.ok_or_else(|| format!("'{text}' is not a number of seconds"))
}

/// The options for a table's sources.
#[derive(Debug, Args)]
pub struct TableArgs {
    /// The key, as a template over columns, as for forebay load
    #[arg(long, value_name = "TEMPLATE", help_heading = "Rows")]
    pub key: Option<KeyTemplate>,

    /// The column of the values, in a table whose values are not rows [default: the one column that
    /// is not in the key]
    #[arg(long, value_name = "COLUMN", help_heading = "Rows")]
    pub value: Option<String>,

    #[command(flatten)]
    pub of_indexes: IndexArgs,

    /// How keys are sampled. split: the first rows of many parts of the sources, for at most ten
    /// seconds; random or interval: from all rows, which are read completely [default: split]
    #[arg(long, value_parser = SAMPLERS.parser(), help_heading = "Rows")]
    pub sampler: Option<Sampler>,

    /// The file to write the plan to, for forebay load --plan and forebay cluster apply
    #[arg(long, value_name = "FILE", help_heading = "Plan")]
    pub output: Option<PathBuf>,

    #[command(flatten)]
    pub planning: PlanningArgs,

    #[command(flatten)]
    pub reading: SourceArgs,

    #[command(flatten)]
    pub work: WorkArgs,
}

impl TableArgs {
    /// Returns one of the given options.
    pub fn first_given(&self) -> Option<&'static str> {
        let given = [
            (self.key.is_some(), "--key"),
            (self.value.is_some(), "--value"),
            (!self.of_indexes.indexes.is_empty(), "--index"),
            (self.sampler.is_some(), "--sampler"),
            (self.output.is_some(), "--output"),
        ];
        let given = given.into_iter();
        let first = given
            .filter_map(|(is_given, name)| is_given.then_some(name))
            .next();
        first.or_else(|| self.planning.first_given())
    }
}
