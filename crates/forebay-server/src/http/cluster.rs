//! Serves the state of the cluster, and accepts notifications for the coordinator.

use std::io;
use std::num::ParseIntError;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Extension, Query, State};
use axum::http::StatusCode;
use forebay_cluster::status::Status;
use forebay_cluster::wire::{Question, Reply, from_bytes, to_bytes};
use forebay_io::within;
use serde::Deserialize;
use serde_json::{Value, json};

use super::answer::ErrorAnswer;
use super::guard::Caller;
use super::stopped;
use super::unread::hide_unread;
use crate::shared::Shared;
use crate::users::Verb;

/// The longest wait for a newer revision, and the default.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// A request of a caller that knows a revision already and waits for a newer one.
#[derive(Debug, Deserialize)]
pub struct Poll {
    after: Option<String>,
    /// The longest wait: `5s` or `500ms`.
    wait: Option<String>,
}

impl Poll {
    async fn wait(&self, shared: &Shared) -> Result<(), ErrorAnswer> {
        let bad = |text| ErrorAnswer::new(StatusCode::BAD_REQUEST, text);
        let after = self.after.as_ref().map(|text| text.parse());
        let after = after.transpose().map_err(|_: ParseIntError| {
            bad("after is a revision, a whole number, as the status has it")
        })?;
        let limit = match &self.wait {
            None => LONGEST_WAIT,
            Some(text) => parse_wait(text, LONGEST_WAIT)
                .ok_or_else(|| bad("wait is a time from 1ms to 60s, as 5s or 500ms"))?,
        };
        if let (Some(after), Some(cluster)) = (after, &shared.cluster) {
            let clock = shared.store.clock();
            let newer = cluster.member().newer_head(after);
            // When the time is over, the current state is the answer.
            tokio::select! {
                _ = within(&**clock, limit, newer) => {}
                () = stopped(shared) => {}
            }
        }
        Ok(())
    }
}

/// Parses a time of at least 1ms, as `5s` or `500ms`.
pub fn parse_wait(text: &str, longest: Duration) -> Option<Duration> {
    let time = match text.strip_suffix("ms") {
        Some(ms) => Duration::from_millis(ms.parse().ok()?),
        None => Duration::from_secs(text.strip_suffix('s')?.parse().ok()?),
    };
    (Duration::from_millis(1)..=longest)
        .contains(&time)
        .then_some(time)
}

/// Makes the coordinator look for requests. It reveals nothing, and costs one look.
pub async fn notify(State(shared): State<Arc<Shared>>) -> Result<Json<Value>, ErrorAnswer> {
    ask(&shared, &Question::Notify).await?;
    Ok(Json(json!({ "notified": true })))
}

/// Returns the state of the cluster as the coordinator knows it, or as this node does if no
/// coordinator answers. It covers the tables that the caller may read.
pub async fn status(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    Query(poll): Query<Poll>,
) -> Result<Json<Status>, ErrorAnswer> {
    poll.wait(&shared).await?;
    match ask(&shared, &Question::Status).await? {
        Reply::Status(Some(mut status)) => {
            let may_read = |table: &str| caller.may(Verb::Read, table);
            hide_unread(&mut status, &shared, &may_read);
            Ok(Json(*status))
        }
        _ => Err(ErrorAnswer::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "nothing is known of the cluster yet: ask again, or use forebay cluster status",
        )),
    }
}

async fn ask(shared: &Shared, question: &Question) -> Result<Reply, ErrorAnswer> {
    let Some(cluster) = &shared.cluster else {
        let text = "this server is no node of a cluster";
        return Err(ErrorAnswer::new(StatusCode::NOT_FOUND, text));
    };
    let failed =
        |problem: io::Error| ErrorAnswer::new(StatusCode::SERVICE_UNAVAILABLE, problem.to_string());
    let asked = to_bytes(question).map_err(failed)?;
    let answer = cluster.member().answer(asked).await.map_err(failed)?;
    from_bytes(&answer).map_err(failed)
}
