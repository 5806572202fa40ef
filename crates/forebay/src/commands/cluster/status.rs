//! `forebay cluster status`.

use std::time::Duration;

use clap::Args;
use forebay_cluster::model::Model;
use forebay_cluster::status::{Status, TableStatus};
use forebay_objects::page;

use crate::context::Context;
use crate::exit::Outcome;
use crate::human;
use crate::render::Columns;

/// How many nodes are asked, and how long each is waited for.
const TRIED: usize = 4;
const ANSWER: Duration = Duration::from_secs(1);

/// Say how the cluster is, what is wrong, and what to do
///
/// With --json one object {cluster, healthy, problems, revision, term, coordinator, nodes, tables};
/// nodes is a list of {name, zone, state, listen, serves, free_bytes, problems}, tables one of
/// {table, version, previous, replicas, replicas_wanted, rollout}.
#[derive(Debug, Args)]
pub struct StatusArgs {}

pub fn run(context: &Context) -> anyhow::Result<Outcome> {
    let cluster = context.cluster()?;
    let (_, model) = cluster.client().model()?;
    let status = match told_by_nodes(&model) {
        Some(status) => status,
        None => cluster.client().status()?,
    };
    context.print(&status, || text(&status))?;
    Ok(Outcome::Done)
}

/// What the coordinator knows is more than what the catalog says. Any node passes it on that can be
/// reached and tells it to everybody.
fn told_by_nodes(model: &Model) -> Option<Status> {
    let nodes = model.all_nodes().filter(|node| node.is_up());
    let https = nodes.filter_map(|node| node.http.as_ref()).take(TRIED);
    https
        .filter_map(|http| page(&format!("http://{http}"), "v1/cluster", ANSWER).ok())
        .find_map(|bytes| serde_json::from_slice(&bytes).ok())
}

fn text(status: &Status) -> String {
    let mut text = match status.healthy {
        true => format!("cluster {} is well\n", status.cluster),
        false => format!("cluster {} has problems:\n", status.cluster),
    };
    for problem in &status.problems {
        text += &format!("  {problem}\n");
    }
    let mut nodes = Columns::new(["node", "zone", "state", "clients at"]);
    for node in &status.nodes {
        nodes.row([
            node.name.clone(),
            node.zone.clone(),
            node.state.clone(),
            node.listen.to_string(),
        ]);
    }
    let mut tables = Columns::new(["table", "serving", "previous", "replicas", "rollout"]);
    let or_none = |version: Option<u64>| version.map_or("-".to_owned(), |v| v.to_string());
    for table in &status.tables {
        tables.row([
            table.table.to_string(),
            or_none(table.version),
            or_none(table.previous),
            replicas(table),
            rollout(table),
        ]);
    }
    if let Some(coordinator) = &status.coordinator {
        text += &format!("coordinator: {coordinator}\n");
    }
    format!("{text}\n{nodes}\n{tables}")
}

fn replicas(table: &TableStatus) -> String {
    match table.replicas < table.replicas_wanted {
        true => format!("{} of {} wanted", table.replicas, table.replicas_wanted),
        false => table.replicas.to_string(),
    }
}

fn rollout(table: &TableStatus) -> String {
    let Some(rollout) = &table.rollout else {
        return "-".to_owned();
    };
    let phase = format!("{:?}", rollout.phase).to_lowercase();
    format!(
        "{} {phase} ({}), {} of {}",
        rollout.to,
        rollout.request,
        human::count(rollout.ready as u64),
        human::counted(rollout.participants as u64, "node")
    )
}
