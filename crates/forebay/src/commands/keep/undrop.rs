//! `forebay undrop`: restores a dropped table.

use clap::Args;
use forebay_engine::{TableName, utc};
use serde_json::json;

use crate::context::Context;
use crate::exit::Outcome;

/// Restore a table that was dropped with --keep-dropped
///
/// It is restored as it was: its versions, the serving one, and the content of a live table. If
/// several dropped tables have the name, the last one is restored, or the one that --dropped names.
/// forebay tables --dropped lists them.
///
/// With --json one object {table, undropped, dropped}.
#[derive(Debug, Args)]
pub struct Undrop {
    /// The table
    pub table: TableName,

    /// The table that was dropped at this time, as forebay tables --dropped prints it
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
