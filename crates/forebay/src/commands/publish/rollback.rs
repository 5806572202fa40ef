//! `forebay rollback`: returns to the version that served before.

use clap::Args;
use forebay_cluster::client::RolloutDraft;
use forebay_engine::{StoreError, TableName};

use super::swap;
use crate::cluster_handle::Drawing;
use crate::context::Context;
use crate::exit::Outcome;
use crate::printing::{ask, can_ask, human};

/// Return to the version that served before; in a cluster several tables at one moment
///
/// The abandoned version stays in the store, but a second rollback goes further back and never
/// returns to it. Another user may have rolled back already. Within a minute of another rollback
/// the command therefore needs the version to abandon (--from), or asks for it at a terminal. If a
/// push is running, the command says so, and the push is then held. In a cluster the version is
/// marked as bad, and a swap to it requires --force. With --json one object {table, version,
/// previous}; for several tables a list of them.
#[derive(Debug, Args)]
pub struct Rollback {
    #[arg(required = true, value_name = "TABLE")]
    pub tables: Vec<TableName>,

    /// Roll back only if this version serves; for one table
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
            // In object storage every rollback would pay requests for this.
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

/// Asks at a terminal if a table was rolled back shortly before.
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
