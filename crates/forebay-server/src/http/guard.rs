//! Authorizes HTTP requests.
//!
//! Any web page can make a browser on the operator's own machine send requests to this server. So
//! the Host must be one of the server's, and an Origin, if present, too. If there is a users file,
//! everything but health and readiness requires `Authorization: Basic` of a user or the bearer
//! token.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, HOST, ORIGIN};
use axum::http::{HeaderMap, HeaderName, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::answer::ErrorAnswer;
use super::connections::Peer;
use super::host::{HostName, of_authority, of_origin};
use crate::shared::Shared;
use crate::users::{User, Verb};

/// The log's name for a caller with the bearer token.
const TOKEN_NAME: &str = "(token)";

/// The caller, for the handlers.
#[derive(Debug, Clone)]
pub enum Caller {
    /// A caller with the bearer token, which may do anything.
    Operator,
    User(Arc<User>),
}

impl Caller {
    pub fn may(&self, verb: Verb, table: &str) -> bool {
        match self {
            Caller::Operator => true,
            Caller::User(user) => user.may(verb, table.as_bytes()),
        }
    }

    /// Refuses a caller that may not read the table, with the same error whether it exists or not.
    pub fn check_read(&self, table: &str) -> Result<(), ErrorAnswer> {
        if self.may(Verb::Read, table) {
            return Ok(());
        }
        let table: String = table.chars().take(80).collect();
        Err(ErrorAnswer::new(
            StatusCode::FORBIDDEN,
            format!("you may not read table {table:?}"),
        ))
    }

    /// Returns whether the caller may read every table.
    pub fn reads_all(&self) -> bool {
        match self {
            Caller::Operator => true,
            Caller::User(user) => user.reads_all(),
        }
    }

    /// Returns whether the caller may see what concerns other users.
    pub fn administers(&self) -> bool {
        match self {
            Caller::Operator => true,
            Caller::User(user) => user.verbs().contains(&Verb::Admin),
        }
    }

    /// Returns the log's name for the caller.
    pub fn name(&self) -> &str {
        match self {
            Caller::Operator => TOKEN_NAME,
            Caller::User(user) => user.name(),
        }
    }

    /// Requires the rights to swap, roll back and compact: the token, or the verb `admin` of the
    /// table.
    pub fn check_admin(&self, shared: &Shared, table: &str) -> Result<(), ErrorAnswer> {
        if self.may(Verb::Admin, table) {
            return Ok(());
        }
        Err(match (&shared.secrets.load().token, shared.has_users()) {
            (Some(_), _) => ErrorAnswer::new(
                StatusCode::UNAUTHORIZED,
                "this wants the header 'Authorization: Bearer TOKEN', or a user with the verb admin for the table",
            ),
            (None, true) => ErrorAnswer::new(
                StatusCode::FORBIDDEN,
                "this wants a user with the verb admin for the table: the server has no token file",
            ),
            (None, false) => ErrorAnswer::new(
                StatusCode::FORBIDDEN,
                "this server was started without a token file or users: nobody can swap by HTTP",
            ),
        })
    }
}

/// Refuses a Host or an Origin that is not the server's.
pub async fn check_origin(
    State(shared): State<Arc<Shared>>,
    request: Request,
    next: Next,
) -> Result<Response, ErrorAnswer> {
    check_names(&shared, &request)?;
    Ok(next.run(request).await)
}

fn check_names(shared: &Shared, request: &Request) -> Result<(), ErrorAnswer> {
    let headers = request.headers();
    // A request line may name the host as well: then both have to match.
    let named = request
        .uri()
        .authority()
        .map(|authority| authority.as_str());
    let hosts = texts(headers, HOST).chain(named.map(Some));
    if !all_are_ours(shared, hosts.map(|host| of_authority(host?))) || several(headers, HOST) {
        return Err(ErrorAnswer::new(
            StatusCode::MISDIRECTED_REQUEST,
            "this server does not go by that Host: name it when starting the server (--http-host)",
        ));
    }
    let mut origins = texts(headers, ORIGIN)
        .map(|origin| of_origin(origin?))
        .peekable();
    if origins.peek().is_some() && !all_are_ours(shared, origins) {
        return Err(ErrorAnswer::new(
            StatusCode::FORBIDDEN,
            "pages of that Origin may not ask here",
        ));
    }
    Ok(())
}

/// Returns the values of a header; `None` for one that is not text.
fn texts(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = Option<&str>> {
    headers
        .get_all(name)
        .into_iter()
        .map(|value| value.to_str().ok())
}

fn several(headers: &HeaderMap, name: HeaderName) -> bool {
    headers.get_all(name).into_iter().count() > 1
}

/// Returns whether there is a host, and all hosts are this server's.
fn all_are_ours<'a>(shared: &Shared, hosts: impl Iterator<Item = Option<HostName<'a>>>) -> bool {
    let mut hosts = hosts.peekable();
    let is_ours = |host: Option<HostName<'_>>| match host {
        Some(HostName::Address(ip)) => {
            let text = ip.to_string();
            let bound = shared.config.http.map(|address| address.ip());
            ip.is_loopback() || Some(ip) == bound || is_named(shared, &text)
        }
        Some(HostName::Name(name)) => {
            name.eq_ignore_ascii_case("localhost") || is_named(shared, name)
        }
        None => false,
    };
    hosts.peek().is_some() && hosts.all(is_ours)
}

fn is_named(shared: &Shared, name: &str) -> bool {
    let mut known = shared.config.http_hosts.iter();
    known.any(|known| known.eq_ignore_ascii_case(name))
}

/// Identifies the caller, and refuses unknown ones.
pub async fn authenticate(
    State(shared): State<Arc<Shared>>,
    mut request: Request,
    next: Next,
) -> Result<Response, ErrorAnswer> {
    let caller = match caller(&shared, request.headers()) {
        Ok(caller) => caller,
        Err(Unauthorized { refused, user }) => {
            if let Some(user) = user {
                let peer = request.extensions().get::<Peer>().copied();
                peer.into_iter()
                    .for_each(|Peer(address)| shared.note_wrong_secret(address, &user));
                shared
                    .store
                    .clock()
                    .wait(shared.config.limits.auth_pause)
                    .await;
            }
            return Err(refused);
        }
    };
    request.extensions_mut().insert(caller);
    Ok(next.run(request).await)
}

/// A refused caller.
struct Unauthorized {
    refused: ErrorAnswer,
    /// The user that it claimed to be, with a wrong secret.
    user: Option<String>,
}

fn caller(shared: &Shared, headers: &HeaderMap) -> Result<Caller, Unauthorized> {
    let nobody = |text: &str, user: Option<String>| Unauthorized {
        refused: ErrorAnswer::new(StatusCode::UNAUTHORIZED, text),
        user,
    };
    let wrong = |text: &str| nobody(text, None);
    let secrets = shared.secrets.load();
    let given = headers.get(AUTHORIZATION).map(|value| value.as_bytes());
    let split = given.map(|given| {
        let blank = given
            .iter()
            .position(|&byte| byte == b' ')
            .unwrap_or(given.len());
        (
            given[..blank].to_ascii_lowercase(),
            given[blank..].trim_ascii(),
        )
    });
    match split.as_ref().map(|(scheme, rest)| (&scheme[..], *rest)) {
        Some((b"bearer", token)) => match &secrets.token {
            Some(expected) if expected.is(token) => Ok(Caller::Operator),
            _ => {
                let text = "the bearer token is not right";
                Err(nobody(text, Some(TOKEN_NAME.to_owned())))
            }
        },
        Some((b"basic", encoded)) => {
            let users = secrets
                .users
                .as_ref()
                .ok_or_else(|| wrong("this server has no users"))?;
            let pair = STANDARD.decode(encoded).unwrap_or_default();
            let colon = pair
                .iter()
                .position(|&byte| byte == b':')
                .unwrap_or(pair.len());
            let password = pair.get(colon + 1..).unwrap_or_default();
            let user = users.authenticate(&pair[..colon], password);
            user.map(Caller::User).ok_or_else(|| {
                let name = &pair[..colon.min(64)];
                let name = String::from_utf8_lossy(name).into_owned();
                nobody("user or password is not right", Some(name))
            })
        }
        Some(_) => Err(wrong("use Authorization: Basic or Bearer")),
        None if shared.has_users() => Err(wrong("this wants Authorization: Basic or Bearer")),
        None => Ok(Caller::User(Arc::clone(&shared.anyone))),
    }
}
