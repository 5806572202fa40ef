//! `forebay undrop`: brings a dropped table back.

use clap::Args;
use forebay_engine::{TableName, utc};
use serde_json::json;

use crate::context::Context;
use crate::exit::Outcome;

/// Bring back a table that was dropped with --keep-dropped
///
/// It comes back as it was: its versions, the one that serves, and what a live table held. Of
/// several dropped tables of that name the last one comes back, or the one that --dropped names.
/// What there is says forebay tables --dropped.
///
/// With --json one object {table, undropped, dropped}.
#[derive(Debug, Args)]
pub struct Undrop {
    /// The table
    pub table: TableName,

    /// The one that was dropped at this time, as forebay tables --dropped has it
    #[arg(long, value_name = "TIME")]
    pub dropped: Option<String>,
}

pub fn run(args: &Undrop, context: &Context) -> anyhow::Result<Outcome> {
    let table = &args.table;
    let kept = context
        .open_store()?
        .undrop_table(table, args.dropped.as_deref())?;
    let dropped = utc(kept.dropped_unix_ms);
    let object = json!({"table": table, "undropped": true, "dropped": dropped});
    context.print_done(Outcome::Done, &object, || {
        format!("{table} is back, as it was when it was dropped at {dropped}")
    })
}
