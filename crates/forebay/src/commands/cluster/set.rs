//! `forebay cluster set`: changes a setting of a running cluster.

use std::time::Duration;

use clap::Args;
use forebay_cluster::Timing;
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
