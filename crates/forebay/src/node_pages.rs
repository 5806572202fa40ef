//! What the HTTP ports of a cluster's nodes answer.

use std::time::Duration;

use forebay_cluster::HostPort;
use forebay_cluster::status::Status;
use forebay_engine::TableName;
use reqwest::Method;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::login::NodeLogin;
use crate::node_http::{NodeHttp, PageError};

const STATUS: &str = "v1/cluster";
/// How long a node is waited for that hears of a request: it would find it by itself.
const NOTIFY_TIME: Duration = Duration::from_millis(300);

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

/// What a node was asked for while it was watched; `GET /v1/top`.
#[derive(Debug, Deserialize)]
pub struct NodeTop {
    pub estimated: bool,
    /// These are for who may read all tables.
    pub commands_per_second: Option<f64>,
    pub errors_per_second: Option<f64>,
    pub input_bytes_per_second: Option<f64>,
    pub output_bytes_per_second: Option<f64>,
    pub tables: Vec<TableTop>,
    pub partitions: Vec<PartitionTop>,
    pub keys: Vec<KeyTop>,
    /// Where there are some, and for who administers.
    pub users: Option<Vec<UserTop>>,
}

/// Keys.
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
    /// Bounds, in microseconds.
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
    /// Of another node: bounds are the highest.
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

    /// How the cluster is, as a node says that reaches the coordinator: what one node knows by
    /// itself may be old.
    pub fn status(&self, node: &HostPort) -> Option<Status> {
        let mut answers = self.statuses(std::slice::from_ref(node), NOTIFY_TIME);
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

    /// What each node is asked for while it is watched for a time; all are watched at once.
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

    /// Has the coordinator look for requests. Whatever comes of it: it finds them by itself, a
    /// little later.
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
