//! Serves the server's last events, as JSON or as a stream of Server-Sent Events.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::{Extension, Query, State};
use axum::http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use futures::stream::unfold;
use serde::Deserialize;
use serde_json::json;

use super::answer::ErrorAnswer;
use super::guard::Caller;
use super::stopped;
use crate::events::{Event, EventsAfter};
use crate::shared::Shared;
use crate::users::Verb;

/// The interval of comments on a stream without events, which reveal closed connections.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// The time after which clients reconnect when a stream ended.
const RETRY: &str = "retry: 1000\n\n";

/// The parameters of a request for events.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventsRequest {
    /// The number of the last event that the caller knows.
    after: Option<u64>,
    /// Return only events of this table.
    table: Option<String>,
}

/// A client that follows the events, and its position.
struct Follower {
    shared: Arc<Shared>,
    caller: Caller,
    table: Option<String>,
    after: Option<u64>,
    /// Whether the first frame, which is sent at once, was sent.
    begun: bool,
}

/// Returns the events that the caller may see: those of tables that it may read, and the others if
/// it may read all tables.
pub async fn events(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    wanted: Result<Query<EventsRequest>, axum::extract::rejection::QueryRejection>,
) -> Result<Response, ErrorAnswer> {
    let Query(EventsRequest { after, table }) = wanted.map_err(|_| {
        let text = "the events are asked for by after, a number as the answer before has it in last, and table";
        ErrorAnswer::new(StatusCode::BAD_REQUEST, text)
    })?;
    if let Some(table) = &table {
        caller.check_read(table)?;
    }
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let is_stream =
        text(ACCEPT.as_str()).is_some_and(|accept| accept.contains("text/event-stream"));
    let resumed = text("last-event-id").and_then(|id| id.trim().parse().ok());
    let mut follower = Follower {
        shared,
        caller,
        table,
        after: resumed.filter(|_| is_stream).or(after),
        begun: false,
    };
    if is_stream {
        return Ok(follower.stream());
    }
    let EventsAfter {
        events,
        has_gap,
        last,
    } = follower.take();
    let events: Vec<&Event> = events.iter().map(|event| &**event).collect();
    Ok(Json(json!({"events": events, "gap": has_gap, "last": last})).into_response())
}

impl Follower {
    /// Returns the next events that the caller may see and asked for.
    fn take(&mut self) -> EventsAfter {
        let mut after = self.shared.config.events.after(self.after);
        after.events.retain(|event| self.shows(event));
        self.after = Some(after.last);
        after
    }

    fn shows(&self, event: &Event) -> bool {
        let is_wanted = self.table.is_none() || self.table.as_deref() == event.table();
        is_wanted
            && match event.table() {
                Some(table) => self.caller.may(Verb::Read, table),
                None => self.caller.reads_all(),
            }
    }

    fn stream(self) -> Response {
        let frames = unfold(self, |mut follower| async move {
            let frame = follower.frame().await?;
            Some((Ok::<_, Infallible>(frame), follower))
        });
        let headers = [
            (CONTENT_TYPE, "text/event-stream"),
            (CACHE_CONTROL, "no-cache"),
        ];
        (headers, Body::from_stream(frames)).into_response()
    }

    /// Returns the next part of the stream. `None` if the server stops.
    async fn frame(&mut self) -> Option<String> {
        let mut text = match std::mem::replace(&mut self.begun, true) {
            true => String::new(),
            false => RETRY.to_owned(),
        };
        loop {
            if self.shared.is_stopping() {
                return None;
            }
            let after = self.take();
            if after.has_gap {
                let first = after.events.first().map(|event| event.sequence);
                _ = write!(text, "event: gap\ndata: {}\n\n", json!({"first": first}));
            }
            for event in &after.events {
                _ = write!(text, "id: {}\ndata: {}\n\n", event.sequence, json!(**event));
            }
            if !text.is_empty() {
                return Some(text);
            }
            tokio::select! {
                () = self.shared.config.events.newer(after.last) => {}
                () = self.shared.store.clock().wait(KEEP_ALIVE) => text.push_str(":\n\n"),
                () = stopped(&self.shared) => return None,
            }
        }
    }
}
