//! Who may ask what.
//!
//! A browser on the operator's own machine can be made to send requests here by any page it shows:
//! so the Host must be one of ours, and an Origin, where there is one, too. Where a users file is
//! given, everything but health and readiness wants `Authorization: Basic` of a user or the bearer
//! token.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, HOST, ORIGIN};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::Next;
use axum::response::Response;

use super::answer::Refused;
use crate::shared::Shared;
use crate::users::{User, Verb};

/// Who asks, as the handlers see it.
#[derive(Debug, Clone)]
pub enum Caller {
    /// Has the bearer token: may do anything.
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

    /// Refuses one who may not read the table, in the same words whether it exists or not.
    pub fn check_read(&self, table: &str) -> Result<(), Refused> {
        if self.may(Verb::Read, table) {
            return Ok(());
        }
        let table: String = table.chars().take(80).collect();
        Err(Refused::new(
            StatusCode::FORBIDDEN,
            format!("you may not read table {table:?}"),
        ))
    }

    /// Swap and rollback are for the operator only.
    pub fn check_operator(&self, shared: &Shared) -> Result<(), Refused> {
        match (self, &shared.http_token) {
            (Caller::Operator, _) => Ok(()),
            (_, Some(_)) => Err(Refused::new(
                StatusCode::UNAUTHORIZED,
                "this wants the header 'Authorization: Bearer TOKEN'",
            )),
            (_, None) => Err(Refused::new(
                StatusCode::FORBIDDEN,
                "this server was started without a token file: nobody can swap by HTTP",
            )),
        }
    }
}

/// Refuses a Host or an Origin that is not ours.
pub async fn check_origin(
    State(shared): State<Arc<Shared>>,
    request: Request,
    next: Next,
) -> Result<Response, Refused> {
    let headers = request.headers();
    let host = headers.get(HOST).and_then(|value| value.to_str().ok());
    let host = host.or_else(|| request.uri().host());
    if !host.is_some_and(|host| is_ours(&shared, host)) {
        return Err(Refused::new(
            StatusCode::MISDIRECTED_REQUEST,
            "this server does not go by that Host: name it when starting the server",
        ));
    }
    if let Some(origin) = headers.get(ORIGIN) {
        let origin = origin
            .to_str()
            .ok()
            .and_then(|origin| origin.split_once("://"));
        if !origin.is_some_and(|(_, host)| is_ours(&shared, host)) {
            return Err(Refused::new(
                StatusCode::FORBIDDEN,
                "pages of that Origin may not ask here",
            ));
        }
    }
    Ok(next.run(request).await)
}

/// Whether a Host, perhaps with a port, means this server.
fn is_ours(shared: &Shared, host: &str) -> bool {
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((name, _)) => name,
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    let bound = shared.config.http.map(|address| address.ip());
    match name.parse::<IpAddr>() {
        Ok(ip) if ip.is_loopback() || Some(ip) == bound => true,
        _ => {
            let named = |known: &String| known.eq_ignore_ascii_case(name);
            name.eq_ignore_ascii_case("localhost") || shared.config.http_hosts.iter().any(named)
        }
    }
}

/// Finds out who asks, and refuses those who are nobody.
pub async fn authenticate(
    State(shared): State<Arc<Shared>>,
    mut request: Request,
    next: Next,
) -> Result<Response, Refused> {
    let caller = caller(&shared, request.headers())?;
    request.extensions_mut().insert(caller);
    Ok(next.run(request).await)
}

fn caller(shared: &Shared, headers: &HeaderMap) -> Result<Caller, Refused> {
    let wrong = |text: &str| Refused::new(StatusCode::UNAUTHORIZED, text);
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
        Some((b"bearer", token)) => match &shared.http_token {
            Some(expected) if expected.is(token) => Ok(Caller::Operator),
            _ => Err(wrong("the bearer token is not right")),
        },
        Some((b"basic", encoded)) => {
            let users = shared
                .users
                .as_ref()
                .ok_or_else(|| wrong("this server has no users"))?;
            let pair = decode_base64(encoded).unwrap_or_default();
            let colon = pair
                .iter()
                .position(|&byte| byte == b':')
                .unwrap_or(pair.len());
            let password = pair.get(colon + 1..).unwrap_or_default();
            let user = users.authenticate(&pair[..colon], password);
            user.map(Caller::User)
                .ok_or_else(|| wrong("user or password is not right"))
        }
        Some(_) => Err(wrong("use Authorization: Basic or Bearer")),
        None if shared.users.is_some() => Err(wrong("this wants Authorization: Basic or Bearer")),
        None => Ok(Caller::User(Arc::clone(&shared.anyone))),
    }
}

fn decode_base64(text: &[u8]) -> Option<Vec<u8>> {
    let digits = text.iter().rev().skip_while(|&&byte| byte == b'=').count();
    let mut out = Vec::with_capacity(digits * 3 / 4);
    let (mut word, mut bits) = (0u32, 0);
    for &digit in &text[..digits] {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        word = word << 6 | u32::from(value);
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            out.push((word >> bits) as u8);
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64() {
        assert_eq!(decode_base64(b"dTpwYXNz").as_deref(), Some(&b"u:pass"[..]));
        assert_eq!(decode_base64(b"dTpwYQ==").as_deref(), Some(&b"u:pa"[..]));
        assert_eq!(decode_base64(b"").as_deref(), Some(&b""[..]));
        assert_eq!(decode_base64(b"a b"), None);
    }
}
