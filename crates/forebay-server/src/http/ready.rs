//! Probes: whether the process lives, and whether it or one table should get traffic.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use forebay_engine::TableName;
use serde_json::{Value, json};

use crate::metrics::WorkerMetrics;
use crate::shared::Shared;

/// A worker that made no sweep for this long hangs; workers sweep ten times a second.
const HANGING_MS: u64 = 5000;
/// The duration of [`Hold::AMinute`].
const START_MS: u64 = 60_000;

/// A problem of a table, or of the store of all tables.
pub struct Trouble {
    pub table: Option<TableName>,
    pub why: String,
    pub holds: Hold,
}

/// How long a server that has just started waits for the end of a problem.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// Data is on its way.
    HoweverLong,
    /// Most such problems end by themselves.
    AMinute,
    /// The rows are answered nevertheless.
    Not,
}

/// Returns that the process lives.
pub async fn health() -> Json<Value> {
    Json(json!({ "status": "ok" }))
}

/// Returns whether the server should get traffic. It must not be stopping, all its threads must
/// serve, and it must serve at least one table. It must also have had all its tables at one time
/// since its start. Later problems of single tables are only listed: otherwise one lost table would
/// make all other tables unavailable, on all nodes.
pub async fn ready(State(shared): State<Arc<Shared>>) -> Response {
    let (mut problems, troubles) = (node_problems(&shared), troubles(&shared));
    // Before that, it is unknown which tables the server should have.
    if problems.is_empty() {
        problems.extend(holding(&shared, &troubles));
    }
    answer(&problems, &troubles)
}

/// Returns whether the server and all its tables are without problems. A rolling restart waits for
/// this before the next node.
pub async fn all_tables(State(shared): State<Arc<Shared>>) -> Response {
    let (mut problems, troubles) = (node_problems(&shared), troubles(&shared));
    problems.extend(troubles.iter().map(|trouble| trouble.why.clone()));
    answer(&problems, &troubles)
}

/// Returns whether the server and this table are without problems.
pub async fn one_table(State(shared): State<Arc<Shared>>, Path(table): Path<String>) -> Response {
    let (mut problems, mut troubles) = (node_problems(&shared), troubles(&shared));
    let is_its = |of: &Option<TableName>| of.as_ref().is_none_or(|name| name.as_str() == table);
    troubles.retain(|trouble| is_its(&trouble.table));
    if troubles.is_empty() && !is_known(&shared, &table) {
        problems.push(format!("there is no table {table:?} here"));
    }
    problems.extend(troubles.iter().map(|trouble| trouble.why.clone()));
    answer(&problems, &troubles)
}

fn answer(problems: &[String], troubles: &[Trouble]) -> Response {
    let others = troubles.iter().map(|trouble| &trouble.why);
    let others: Vec<&String> = others.filter(|why| !problems.contains(why)).collect();
    let status = match problems.is_empty() {
        true => StatusCode::OK,
        false => StatusCode::SERVICE_UNAVAILABLE,
    };
    let body = json!({ "ready": problems.is_empty(), "problems": problems, "troubles": others });
    (status, Json(body)).into_response()
}

/// Returns the problems of the server itself.
fn node_problems(shared: &Shared) -> Vec<String> {
    let (workers, now_ms) = (shared.metrics.workers(), shared.clock_ms());
    let mut problems = worker_problems(workers, shared.started_ms, now_ms);
    // Before the first contact with the cluster, its tables are unknown.
    let cluster = shared.cluster.as_ref().map(|cluster| cluster.map());
    if cluster.is_some_and(|map| map.node(map.me).is_none()) {
        problems.push("nothing is known of the cluster yet".to_owned());
    }
    if let Some(cluster) = &shared.cluster
        && cluster.member().facts().is_cut_off
    {
        problems.push("cut off from the cluster: this node answers no reads of rows".to_owned());
    }
    let replicas = shared
        .cluster
        .as_ref()
        .map(|cluster| cluster.member().replicas());
    if replicas
        .flatten()
        .is_some_and(|replicas| !replicas.are_known())
    {
        problems.push("which replicas of live tables are to be here is not known yet".to_owned());
    }
    problems.extend(super::pulls::unreached(shared));
    if shared.is_stopping() {
        problems.push("the server is stopping".to_owned());
    }
    problems
}

/// Returns the problems of tables that keep traffic away.
fn holding(shared: &Shared, troubles: &[Trouble]) -> Vec<String> {
    let why = |trouble: &Trouble| trouble.why.clone();
    let has_started = &shared.has_started;
    if !has_started.load(Ordering::Relaxed) {
        let is_early = shared.clock_ms() < shared.started_ms + START_MS;
        let holds = |trouble: &&Trouble| match trouble.holds {
            Hold::HoweverLong => true,
            Hold::AMinute => is_early,
            Hold::Not => false,
        };
        let held = troubles.iter().filter(holds);
        let held: Vec<String> = held.map(why).collect();
        has_started.store(held.is_empty(), Ordering::Relaxed);
        if !held.is_empty() {
            return held;
        }
    }
    match serves_any(shared) {
        true => Vec::new(),
        false => troubles.iter().map(why).collect(),
    }
}

/// Returns whether rows of any table are answered. Other nodes answer rows that a cluster node
/// lacks.
fn serves_any(shared: &Shared) -> bool {
    shared.cluster.is_some()
        || shared.serving.load().iter().next().is_some()
        || shared.live.load().iter().next().is_some()
}

fn is_known(shared: &Shared, table: &str) -> bool {
    let Ok(name) = TableName::new(table) else {
        return false;
    };
    let cluster = shared.cluster.as_ref();
    shared.serving.table(table.as_bytes()).is_some()
        || shared.live.load().contains_key(&name)
        || cluster.is_some_and(|cluster| cluster.map().table(&name).is_some())
}

fn troubles(shared: &Shared) -> Vec<Trouble> {
    let mut troubles = batch_troubles(shared);
    troubles.extend(cluster_troubles(shared));
    troubles.extend(live_troubles(shared));
    troubles.extend(replica_troubles(shared));
    let lacking = super::pulls::lacking(shared).into_iter();
    troubles.extend(lacking.map(|(table, why)| Trouble {
        why: format!("table {table} is not pulled yet: {why}"),
        table: Some(table),
        holds: Hold::HoweverLong,
    }));
    troubles
}

fn batch_troubles(shared: &Shared) -> Vec<Trouble> {
    let states = shared.serving.states();
    let store = states.problem.iter().map(|why| Trouble {
        table: None,
        why: why.clone(),
        holds: Hold::AMinute,
    });
    let tables = states.tables.iter().filter_map(|(table, state)| {
        let why = state.problem.as_deref().unwrap_or("not open yet");
        let (why, holds) = match state.serving {
            None if state.wanted.is_some() || state.problem.is_some() => {
                let holds = match &state.problem {
                    Some(_) => Hold::AMinute,
                    None => Hold::HoweverLong,
                };
                (format!("table {table} does not serve: {why}"), holds)
            }
            Some(version) if state.problem.is_some() => {
                let why = format!("table {table} serves version {version}, but {why}");
                (why, Hold::Not)
            }
            _ => return None,
        };
        Some(Trouble {
            table: Some(table.clone()),
            why,
            holds,
        })
    });
    store.chain(tables).collect()
}

/// Returns the batch tables of the cluster whose parts are not open on this node.
fn cluster_troubles(shared: &Shared) -> Vec<Trouble> {
    let Some(cluster) = &shared.cluster else {
        return Vec::new();
    };
    let (map, open) = (cluster.map(), shared.serving.load());
    let wanted = map.tables().filter(|(_, table)| table.serving.is_some());
    let missing = wanted.filter(|(name, _)| open.get(name.as_str().as_bytes()).is_none());
    let trouble = |name: &TableName| Trouble {
        table: Some(name.clone()),
        why: format!("table {name} of the cluster is not open here yet"),
        holds: Hold::HoweverLong,
    };
    missing.map(|(name, _)| trouble(name)).collect()
}

fn live_troubles(shared: &Shared) -> Vec<Trouble> {
    let not_open = shared
        .live
        .problems()
        .into_iter()
        .map(|(table, why)| Trouble {
            why: format!("live table {table} does not serve: {why}"),
            table: Some(table),
            holds: Hold::AMinute,
        });
    let tables = shared.live.load();
    let refusing = tables.iter().filter_map(|(table, live)| {
        let why = live.stats().refuses?;
        Some(Trouble {
            table: Some(table.clone()),
            why: format!("live table {table} refuses writes: {why}"),
            holds: Hold::Not,
        })
    });
    not_open.chain(refusing).collect()
}

/// Returns missing replicas of live tables. A rolling restart waits until the last node's replicas
/// are back: if another node stopped, partitions might have no majority.
fn replica_troubles(shared: &Shared) -> Vec<Trouble> {
    let cluster = shared.cluster.as_ref();
    let Some(replicas) = cluster.and_then(|cluster| cluster.member().replicas()) else {
        return Vec::new();
    };
    let waits = replicas.waits_for().into_iter().map(|wait| Trouble {
        table: Some(wait.table),
        why: wait.why,
        holds: match wait.is_coming {
            true => Hold::HoweverLong,
            false => Hold::AMinute,
        },
    });
    waits.collect()
}

fn worker_problems(workers: &[WorkerMetrics], started_ms: u64, now_ms: u64) -> Vec<String> {
    let problem = |(index, worker): (usize, &WorkerMetrics)| {
        if let Some(how) = worker.ended.get() {
            return Some(format!("worker {index} serves no connections: {how}"));
        }
        let seen = worker.seen_ms.load(Ordering::Relaxed);
        let silent = now_ms.saturating_sub(seen.max(started_ms));
        let hangs = || format!("worker {index} has done nothing for {} s", silent / 1000);
        (silent > HANGING_MS).then(hangs)
    };
    workers.iter().enumerate().filter_map(problem).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;

    #[test]
    fn workers_that_ended_or_hang_are_named() {
        let metrics = Metrics::new(3);
        let seen = |index: usize, ms: u64| {
            let worker = metrics.worker(index);
            worker.seen_ms.store(ms, Ordering::Relaxed);
        };
        let problems = |now_ms| worker_problems(metrics.workers(), 100, now_ms);
        assert!(problems(100 + HANGING_MS).is_empty());
        seen(0, 9000);
        seen(2, 9000);
        assert_eq!(problems(9100), ["worker 1 has done nothing for 9 s"]);
        seen(1, 9100);
        assert!(problems(9200).is_empty());
        let ended = &metrics.worker(2).ended;
        ended.set("it broke down".to_owned()).expect("set once");
        assert_eq!(
            problems(9200),
            ["worker 2 serves no connections: it broke down"]
        );
    }
}
