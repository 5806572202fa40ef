//! `forebay compact`: one run a partition again.

use std::sync::Arc;

use clap::Args;
use forebay_load::progress::Unit;
use serde_json::json;

use crate::context::Context;
use crate::exit::Outcome;
use crate::target::Target;
use crate::{human, memory};

/// Merge the runs of a version that was pushed onto another
///
/// A version of its own, with the same rows, takes the place of the one that serves; what is read does
/// not change, and a rollback goes to where it would have gone before. Pushes with --onto merge by
/// themselves when many runs have gathered. With --json one object {table, version, from, runs,
/// partitions, rows, serves}.
#[derive(Debug, Args)]
pub struct Compact {
    /// The table, as it serves or at a version
    #[arg(value_name = "TABLE[@V]")]
    pub target: Target,

    /// Threads that merge [default: one a core]
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
}

pub fn run(args: &Compact, context: &Context) -> anyhow::Result<Outcome> {
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
    context.print(&object, || {
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
    })?;
    Ok(Outcome::Done)
}
