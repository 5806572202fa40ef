//! `forebay compact`: merges runs to one for each partition.

use std::sync::Arc;

use anyhow::{Context as _, bail};
use clap::Args;
use forebay_engine::StoreError;
use forebay_engine::live::LiveError;
use forebay_load::progress::Unit;
use serde_json::json;

use crate::context::Context;
use crate::exit::Outcome;
use crate::memory;
use crate::printing::human;
use crate::target::Target;

/// Merge the runs of a live table, or of a version that was pushed onto another
///
/// For a batch table, a new version with the same rows takes the place of the serving one. Reads
/// return the same, and a rollback serves the same version as before. Pushes with --onto merge by
/// themselves when many runs have accumulated. With --json one object {table, version, from, runs,
/// partitions, rows, serves}.
///
/// A live table's log and runs become one run for each partition. A live table merges by itself
/// while it takes writes, so this is for tables that are only read for a while. No other process
/// may have the table open. A server does the same at POST /v1/tables/TABLE/compact. With --json
/// one object {table, runs, partitions, records}.
#[derive(Debug, Args)]
pub struct Compact {
    /// The table: its serving version, or the version V
    #[arg(value_name = "TABLE[@V]")]
    pub target: Target,

    /// The number of merge threads [default: one per core]
    #[arg(long, value_name = "N", value_parser = human::parse_threads)]
    pub threads: Option<usize>,
}

pub fn run(args: &Compact, context: &Context) -> anyhow::Result<Outcome> {
    if context.open_store()?.is_live(&args.target.table)? {
        return compact_live(args, context);
    }
    let drawing = Arc::new(context.progress());
    let store = context.open_to_merge(&drawing)?;
    let table = store.table(&args.target.table)?;
    let version = context.version_of(&table, &args.target)?;
    drawing.stage("merging", None, Unit::Rows);
    let threads = args.threads.unwrap_or_else(memory::cores);
    let done = table.compact(version, threads, &|rows| drawing.advance(rows))?;
    drop((drawing, store));
    let object = json!({
        "table": table.name(),
        "version": done.to,
        "from": done.from,
        "runs": done.runs,
        "partitions": done.partitions,
        "rows": done.rows,
        "serves": done.serves,
    });
    context.print_done(Outcome::Done, &object, || {
        let table = table.name();
        if done.from == done.to {
            return format!("{table} version {version} has one run a partition already");
        }
        let (to, from) = (done.to, done.from);
        let state = if done.serves {
            "serves in the place of"
        } else {
            "is made of"
        };
        let rows = human::counted(done.rows, "row");
        let (runs, partitions) = (done.runs, done.partitions);
        format!(
            "{table} version {to} {state} version {from}: {rows}, {runs} runs made {partitions}"
        )
    })
}

fn compact_live(args: &Compact, context: &Context) -> anyhow::Result<Outcome> {
    let name = &args.target.table;
    if let Some(version) = args.target.version {
        bail!("table {name} is live and has no versions, so no version {version}");
    }
    let store = context.open_store()?;
    let table = match store.live_table(name, &context.live_budget()) {
        Err(error @ LiveError::Store(StoreError::InUse { .. })) => {
            let advice = format!(
                "a server that has it open merges its runs at POST /v1/tables/{name}/compact"
            );
            return Err(error).context(advice);
        }
        opened => opened?,
    };
    let drawing = context.progress();
    drawing.stage("merging", None, Unit::Rows);
    let runs = table.stats().runs.iter().sum::<usize>();
    table.compact()?;
    let stats = table.stats();
    drawing.advance(stats.run_records);
    drop(drawing);
    let partitions = stats.runs.len();
    let object = json!({
        "table": name,
        "runs": runs,
        "partitions": partitions,
        "records": stats.run_records,
    });
    context.print_done(Outcome::Done, &object, || {
        let records = human::counted(stats.run_records, "record");
        let made = stats.runs.iter().sum::<usize>();
        format!("live table {name}: {records}, {runs} runs and what the log held made {made}")
    })
}
