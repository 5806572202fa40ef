//! `forebay drop`: removes a table.

use clap::Args;
use forebay_engine::TableName;
use serde_json::json;

use crate::context::Context;
use crate::exit::Outcome;

/// Remove a table with all its versions, or a live table; there is no way back
///
/// A server that has a live table open closes it first.
///
/// With --json one object {table, dropped}.
#[derive(Debug, Args)]
pub struct Drop {
    pub table: TableName,
}

pub fn run(args: &Drop, context: &Context) -> anyhow::Result<Outcome> {
    context.open_store()?.drop_table(&args.table)?;
    let table = &args.table;
    let object = json!({"table": table, "dropped": true});
    context.print_done(Outcome::Done, &object, || {
        format!("{table} is gone, with all that was in it")
    })
}
