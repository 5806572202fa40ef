//! `forebay undrop`: brings a dropped table back.

use clap::Args;
use forebay_engine::TableName;
use serde_json::json;

use crate::context::Context;
use crate::exit::Outcome;

/// Bring back a table that was dropped with --keep-dropped
///
/// It comes back as it was: its versions, the one that serves, and what a live table held. Of
/// several dropped tables of that name the last one comes back. What there is says forebay tables
/// --dropped.
///
/// With --json one object {table, undropped}.
#[derive(Debug, Args)]
pub struct Undrop {
    pub table: TableName,
}

pub fn run(args: &Undrop, context: &Context) -> anyhow::Result<Outcome> {
    let table = &args.table;
    context.open_store()?.undrop_table(table)?;
    let object = json!({"table": table, "undropped": true});
    context.print_done(Outcome::Done, &object, || {
        format!("{table} is back, as it was")
    })
}
