//! `forebay plan insert`: splits and moves before a bulk insert.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use forebay_engine::TableName;
use forebay_plan::draw::{svg, text};
use forebay_plan::insert::{InsertPlan, Mode, Request, plan};

use super::insert_table::{self, TableArgs};
use crate::context::Context;
use crate::exit::Outcome;

/// Plan splits and moves before a bulk insert, update or delete
///
/// Of a live table of a cluster: what is there is asked of its nodes, keys of the sources are
/// sampled, and the plan is made of that. Nothing is changed: forebay load --plan FILE carries
/// the plan out, and loads, and so does forebay cluster apply FILE without the load.
///
///   forebay plan insert people new.parquet --key '{id}' --output plan.json --draw plan.svg
///
/// With --input it reads one JSON object (docs/plan.md describes it): machines, and either
/// partitions with their existing and new records and their machine, or tables with boundaries and
/// samples.
///
/// Prints what the plan costs, what no moves would cost, what no plan comes below, and a drawing of
/// it. With --json one object {dest, moves, cost, cost_no_moves, lower_bound, s_max, o_max, splits,
/// partitions, plan}, and of a table also {table, rows, bytes, exact, partition_bytes,
/// copied_bytes}.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct Insert {
    /// A live table of the cluster
    #[arg(required_unless_present = "input")]
    pub table: Option<TableName>,

    /// What is to be loaded, as of forebay load
    #[arg(value_name = "SOURCE", required_unless_present = "input")]
    pub sources: Vec<String>,

    #[command(flatten)]
    pub of_table: TableArgs,

    /// In place of a table a JSON file; - is standard input
    #[arg(long, value_name = "FILE", conflicts_with = "table")]
    pub input: Option<PathBuf>,

    /// paper: the algorithm of the paper; fast: a better one; polish: goes on until --seconds are
    /// over
    #[arg(long, default_value = "fast")]
    pub mode: Mode,

    /// How long to polish; by default from half a second to 10, by the number of partitions
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub seconds: Option<Duration>,

    /// Cut the plan into batches that carry at most so many bytes each, as 512M; with --json
    #[arg(long, value_name = "BYTES", value_parser = crate::human::parse_room, requires = "json")]
    pub batch_bytes: Option<u64>,

    /// Draw the plan into an SVG file; further regions get the file's name with -1, -2 and so on
    #[arg(long, value_name = "FILE.svg")]
    pub draw: Option<PathBuf>,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok();
    let seconds = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.ok_or_else(|| format!("'{text}' is not a number of seconds"))
}

pub fn run(args: Insert, context: &Context) -> anyhow::Result<Outcome> {
    if args.seconds.is_some() && args.mode != Mode::Polish {
        wrong!("--seconds goes with --mode polish: the other modes take as long as they take");
    }
    match (&args.input, &args.table) {
        (Some(input), _) => run_file(input, &args, context),
        (None, Some(table)) => {
            let table = table.clone();
            insert_table::run(table, args, context)
        }
        (None, None) => wrong!("give a table and sources, or --input FILE"),
    }
}

fn run_file(input: &Path, args: &Insert, context: &Context) -> anyhow::Result<Outcome> {
    if let Some(option) = args.of_table.first_given() {
        wrong!(
            "{option} is about a table's sources, and --input gives all there is: leave one out"
        );
    }
    super::check_drawing(input, args.draw.as_deref())?;
    let file = input.display();
    let started = context.clock.monotonic();
    let request: Request = super::read(input, context)?;
    let time = args.seconds.unwrap_or_else(|| polish_time(&request));
    let over = &mut || context.clock.monotonic().saturating_sub(started) >= time;
    let mut plan = plan(&request, args.mode, over).with_context(|| format!("{file}"))?;
    if let Some(bytes) = args.batch_bytes {
        let InsertPlan { own, regions, .. } = &mut plan;
        std::iter::once(own)
            .chain(regions)
            .for_each(|region| region.cut(bytes as f64));
    }
    if let Some(path) = &args.draw {
        super::write(input, &drawings(&plan, path))?;
    }
    context.print(&plan, || {
        let pictures = plan.pictures();
        let drawn: Vec<String> = pictures
            .iter()
            .map(|picture| text(picture, super::WIDTH))
            .collect();
        drawn.join("\n")
    })?;
    Ok(Outcome::Done)
}

/// A second for 250 partitions.
fn polish_time(request: &Request) -> Duration {
    let partitions = request.partitions.as_ref().map_or(0, Vec::len);
    let tables = request.tables.iter().flatten();
    let partitions = partitions + tables.map(|table| table.home.len()).sum::<usize>();
    Duration::from_secs_f64((partitions as f64 / 250.0).clamp(0.5, 10.0))
}

/// The drawings of all regions, and the files that they go to.
pub fn drawings(plan: &InsertPlan, path: &Path) -> Vec<(PathBuf, String)> {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let path_of = |region: usize| match region {
        0 => path.to_owned(),
        _ => path.with_file_name(format!("{stem}-{region}.svg")),
    };
    let pictures = plan.pictures();
    let drawn = pictures.iter().map(svg).enumerate();
    drawn.map(|(region, svg)| (path_of(region), svg)).collect()
}
