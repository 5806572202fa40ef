//! Serves checkpoints of a live table's partitions that this node leads, for `forebay backup`.
//!
//! The caller draws an id, then has every node flush, then every node hold, then every node take.
//! It reads the files named in the answers to `take`, and deletes the checkpoint.
//! `forebay_cluster::local`, `replicas/checkpoint_steps.rs`, explains the steps.

use std::io;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Extension, Path, Query, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use forebay_cluster::local::{LocalReplicas, PartError};
use forebay_engine::{StoreError, TableName};
use serde::Deserialize;
use serde_json::json;

use super::answer::ErrorAnswer;
use super::guard::Caller;
use super::tables::waiting;
use crate::shared::Shared;
use crate::users::Verb;

/// The length of the whole file, in an answer with a part of it.
const FILE_BYTES: &str = "forebay-file-bytes";
/// The most bytes in one answer.
const MOST_BYTES: usize = 8 << 20;
const MOST_ID_BYTES: usize = 64;

/// The requested part of a file.
#[derive(Debug, Deserialize)]
pub struct FilePart {
    #[serde(default)]
    from: u64,
    bytes: Option<usize>,
}

/// `POST /v1/tables/T/checkpoints/ID/STEP`
pub async fn step(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    Path((table, id, step)): Path<(String, String, String)>,
) -> Result<Response, ErrorAnswer> {
    let (replicas, name) = admit(&shared, &caller, &table, &id)?;
    waiting(move || {
        let done = match &*step {
            "flush" => replicas.flush_led(&name).map(|()| Vec::new()),
            "hold" => replicas.hold_led(&name, &id).map(|()| Vec::new()),
            "take" => replicas.take_held(&name, &id),
            _ => {
                let text = "a checkpoint is made by the steps flush, hold and take";
                return Err(ErrorAnswer::new(StatusCode::NOT_FOUND, text));
            }
        };
        Ok(octets(done.map_err(refused)?).into_response())
    })
    .await
}

/// `GET /v1/tables/T/checkpoints/ID/files/FILE?from=OFFSET&bytes=N`
pub async fn file(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    Path((table, id, file)): Path<(String, String, String)>,
    part: Result<Query<FilePart>, QueryRejection>,
) -> Result<Response, ErrorAnswer> {
    let (replicas, name) = admit(&shared, &caller, &table, &id)?;
    let Query(part) = part.map_err(|_| {
        let text = "a part of a file is asked for by from and bytes, whole numbers";
        ErrorAnswer::new(StatusCode::BAD_REQUEST, text)
    })?;
    waiting(move || {
        let bytes = part.bytes.unwrap_or(MOST_BYTES).min(MOST_BYTES);
        let read = replicas.read_taken((&name, &id), &file, part.from, bytes);
        let (bytes, file_bytes) = read.map_err(refused)?;
        Ok(([(FILE_BYTES, file_bytes.to_string())], octets(bytes)).into_response())
    })
    .await
}

/// `GET /v1/tables/T/checkpoints/ID`: keeps the checkpoint in use.
pub async fn touch(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    Path((table, id)): Path<(String, String)>,
) -> Result<Response, ErrorAnswer> {
    let (replicas, name) = admit(&shared, &caller, &table, &id)?;
    replicas.touch_checkpoint(&name, &id).map_err(refused)?;
    Ok(axum::Json(json!({ "checkpoint": id })).into_response())
}

/// `DELETE /v1/tables/T/checkpoints/ID`
pub async fn end(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    Path((table, id)): Path<(String, String)>,
) -> Result<Response, ErrorAnswer> {
    let (replicas, name) = admit(&shared, &caller, &table, &id)?;
    waiting(move || {
        replicas.end_checkpoint(&name, &id);
        Ok(axum::Json(json!({ "ended": id })).into_response())
    })
    .await
}

fn octets(bytes: Vec<u8>) -> impl IntoResponse {
    (
        [(CONTENT_TYPE, "application/octet-stream")],
        Body::from(bytes),
    )
}

/// Requires the right to read and to write the table, because a checkpoint blocks its writes for a
/// moment.
fn admit(
    shared: &Shared,
    caller: &Caller,
    table: &str,
    id: &str,
) -> Result<(Arc<LocalReplicas>, TableName), ErrorAnswer> {
    caller.check_read(table)?;
    if !caller.may(Verb::Write, table) {
        let text = format!("you may not write table {table}, whose writes a checkpoint holds up");
        return Err(ErrorAnswer::new(StatusCode::FORBIDDEN, text));
    }
    let name = TableName::new(table).map_err(StoreError::Name)?;
    if id.len() > MOST_ID_BYTES || !id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        let text = "the id of a checkpoint is up to 64 letters and digits";
        return Err(ErrorAnswer::new(StatusCode::BAD_REQUEST, text));
    }
    let cluster = shared.cluster.as_ref();
    let replicas = cluster.and_then(|cluster| cluster.member().replicas());
    let replicas = replicas.ok_or_else(|| {
        let text = "this server runs no replicas: 'forebay checkpoint' and 'forebay backup' work on its store";
        ErrorAnswer::new(StatusCode::NOT_FOUND, text)
    })?;
    Ok((replicas, name))
}

fn refused(error: PartError) -> ErrorAnswer {
    let status = match error {
        PartError::NoTable(_) | PartError::NoCheckpoint => StatusCode::NOT_FOUND,
        PartError::File(ref error) if error.kind() == io::ErrorKind::NotFound => {
            StatusCode::NOT_FOUND
        }
        PartError::Overtaken(_) => StatusCode::CONFLICT,
        PartError::TooMany => StatusCode::SERVICE_UNAVAILABLE,
        PartError::Live(_) | PartError::File(_) | PartError::Document(_) => {
            StatusCode::INTERNAL_SERVER_ERROR
        }
    };
    ErrorAnswer::new(status, error.to_string())
}
