//! Serves the state of pulls over HTTP: progress, metrics, readiness.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Extension, Query, State};
use axum::http::StatusCode;
use forebay_engine::TableName;
use serde::Deserialize;
use serde_json::{Value, json};

use super::answer::ErrorAnswer;
use super::guard::Caller;
use super::metrics_page::Page;
use crate::pulls::{PullsStatus, TablePulled};
use crate::shared::Shared;
use crate::users::Verb;

/// Returns the progress of pulls, for tables that the caller may read.
pub async fn pulls(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
) -> Result<Json<Value>, ErrorAnswer> {
    let pulled = seen(&shared, &|table| caller.may(Verb::Read, table));
    Ok(Json(json!({ "pulls": pulled })))
}

/// The content of a notification.
#[derive(Debug, Deserialize)]
pub struct PullHint {
    /// The stamp of the document of all tables.
    #[serde(default)]
    document: u64,
}

/// Makes the puller look at the source. It reveals nothing, and costs at most one request a second.
pub async fn notify(
    State(shared): State<Arc<Shared>>,
    Query(hinted): Query<PullHint>,
) -> Result<Json<Value>, ErrorAnswer> {
    let Some(pulls) = &shared.config.pulls else {
        let text = "this server pulls nothing";
        return Err(ErrorAnswer::new(StatusCode::NOT_FOUND, text));
    };
    pulls.notify(hinted.document);
    Ok(Json(json!({ "notified": true })))
}

/// Returns tables that are wanted and were never pulled, with the reasons.
pub fn lacking(shared: &Shared) -> Vec<(TableName, String)> {
    let Some(pulled) = pulled(shared) else {
        return Vec::new();
    };
    let serves = |table: &TableName| shared.serving.table(table.as_str().as_bytes()).is_some();
    let lacking = pulled.tables.into_iter();
    let lacking = lacking.filter(|pull| pull.wanted.is_some() && !serves(&pull.table));
    let why = |pull: TablePulled| {
        let (done, total) = (pull.done_bytes, pull.total_bytes);
        let why = pull.problem;
        let why = why.unwrap_or_else(|| format!("{done} of {total} bytes have come"));
        (pull.table, why)
    };
    lacking.map(why).collect()
}

/// Returns why the server has nothing at all, if the reason is the store.
pub fn unreached(shared: &Shared) -> Option<String> {
    let pulled = pulled(shared)?;
    if pulled.reached || shared.serving.load().iter().next().is_some() {
        return None;
    }
    let why = pulled.problem;
    let why = why.unwrap_or_else(|| "not looked at yet".to_owned());
    Some(format!(
        "nothing is here, and the store was not reached: {why}"
    ))
}

type PullMetrics = fn(&TablePulled) -> u64;

/// Metrics by table: name, kind, help and value.
const FAMILIES: [(&str, &str, &str, PullMetrics); 6] = [
    (
        "forebay_pull_target_version",
        "gauge",
        "The version that serves at the source; 0: none.",
        |pull| pull.wanted.unwrap_or(0),
    ),
    (
        "forebay_pull_total_bytes",
        "gauge",
        "Of the version pulled last: what was not here.",
        |pull| pull.total_bytes,
    ),
    (
        "forebay_pull_done_bytes",
        "gauge",
        "Of these: what has come.",
        |pull| pull.done_bytes,
    ),
    (
        "forebay_pull_failing",
        "gauge",
        "1: the last pull failed, and is tried again.",
        |pull| u64::from(pull.problem.is_some()),
    ),
    (
        "forebay_pulls_total",
        "counter",
        "Versions pulled.",
        |pull| pull.pulled,
    ),
    (
        "forebay_pull_repairs_total",
        "counter",
        "Damaged files that were pulled again.",
        |pull| pull.repaired,
    ),
];

pub fn metrics(page: &mut Page, shared: &Shared, sees: &dyn Fn(&str) -> bool) {
    let Some(pulled) = seen(shared, sees) else {
        return;
    };
    for (name, kind, help, of) in FAMILIES {
        page.begin(name, kind, help);
        for pull in &pulled.tables {
            page.line(name, &[("table", pull.table.as_str())], of(pull));
        }
    }
    let help = "1: the source of pulls answers.";
    let answers = u64::from(pulled.reached && pulled.problem.is_none());
    page.one("forebay_pull_source_up", "gauge", help, answers);
    let help = "Bytes a second that pulls may transfer now; 0: no limit.";
    let rate = pulled.rate_bytes.unwrap_or(0);
    page.one("forebay_pull_rate_bytes", "gauge", help, rate);
    let help = "How often that was lowered because serving had become slow.";
    page.one("forebay_pull_slowed_total", "counter", help, pulled.slowed);
    let help = "Bytes of files pulled.";
    page.one(
        "forebay_pull_received_bytes_total",
        "counter",
        help,
        pulled.received_bytes,
    );
    let help = "Requests to the source, tries again left out.";
    page.one(
        "forebay_pull_requests_total",
        "counter",
        help,
        pulled.requests,
    );
}

fn pulled(shared: &Shared) -> Option<PullsStatus> {
    shared.config.pulls.as_ref().map(|pulls| pulls.pulled())
}

/// Returns the pulls of tables that the caller may see.
fn seen(shared: &Shared, sees: &dyn Fn(&str) -> bool) -> Option<PullsStatus> {
    let mut pulled = pulled(shared)?;
    pulled.tables.retain(|pull| sees(pull.table.as_str()));
    Some(pulled)
}
