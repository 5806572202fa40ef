//! A node of a cluster: the cluster's state, and nudges.

use std::io;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Extension, State};
use axum::http::StatusCode;
use forebay_cluster::status::Status;
use forebay_cluster::wire::{Question, Reply, from_bytes, to_bytes};
use serde_json::{Value, json};

use super::answer::Refused;
use super::guard::Caller;
use super::unread::hide_unread;
use crate::shared::Shared;
use crate::users::Verb;

/// Has the coordinator look for requests. It gives nothing away, and costs one look.
pub async fn nudge(State(shared): State<Arc<Shared>>) -> Result<Json<Value>, Refused> {
    ask(&shared, &Question::Nudge).await?;
    Ok(Json(json!({ "nudged": true })))
}

/// The state of the cluster, as the coordinator knows it; as this node does where none answers. Of
/// tables the caller sees those that it may read.
pub async fn status(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
) -> Result<Json<Status>, Refused> {
    match ask(&shared, &Question::Status).await? {
        Reply::Status(Some(mut status)) => {
            let may_read = |table: &str| caller.may(Verb::Read, table);
            hide_unread(&mut status, &shared, &may_read);
            Ok(Json(*status))
        }
        _ => Err(Refused::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "nothing is known of the cluster yet: ask again, or use forebay cluster status",
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
