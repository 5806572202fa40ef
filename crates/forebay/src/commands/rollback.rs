//! `forebay rollback`: back to the version that served before.

use clap::Args;
use forebay_cluster::client::RolloutWish;
use forebay_engine::TableName;

use super::swap;
use crate::cluster_handle::Drawing;
use crate::context::Context;
use crate::exit::Outcome;

/// Go back to the version that served before; in a cluster of several tables at one moment
///
/// The version that is left stays in the store, but a second rollback goes further back, never to
/// it. In a cluster it is marked as bad, and a swap to it wants --force. With --json one object
/// {table, version, previous}, of several tables a list of them.
#[derive(Debug, Args)]
pub struct Rollback {
    #[arg(required = true, value_name = "TABLE")]
    pub tables: Vec<TableName>,
}

pub fn run(args: &Rollback, context: &Context) -> anyhow::Result<Outcome> {
    let drawing: Drawing = Drawing::new(context.progress());
    if let Some(cluster) = context.cluster_if_any(RolloutWish::default(), &drawing)? {
        let rollout = cluster.rollback(&args.tables.iter().cloned().collect())?;
        context.stop_drawing(drawing);
        return swap::print_rollout(&rollout, &cluster, context);
    }
    match &args.tables[..] {
        [table] => {
            let swapped = context.open_table(table)?.rollback()?;
            swap::print(table, swapped, context)
        }
        _ => wrong!(
            "several tables are rolled back at one moment in a cluster only: roll them back one by one"
        ),
    }
}
