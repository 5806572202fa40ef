//! What the HTTP ports of a cluster's nodes answer.

use std::time::Duration;

use forebay_cluster::HostPort;
use forebay_cluster::status::Status;
use reqwest::Method;

use crate::login::NodeLogin;
use crate::node_http::{NodeHttp, PageError};

const STATUS: &str = "v1/cluster";
/// How long a node is waited for that hears of a request: it would find it by itself.
const NUDGE_TIME: Duration = Duration::from_millis(300);

/// Asks the HTTP ports of nodes, as the user of the command.
#[derive(Debug)]
pub struct NodePages {
    login: NodeLogin,
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
        let pages = self.get(nodes, STATUS, within).into_iter();
        let read = |page: Vec<u8>| {
            let status = serde_json::from_slice(&page);
            status.map_err(|error| PageError::Unreadable(error.to_string()))
        };
        pages.map(|page| page.and_then(read)).collect()
    }

    /// Has the coordinator look for requests. Whatever comes of it: it finds them by itself, a
    /// little later.
    pub fn nudge(&self, node: &HostPort) {
        self.get(std::slice::from_ref(node), "v1/cluster/nudge", NUDGE_TIME);
    }

    fn get(
        &self,
        nodes: &[HostPort],
        path: &str,
        within: Duration,
    ) -> Vec<Result<Vec<u8>, PageError>> {
        let http = match NodeHttp::new(self.login.clone(), within) {
            Ok(http) => http,
            Err(error) => {
                let words = error.to_string();
                let all = nodes.iter();
                return all.map(|_| Err(PageError::Unsent(words.clone()))).collect();
            }
        };
        let answers = http.ask_all(&Method::GET, nodes, path, within).into_iter();
        answers
            .map(|answer| answer.map(|answer| answer.bytes))
            .collect()
    }
}
