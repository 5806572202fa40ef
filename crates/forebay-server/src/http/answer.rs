//! Builds JSON answers. Errors are `{"error": "..."}`.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use forebay_engine::{ReadError, StoreError};
use serde_json::json;

/// An error answer.
#[derive(Debug)]
pub struct ErrorAnswer {
    status: StatusCode,
    text: String,
}

impl ErrorAnswer {
    pub fn new(status: StatusCode, text: impl Into<String>) -> Self {
        Self {
            status,
            text: text.into(),
        }
    }

    pub fn no_table(table: &str) -> Self {
        let table: String = table.chars().take(80).collect();
        Self::new(
            StatusCode::NOT_FOUND,
            format!("no table {table:?} is served here"),
        )
    }
}

impl IntoResponse for ErrorAnswer {
    fn into_response(self) -> Response {
        let mut answer = (self.status, Json(json!({ "error": self.text }))).into_response();
        if self.status == StatusCode::UNAUTHORIZED {
            let scheme = axum::http::HeaderValue::from_static("Basic realm=\"forebay\"");
            answer
                .headers_mut()
                .insert(axum::http::header::WWW_AUTHENTICATE, scheme);
        }
        answer
    }
}

impl From<StoreError> for ErrorAnswer {
    fn from(error: StoreError) -> Self {
        let status = match error {
            StoreError::NoTable { .. } | StoreError::NoVersion { .. } => StatusCode::NOT_FOUND,
            StoreError::Name(_) => StatusCode::BAD_REQUEST,
            StoreError::NothingServes { .. }
            | StoreError::NothingBefore { .. }
            | StoreError::ServesOther { .. }
            | StoreError::JustRolledBack { .. }
            | StoreError::Incomplete { .. }
            | StoreError::IsLive { .. }
            | StoreError::InUse { .. }
            | StoreError::NotRolledOut { .. }
            | StoreError::Refused { .. }
            | StoreError::Locked { .. }
            | StoreError::PushRuns { .. } => StatusCode::CONFLICT,
            StoreError::Catalog { .. } => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::new(status, error.to_string())
    }
}

impl From<ReadError> for ErrorAnswer {
    fn from(error: ReadError) -> Self {
        tracing::error!(%error, "a read failed");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
    }
}

pub async fn not_found() -> ErrorAnswer {
    ErrorAnswer::new(StatusCode::NOT_FOUND, "there is nothing at this path")
}

/// The answer if all connections are in use.
pub async fn too_many() -> ErrorAnswer {
    ErrorAnswer::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "there are too many HTTP connections: close some, or ask again",
    )
}

pub async fn method_not_allowed() -> ErrorAnswer {
    ErrorAnswer::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "this path does not take this method",
    )
}
