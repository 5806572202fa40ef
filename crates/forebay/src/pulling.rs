//! Opens stores in object storage for pulling into a directory, by a server or `forebay pull`.

use std::path::Path;

use forebay_engine::{RunId, Store, TableName};
use forebay_objects::{PullOptions, Puller, ServedVersions};
use forebay_server::{Pulls, PullsStatus, ServerInside, TablePulled};

use crate::context::Context;

/// The server's requests to its puller.
#[derive(Debug)]
pub struct PullsOf(pub Puller);

impl Pulls for PullsOf {
    fn pulled(&self) -> PullsStatus {
        let state = self.0.state();
        let tables = state.tables.into_iter().map(|(table, pull)| TablePulled {
            table,
            wanted: pull.wanted,
            doing: pull.doing,
            total_bytes: pull.total_bytes,
            done_bytes: pull.done_bytes,
            pulled: pull.pulled,
            repaired: pull.repaired,
            problem: pull.problem,
        });
        PullsStatus {
            tables: tables.collect(),
            reached: state.looked,
            problem: state.problem,
            rate_bytes: state.rate_bytes,
            slowed: state.slowed,
            received_bytes: state.received_bytes,
            requests: state.requests,
        }
    }

    fn notify(&self, stamp: u64) {
        self.0.notify(stamp);
    }
}

/// The puller's questions and notifications to the server.
#[derive(Debug)]
pub struct PullServer(pub ServerInside);

impl ServedVersions for PullServer {
    fn reopen(&self, table: &TableName) {
        self.0.reopen(table);
    }

    fn damaged(&self) -> Vec<(TableName, u64, Vec<RunId>)> {
        self.0.damaged()
    }

    fn latencies(&self) -> Vec<u64> {
        self.0.latencies()
    }
}

impl Context {
    /// Opens the store in a directory, with a puller of versions from --store, which is in object
    /// storage.
    pub fn open_cache(&self, dir: &Path, options: PullOptions) -> anyhow::Result<(Store, Puller)> {
        let store = self.open_cache_directory(dir)?;
        let puller = Puller::new(self.remote_url()?, store.clone(), options)?;
        Ok((store, puller))
    }
}
