//! Serves one value as JSON, by its key in the path: any bytes, percent-encoded.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, State};
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use forebay_engine::live::Expiry;
use forebay_engine::{Source, SourceError, ValueKind, show_key};

use super::answer::{ErrorAnswer, not_found};
use super::guard::Caller;
use super::tables::waiting;
use crate::command::{CommandError, write_text};
use crate::execute::View;
use crate::permits::ReadPermits;
use crate::port::Port;
use crate::reply_memory::HeldReply;
use crate::shared::Shared;
use crate::table_view::TableView;

/// Returns one value as JSON. UTF-8 bytes are a string, others `{"base64": ...}`.
pub async fn row(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Result<Response, ErrorAnswer> {
    let Some((table, key)) = table_and_key(uri.path()) else {
        return Err(not_found().await);
    };
    caller.check_read(&table)?;
    let tables = shared.tables().keep();
    let server = Arc::clone(&shared);
    let text = waiting(move || {
        let source = tables.get(table.as_bytes());
        let source = source.ok_or_else(|| ErrorAnswer::no_table(&table))?;
        let permit = permit(&server, &tables, (table.as_bytes(), &key));
        let permit = permit.map_err(|_| no_permit(&server, source, &key))?;
        let text = row_text(source, &key);
        match permit.hold() {
            true => text,
            false => Err(no_permit(&server, source, &key)),
        }
    });
    let text = text.await?;
    let held = shared.reply_memory.hold(text.len()).ok_or_else(|| {
        let text =
            "answers that nobody has read yet take all memory that is for them: ask again later";
        ErrorAnswer::new(StatusCode::SERVICE_UNAVAILABLE, text)
    })?;
    let body = Body::from(Bytes::from_owner(HeldText { text, _held: held }));
    Ok(([(header::CONTENT_TYPE, "application/json")], body).into_response())
}

/// Parses `/v1/tables/TABLE/rows/KEY`. The router's own parameters are texts, but keys may be other
/// bytes.
fn table_and_key(path: &str) -> Option<(String, Vec<u8>)> {
    let (table, rest) = path.strip_prefix("/v1/tables/")?.split_once('/')?;
    let key = percent_decoded(rest.strip_prefix("rows/")?);
    let table = String::from_utf8_lossy(&percent_decoded(table)).into_owned();
    Some((table, key))
}

/// Decodes percent-encoded bytes. A `%` without two digits stays as it is.
fn percent_decoded(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|value| value as u8);
    while let Some((&byte, after)) = rest.split_first() {
        let escaped = match after {
            [high, low, ..] if byte == b'%' => digit(*high).zip(digit(*low)),
            _ => None,
        };
        match escaped {
            Some((high, low)) => {
                out.push(high << 4 | low);
                rest = &after[2..];
            }
            None => {
                out.push(byte);
                rest = after;
            }
        }
    }
    out
}

/// An answer, counted as long as some of it is not sent.
struct HeldText {
    text: Vec<u8>,
    _held: HeldReply,
}

impl AsRef<[u8]> for HeldText {
    fn as_ref(&self) -> &[u8] {
        &self.text
    }
}

/// Returns a read permit for a key, if it is of a replicated live table.
fn permit<'t>(
    shared: &'t Shared,
    tables: &'t TableView,
    (table, key): (&[u8], &[u8]),
) -> Result<ReadPermits<'t>, CommandError> {
    let view = View {
        tables,
        user: &shared.anyone,
        shared,
        may_wait: true,
        port: Port::Alone,
        evaluation: None,
        has_permit: false,
    };
    let wire = [table, b":", key].concat();
    view.permits(std::iter::once(&wire[..]))
}

/// Returns the error if this node's replica may not answer now.
fn no_permit(server: &Shared, source: Source<'_>, key: &[u8]) -> ErrorAnswer {
    let (table, now_ms) = (source.table(), server.store.clock().unix_ms());
    let has_expired = match source {
        Source::Live(live) if live.options().expiry != Expiry::Never => {
            // An unreadable key is not the reason.
            live.would_expire(key, now_ms).unwrap_or(false)
        }
        _ => false,
    };
    let text = match has_expired {
        true => format!(
            "the key has expired by the clock here, and its partition of table '{table}' has not come to \
             that yet: read it by RESP, or ask again after the next write"
        ),
        false => format!(
            "the replica here of the key's partition of table '{table}' is not the leader: KV.MAP {table} \
             names the leader, and RESP redirects to it"
        ),
    };
    ErrorAnswer::new(StatusCode::MISDIRECTED_REQUEST, text)
}

fn row_text(source: Source<'_>, key: &[u8]) -> Result<Vec<u8>, ErrorAnswer> {
    let failed = |what: String| ErrorAnswer::new(StatusCode::INTERNAL_SERVER_ERROR, what);
    let value = source.get(key);
    let unread = |error: SourceError| match error {
        error if error.is_not_here() => ErrorAnswer::new(
            StatusCode::MISDIRECTED_REQUEST,
            format!("{error}: KV.MAP {} says where", source.table()),
        ),
        error => failed(error.to_string()),
    };
    let Some(value) = value.map_err(unread)? else {
        let text = format!("table {} has no key {}", source.table(), show_key(key));
        return Err(ErrorAnswer::new(StatusCode::NOT_FOUND, text));
    };
    let mut out = Vec::new();
    match (source.kind(), source.number()) {
        (ValueKind::Bytes { .. }, None) => forebay_run::row::write_json_bytes(&value, &mut out),
        (ValueKind::Bytes { .. } | ValueKind::Number { .. }, Some(number)) => number
            .write_json(&value, &mut out)
            .map_err(|error| failed(error.to_string()))?,
        _ => write_text(source, &value, &mut out).map_err(|stop| failed(format!("{stop:?}")))?,
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_bytes() {
        for (path, key) in [
            ("a/b%20c", &b"a/b c"[..]),
            ("%00%ff%2F%2f%25", b"\x00\xff//%"),
            ("", b""),
            ("100%", b"100%"),
            ("%zz%4%", b"%zz%4%"),
            ("+?é", "+?é".as_bytes()),
            ("rows/x", b"rows/x"),
        ] {
            let found = table_and_key(&format!("/v1/tables/t/rows/{path}"));
            assert_eq!(found, Some(("t".to_owned(), key.to_vec())), "{path}");
        }
        let found = table_and_key("/v1/tables/%74%ff/rows/k").map(|(table, _)| table);
        assert_eq!(found.as_deref(), Some("t\u{fffd}"));
        for path in ["/v1/tables/t/versions", "/v1/tables/t", "/health"] {
            assert_eq!(table_and_key(path), None);
        }
    }
}
