//! Serves tables, swap and rollback.

use std::sync::Arc;

use axum::extract::{Extension, FromRequestParts, Path, Request, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::{Json, body};
use forebay_engine::{
    Actor, StoreError, SwapReport, Table, TableName, TableState, VersionInfo, live::LiveTable,
};
use serde::Deserialize;
use serde_json::{Value, json};
use tracing::info;

use super::answer::ErrorAnswer;
use super::connections::Peer;
use super::guard::Caller;
use crate::shared::Shared;
use crate::users::Verb;
use forebay_engine::Source;

type JsonAnswer = Result<Json<Value>, ErrorAnswer>;

/// The table in a path. A name that is not text is refused in the form of all errors.
pub struct TableInPath(String);

impl<S: Send + Sync> FromRequestParts<S> for TableInPath {
    type Rejection = ErrorAnswer;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ErrorAnswer> {
        let named = Path::<String>::from_request_parts(parts, state).await;
        let Path(table) = named.map_err(|_| {
            let text =
                "the table in the path is no text: names are ASCII letters, digits, '_' and '-'";
            ErrorAnswer::new(StatusCode::BAD_REQUEST, text)
        })?;
        Ok(Self(table))
    }
}

/// Returns the tables that the caller may read.
pub async fn tables(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
) -> Json<Value> {
    let states = shared.serving.states();
    let mine = states
        .tables
        .iter()
        .filter(|(name, _)| caller.may(Verb::Read, name.as_str()));
    let mut list: Vec<Value> = mine
        .map(|(name, state)| describe(&shared, name, state))
        .collect();
    let live = shared.live.load();
    let mine = live
        .iter()
        .filter(|(name, _)| caller.may(Verb::Read, name.as_str()));
    list.extend(mine.map(|(_, table)| describe_live(table)));
    Json(json!({ "tables": list }))
}

pub async fn table(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    TableInPath(table): TableInPath,
) -> JsonAnswer {
    caller.check_read(&table)?;
    if let Some(live) = shared.tables().live(table.as_bytes()) {
        return Ok(Json(describe_live(live)));
    }
    let states = shared.serving.states();
    let found = states
        .tables
        .iter()
        .find(|(name, _)| name.as_str() == table);
    let (name, state) = found.ok_or_else(|| ErrorAnswer::no_table(&table))?;
    Ok(Json(describe(&shared, name, state)))
}

fn describe(shared: &Shared, name: &TableName, state: &TableState) -> Value {
    let mut about = json!({
        "table": name,
        "serving": state.serving,
        "previous": state.previous,
        "rows": state.rows,
        "bytes": state.bytes,
        "file_bytes": state.file_bytes,
        "swaps": state.swaps,
        "problem": state.problem,
    });
    if let Some(version) = shared.serving.table(name.as_str().as_bytes()) {
        let manifest = version.manifest();
        about["order"] = json!(manifest.order);
        about["value"] = json!(manifest.value);
        about["key"] = json!(manifest.key);
        about["partitions"] = json!(manifest.partitions.len());
        about["columns"] = json!(manifest.schema);
        about["created_unix_ms"] = json!(manifest.created_unix_ms);
        about["checksum"] = json!(manifest.content().map(|content| content.to_string()));
    }
    about
}

fn describe_live(table: &LiveTable) -> Value {
    let (options, stats) = (table.options(), table.stats());
    json!({
        "table": table.name(),
        "mode": "live",
        "order": options.order,
        "value": options.value,
        "columns": options.schema,
        "delta": options.delta,
        "durability": options.durability,
        "ttl": options.expiry.to_string(),
        "partitions": table.partitions().len(),
        "run_records": stats.run_records,
        "split_runs": stats.split_runs,
        "memory_records": stats.memory_records,
        "file_bytes": stats.file_bytes,
        "memtable_bytes": stats.memtable_bytes,
        "frozen_bytes": stats.frozen_bytes,
        "log_bytes": stats.log_bytes,
        "runs": stats.runs,
        "merges": stats.merges,
        "flush_problem": stats.flush_problem,
        "merge_problem": stats.merge_problem,
        "problem": stats.failed,
    })
}

pub async fn versions(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    TableInPath(table): TableInPath,
) -> JsonAnswer {
    caller.check_read(&table)?;
    let list = waiting(move || {
        open(&shared, &table, None)?
            .versions()
            .map_err(ErrorAnswer::from)
    })
    .await?;
    Ok(Json(
        json!({ "versions": list.iter().map(version).collect::<Vec<_>>() }),
    ))
}

fn version(info: &VersionInfo) -> Value {
    json!({
        "version": info.version,
        "rows": info.rows_between.1,
        "rows_least": info.rows_between.0,
        "bytes": info.bytes,
        "file_bytes": info.file_bytes,
        "created_unix_ms": info.created_unix_ms,
        "checksum": info.content.map(|content| content.to_string()),
        "serving": info.serving,
        "previous": info.previous,
        "problem": info.problem,
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SwapTo {
    version: u64,
}

/// Swaps to version n of `{"version": n}`. It serves when this returns.
pub async fn swap(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    Extension(peer): Extension<Peer>,
    TableInPath(table): TableInPath,
    request: Request,
) -> JsonAnswer {
    let actor = admin(&caller, peer, &shared, &table)?;
    let bytes = read_body(&shared, request).await?;
    let to: SwapTo = serde_json::from_slice(&bytes).map_err(|error| {
        let text = format!("the body must be {{\"version\": number}}: {error}");
        ErrorAnswer::new(StatusCode::BAD_REQUEST, text)
    })?;
    change(shared, (table, actor), "swapped", move |table| {
        table.swap(to.version)
    })
    .await
}

async fn read_body(shared: &Shared, request: Request) -> Result<body::Bytes, ErrorAnswer> {
    let limit = shared.config.limits.http_body_bytes;
    let bytes = body::to_bytes(request.into_body(), limit).await;
    bytes.map_err(|_| {
        let text = format!("the body is larger than {limit} bytes, or broke off");
        ErrorAnswer::new(StatusCode::PAYLOAD_TOO_LARGE, text)
    })
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RollbackFrom {
    from: Option<u64>,
}

/// Rolls back to the previous serving version, which serves when this returns. `{"from": n}`: only
/// if n serves now.
pub async fn rollback(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    Extension(peer): Extension<Peer>,
    TableInPath(table): TableInPath,
    request: Request,
) -> JsonAnswer {
    let actor = admin(&caller, peer, &shared, &table)?;
    let bytes = read_body(&shared, request).await?;
    let wish: RollbackFrom = match bytes.trim_ascii() {
        b"" => RollbackFrom::default(),
        text => serde_json::from_slice(text).map_err(|error| {
            let text = format!("the body must be empty or {{\"from\": number}}: {error}");
            ErrorAnswer::new(StatusCode::BAD_REQUEST, text)
        })?,
    };
    change(
        shared,
        (table, actor),
        "rolled back",
        move |table| match wish.from {
            Some(from) => table.rollback_from(from),
            None => table.rollback(),
        },
    )
    .await
}

/// Merges the writes so far of each partition of a live table into one run. It is complete when
/// this returns.
pub async fn compact(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    Extension(peer): Extension<Peer>,
    TableInPath(table): TableInPath,
) -> JsonAnswer {
    let Actor { user, host, .. } = admin(&caller, peer, &shared, &table)?;
    let tables = shared.tables().keep();
    waiting(move || {
        let live = match tables.get(table.as_bytes()) {
            Some(Source::Live(live)) => live,
            Some(Source::Batch(_)) => {
                let text = format!(
                    "{table} is a batch table: 'forebay compact {table}' works on the store"
                );
                return Err(ErrorAnswer::new(StatusCode::CONFLICT, text));
            }
            None => return Err(ErrorAnswer::no_table(&table)),
        };
        live.compact().map_err(|error| {
            ErrorAnswer::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
        })?;
        let stats = live.stats();
        let records = stats.run_records;
        info!(table, user, address = host, records, "compacted by HTTP");
        Ok(Json(
            json!({ "table": table, "runs": stats.runs, "records": stats.run_records }),
        ))
    })
    .await
}

/// Returns the caller as the actor of a swap, or refuses it.
fn admin(
    caller: &Caller,
    Peer(address): Peer,
    shared: &Shared,
    table: &str,
) -> Result<Actor, ErrorAnswer> {
    caller.check_admin(shared, table)?;
    Ok(Actor {
        user: caller.name().to_owned(),
        host: address.ip().to_string(),
        ..Actor::default()
    })
}

async fn change(
    shared: Arc<Shared>,
    (table, actor): (String, Actor),
    what: &'static str,
    change: impl FnOnce(&Table) -> Result<SwapReport, StoreError> + Send + 'static,
) -> JsonAnswer {
    waiting(move || {
        let Actor { user, host, .. } = actor.clone();
        let swapped = change(&open(&shared, &table, Some(actor))?)?;
        let SwapReport { from, to } = swapped;
        info!(table, user, address = host, from, to, "{what} by HTTP");
        shared.serving.refresh();
        let serving = shared
            .serving
            .table(table.as_bytes())
            .map(|version| version.version());
        if serving != Some(swapped.to) {
            let states = shared.serving.states();
            let state = states
                .tables
                .iter()
                .find(|(name, _)| name.as_str() == table);
            let why = state
                .and_then(|(_, state)| state.problem.clone())
                .unwrap_or_default();
            return Err(ErrorAnswer::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                format!(
                    "the pointer names version {}, but it cannot serve: {why}",
                    swapped.to
                ),
            ));
        }
        Ok(Json(
            json!({ "table": table, "from": swapped.from, "to": swapped.to }),
        ))
    })
    .await
}

/// Opens a table for administration. The actor is written to the history of the store.
fn open(shared: &Shared, table: &str, actor: Option<Actor>) -> Result<Table, ErrorAnswer> {
    let name = TableName::new(table).map_err(StoreError::Name)?;
    // The store of a cluster has no data of its live tables.
    let cluster = shared.cluster.as_ref();
    if cluster.is_some_and(|cluster| cluster.member().live().table(table.as_bytes()).is_some()) {
        return Err(StoreError::IsLive { table: name }.into());
    }
    // The versions of a node of a cluster are those of the cluster.
    let store = shared.config.administered.as_ref();
    if store.is_none() && shared.cluster.is_some() {
        let text =
            "the store was away when this node started: ask another node, or use the command line";
        return Err(ErrorAnswer::new(StatusCode::SERVICE_UNAVAILABLE, text));
    }
    let store = store.unwrap_or(&shared.store).clone();
    let store = match actor {
        Some(actor) => store.acting_as(actor),
        None => store,
    };
    Ok(store.table(&name)?)
}

/// Runs work that waits for the disk on a thread that may wait.
pub async fn waiting<T: Send + 'static>(
    run: impl FnOnce() -> Result<T, ErrorAnswer> + Send + 'static,
) -> Result<T, ErrorAnswer> {
    match tokio::task::spawn_blocking(run).await {
        Ok(answer) => answer,
        Err(failure) => {
            tracing::error!(%failure, "a request broke down");
            Err(ErrorAnswer::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "internal error: see the log",
            ))
        }
    }
}
