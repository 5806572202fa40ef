//! Sends requests to the HTTP ports of a cluster's nodes, as the user of the command.

use std::sync::Arc;
use std::time::Duration;

use forebay_cluster::HostPort;
use reqwest::header::DATE;
use reqwest::{Client, Method, StatusCode};
use rustls::{CertificateError, ClientConfig, RootCertStore};
use thiserror::Error;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::nodes::login::NodeLogin;

/// The header with the length of the whole file, of which a part is answered.
const FILE_BYTES: &str = "forebay-file-bytes";

/// A client of nodes, for any number of requests. Each call waits for its answer.
#[derive(Debug)]
pub struct NodeHttp {
    login: NodeLogin,
    client: Client,
    runtime: Runtime,
}

/// A node's answer.
#[derive(Debug)]
pub struct Answer {
    pub bytes: Vec<u8>,
    /// For a part of a file, the length of the whole file.
    pub file_bytes: Option<u64>,
    /// The node's clock, in seconds since 1970-01-01 UTC.
    pub unix_s: Option<u64>,
}

/// Why a node did not answer.
#[derive(Debug, Error)]
pub enum PageError {
    #[error("it answers only its users: --login FILE, of one line, user:password")]
    NoLogin,
    #[error("it does not know this user and password: look at the file of --login")]
    WrongLogin,
    #[error("{0}")]
    Unsent(String),
    #[error("{why}")]
    Refused { status: StatusCode, why: String },
    #[error("{words}{hint}")]
    NoAnswer { words: String, hint: &'static str },
    #[error("its answer is not from a node: {0}")]
    Unreadable(String),
}

impl NodeHttp {
    /// Creates a client. `connect`: how long connecting may take.
    pub fn new(login: NodeLogin, connect: Duration) -> Result<Self, PageError> {
        let unsent = |error: &dyn std::error::Error| PageError::Unsent(error.to_string());
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let tls = match &login.tls {
            Some(config) => ClientConfig::clone(config),
            None => trusting_nobody(),
        };
        let client = Client::builder()
            .tls_backend_preconfigured(tls)
            .no_proxy()
            .connect_timeout(connect)
            .build();
        Ok(Self {
            login,
            client: client.map_err(|error| unsent(&error))?,
            runtime: runtime.map_err(|error| unsent(&error))?,
        })
    }

    /// Sends a request to one node.
    pub fn ask(
        &self,
        method: &Method,
        node: &HostPort,
        path: &str,
        within: Duration,
    ) -> Result<Answer, PageError> {
        let asked = (method.clone(), node.clone(), path.to_owned());
        let asking = ask(self.client.clone(), self.login.clone(), asked, within);
        self.runtime.block_on(asking)
    }

    /// Sends requests to several nodes at once, each with its path.
    pub fn ask_all(
        &self,
        method: &Method,
        asked: &[(HostPort, String)],
        within: Duration,
    ) -> Vec<Result<Answer, PageError>> {
        self.runtime.block_on(async {
            let mut asking = JoinSet::new();
            for (index, (node, path)) in asked.iter().enumerate() {
                let what = (method.clone(), node.clone(), path.clone());
                let answer = ask(self.client.clone(), self.login.clone(), what, within);
                asking.spawn(async move { (index, answer.await) });
            }
            let mut answers = asking.join_all().await;
            answers.sort_by_key(|(index, _)| *index);
            answers.into_iter().map(|(_, answer)| answer).collect()
        })
    }
}

/// Returns a TLS configuration without roots. Without --tls-ca nothing uses TLS, and the system's
/// roots take a while to read.
fn trusting_nobody() -> ClientConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider has the default versions")
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth()
}

async fn ask(
    client: Client,
    login: NodeLogin,
    (method, node, path): (Method, HostPort, String),
    within: Duration,
) -> Result<Answer, PageError> {
    if login.user.is_some() {
        let checked = login.check_for(std::slice::from_ref(&node));
        checked.map_err(|error| PageError::Unsent(error.to_string()))?;
    }
    let scheme = if login.tls.is_some() { "https" } else { "http" };
    let request = client.request(method, format!("{scheme}://{node}/{path}"));
    let mut request = request.timeout(within);
    if let Some((user, password)) = &login.user {
        request = request.basic_auth(user, Some(password));
    }
    let hint = match login.tls {
        Some(_) => "",
        None => {
            "; name the port of serve --http, and give --tls-ca FILE where nodes have certificates"
        }
    };
    let failed = |error: reqwest::Error| PageError::NoAnswer {
        words: cause_of(&error),
        hint: if error.is_connect() || error.is_timeout() {
            ""
        } else {
            hint
        },
    };
    let response = request.send().await.map_err(failed)?;
    match response.status() {
        StatusCode::OK => {
            let file_bytes = response.headers().get(FILE_BYTES);
            let file_bytes = file_bytes.and_then(|value| value.to_str().ok()?.parse().ok());
            let date = response
                .headers()
                .get(DATE)
                .and_then(|value| value.to_str().ok());
            let unix_s = date.and_then(unix_s_of);
            let bytes = response.bytes().await.map_err(failed)?.to_vec();
            Ok(Answer {
                bytes,
                file_bytes,
                unix_s,
            })
        }
        StatusCode::UNAUTHORIZED if login.user.is_some() => Err(PageError::WrongLogin),
        StatusCode::UNAUTHORIZED => Err(PageError::NoLogin),
        status => {
            let bytes = response.bytes().await.unwrap_or_default();
            let why = why_of(&bytes).unwrap_or_else(|| format!("it answers {status}"));
            Err(PageError::Refused { status, why })
        }
    }
}

/// Returns the time of a `Date` header.
fn unix_s_of(date: &str) -> Option<u64> {
    let date = httpdate::parse_http_date(date).ok()?;
    let since = date.duration_since(std::time::UNIX_EPOCH).ok()?;
    Some(since.as_secs())
}

/// Returns the reason in the body of an error.
fn why_of(bytes: &[u8]) -> Option<String> {
    let answer: serde_json::Value = serde_json::from_slice(bytes).ok()?;
    Some(answer.get("error")?.as_str()?.to_owned())
}

/// Returns the innermost cause, which is the most specific.
fn cause_of(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return "it did not answer in time".to_owned();
    }
    let mut cause: &dyn std::error::Error = error;
    loop {
        if let Some(words) = cause.downcast_ref().and_then(of_certificate) {
            return words.to_owned();
        }
        // The wrapped error is not in the chain of sources.
        let wrapped = cause.downcast_ref::<std::io::Error>();
        let wrapped = wrapped.and_then(std::io::Error::get_ref);
        match wrapped.map(|error| error as _).or_else(|| cause.source()) {
            Some(next) => cause = next,
            None => return cause.to_string(),
        }
    }
}

/// Returns why a node's certificate is not trusted.
fn of_certificate(error: &rustls::Error) -> Option<&'static str> {
    let rustls::Error::InvalidCertificate(why) = error else {
        return None;
    };
    Some(match why {
        CertificateError::UnknownIssuer => {
            "its certificate is signed by nobody in the file of --tls-ca"
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "its certificate has ended: put a new one there, and send the node SIGHUP"
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "its certificate does not have the name or address that it was asked at"
        }
        // Webpki has no separate error for it.
        CertificateError::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => {
            "its certificate is one of an authority (CA:TRUE), as openssl req -x509 makes them: make it with \
             -addext basicConstraints=critical,CA:FALSE"
        }
        _ => return None,
    })
}
