//! The answers of the HTTP ports of a cluster's nodes.

use std::time::Duration;

use forebay_cluster::HostPort;
use forebay_cluster::status::Status;
use forebay_engine::TableName;
use reqwest::Method;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::nodes::login::NodeLogin;
use crate::nodes::node_http::{NodeHttp, PageError};

const STATUS: &str = "v1/cluster";
/// How long a notification waits for a node. The node would find the request by itself.
const NOTIFY_TIME: Duration = Duration::from_millis(300);

/// A client for the pages of nodes, as the user of the command.
#[derive(Debug)]
pub struct NodePages {
    login: NodeLogin,
}

/// A node's answer about its events.
#[derive(Debug, Deserialize)]
pub struct NodeEvents {
    pub events: Vec<NodeEvent>,
    /// Some events after the requested number are no longer kept.
    pub gap: bool,
    /// The number for the next request.
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

/// The requests to a node while it was watched; `GET /v1/top`.
#[derive(Debug, Deserialize)]
pub struct NodeTop {
    pub estimated: bool,
    /// These fields are only for users who may read all tables.
    pub commands_per_second: Option<f64>,
    pub errors_per_second: Option<f64>,
    pub input_bytes_per_second: Option<f64>,
    pub output_bytes_per_second: Option<f64>,
    pub tables: Vec<TableTop>,
    pub partitions: Vec<PartitionTop>,
    pub keys: Vec<KeyTop>,
    /// Present if there are users, and only for administrators.
    pub users: Option<Vec<UserTop>>,
}

/// The rates of keys.
#[derive(Debug, Default, Clone, Copy, Serialize, Deserialize)]
pub struct Rates {
    pub reads_per_second: f64,
    pub writes_per_second: f64,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct TableTop {
    pub table: String,
    #[serde(flatten)]
    pub rates: Rates,
    pub commands_per_second: f64,
    pub errors_per_second: f64,
    /// Upper bounds, in microseconds.
    pub p50_us: Option<u64>,
    pub p99_us: Option<u64>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct PartitionTop {
    pub table: String,
    pub partition: u32,
    #[serde(flatten)]
    pub rates: Rates,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct KeyTop {
    pub table: String,
    /// Text, or an object {base64}.
    pub key: Value,
    pub partition: Option<u32>,
    #[serde(flatten)]
    pub rates: Rates,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct UserTop {
    pub user: String,
    pub keys_per_second: f64,
}

impl Rates {
    pub fn add(&mut self, more: &Rates) {
        self.reads_per_second += more.reads_per_second;
        self.writes_per_second += more.writes_per_second;
    }

    pub fn sum(&self) -> f64 {
        self.reads_per_second + self.writes_per_second
    }
}

impl TableTop {
    /// Adds the figures of another node. Bounds are the highest of both.
    pub fn add(&mut self, more: &TableTop) {
        self.rates.add(&more.rates);
        self.commands_per_second += more.commands_per_second;
        self.errors_per_second += more.errors_per_second;
        self.p50_us = self.p50_us.max(more.p50_us);
        self.p99_us = self.p99_us.max(more.p99_us);
    }
}

impl NodePages {
    pub fn new(login: NodeLogin) -> Self {
        Self { login }
    }

    /// Returns the state of the cluster from a node that reaches the coordinator: a single node's
    /// own knowledge may be old.
    pub fn status(&self, node: &HostPort) -> Option<Status> {
        let mut answers = self.statuses(std::slice::from_ref(node), NOTIFY_TIME);
        answers.pop()?.ok().filter(Status::is_whole)
    }

    /// Returns the state of the cluster from each node. All are asked at once.
    pub fn statuses(&self, nodes: &[HostPort], within: Duration) -> Vec<Result<Status, PageError>> {
        let asked: Vec<_> = nodes
            .iter()
            .map(|node| (node.clone(), STATUS.to_owned()))
            .collect();
        self.read(&asked, within)
    }

    /// Returns the events of each node after the number beside it. All are asked at once.
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

    /// Returns the requests to each node while it is watched for a time. All are watched at once.
    pub fn tops(
        &self,
        nodes: &[HostPort],
        time: Duration,
        limit: usize,
        beyond: Duration,
    ) -> Vec<Result<NodeTop, PageError>> {
        let path = format!("v1/top?for={}ms&limit={limit}", time.as_millis());
        let asked: Vec<_> = nodes
            .iter()
            .map(|node| (node.clone(), path.clone()))
            .collect();
        self.read(&asked, time + beyond)
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

    /// Notifies the coordinator of new requests. Failures are ignored: the coordinator finds
    /// requests by itself, a little later.
    pub fn notify(&self, node: &HostPort) {
        self.get(
            &[(node.clone(), "v1/cluster/notify".to_owned())],
            NOTIFY_TIME,
        );
    }

    fn get(
        &self,
        asked: &[(HostPort, String)],
        within: Duration,
    ) -> Vec<Result<Vec<u8>, PageError>> {
        let http = match NodeHttp::new(self.login.clone(), within) {
            Ok(http) => http,
            Err(error) => {
                let words = error.to_string();
                let all = asked.iter();
                return all.map(|_| Err(PageError::Unsent(words.clone()))).collect();
            }
        };
        let answers = http.ask_all(&Method::GET, asked, within).into_iter();
        answers
            .map(|answer| answer.map(|answer| answer.bytes))
            .collect()
    }
}
