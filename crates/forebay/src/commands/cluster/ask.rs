//! `forebay cluster pause`, `remove`, `cancel`: requests to the coordinator.

use std::time::Duration;

use clap::Args;
use forebay_cluster::model::RequestId;
use forebay_cluster::request::Request;
use forebay_cluster::{MOST_WAIT, NodeName};
use serde_json::{Value, json};

use crate::context::Context;
use crate::exit::Outcome;
use crate::printing::human;

/// Announce maintenance of a node: for this time the cluster does not count it as lost when it is
/// down
///
/// With --json one object {node, for_ms}.
#[derive(Debug, Args)]
pub struct Pause {
    node: NodeName,

    /// How long, from 1s to 30d, such as 10m or 1h
    #[arg(long = "for", value_name = "TIME", value_parser = parse_pause, default_value = "10m")]
    time: Duration,
}

/// Forget a node that is stopped and has no data any more
///
/// With --json one object {node, removed}.
#[derive(Debug, Args)]
pub struct Remove {
    node: NodeName,
}

/// Cancel a rollout that is not committed, a load that has added nothing yet, or a running plan;
/// `status` shows its name
///
/// Moves of a plan that are complete are kept. With --json one object {rollout, cancelled}.
#[derive(Debug, Args)]
pub struct Cancel {
    rollout: RequestId,
}

fn parse_pause(text: &str) -> Result<Duration, String> {
    human::parse_within(text, Duration::from_secs(1), MOST_WAIT)
}

pub fn pause(args: &Pause, context: &Context) -> anyhow::Result<Outcome> {
    let (node, for_ms) = (args.node.clone(), args.time.as_millis() as u64);
    let object = json!({"node": node, "for_ms": for_ms});
    let time = human::duration(args.time);
    let done = format!("node {node} may be down for {time} and is not taken for lost");
    ask(&Request::Pause { node, for_ms }, &object, &done, context)
}

pub fn remove(args: &Remove, context: &Context) -> anyhow::Result<Outcome> {
    let node = args.node.clone();
    let object = json!({"node": node, "removed": true});
    let done = format!("node {node} is no node of the cluster any more");
    ask(&Request::Remove { node }, &object, &done, context)
}

pub fn cancel(args: &Cancel, context: &Context) -> anyhow::Result<Outcome> {
    let rollout = args.rollout.clone();
    let object = json!({"rollout": rollout, "cancelled": true});
    let done = format!("{rollout} is cancelled");
    ask(&Request::Cancel { rollout }, &object, &done, context)
}

pub fn ask(
    request: &Request,
    object: &Value,
    done: &str,
    context: &Context,
) -> anyhow::Result<Outcome> {
    let cluster = context.cluster()?;
    cluster.client().carry_out(request)?;
    context.print_done(Outcome::Done, object, || done.to_owned())
}
