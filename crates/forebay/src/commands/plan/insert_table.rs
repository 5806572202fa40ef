//! `forebay plan insert TABLE SOURCE...`: plans an insert into a table of a cluster as it is now.

use std::time::Duration;

use anyhow::{Context as _, bail};
use forebay_cluster::planning::InsertProposal;
use forebay_engine::TableName;
use forebay_engine::live::LiveOptions;
use forebay_load::encode::Verb;
use forebay_load::load::{LoadRequest, LoadSample, Sampler, sample};
use forebay_load::push::BadRows;
use forebay_load::sort::Duplicates;
use forebay_plan::draw::text;
use serde::Serialize;
use serde_json::Value;

use super::drawings;
use super::insert_args::{Insert, TableArgs};
use crate::cluster_handle::Drawing;
use crate::commands::live::index_loads::{PooledLoad, pooled};
use crate::commands::live::insert_planning::{
    Search, insert_figures, insert_pictures, known_paces, plan_insert,
};
use crate::context::Context;
use crate::exit::Outcome;
use crate::printing::human;

/// How long a plan is polished by default.
const POLISH: Duration = Duration::from_secs(2);

/// The object of --json.
#[derive(Debug, Serialize)]
struct InsertResult<'a> {
    table: &'a TableName,
    rows: u64,
    bytes: u64,
    /// Whether rows and bytes are exact counts.
    exact: bool,
    /// Bad rows among the rows read.
    rejected: u64,
    partition_bytes: u64,
    copied_bytes: u64,
    /// How long splits and moves take, if it is known.
    expected_s: Option<f64>,
    /// How long they take, otherwise estimated, and how much less time the load takes.
    takes_s: f64,
    saves_s: f64,
    is_worth: bool,
    /// The names of nodes, by the planner's numbers.
    nodes: &'a [Option<String>],
    #[serde(flatten)]
    insert: &'a Value,
}

pub fn run(table: TableName, mut args: Insert, context: &Context) -> anyhow::Result<Outcome> {
    if args.batch_bytes.is_some() {
        wrong!("--batch-bytes goes with --input; of a table --batch says it");
    }
    let output = args.of_table.output.clone();
    let beside = output.clone().unwrap_or_default();
    super::check_drawing(&beside, args.draw.as_deref())?;
    let drawing: Drawing = Drawing::new(context.progress());
    if !context.is_live_in_cluster(&table)? {
        wrong!(
            "{table} is not a live table of a cluster, with partitions on several nodes: there is nothing to plan \
             (push splits batch tables; --input plans for what a file says)"
        );
    }
    let cluster = context.cluster_drawn(&drawing)?;
    let (_, model) = cluster.client().model()?;
    let Some(live) = model.table(&table).and_then(|entry| entry.live()) else {
        wrong!("the cluster has no live table {table}");
    };
    let planning = args.of_table.planning.clone();
    let indexes = std::mem::take(&mut args.of_table.of_indexes.indexes);
    let (mode, time) = (args.mode, args.seconds.unwrap_or(POLISH));
    let (draw, sources) = (args.draw.take(), std::mem::take(&mut args.sources));
    let sampler = args.of_table.sampler.unwrap_or(Sampler::Split);
    let request = request(&table, sources, args.of_table, context)?;
    if !matches!(request.bad_rows, BadRows::Fail | BadRows::Skip) {
        wrong!(
            "--bad-rows FILE is for forebay load: a plan writes no rows; skip leaves them out here"
        );
    }
    let of_indexes = pooled(&indexes, &request, &model)?;
    let pool = sample_pool(
        &request,
        &live.options,
        &of_indexes,
        (sampler, &drawing),
        context,
    )?;
    context.stop_drawing(drawing);
    let (_, sampled) = &pool[0];
    let search = Search { mode, time };
    let paces = known_paces(&cluster, context)?;
    let (_, made) = plan_insert(&cluster, &pool, (&planning, &paces), search, context)?;
    if let Some(path) = output {
        let plan = serde_json::to_string_pretty(&made.proposal.plan)?;
        super::write_files(&[(path, plan)])?;
    }
    if let Some(path) = &draw {
        super::write(&beside, &drawings(&insert_pictures(&made), path))?;
    }
    print(&table, sampled, &made, context)?;
    Ok(Outcome::Done)
}

fn print(
    table: &TableName,
    sampled: &LoadSample,
    made: &InsertProposal,
    context: &Context,
) -> anyhow::Result<()> {
    let reported = InsertResult {
        table,
        rows: sampled.rows,
        bytes: sampled.bytes,
        exact: sampled.is_exact,
        rejected: sampled.rejected,
        partition_bytes: made.partition_bytes,
        copied_bytes: made.proposal.copied_bytes(),
        expected_s: made.proposal.expected.map(|time| time.as_secs_f64()),
        takes_s: made.verdict.takes.as_secs_f64(),
        saves_s: made.verdict.saves.as_secs_f64(),
        is_worth: made.verdict.is_worth(),
        nodes: &made.insert.own.machine_names,
        insert: &serde_json::to_value(&made.insert)?,
    };
    context.print(&reported, || {
        let pictures = insert_pictures(made);
        let drawn = pictures.iter().map(|picture| text(picture, super::WIDTH));
        let drawn: Vec<String> = drawn.collect();
        let (seen, figures) = (seen(sampled), insert_figures(made));
        format!("{}\n{seen}\n{figures}\n{COUNTS_OF}\n", drawn.join("\n"))
    })
}

/// A leader measures each 10 s, and reports within a minute (`forebay_cluster::reporting`).
const COUNTS_OF: &str = "partitions as their leaders reported them, up to 70 s ago: rows of a load that just ended \
                         may be missing";

/// Samples the rows of the table and of its indexes, as a load would read them.
fn sample_pool(
    request: &LoadRequest,
    options: &LiveOptions,
    of_indexes: &[PooledLoad],
    (sampler, drawing): (Sampler, &Drawing),
    context: &Context,
) -> anyhow::Result<Vec<(TableName, LoadSample)>> {
    let machine = (&context.clock, &*context.random);
    let sampled = |request: &LoadRequest, options: &LiveOptions| -> anyhow::Result<_> {
        let sampled = sample(request, options, sampler, machine, &***drawing)?;
        check_sample(&sampled, request)?;
        Ok((request.table.clone(), sampled))
    };
    let mut pool = vec![sampled(request, options)?];
    for PooledLoad { request, options } in of_indexes {
        let of_index = sampled(request, options);
        pool.push(of_index.with_context(|| format!("index {}", request.table))?);
    }
    Ok(pool)
}

/// Refuses samples that a load would refuse.
fn check_sample(sampled: &LoadSample, request: &LoadRequest) -> anyhow::Result<()> {
    let advice =
        "--bad-rows skip plans without them, and forebay load says what is wrong with each";
    if sampled.rejected > 0 && matches!(request.bad_rows, BadRows::Fail) {
        let bad = human::counted(sampled.rejected, "bad row");
        bail!("{bad} among those that were read, which a load would stop at: {advice}");
    }
    if sampled.rows == 0 {
        bail!("the sources have no rows that could be loaded: there is nothing to plan");
    }
    Ok(())
}

fn request(
    table: &TableName,
    sources: Vec<String>,
    args: TableArgs,
    context: &Context,
) -> anyhow::Result<LoadRequest> {
    let Some(key) = args.key else {
        wrong!("--key says what the keys of the rows are: give it as you will to forebay load");
    };
    let work = args.work.settle(context)?;
    Ok(LoadRequest {
        table: table.clone(),
        sources: sources.into(),
        source_options: args.reading.options(context)?,
        key,
        value_column: args.value,
        leaves_out: false,
        verb: Verb::Update,
        operation_column: None,
        ttl: None,
        duplicates: Duplicates::Last,
        bad_rows: work.bad_rows,
        memory_bytes: work.memory_bytes,
        threads: work.threads,
        rate_bytes: work.rate_bytes,
    })
}

fn seen(sampled: &LoadSample) -> String {
    let about = if sampled.is_exact { "" } else { "about " };
    let rows = human::counted(sampled.rows, "row");
    let mut text = format!("{about}{rows}, {}", human::bytes(sampled.bytes));
    if sampled.rejected > 0 {
        let bad = human::counted(sampled.rejected, "bad row");
        text += &format!("; {bad} among those that were read");
    }
    text
}
