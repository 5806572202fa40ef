//! What the HTTP ports of a cluster's nodes answer.

use std::sync::Arc;
use std::time::Duration;

use forebay_cluster::HostPort;
use forebay_cluster::status::Status;
use forebay_engine::TableName;
use reqwest::{Client, StatusCode};
use rustls::{CertificateError, ClientConfig, RootCertStore};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use thiserror::Error;
use tokio::task::JoinSet;

use crate::login::NodeLogin;

const STATUS: &str = "v1/cluster";
/// How long a node is waited for that hears of a request: it would find it by itself.
const NUDGE_TIME: Duration = Duration::from_millis(300);

/// Asks the HTTP ports of nodes, as the user of the command.
#[derive(Debug)]
pub struct NodePages {
    login: NodeLogin,
}

/// What a node answers of its events.
#[derive(Debug, Deserialize)]
pub struct NodeEvents {
    pub events: Vec<NodeEvent>,
    /// Some after the number that was asked with are not kept any more.
    pub gap: bool,
    /// The number to ask with next.
    pub last: u64,
}

/// An event of a node.
#[derive(Debug, Deserialize)]
pub struct NodeEvent {
    pub unix_ms: u64,
    pub level: String,
    pub message: String,
    pub fields: Map<String, Value>,
}

/// Why a node gave no answer.
#[derive(Debug, Error)]
pub enum PageError {
    #[error("it answers only its users: --login FILE, of one line, user:password")]
    NoLogin,
    #[error("it does not know this user and password: look at the file of --login")]
    WrongLogin,
    #[error("{0}")]
    Unsent(String),
    #[error("it answers {0}")]
    Refused(StatusCode),
    #[error("{words}{hint}")]
    NoAnswer { words: String, hint: &'static str },
    #[error("its answer is none of a node: {0}")]
    Unreadable(String),
}

impl NodePages {
    pub fn new(login: NodeLogin) -> Self {
        Self { login }
    }

    /// How the cluster is, as a node says that reaches the coordinator: what one node knows by
    /// itself may be old.
    pub fn status(&self, node: &HostPort) -> Option<Status> {
        let mut answers = self.statuses(std::slice::from_ref(node), NUDGE_TIME);
        answers.pop()?.ok().filter(Status::is_whole)
    }

    /// What each node says of the cluster; all are asked at once.
    pub fn statuses(&self, nodes: &[HostPort], within: Duration) -> Vec<Result<Status, PageError>> {
        let asked: Vec<_> = nodes
            .iter()
            .map(|node| (node.clone(), STATUS.to_owned()))
            .collect();
        self.read(&asked, within)
    }

    /// The events of each node after the number beside it; all are asked at once.
    pub fn events(
        &self,
        nodes: &[(HostPort, Option<u64>)],
        table: Option<&TableName>,
        within: Duration,
    ) -> Vec<Result<NodeEvents, PageError>> {
        let path = |after: &Option<u64>| {
            let after = after.map(|after| format!("after={after}"));
            let table = table.map(|table| format!("table={table}"));
            let query: Vec<String> = after.into_iter().chain(table).collect();
            format!("v1/events?{}", query.join("&"))
        };
        let asked = nodes
            .iter()
            .map(|(node, after)| (node.clone(), path(after)));
        self.read(&asked.collect::<Vec<_>>(), within)
    }

    fn read<T: DeserializeOwned>(
        &self,
        asked: &[(HostPort, String)],
        within: Duration,
    ) -> Vec<Result<T, PageError>> {
        let pages = self.get(asked, within).into_iter();
        let read = |page: Vec<u8>| {
            let answer = serde_json::from_slice(&page);
            answer.map_err(|error| PageError::Unreadable(error.to_string()))
        };
        pages.map(|page| page.and_then(read)).collect()
    }

    /// Has the coordinator look for requests. Whatever comes of it: it finds them by itself, a
    /// little later.
    pub fn nudge(&self, node: &HostPort) {
        self.get(&[(node.clone(), "v1/cluster/nudge".to_owned())], NUDGE_TIME);
    }

    fn get(
        &self,
        asked: &[(HostPort, String)],
        within: Duration,
    ) -> Vec<Result<Vec<u8>, PageError>> {
        let unsent = |error: &dyn std::error::Error| PageError::Unsent(error.to_string());
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let ready = runtime
            .map_err(|error| unsent(&error))
            .and_then(|runtime| Ok((runtime, self.client(within).map_err(|e| unsent(&e))?)));
        let (runtime, client) = match ready {
            Ok(ready) => ready,
            Err(error) => {
                let words = error.to_string();
                let all = asked.iter();
                return all.map(|_| Err(PageError::Unsent(words.clone()))).collect();
            }
        };
        runtime.block_on(async {
            let mut asking = JoinSet::new();
            for (index, (node, path)) in asked.iter().enumerate() {
                let (client, login) = (client.clone(), self.login.clone());
                let answer = ask(client, login, node.clone(), path.clone());
                asking.spawn(async move { (index, answer.await) });
            }
            let mut answers = asking.join_all().await;
            answers.sort_by_key(|(index, _)| *index);
            answers.into_iter().map(|(_, answer)| answer).collect()
        })
    }

    fn client(&self, within: Duration) -> reqwest::Result<Client> {
        let tls = match &self.login.tls {
            Some(config) => ClientConfig::clone(config),
            None => trusting_nobody(),
        };
        Client::builder()
            .tls_backend_preconfigured(tls)
            .no_proxy()
            .connect_timeout(within)
            .timeout(within)
            .build()
    }
}

/// Without --tls-ca nothing is asked by TLS; the roots of the system take a while to read.
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
    node: HostPort,
    path: String,
) -> Result<Vec<u8>, PageError> {
    if login.user.is_some() {
        let checked = login.check_for(std::slice::from_ref(&node));
        checked.map_err(|error| PageError::Unsent(error.to_string()))?;
    }
    let scheme = if login.tls.is_some() { "https" } else { "http" };
    let mut request = client.get(format!("{scheme}://{node}/{path}"));
    if let Some((user, password)) = &login.user {
        request = request.basic_auth(user, Some(password));
    }
    let hint = match login.tls {
        Some(_) => "",
        None => "; where nodes have certificates --tls-ca FILE says who signed them",
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
        StatusCode::OK => Ok(response.bytes().await.map_err(failed)?.to_vec()),
        StatusCode::UNAUTHORIZED if login.user.is_some() => Err(PageError::WrongLogin),
        StatusCode::UNAUTHORIZED => Err(PageError::NoLogin),
        status => Err(PageError::Refused(status)),
    }
}

/// The innermost cause, which says most.
fn cause_of(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return "it did not answer in time".to_owned();
    }
    let mut cause: &dyn std::error::Error = error;
    loop {
        if let Some(words) = cause.downcast_ref().and_then(of_certificate) {
            return words.to_owned();
        }
        // What such an error wraps is no source of it.
        let wrapped = cause.downcast_ref::<std::io::Error>();
        let wrapped = wrapped.and_then(std::io::Error::get_ref);
        match wrapped.map(|error| error as _).or_else(|| cause.source()) {
            Some(next) => cause = next,
            None => return cause.to_string(),
        }
    }
}

/// Why a node's certificate is not trusted.
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
        // Webpki has no other word for it.
        CertificateError::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => {
            "its certificate is one of an authority (CA:TRUE), as openssl req -x509 makes them: make it with \
             -addext basicConstraints=critical,CA:FALSE"
        }
        _ => return None,
    })
}
