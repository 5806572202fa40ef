//! `forebay create` in a cluster: creates a live table whose partitions have replicas.

use std::time::Duration;

use clap::Args;
use forebay_cluster::REPLICAS;
use forebay_cluster::client::ClusterClient;
use forebay_cluster::model::{EndedLoad, LiveEntry, Replication, live_replicas};
use forebay_cluster::request::Request;
use forebay_cluster::status::NodeStatus;
use forebay_engine::live::{LiveDraft, LiveOptions};
use forebay_engine::{Bound, TableName};
use serde_json::json;

use crate::choices::ORDERS;
use crate::context::Context;
use crate::exit::Outcome;
use crate::printing::human;

/// How long the command waits for leaders.
const LED: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(100);
/// How long the command waits for nodes that do not know the table yet.
const KNOWN: Duration = Duration::from_secs(5);

/// The options for the replicas of a table's partitions.
#[derive(Debug, Args)]
pub struct ReplicaArgs {
    /// In a cluster: the number of replicas of each partition, 1, 3 or 5 [default: 3]
    #[arg(long, value_name = "N", value_parser = parse_replicas, help_heading = "Cluster")]
    pub replicas: Option<usize>,

    /// In a cluster, leader: one replica of each partition leads, and a majority stores each write
    /// [default: leader]
    #[arg(long, value_enum, help_heading = "Cluster")]
    pub replication: Option<ReplicationKind>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum ReplicationKind {
    Leader,
}

fn parse_replicas(text: &str) -> Result<usize, String> {
    let count = text.parse().map_err(|error| format!("{error}"))?;
    live_replicas(count)
}

impl ReplicaArgs {
    /// Refuses options that only a cluster supports.
    pub fn refuse_alone(&self) -> anyhow::Result<()> {
        let given = [
            ("--replicas", self.replicas.is_some()),
            ("--replication", self.replication.is_some()),
        ];
        match given.iter().find(|(_, is_given)| *is_given) {
            None => Ok(()),
            Some((option, _)) => wrong!(
                "{option} is for tables of a cluster, and the store belongs to none: leave it out, or make a \
                 cluster first (forebay cluster create)"
            ),
        }
    }
}

/// Creates the table, and waits until it takes writes.
pub fn run(
    table: &TableName,
    draft: LiveDraft,
    args: &ReplicaArgs,
    context: &Context,
) -> anyhow::Result<Outcome> {
    let replicas = args.replicas.unwrap_or(REPLICAS);
    let lowers = draft.partitions.iter();
    let lowers: Vec<Bound> = lowers.map(|range| range.bounds.lower.clone()).collect();
    let (options, partitions) = (draft.options, lowers.len());
    let led = make((table, &options, replicas), lowers, context)?;
    let durability = options.durability.map(|durability| durability.to_string());
    let object = json!({
        "table": table,
        "mode": "live",
        "order": options.order,
        "partitions": partitions,
        "durability": durability,
        "ttl": options.expiry.to_string(),
        "replicas": replicas,
        "replication": Replication::Leader,
        "led": led,
    });
    context.print_done(Outcome::Done, &object, || {
        let (order, ttl) = (ORDERS.name_of(options.order), options.expiry);
        let durability = durability.as_deref().unwrap_or_default();
        let count = human::counted(partitions as u64, "partition");
        let nodes = human::counted(replicas as u64, "node");
        let made = format!(
            "{table} is made: live, {order}, {count} on {nodes} each, durability {durability}, ttl {ttl}"
        );
        match led == partitions {
            true => made,
            false => format!(
                "{made}; {led} of its partitions take writes so far: forebay cluster status says why"
            ),
        }
    })
}

/// Creates a table with these first keys of partitions, and waits for a limited time until it takes
/// writes. Returns the number of partitions that do.
pub fn make(
    (table, options, replicas): (&TableName, &LiveOptions, usize),
    lowers: Vec<Bound>,
    context: &Context,
) -> anyhow::Result<usize> {
    let cluster = context.cluster()?;
    let client = cluster.client();
    client.carry_out(&Request::MakeLive {
        table: table.clone(),
        live: Box::new(LiveEntry {
            options: options.clone(),
            replication: Replication::Leader,
            last_load: EndedLoad::default(),
        }),
        lowers,
        replicas: Some(replicas),
    })?;
    let (led, revision) = wait_for_leaders(client, context, table)?;
    wait_for_nodes(client, context, revision)?;
    Ok(led)
}

/// Waits for a limited time until all partitions have had a leader. Returns how many have, and the
/// revision that says so.
fn wait_for_leaders(
    client: &ClusterClient,
    context: &Context,
    table: &TableName,
) -> anyhow::Result<(usize, u64)> {
    let end = context.clock.monotonic() + LED;
    loop {
        let (head, model) = client.model()?;
        let groups = model.all_groups().filter(|(name, _)| *name == table);
        let (mut all, mut led) = (0, 0);
        for (_, group) in groups {
            all += 1;
            led += usize::from(group.term > 0);
        }
        if led == all || context.clock.monotonic() >= end {
            return Ok((led, head.revision));
        }
        context.clock.sleep(LOOK);
    }
}

/// Waits for a limited time until all available nodes know a revision, so that clients find the
/// table at each of them.
fn wait_for_nodes(client: &ClusterClient, context: &Context, revision: u64) -> anyhow::Result<()> {
    let end = context.clock.monotonic() + KNOWN;
    loop {
        let nodes = client.status()?.nodes;
        let is_behind = |node: &NodeStatus| {
            node.state == "up" && node.serves.is_some_and(|serves| serves < revision)
        };
        if !nodes.iter().any(is_behind) || context.clock.monotonic() >= end {
            return Ok(());
        }
        context.clock.sleep(LOOK);
    }
}
