//! `forebay cluster watch`: prints what a cluster does as it happens.

use std::time::Duration;

use clap::Args;
use forebay_cluster::status::Status;

use super::status::{loading, moving, rollout, seen};
use crate::context::Context;
use crate::exit::Outcome;

/// The time between two polls.
const LOOK: Duration = Duration::from_secs(1);

/// Print the progress of running operations, a line for each step, until they have ended
///
/// It prints rollouts, plans, loads, changes of node states, and problems as they appear and
/// disappear. With --json a line is an object {event, text}: event is rollout, plan, load, node or
/// problem.
#[derive(Debug, Args)]
pub struct Watch {
    /// Continue when nothing is running, until interrupted
    #[arg(long)]
    forever: bool,
}

pub fn run(args: &Watch, context: &Context) -> anyhow::Result<Outcome> {
    let cluster = context.cluster()?;
    let pages = context.node_pages()?;
    let mut before: Vec<(&str, String)> = Vec::new();
    loop {
        let status = seen(cluster.client(), &pages)?;
        let lines = lines(&status);
        for (event, text) in lines.iter().filter(|line| !before.contains(line)) {
            let object = serde_json::json!({"event": event, "text": text});
            context.print(&object, || text.clone())?;
        }
        let ended = before.iter().filter(|(event, text)| {
            *event == "problem" && !lines.iter().any(|(_, new)| new == text)
        });
        for (event, text) in ended {
            let text = format!("no more: {text}");
            let object = serde_json::json!({"event": event, "text": text});
            context.print(&object, || text.clone())?;
        }
        before = lines;
        if !args.forever && !is_under_way(&status) {
            return Ok(Outcome::Done);
        }
        context.clock.sleep(LOOK);
    }
}

fn is_under_way(status: &Status) -> bool {
    status.plan.is_some()
        || !status.loads.is_empty()
        || status.tables.iter().any(|table| table.rollout.is_some())
}

fn lines(status: &Status) -> Vec<(&'static str, String)> {
    let nodes = status.nodes.iter();
    let nodes = nodes.map(|node| ("node", format!("node {} is {}", node.name, node.state)));
    let problems = status.problems.iter();
    let problems = problems.map(|problem| ("problem", problem.clone()));
    let rollouts = status.tables.iter().filter(|table| table.rollout.is_some());
    let rollouts = rollouts.map(|table| {
        let text = format!("table {}: {}", table.table, rollout(table));
        ("rollout", text)
    });
    let plans = status.plan.iter().map(|plan| ("plan", moving(plan)));
    let loads = status.loads.iter().map(|load| ("load", loading(load)));
    let work = rollouts.chain(plans).chain(loads);
    nodes.chain(problems).chain(work).collect()
}
