//! `forebay cluster status`: shows the state of a cluster.

use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use forebay_cluster::client::ClusterClient;
use forebay_cluster::model::{LoadStage, Model, MoveStage, NodeEntry};
use forebay_cluster::planning::Paces;
use forebay_cluster::status::{Health, NodeStatus, PlanStatus, Status, TableMode, TableStatus};
use forebay_cluster::{HostPort, LoadStatus, NodeName, ReadsStatus, TrafficStatus};
use forebay_engine::utc;
use forebay_run::error::without_controls;

use crate::context::Context;
use crate::error_kind::words;
use crate::exit::{Outcome, report_error};
use crate::nodes::node_http::PageError;
use crate::nodes::node_pages::NodePages;
use crate::printing::human;
use crate::printing::render::Columns;

/// How many nodes the command asks.
const ASKED: usize = 4;
/// How long a node has to answer.
const WITHIN: Duration = Duration::from_secs(2);
/// How many of the hottest partitions the command shows.
const SHOWN_HOT: usize = 3;

/// Show the state of the cluster, its problems, and what to do about them
///
/// The command asks nodes, which know the state from the coordinator. If no node answers, it shows
/// what the store's catalog says, and that no node confirmed it.
///
/// With --json one object {cluster, healthy, source, problems, down, notes, format, revision, term,
/// node_timeout_ms, coordinator, catalog_lost, nodes, tables, plan, loads, live, reads}. source is
/// coordinator, node or catalog. down has the problems that stop reads or writes. nodes lists
/// {name, zone, state, listen, serves, holds, free_bytes, fetched_bytes_per_s, problems}. tables
/// lists {table, version, previous, replicas, replicas_desired, rollout, live, backup_unix_ms}, the
/// last only if there is a backup. live.traffic has the requests per minute of nodes and partitions
/// of live tables; reads has the same of batch tables. loads, if there are any, lists {request,
/// table, stage, rows, bytes, progress}.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// Ask these nodes, at their HTTP addresses, instead of those that the store names; the store
    /// is not read
    #[arg(
        long = "node",
        env = "FOREBAY_NODES",
        value_name = "HOST:PORT",
        value_delimiter = ','
    )]
    nodes: Vec<HostPort>,

    /// For monitors: set the exit code. 0: the cluster is healthy; 1: it is degraded; 2: something
    /// cannot be read or written; 3: the state is unknown
    #[arg(long)]
    check: bool,
}

pub fn run(args: &StatusArgs, context: &Context) -> anyhow::Result<Outcome> {
    let status = match look(args, context) {
        Err(error) if args.check => {
            report_error(context.output, &error);
            return Ok(Outcome::Checked(Health::NotKnown));
        }
        status => status?,
    };
    let status = match args.nodes.is_empty() {
        true => with_backups(status, context),
        false => status,
    };
    context.print(&status, || text(&status))?;
    Ok(match args.check {
        true => Outcome::Checked(status.health()),
        false => Outcome::Done,
    })
}

fn look(args: &StatusArgs, context: &Context) -> anyhow::Result<Status> {
    let pages = context.node_pages()?;
    if args.nodes.is_empty() {
        let cluster = context.cluster().context(
            "the nodes are named by the store's catalog: where that is away, --node HOST:PORT names some",
        )?;
        return seen(cluster.client(), &pages);
    }
    let named = args
        .nodes
        .iter()
        .map(|node| (node.to_string(), node.clone()));
    let answers = Answers::ask(&pages, named.collect());
    let (status, silent) = answers.merge();
    status.with_context(|| format!("no node says how the cluster is: {}", silent.join("; ")))
}

/// Adds the times of backups, which the store notes.
fn with_backups(mut status: Status, context: &Context) -> Status {
    match context
        .open_store()
        .and_then(|store| Ok(store.last_backups()?))
    {
        Ok(backups) => {
            for table in &mut status.tables {
                let last = backups.get(&table.table);
                table.backup_unix_ms = last.map(|last| last.taken_unix_ms);
            }
        }
        Err(error) => status.notes.push(format!(
            "when tables were backed up is not known: {}",
            words(&error)
        )),
    }
    status
}

/// Returns the state of the cluster from the best-informed source.
pub fn seen(client: &ClusterClient, pages: &NodePages) -> anyhow::Result<Status> {
    let (_, model) = client.model()?;
    let (status, silent) = Answers::of_cluster(pages, &model).merge();
    match status {
        Some(status) => Ok(status),
        None => of_catalog(client, &silent),
    }
}

/// The answers of nodes about the cluster's state.
struct Answers(Vec<(String, Result<Status, PageError>)>);

impl Answers {
    fn of_cluster(pages: &NodePages, model: &Model) -> Self {
        let mut nodes: Vec<&NodeEntry> = model.all_nodes().collect();
        // Nodes that are down in the catalog are asked, too: the catalog may be old.
        nodes.sort_by_key(|node| (!node.is_up(), node.id));
        let asked = nodes.into_iter().filter_map(|node| {
            let http = node.http.clone()?;
            Some((format!("node {} at {http}", node.name), http))
        });
        Self::ask(pages, asked.take(ASKED).collect())
    }

    fn ask(pages: &NodePages, named: Vec<(String, HostPort)>) -> Self {
        let (names, nodes): (Vec<String>, Vec<HostPort>) = named.into_iter().unzip();
        let answers = pages.statuses(&nodes, WITHIN);
        Self(names.into_iter().zip(answers).collect())
    }

    /// Returns the answer of the best-informed node, with the contradictions of others, and the
    /// nodes that did not answer.
    fn merge(self) -> (Option<Status>, Vec<String>) {
        let (mut silent, mut said) = (Vec::new(), Vec::new());
        for (name, answer) in self.0 {
            match answer {
                Ok(status) => said.push((name, status)),
                Err(error) => silent.push(format!("{name}: {error}")),
            }
        }
        said.sort_by_key(|(_, status)| (!status.catalog_lost, !status.is_whole()));
        let mut said = said.into_iter();
        let Some((name, mut status)) = said.next() else {
            return (None, silent);
        };
        for (other, differs) in said {
            status.compare(&name, &differs, &other);
        }
        (Some(status), silent)
    }
}

/// Returns the state from the catalog. The catalog may be old, so the state says whether a
/// coordinator still writes it. It says little about live tables: through it the command finds the
/// coordinator.
fn of_catalog(client: &ClusterClient, silent: &[String]) -> anyhow::Result<Status> {
    let mut status = client.status()?;
    let is_any_up = status.nodes.iter().any(|node| node.state == "up");
    status.unconfirmed(silent);
    if !is_any_up {
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
            Ok(live) => live.into_iter().for_each(|live| status.notify_live(live)),
            Err(error) => status
                .notes
                .push(format!("how live tables stand is not known: {error}")),
        }
    }
    Ok(status)
}

/// Returns how fast nodes copied recently, for the nodes that report it.
pub fn paces(model: &Model, pages: &NodePages) -> Paces {
    let (status, _) = Answers::of_cluster(pages, model).merge();
    let nodes = status.map_or_else(Vec::new, |status| status.nodes);
    let pace = |node: NodeStatus| {
        let name = NodeName::new(&node.name).ok()?;
        Some((model.node_named(&name)?.id, node.fetched_bytes_per_s?))
    };
    nodes.into_iter().filter_map(pace).collect()
}

pub fn text(status: &Status) -> String {
    let name = without_controls(&status.cluster);
    let mut text = match status.health() {
        Health::Well => format!("cluster {name} is well\n"),
        Health::Degraded | Health::Down => format!("cluster {name} has problems:\n"),
        Health::NotKnown => format!("how cluster {name} is, is not known:\n"),
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
    let mut tables = Columns::new([
        "table", "serving", "previous", "replicas", "rollout", "backup",
    ]);
    let or_none = |version: Option<u64>| version.map_or("-".to_owned(), |v| v.to_string());
    for table in &status.tables {
        tables.row([
            table.table.to_string(),
            or_none(table.version),
            or_none(table.previous),
            replicas(table),
            rollout(table),
            table.backup_unix_ms.map_or("-".to_owned(), utc),
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

/// Describes the traffic of nodes and the hottest partitions of live tables.
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

/// Describes the look-ups of nodes in batch tables and the hottest partitions.
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

/// Describes a running plan in one line.
pub fn moving(plan: &PlanStatus) -> String {
    let stage = match plan.stage {
        _ if plan.cancelled => "it was cancelled, and ends".to_owned(),
        MoveStage::Between => "waits".to_owned(),
        MoveStage::Copying { .. } if plan.splits_left > 0 => {
            let partitions = human::counted(plan.splits_left as u64, "partition");
            format!("{partitions} still to be split")
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
    let left = plan.remaining_s.filter(|left| *left > 0).map(|left| {
        let left = human::duration(Duration::from_secs(left));
        format!(", about {left} left")
    });
    format!(
        "{} ({}): {} of {} batches, {} of {}, {stage}{live}{is_lost}{}",
        plan.goal,
        plan.request,
        plan.done,
        plan.batches,
        human::bytes(plan.done_bytes),
        human::bytes(plan.copied_bytes),
        left.unwrap_or_default()
    )
}

/// Describes a running load in one line.
pub fn loading(load: &LoadStatus) -> String {
    let (to, what) = match load.stage {
        LoadStage::Fetching => ("copied to", "have it"),
        LoadStage::Adding => ("added by", "have it on a majority of their replicas"),
        LoadStage::Done | LoadStage::Stopped => ("ended for", "have it"),
    };
    let (rows, bytes) = (human::counted(load.rows, "row"), human::bytes(load.bytes));
    let (table, request) = (&load.table, &load.request);
    let text = format!("{rows} of {table}, {bytes} ({request}), {to} its partitions");
    let counts = match load.progress {
        None => return text,
        Some(counts) if load.stage == LoadStage::Adding => {
            format!("{} of {}", counts.ready_partitions, counts.partitions)
        }
        Some(counts) => format!("{} of {} replicas", counts.ready_replicas, counts.replicas),
    };
    let down = match load.waits_for.is_empty() {
        true => String::new(),
        false => format!("; it waits for {}, down", load.waits_for.join(", ")),
    };
    format!("{text}: {counts} {what}{down}")
}

fn replicas(table: &TableStatus) -> String {
    match table.replicas < table.replicas_desired {
        true => format!("{} of {} wanted", table.replicas, table.replicas_desired),
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
