//! The probes: whether the process lives, and whether it should get traffic.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::metrics::WorkerMetrics;
use crate::shared::Shared;

/// A worker that did not come by for so long hangs; they do ten times a second.
const HANGING_MS: u64 = 5000;

/// The process lives.
pub async fn health() -> Json<Value> {
    Json(json!({ "status": "ok" }))
}

/// The server should get traffic: it is not stopping, all its threads serve, the store can be
/// looked at, every table that should serve does, and it is known what should; live tables take
/// writes.
pub async fn ready(State(shared): State<Arc<Shared>>) -> Response {
    let mut problems = table_problems(&shared);
    problems.extend(cluster_problems(&shared));
    problems.extend(live_problems(&shared));
    problems.extend(replica_problems(&shared));
    problems.extend(super::pulls::problems(&shared));
    let workers = shared.metrics.workers();
    problems.extend(worker_problems(
        workers,
        shared.started_ms,
        shared.clock_ms(),
    ));
    if shared.is_stopping() {
        problems.push("the server is stopping".to_owned());
    }
    let status = if problems.is_empty() {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    (
        status,
        Json(json!({ "ready": problems.is_empty(), "problems": problems })),
    )
        .into_response()
}

fn table_problems(shared: &Shared) -> Vec<String> {
    let states = shared.serving.states();
    let mut problems: Vec<String> = states.problem.iter().cloned().collect();
    for (table, state) in &states.tables {
        let why = state.problem.as_deref().unwrap_or("not open yet");
        match state.serving {
            None if state.wanted.is_some() || state.problem.is_some() => {
                problems.push(format!("table {table} does not serve: {why}"));
            }
            Some(version) if state.pointer_damaged => {
                problems.push(format!("table {table} serves version {version}, but {why}"));
            }
            _ => {}
        }
    }
    problems
}

/// A node should get traffic from when it serves all tables of its cluster. Later it serves on,
/// whatever it hears of the cluster.
fn cluster_problems(shared: &Shared) -> Vec<String> {
    let Some(cluster) = &shared.cluster else {
        return Vec::new();
    };
    if cluster.has_served.load(Ordering::Relaxed) {
        return Vec::new();
    }
    let (map, tables) = (cluster.map(), shared.serving.load());
    // Until the cluster was heard of, nobody knows which tables there are.
    if map.node(map.me).is_none() {
        return vec!["nothing is known of the cluster yet".to_owned()];
    }
    let wanted = map.tables().filter(|(_, table)| table.serving.is_some());
    let missing = wanted.filter(|(name, _)| tables.get(name.as_str().as_bytes()).is_none());
    let problems: Vec<String> = missing
        .map(|(name, _)| format!("table {name} of the cluster is not open here yet"))
        .collect();
    cluster
        .has_served
        .store(problems.is_empty(), Ordering::Relaxed);
    problems
}

fn live_problems(shared: &Shared) -> Vec<String> {
    let not_open = shared.live.problems().into_iter();
    let not_open = not_open.map(|(table, why)| format!("live table {table} does not serve: {why}"));
    let tables = shared.live.load();
    let refusing = tables.iter().filter_map(|(table, live)| {
        let why = live.stats().refuses?;
        Some(format!("live table {table} refuses writes: {why}"))
    });
    not_open.chain(refusing).collect()
}

/// Who restarts one node after the other waits until the replicas of the last one are there: with
/// another one away partitions might have no majority.
fn replica_problems(shared: &Shared) -> Vec<String> {
    let cluster = shared.cluster.as_ref();
    let replicas = cluster.and_then(|cluster| cluster.member().replicas());
    replicas.map_or_else(Vec::new, |replicas| replicas.waits_for())
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
