//! `forebay cluster set` and `upgrade`: change a setting of a running cluster, and raise the format
//! of its catalog.

use std::time::Duration;

use clap::Args;
use forebay_cluster::Timing;
use forebay_cluster::model::NEWEST_FORMAT;
use forebay_cluster::request::Request;
use serde_json::json;

use super::ask::ask;
use crate::context::Context;
use crate::exit::Outcome;
use crate::printing::human;

/// Change a setting of the cluster while it runs
///
/// Nodes apply it within seconds, without a restart. With --json one object {node_timeout_ms}.
#[derive(Debug, Args)]
pub struct SetArgs {
    /// The time without a heartbeat after which a node counts as down, from 200ms to 10m.
    /// Heartbeats, the coordinator lease and all other times of the protocols are ratios of it
    /// (docs/explanation/cluster-architecture.md)
    #[arg(long, value_name = "TIME", value_parser = parse_timeout)]
    node_timeout: Duration,
}

/// The times of the protocols of a new cluster.
#[derive(Debug, Args)]
pub struct NodeTimeout {
    /// The time without a heartbeat after which a node counts as down, from 200ms to 10m.
    /// Heartbeats, the coordinator lease and all other times of the protocols are ratios of it
    /// (docs/explanation/cluster-architecture.md)
    #[arg(long, value_name = "TIME", value_parser = parse_timeout, default_value = "10s")]
    node_timeout: Duration,
}

impl NodeTimeout {
    pub fn timing(&self) -> anyhow::Result<Timing> {
        Ok(Timing::new(self.node_timeout)?)
    }
}

fn parse_timeout(text: &str) -> Result<Duration, String> {
    human::parse_within(text, Timing::SHORTEST, Timing::LONGEST)
}

pub fn run(args: &SetArgs, context: &Context) -> anyhow::Result<Outcome> {
    let timing = Timing::new(args.node_timeout)?;
    let node_timeout_ms = timing.node_timeout().as_millis() as u64;
    let object = json!({"node_timeout_ms": node_timeout_ms});
    let done = format!("the node timeout is {timing}");
    ask(&Request::SetTiming { timing }, &object, &done, context)
}

/// Raise the format of the cluster's catalog to the newest of this program, once all nodes support
/// it
///
/// Before the upgrade, features of the newer format are refused. Afterwards nodes and commands of
/// an older program are refused. There is no way back. Without --yes nothing is changed. With
/// --json one object {format, newest, upgraded}, where format is the format before the upgrade.
#[derive(Debug, Args)]
pub struct Upgrade {
    /// Raise the format
    #[arg(long)]
    yes: bool,
}

pub fn upgrade(args: &Upgrade, context: &Context) -> anyhow::Result<Outcome> {
    let cluster = context.cluster()?;
    let client = cluster.client();
    let format = client.head()?.forebay_head;
    let is_old = format < NEWEST_FORMAT;
    let request = Request::Upgrade {
        format: NEWEST_FORMAT,
    };
    match args.yes {
        true if is_old => drop(client.carry_out(&request)?),
        _ => drop(client.check(&request)?),
    }
    let upgraded = args.yes && is_old;
    let object = json!({"format": format, "newest": NEWEST_FORMAT, "upgraded": upgraded});
    let text = || match (is_old, args.yes) {
        (false, _) => format!("the catalog is of format {format} already"),
        (true, true) => format!("the catalog was of format {format}: now it is {NEWEST_FORMAT}"),
        (true, false) => format!("the catalog is of format {format}: all speak {NEWEST_FORMAT}"),
    };
    let outcome = context.print_done(Outcome::Done, &object, text)?;
    if is_old && !args.yes {
        wrong!("nothing was changed: --yes raises the format, and there is no way back");
    }
    Ok(outcome)
}
