//! `forebay drop`: removes a table.

use clap::Args;
use forebay_cluster::request::Request;
use forebay_engine::TableName;
use serde_json::json;

use crate::context::Context;
use crate::exit::Outcome;

/// Remove a table with all its versions, or a live table; there is no way back
///
/// A server that has a live table open closes it first. In a cluster the nodes do: the command ends
/// once the cluster has decided it.
///
/// With --json one object {table, dropped}.
#[derive(Debug, Args)]
pub struct Drop {
    pub table: TableName,
}

pub fn run(args: &Drop, context: &Context) -> anyhow::Result<Outcome> {
    let table = &args.table;
    match context.is_live_in_cluster(table)? {
        // The store has nothing of it: its nodes have.
        true => drop(context.cluster()?.client().carry_out(&Request::Drop {
            table: table.clone(),
        })?),
        false => context.open_store()?.drop_table(table)?,
    }
    let object = json!({"table": table, "dropped": true});
    context.print_done(Outcome::Done, &object, || {
        format!("{table} is gone, with all that was in it")
    })
}
