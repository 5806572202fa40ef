//! Takes a checkpoint of a live table of a cluster through its nodes: all partitions at one moment.
//!
//! The nodes write what is in memory to runs, then hold writes for some milliseconds, then keep
//! their runs. `forebay_cluster::local`, `replicas/checkpoint_steps.rs`, says why that is one
//! moment. If anything intervenes, such as a change of leaders, the checkpoint starts again.

use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use forebay_cluster::HostPort;
use forebay_engine::TableName;
use forebay_engine::live::{JoinError, LiveError, RunFiles, TableCheckpoint};
use reqwest::StatusCode;

use super::node_files::{NodeCheckpoint, NodeFiles, is_given_up};
use super::scratch::ScratchDir;
use crate::context::Context;
use crate::nodes::node_http::{Answer, NodeHttp, PageError};

const CONNECT: Duration = Duration::from_secs(5);
/// The time for writing what is in memory, at the rate of the nodes' disks.
const FLUSH: Duration = Duration::from_secs(600);
const HOLD: Duration = Duration::from_secs(5);
const TAKE: Duration = Duration::from_secs(30);
/// How often a checkpoint is tried.
const TRIES: usize = 5;
const AGAIN: Duration = Duration::from_secs(1);

/// Why one try failed.
enum Overtaken {
    /// Another try may succeed.
    Again(String),
    Failed(anyhow::Error),
}

/// Takes a checkpoint of the table as it is now. Its files are on the nodes, which keep them until
/// it is dropped.
pub fn take(table: &TableName, context: &Context) -> anyhow::Result<TableCheckpoint> {
    let mut last = String::new();
    for _ in 0..TRIES {
        match try_take(table, context) {
            Ok(taken) => return Ok(taken),
            Err(Overtaken::Failed(error)) => return Err(error),
            Err(Overtaken::Again(why)) => last = why,
        }
        context.clock.sleep(AGAIN);
    }
    bail!("no moment of live table {table} was to be had in {TRIES} tries: {last}")
}

/// Copies the checkpoint into a store on this machine, in a directory of temporary files. Starts
/// again if a node gives up its files of the table.
pub fn fetch(
    table: &TableName,
    keys: Option<&[Vec<u8>]>,
    context: &Context,
) -> anyhow::Result<(forebay_engine::Store, ScratchDir)> {
    for _ in 1..TRIES {
        match try_fetch(table, keys, context) {
            Err(error) if is_given_up(&error) => context.clock.sleep(AGAIN),
            copied => return copied,
        }
    }
    try_fetch(table, keys, context)
}

fn try_fetch(
    table: &TableName,
    keys: Option<&[Vec<u8>]>,
    context: &Context,
) -> anyhow::Result<(forebay_engine::Store, ScratchDir)> {
    let mut taken = take(table, context)?;
    if let Some(keys) = keys {
        taken.retain_partitions_of(keys);
    }
    let scratch = ScratchDir::make(context)?;
    let drawing = context.progress();
    let bytes = forebay_load::progress::Unit::Bytes;
    drawing.stage("copying from the nodes", Some(taken.file_bytes()), bytes);
    let (disk, clock, random) = (&context.disk, &context.clock, &context.random);
    let parts = (Arc::clone(disk), Arc::clone(clock), Arc::clone(random));
    taken.copy_to(parts, &scratch.store(), &mut |bytes| drawing.advance(bytes))?;
    Ok((context.open_directory(&scratch.store(), None)?, scratch))
}

fn try_take(table: &TableName, context: &Context) -> Result<TableCheckpoint, Overtaken> {
    let failed = Overtaken::Failed;
    let nodes = nodes_up(table, context).map_err(failed)?;
    check_no_load(table, context)?;
    let login = context.login().map_err(failed)?;
    let http = NodeHttp::new(login, CONNECT).map_err(|error| failed(error.into()))?;
    let id = format!("{:016x}", context.random.next_u64());
    let path = format!("v1/tables/{table}/checkpoints/{id}");
    let mut checkpoint = NodeCheckpoint::new(http, nodes, path, Arc::clone(&context.clock));
    let flushed = checkpoint.step("flush", FLUSH);
    checkpoint.nodes = with_replicas(&checkpoint.nodes, flushed)?;
    for held in checkpoint
        .step("hold", HOLD)
        .into_iter()
        .zip(&checkpoint.nodes)
    {
        done(held)?;
    }
    let taken = checkpoint.step("take", TAKE);
    let checkpoint = Arc::new(checkpoint);
    let mut parts = Vec::new();
    for (answer, node) in taken.into_iter().zip(&checkpoint.nodes) {
        let files: Arc<dyn RunFiles> = Arc::new(NodeFiles {
            checkpoint: Arc::clone(&checkpoint),
            node: node.clone(),
        });
        parts.push((done((answer, node))?.bytes, files));
    }
    check_no_load(table, context)?;
    TableCheckpoint::join(parts).map_err(|error| match error {
        JoinError::NotWhole(why) => Overtaken::Again(format!(
            "{why}. A partition may have no leader, or has just moved: look at forebay cluster status"
        )),
        error => failed(error.into()),
    })
}

/// Returns the HTTP ports of the available nodes.
fn nodes_up(table: &TableName, context: &Context) -> anyhow::Result<Vec<HostPort>> {
    let (_, model) = context.cluster()?.client().model()?;
    let is_live = model
        .table(table)
        .is_some_and(|entry| entry.live().is_some());
    if !is_live {
        let table = table.clone();
        return Err(LiveError::NoTable { table }.into());
    }
    let up = model.all_nodes().filter(|node| node.is_up());
    let nodes: Vec<HostPort> = up.filter_map(|node| node.http.clone()).collect();
    if nodes.is_empty() {
        bail!(
            "no node of the cluster that is up has an HTTP port (serve --http), by which the table is copied"
        );
    }
    Ok(nodes)
}

/// Refuses a table with a running load. A load appears in some partitions before others, so no
/// moment has all or none of it.
fn check_no_load(table: &TableName, context: &Context) -> Result<(), Overtaken> {
    let model = context
        .cluster()
        .and_then(|cluster| Ok(cluster.client().model()?));
    let (_, model) = model.map_err(Overtaken::Failed)?;
    match model.work.load_of(table) {
        None => Ok(()),
        Some(_) => Err(Overtaken::Again(
            "a load of the table is under way: wait for it (forebay cluster watch)".to_owned(),
        )),
    }
}

/// Returns the nodes that have replicas of the table.
fn with_replicas(
    nodes: &[HostPort],
    answers: Vec<Result<Answer, PageError>>,
) -> Result<Vec<HostPort>, Overtaken> {
    let (mut with, mut no_answer) = (Vec::new(), None);
    for (answer, node) in answers.into_iter().zip(nodes) {
        match answer {
            // A node that does not answer leads no partition; otherwise the parts are incomplete.
            Err(error @ PageError::NoAnswer { .. }) => no_answer = Some((error, node)),
            Err(PageError::Refused { status, .. }) if status == StatusCode::NOT_FOUND => {}
            answer => {
                done((answer, node))?;
                with.push(node.clone());
            }
        }
    }
    match no_answer {
        Some((error, node)) if with.is_empty() => {
            let error = anyhow::Error::new(error).context(format!("node {node}"));
            Err(Overtaken::Failed(error))
        }
        _ => Ok(with),
    }
}

fn done((answer, node): (Result<Answer, PageError>, &HostPort)) -> Result<Answer, Overtaken> {
    answer.map_err(|error| match &error {
        PageError::Refused { status, .. } if *status == StatusCode::CONFLICT => {
            Overtaken::Again(format!("node {node}: {error}"))
        }
        PageError::NoAnswer { .. } => Overtaken::Again(format!("node {node}: {error}")),
        _ => Overtaken::Failed(anyhow::Error::new(error).context(format!("node {node}"))),
    })
}
