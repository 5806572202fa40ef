//! `forebay rollback`: back to the version that served before.

use clap::Args;
use forebay_cluster::client::RolloutDraft;
use forebay_engine::{StoreError, TableName};

use super::swap;
use crate::ask::{ask, can_ask};
use crate::cluster_handle::Drawing;
use crate::context::Context;
use crate::exit::Outcome;
use crate::human;

/// Go back to the version that served before; in a cluster of several tables at one moment
///
/// The version that is left stays in the store, but a second rollback goes further back, never to
/// it. Within a minute of another rollback it has to say from which version it goes back (--from),
/// or is asked for at a terminal, as somebody else may have done it already. It says if a push is
/// under way, which then is held. In a cluster the version is marked as bad, and a swap
/// to it wants --force. With --json one object {table, version, previous}, of several tables a list
/// of them.
#[derive(Debug, Args)]
pub struct Rollback {
    #[arg(required = true, value_name = "TABLE")]
    pub tables: Vec<TableName>,

    /// Only if this version serves; of one table
    #[arg(long, value_name = "V", value_parser = human::parse_number::<u64>)]
    pub from: Option<u64>,
}

pub fn run(args: &Rollback, context: &Context) -> anyhow::Result<Outcome> {
    if args.from.is_some() && args.tables.len() > 1 {
        wrong!("--from names the version of one table: roll the tables back one by one");
    }
    let drawing: Drawing = Drawing::new(context.progress());
    if let Some(cluster) = context.cluster_if_any(RolloutDraft::default(), &drawing)? {
        let rolled_out = match args.from {
            Some(from) => cluster.rollback_from(&args.tables[0], from),
            None => cluster.rollback(&args.tables.iter().cloned().collect()),
        };
        let again = |table: &TableName, from| cluster.rollback_from(table, from);
        let rollout = or_asked(rolled_out, args, again)?;
        context.stop_drawing(drawing);
        return swap::print_rollout(&rollout, &cluster, context);
    }
    match &args.tables[..] {
        [table] => {
            let table_handle = context.open_table(table)?;
            let swapped = match args.from {
                Some(from) => table_handle.rollback_from(from),
                None => table_handle.rollback(),
            };
            let again = |_: &TableName, from| table_handle.rollback_from(from);
            let swapped = or_asked(swapped, args, again)?;
            // In object storage it would cost requests of every rollback.
            if !context.is_remote() && table_handle.is_push_under_way()? {
                context.output.announce(&format!(
                    "a push to or compaction of {table} is under way, from before this rollback: its version will be held, and not serve"
                ));
            }
            swap::print(table, swapped, context)
        }
        _ => wrong!(
            "several tables are rolled back at one moment in a cluster only: roll them back one by one"
        ),
    }
}

/// Asks at a terminal where a table was rolled back just before.
fn or_asked<T>(
    rolled_back: Result<T, StoreError>,
    args: &Rollback,
    again: impl FnOnce(&TableName, u64) -> Result<T, StoreError>,
) -> anyhow::Result<T> {
    match rolled_back {
        Err(error @ StoreError::JustRolledBack { serving, .. })
            if args.tables.len() == 1 && can_ask() =>
        {
            let question = format!("{error}. Type yes to go back from version {serving} now:");
            match ask(&question)?.eq_ignore_ascii_case("yes") {
                true => Ok(again(&args.tables[0], serving)?),
                false => Err(error.into()),
            }
        }
        rolled_back => Ok(rolled_back?),
    }
}
