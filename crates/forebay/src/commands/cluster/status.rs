//! `forebay cluster status`.

use std::time::Duration;

use clap::Args;
use forebay_cluster::client::ClusterClient;
use forebay_cluster::model::{LoadStage, Model, MoveStage};
use forebay_cluster::planning::Paces;
use forebay_cluster::status::{NodeStatus, PlanStatus, Status, TableMode, TableStatus};
use forebay_cluster::{LoadStatus, NodeName, ReadsStatus, TrafficStatus};
use forebay_run::error::without_controls;

use crate::cluster_handle::told_by;
use crate::context::Context;
use crate::exit::Outcome;
use crate::human;
use crate::render::Columns;

/// How many nodes are asked.
const TRIED: usize = 4;
/// How many of the hottest partitions are shown.
const SHOWN_HOT: usize = 3;

/// Say how the cluster is, what is wrong, and what to do
///
/// With --json one object {cluster, healthy, problems, notes, format, revision, term,
/// node_timeout_ms, coordinator, catalog_lost, nodes, tables, plan, loads, live, reads}; nodes is a
/// list of {name, zone, state, listen, serves, holds, free_bytes, brought_per_s, problems}, tables
/// one of {table, version, previous, replicas, replicas_wanted, rollout, live}; live.traffic has
/// what is asked of nodes and partitions of live tables in a minute, reads the same of batch
/// tables; loads, where there are any, one of {request, table, stage, rows, bytes, progress}.
#[derive(Debug, Args)]
pub struct StatusArgs {}

pub fn run(context: &Context) -> anyhow::Result<Outcome> {
    let cluster = context.cluster()?;
    let client = cluster.client();
    let (_, model) = client.model()?;
    let status = match told_by_nodes(&model) {
        Some(status) => status,
        None => of_catalog(client)?,
    };
    context.print(&status, || text(&status))?;
    Ok(Outcome::Done)
}

/// The state of the cluster, by who knows most of it.
pub fn seen(client: &ClusterClient) -> anyhow::Result<Status> {
    let (_, model) = client.model()?;
    Ok(match told_by_nodes(&model) {
        Some(status) => status,
        None => client.status()?,
    })
}

/// What the catalog says, and, as that may be old, whether somebody writes it. Of live tables it
/// says little: the coordinator is asked by way of it.
fn of_catalog(client: &ClusterClient) -> anyhow::Result<Status> {
    let mut status = client.status()?;
    if status.nodes.iter().all(|node| node.state != "up") {
        return Ok(status);
    }
    if !client.has_coordinator()? {
        status.without_coordinator(client.held_up_by().as_deref());
        return Ok(status);
    }
    if status
        .tables
        .iter()
        .any(|table| table.mode == TableMode::Live)
    {
        match client.live_state() {
            Ok(live) => live.into_iter().for_each(|live| status.tell_live(live)),
            Err(error) => status
                .notes
                .push(format!("how live tables stand is not known: {error}")),
        }
    }
    Ok(status)
}

/// What the coordinator knows is more than what the catalog says. Any node passes it on that can be
/// reached and tells it to everybody.
fn told_by_nodes(model: &Model) -> Option<Status> {
    let nodes = model.all_nodes().filter(|node| node.is_up());
    let https = nodes.filter_map(|node| node.http.as_ref()).take(TRIED);
    https.into_iter().find_map(told_by)
}

/// How fast nodes brought things lately, as far as a node tells that.
pub fn paces(model: &Model) -> Paces {
    let nodes = told_by_nodes(model).map_or_else(Vec::new, |status| status.nodes);
    let pace = |node: NodeStatus| {
        let name = NodeName::new(&node.name).ok()?;
        Some((model.node_named(&name)?.id, node.brought_per_s?))
    };
    nodes.into_iter().filter_map(pace).collect()
}

pub fn text(status: &Status) -> String {
    let name = without_controls(&status.cluster);
    let mut text = match status.healthy {
        true => format!("cluster {name} is well\n"),
        false => format!("cluster {name} has problems:\n"),
    };
    for problem in &status.problems {
        text += &format!("  {problem}\n");
    }
    for note in &status.notes {
        text += &format!("note: {note}\n");
    }
    if let Some(plan) = &status.plan {
        text += &format!("plan: {}\n", moving(plan));
    }
    for load in &status.loads {
        text += &format!("load: {}\n", loading(load));
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
    if let Some(live) = &status.live {
        text += &busy(&live.traffic);
    }
    if let Some(reads) = &status.reads {
        text += &read(reads);
    }
    if let Some(coordinator) = &status.coordinator {
        text += &format!("coordinator: {coordinator}\n");
    }
    if status.node_timeout_ms > 0 {
        let timeout = Duration::from_millis(status.node_timeout_ms);
        text += &format!("node timeout: {}\n", human::duration(timeout));
    }
    format!("{text}\n{nodes}\n{tables}")
}

/// How much is asked of nodes, and of which partitions most.
fn busy(traffic: &TrafficStatus) -> String {
    if traffic.is_quiet() {
        return String::new();
    }
    let mut nodes = Columns::new([
        "live tables on",
        "leads",
        "reads/s",
        "writes/s",
        "follows/s",
    ]);
    let second = |minute: u64| human::count(minute.div_ceil(60));
    for (name, node) in &traffic.nodes {
        nodes.row([
            name.clone(),
            node.leads.to_string(),
            second(node.led.reads),
            second(node.led.writes),
            second(node.followed.requests()),
        ]);
    }
    let hottest = traffic.hottest.iter().take(SHOWN_HOT).map(|hot| {
        format!(
            "partition {} of {} on {}, {} a second",
            hot.partition,
            hot.table,
            hot.node,
            second(hot.led.requests())
        )
    });
    let hottest: Vec<String> = hottest.collect();
    match hottest.is_empty() {
        true => format!("\n{nodes}\n"),
        false => format!("\n{nodes}hottest: {}\n\n", hottest.join("; ")),
    }
}

/// How much nodes look up in batch tables, and of which partitions most.
fn read(reads: &ReadsStatus) -> String {
    let second = |minute: u64| human::count(minute.div_ceil(60));
    let mut nodes = Columns::new(["batch tables on", "reads/s"]);
    for (name, minute) in &reads.nodes {
        nodes.row([name.clone(), second(*minute)]);
    }
    let hottest = reads.hottest.iter().take(SHOWN_HOT).map(|part| {
        let nodes = human::counted(part.nodes as u64, "node");
        format!(
            "{} of {} on {nodes}, {} a second",
            part.bounds,
            part.table,
            second(part.reads)
        )
    });
    let hottest: Vec<String> = hottest.collect();
    match hottest.is_empty() {
        true => format!("\n{nodes}\n"),
        false => format!("\n{nodes}read most: {}\n\n", hottest.join("; ")),
    }
}

/// A plan that is carried out, on a line.
pub fn moving(plan: &PlanStatus) -> String {
    let stage = match plan.stage {
        _ if plan.cancelled => "it was cancelled, and ends".to_owned(),
        MoveStage::Between => "waits".to_owned(),
        MoveStage::Copying { .. } if plan.cuts_left > 0 => {
            let partitions = human::counted(plan.cuts_left as u64, "partition");
            format!("{partitions} still to be cut in two")
        }
        MoveStage::Copying { .. } if plan.waits_for.is_empty() => "copies".to_owned(),
        MoveStage::Copying { .. } => {
            let nodes: Vec<&str> = plan.waits_for.iter().map(String::as_str).collect();
            format!("copies come to {}", nodes.join(", "))
        }
        MoveStage::Changed { .. } => "all hear of it".to_owned(),
        MoveStage::Releasing { .. } => "nodes give up what they hold no longer".to_owned(),
        MoveStage::Done => "done".to_owned(),
        MoveStage::Stopped => "ended".to_owned(),
    };
    let is_lost = match plan.live_without_majority {
        0 => String::new(),
        count => format!(" ({count} of them without a majority: see the problems)"),
    };
    let live = match (plan.stage, plan.live_partitions) {
        (MoveStage::Copying { .. }, 1) => {
            ", 1 partition of a live table is not there yet".to_owned()
        }
        (MoveStage::Copying { .. }, count @ 2..) => {
            format!(", {count} partitions of live tables are not there yet")
        }
        _ => String::new(),
    };
    let left = plan.left_s.map(|left| {
        let left = human::duration(Duration::from_secs(left));
        format!(", about {left} left")
    });
    format!(
        "{} ({}): {} of {} batches, {} of {}, {stage}{live}{is_lost}{}",
        plan.wish,
        plan.request,
        plan.done,
        plan.batches,
        human::bytes(plan.done_bytes),
        human::bytes(plan.copied_bytes),
        left.unwrap_or_default()
    )
}

/// A load that is under way, on a line.
pub fn loading(load: &LoadStatus) -> String {
    let (to, what) = match load.stage {
        LoadStage::Bringing => ("brought to", "have it"),
        LoadStage::Adding => ("added by", "have it on a majority of their replicas"),
        LoadStage::Done | LoadStage::Stopped => ("ended for", "have it"),
    };
    let (rows, bytes) = (human::counted(load.rows, "row"), human::bytes(load.bytes));
    let (table, request) = (&load.table, &load.request);
    let text = format!("{rows} of {table}, {bytes} ({request}), {to} its partitions");
    let counts = match load.progress {
        None => return text,
        Some(counts) if load.stage == LoadStage::Adding => {
            format!("{} of {}", counts.settled, counts.partitions)
        }
        Some(counts) => format!("{} of {} replicas", counts.there, counts.replicas),
    };
    let down = match load.waits_for.is_empty() {
        true => String::new(),
        false => format!("; it waits for {}, down", load.waits_for.join(", ")),
    };
    format!("{text}: {counts} {what}{down}")
}

fn replicas(table: &TableStatus) -> String {
    match table.replicas < table.replicas_wanted {
        true => format!("{} of {} wanted", table.replicas, table.replicas_wanted),
        false => table.replicas.to_string(),
    }
}

pub fn rollout(table: &TableStatus) -> String {
    let Some(rollout) = &table.rollout else {
        return "-".to_owned();
    };
    let phase = format!("{:?}", rollout.phase).to_lowercase();
    let why = rollout.reason.as_ref();
    let why = why.map_or(String::new(), |why| format!(": {why}"));
    format!(
        "{} {phase} ({}), {} of {}{why}",
        rollout.to,
        rollout.request,
        human::count(rollout.ready as u64),
        human::counted(rollout.participants as u64, "node")
    )
}
