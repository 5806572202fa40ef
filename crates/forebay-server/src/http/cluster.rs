//! A node of a cluster: its metrics, the cluster's state, and nudges.

use std::io;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use forebay_cluster::status::Status;
use forebay_cluster::wire::{Question, Reply, from_bytes, to_bytes};
use serde_json::{Value, json};

use super::answer::Refused;
use super::metrics_page::Page;
use crate::shared::Shared;

pub fn metrics(page: &mut Page, shared: &Shared) {
    let Some(cluster) = &shared.cluster else {
        return;
    };
    let (map, counts) = (cluster.map(), &cluster.counts);
    let help = "The revision of the catalog that the node routes by.";
    page.one("forebay_cluster_revision", "gauge", help, map.revision);
    let name = "forebay_cluster_nodes";
    page.begin(name, "gauge", "Nodes, as this one sees them.");
    let available = map.nodes().filter(|node| node.is_available).count();
    let all = map.nodes().count();
    for (state, count) in [("available", available), ("away", all - available)] {
        page.line(name, &[("state", state)], count as u64);
    }
    let name = "forebay_commands_elsewhere_total";
    let help = "Commands whose keys are not here, by what became of them.";
    page.begin(name, "counter", help);
    for (led, count) in counts.all_led() {
        page.line(name, &[("outcome", led.label())], count);
    }
    let name = "forebay_forward_seconds";
    let help = "Time of commands that other nodes were asked for.";
    page.begin(name, "histogram", help);
    page.histogram(name, &[], &counts.times());
    let help = "Times that a node refused a connection, or did not answer in time.";
    let name = "forebay_peers_suspected_total";
    page.one(name, "counter", help, counts.suspicions());
}

/// Has the coordinator look for requests. It gives nothing away, and costs one look.
pub async fn nudge(State(shared): State<Arc<Shared>>) -> Result<Json<Value>, Refused> {
    ask(&shared, &Question::Nudge).await?;
    Ok(Json(json!({ "nudged": true })))
}

/// The state of the cluster, as the coordinator knows it.
pub async fn status(State(shared): State<Arc<Shared>>) -> Result<Json<Status>, Refused> {
    match ask(&shared, &Question::Status).await? {
        Reply::Status(Some(status)) => Ok(Json(*status)),
        _ => Err(Refused::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "the coordinator does not answer: ask again, or use forebay cluster status",
        )),
    }
}

async fn ask(shared: &Shared, question: &Question) -> Result<Reply, Refused> {
    let Some(cluster) = &shared.cluster else {
        let text = "this server is no node of a cluster";
        return Err(Refused::new(StatusCode::NOT_FOUND, text));
    };
    let failed =
        |problem: io::Error| Refused::new(StatusCode::SERVICE_UNAVAILABLE, problem.to_string());
    let asked = to_bytes(question).map_err(failed)?;
    let answer = cluster.member().answer(asked).await.map_err(failed)?;
    from_bytes(&answer).map_err(failed)
}
