//! `forebay drop`: removes a table.

use clap::Args;
use forebay_cluster::request::Request;
use forebay_engine::{HistoryAction, HistoryNote, TableName};
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
        // Its nodes have it, and the store at most what loads left.
        true => {
            let table = table.clone();
            let request = Request::Drop { table };
            context.cluster()?.client().carry_out(&request)?;
            end_live_drop(args, context);
        }
        false => context.open_store()?.drop_table(table)?,
    }
    let object = json!({"table": table, "dropped": true});
    context.print_done(Outcome::Done, &object, || {
        format!("{table} is gone, with all that was in it")
    })
}

/// What stays is removed by the next load into a table of that name.
fn end_live_drop(args: &Drop, context: &Context) {
    let removed = context.open_store().and_then(|store| {
        store.note(&args.table, HistoryAction::Drop, HistoryNote::default());
        Ok(store.remove_staged(&args.table)?)
    });
    if let Err(error) = removed {
        tracing::warn!(table = %args.table, %error, "runs of loads stay in the store");
    }
}
