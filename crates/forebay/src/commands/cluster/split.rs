//! `forebay cluster split`: splits a partition of a live table.

use std::time::Duration;

use anyhow::bail;
use clap::{ArgGroup, Args};
use forebay_cluster::client::ClusterClient;
use forebay_cluster::request::Request;
use forebay_engine::{Bound, PartitionId, TableName};
use forebay_run::hash::SLOTS;
use serde_json::json;

use crate::context::Context;
use crate::exit::Outcome;
use crate::key::KeyForm;

/// How long the command waits for the split and for a leader of the new partition.
const LONGEST: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(100);

/// Split a partition of a live table at a key or, of a hashed table, at a slot
///
/// Keys before the split point stay in the partition. The rest becomes a new partition on the same
/// nodes, with its own leader. Commands on the new partition wait until its leader is elected, or
/// get an error that asks them to try again. No acknowledged write is lost. The command is refused
/// (exit code 4) while the table is being loaded, or while replicas of the partition are not where
/// they are wanted. A split cannot be undone. If a partition begins at the split point already,
/// nothing is done. With --json one object {table, at, partition, led}: partition is the new one,
/// and led says whether it has a leader yet.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("point").required(true).args(["at", "slot"]))]
pub struct Split {
    table: TableName,

    /// The split point of an ordered table (others: --slot): the first key of the new partition,
    /// without the table's name. The key need not exist
    #[arg(long, value_name = "KEY")]
    at: Option<String>,

    #[command(flatten)]
    form: KeyForm,

    /// The split point of a hashed table: the first slot of the new partition, from 1 to 16383
    #[arg(long, value_name = "N", value_parser = parse_slot)]
    slot: Option<u16>,
}

fn parse_slot(text: &str) -> Result<u16, String> {
    let slot = text.parse().ok().filter(|slot| (1..SLOTS).contains(slot));
    let slot = slot.and_then(|slot: u32| u16::try_from(slot).ok());
    slot.ok_or_else(|| format!("slots to split at go from 1 to {}", SLOTS - 1))
}

pub fn run(args: &Split, context: &Context) -> anyhow::Result<Outcome> {
    let table = &args.table;
    let at = match (&args.at, args.slot) {
        (_, Some(slot)) => Bound::Slot(slot),
        (at, None) => Bound::Key(args.form.parse(at.as_deref().unwrap_or_default())?),
    };
    let cluster = context.cluster()?;
    let client = cluster.client();
    let split = client.carry_out(&Request::Split {
        table: table.clone(),
        at: at.clone(),
    });
    split?;
    let (partition, led) = wait_for_child(client, context, table, &at)?;
    let Some(partition) = partition else {
        bail!(
            "table {table} is not split at {at} yet, and is to be: forebay cluster status shows how its partitions stand; \
             give the same command again to wait on"
        );
    };
    let object = json!({"table": table, "at": at, "partition": partition, "led": led});
    context.print_done(Outcome::Done, &object, || match led {
        true => format!("partition {partition} of {table} begins at {at}"),
        false => format!(
            "partition {partition} of {table} begins at {at}; it has no leader yet: forebay cluster status says why"
        ),
    })
}

/// Waits for a limited time until a partition begins at the split point and has had a leader.
fn wait_for_child(
    client: &ClusterClient,
    context: &Context,
    table: &TableName,
    at: &Bound,
) -> anyhow::Result<(Option<PartitionId>, bool)> {
    let end = context.clock.monotonic() + LONGEST;
    loop {
        let (_, model) = client.model()?;
        let mut groups = model.all_groups().filter(|(name, _)| *name == table);
        let found = groups.find(|(_, group)| group.bounds.lower == *at);
        let (partition, led) = match found {
            Some((_, group)) => (Some(group.partition), group.term > 0),
            None => (None, false),
        };
        if led || context.clock.monotonic() >= end {
            return Ok((partition, led));
        }
        context.clock.sleep(LOOK);
    }
}
