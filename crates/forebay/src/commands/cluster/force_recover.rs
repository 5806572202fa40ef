//! `forebay cluster force-recover`: continues with the remaining replicas and gives up what only
//! lost replicas had.

use anyhow::bail;
use clap::Args;
use forebay_cluster::LostPartition;
use forebay_cluster::request::Request;
use forebay_engine::TableName;
use serde_json::json;

use super::status::seen;
use crate::context::Context;
use crate::exit::Outcome;

/// Recover the partitions of a live table that lost their majority for good, from the replicas left
///
/// Without --yes it shows the lost replicas, the remaining replicas and how far each has come. It
/// changes nothing, and exits with 2 if there is a loss to accept. With --yes the most advanced
/// replica of each partition continues alone, and gets new replicas beside it later. Acknowledged
/// writes that only the lost replicas had are then lost. Writes that were never acknowledged may
/// appear. Lost replicas are removed if they come back. The command is refused if a majority may
/// still answer: start the nodes that are down, if that is possible. Do not start them cut off from
/// the store. It exits with 1 while a partition has no leader and it is not yet known whether its
/// majority is lost; try again later. With --json one object {table, partitions, accepted};
/// partitions lists {table, partition, group, gone, remaining, waits_for}.
#[derive(Debug, Args)]
pub struct ForceRecover {
    table: TableName,

    /// Accept the loss
    #[arg(long)]
    yes: bool,
}

pub fn run(args: &ForceRecover, context: &Context) -> anyhow::Result<Outcome> {
    let table = &args.table;
    let cluster = context.cluster()?;
    let client = cluster.client();
    let request = |partitions| Request::ForceRecover {
        table: table.clone(),
        partitions,
    };
    client.check(&request(Vec::new()))?;
    let known = match seen(client, &context.node_pages()?)?.live {
        Some(live) => Some(live),
        None => client.live_state()?,
    };
    let Some(live) = known else {
        bail!("the coordinator knows of no live table {table}: look at forebay cluster status");
    };
    let status = live.tables.get(table).cloned().unwrap_or_default();
    let lost = live.lost.into_iter().filter(|lost| lost.table == *table);
    let lost: Vec<LostPartition> = lost.collect();
    let unled = status.partitions.saturating_sub(status.led);
    if lost.is_empty() && unled > 0 {
        bail!(
            "{unled} of {} partitions of {table} have no leader now, and no majority is known to be lost: a node that \
             died counts as lost some 20 s later. Wait, and ask again; if that lasts, look at forebay cluster status",
            status.partitions
        );
    }
    let is_accepted = args.yes && !lost.is_empty();
    if is_accepted {
        let partitions = lost.iter().map(|lost| lost.partition).collect();
        client.carry_out(&request(partitions))?;
    }
    let outcome = match lost.is_empty() || is_accepted {
        true => Outcome::Done,
        false => Outcome::Unaccepted,
    };
    let object = json!({"table": table, "partitions": lost, "accepted": is_accepted});
    context.print(&object, || text(args, &lost))?;
    Ok(outcome)
}

fn text(args: &ForceRecover, lost: &[LostPartition]) -> String {
    let table = &args.table;
    if lost.is_empty() {
        return format!(
            "each partition of {table} has a leader, or had one 5 s ago: there is nothing to accept. Where nodes died just now, ask \
             again in 20 s"
        );
    }
    let lines = lost
        .iter()
        .map(|lost| format!("partition {}: {}\n", lost.partition, lost.words()));
    let lines: String = lines.collect();
    let is_hopeless =
        |lost: &&LostPartition| lost.remaining.is_empty() && lost.waits_for.is_empty();
    let end = match (args.yes, lost.iter().find(is_hopeless)) {
        (true, _) => "they continue from what remains".to_owned(),
        (false, Some(lost)) => format!(
            "of partition {} no replica is left to continue from, and nothing can be accepted: start a node that has \
             it, or drop the table (forebay drop {table})",
            lost.partition
        ),
        (false, None) => {
            "acknowledged writes that only the lost replicas had are lost if you accept that: --yes"
                .to_owned()
        }
    };
    format!("{lines}{end}")
}
