//! `forebay drop` and `forebay undrop`: remove a table, and restore a dropped one.

use std::time::Duration;

use clap::Args;
use forebay_cluster::request::Request;
use forebay_engine::{HistoryAction, HistoryNote, TableName, utc};
use serde_json::json;

use crate::context::Context;
use crate::exit::Outcome;
use crate::printing::{ask, can_ask, human};

/// Remove a table with all its versions, or a live table; without --keep-dropped permanently
///
/// It requires --yes, or the table's name typed at a terminal. A server that has a live table open
/// closes it first. In a cluster the command ends once the cluster has decided the drop, and the
/// nodes remove the data.
///
/// With --json one object {table, dropped}, with --keep-dropped also {kept_until}.
#[derive(Debug, Args)]
pub struct Drop {
    /// The table
    pub table: TableName,

    /// Remove the table without asking
    #[arg(long)]
    pub yes: bool,

    /// Keep the dropped table for this time, such as 7d or 12h, so that forebay undrop can restore
    /// it. It uses disk space meanwhile. Only for a store in a directory that does not belong to a
    /// cluster
    #[arg(long, value_name = "TIME", value_parser = human::parse_lifetime)]
    pub keep_dropped: Option<Duration>,
}

pub fn run(args: &Drop, context: &Context) -> anyhow::Result<Outcome> {
    let table = &args.table;
    if !args.yes {
        confirm(args, context)?;
    }
    if let Some(time) = args.keep_dropped {
        return drop_keeping(table, time, context);
    }
    match context.is_live_in_cluster(table)? {
        // Nodes have the table's data. The store has at most files that loads left.
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
        format!("{table} is dropped, with all that was in it")
    })
}

/// Asks for confirmation at a terminal; refuses without one.
fn confirm(args: &Drop, context: &Context) -> anyhow::Result<()> {
    let table = &args.table;
    if !can_ask() {
        let (keep, advice) = match args.keep_dropped {
            Some(time) => (format!(" --keep-dropped {}s", time.as_secs()), ""),
            // A cluster keeps no dropped tables.
            None if context.is_clustered()? => (String::new(), ""),
            None => (
                String::new(),
                ". With --keep-dropped 7d it can be undone for so long",
            ),
        };
        wrong!(
            "forebay drop removes table {table} with all that is in it: say that you mean it by forebay drop {table} \
             --yes{keep}{advice}"
        );
    }
    let question =
        format!("This drops table {table} with all that is in it. Type its name to continue:");
    match ask(&question)? == table.as_str() {
        true => Ok(()),
        false => wrong!("that is not the name of table {table}: nothing was dropped"),
    }
}

fn drop_keeping(table: &TableName, time: Duration, context: &Context) -> anyhow::Result<Outcome> {
    let store = context.open_store()?;
    let until = utc(store.drop_table_keeping(table, time)?.until_unix_ms);
    let object = json!({"table": table, "dropped": true, "kept_until": until});
    context.print_done(Outcome::Done, &object, || {
        format!("{table} is dropped; until {until} forebay undrop {table} restores it")
    })
}

/// Removes what a load left of a dropped table. Otherwise the next load into a table of that name
/// does.
fn end_live_drop(args: &Drop, context: &Context) {
    let removed = context.open_store().and_then(|store| {
        store.note(&args.table, HistoryAction::Drop, HistoryNote::default());
        Ok(store.remove_staged(&args.table)?)
    });
    if let Err(error) = removed {
        tracing::warn!(table = %args.table, %error, "runs of loads stay in the store");
    }
}

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

pub fn undrop(args: &Undrop, context: &Context) -> anyhow::Result<Outcome> {
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
