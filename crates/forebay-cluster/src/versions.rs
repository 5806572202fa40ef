//! The interface through which the shell handles versions on a node.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bytes::Bytes;
use forebay_engine::{Bound, Bounds, TableName};

use crate::ids::HostPort;
use crate::link::Peers;
use crate::measures::reads::ReadsReport;
use crate::model::Proof;
use crate::node::{Serve, VersionPlace};
use crate::routing::version::VersionSummary;

/// A version to fetch.
#[derive(Debug, Clone)]
pub struct VersionFetch {
    pub place: VersionPlace,
    pub ranges: Vec<Bounds>,
    /// Whether to open the version. If not, it is kept closed, for a rollback.
    pub open: bool,
    /// For each range, from its lower bound on, the node of the zone that fetches it from the
    /// store. This node fetches the range from that node.
    pub passed_on: Vec<(Bound, Option<HostPort>)>,
    pub by: Arc<dyn Peers>,
    /// How long to ask such a node for a file that it does not have yet.
    pub patience: Duration,
    pub cancelled: Arc<AtomicBool>,
    /// The node knows the catalog only from its memory, because the store is unavailable. It uses
    /// verified local data without asking the store.
    pub from_memory: bool,
}

/// The versions on this node's disk, and those that serve.
pub trait Versions: Debug + Send + Sync {
    /// Fetches these ranges of a version, reads them back to verify them, and opens them. Other
    /// local ranges of the version keep serving meanwhile. `advance` receives the bytes fetched and
    /// the total. The operator sees the error.
    fn fetch_copy(
        &self,
        what: &VersionFetch,
        advance: &(dyn Fn(u64, u64) + Sync),
    ) -> Result<Proof, String>;

    /// Returns the tables of which this node has versions.
    fn tables(&self) -> BTreeSet<TableName>;

    /// Makes these versions serve, and no others, in one step; removes dropped tables. Returns the
    /// tables for which that failed: they do not serve.
    fn activate(
        &self,
        tables: &BTreeMap<TableName, Serve>,
        dropped: &BTreeSet<TableName>,
    ) -> BTreeMap<TableName, String>;

    /// Reads a part of a local run's file, for another node.
    fn read(&self, table: &TableName, file: &str, range: Range<u64>) -> io::Result<Bytes>;

    /// Gives up a version that is no longer wanted.
    fn forget(&self, place: &VersionPlace);

    /// Sets whether the node is cut off. While it is, nothing is answered.
    fn cut_off(&self, cut_off: bool);

    /// Checks local data, and fetches again what is truncated, missing or damaged. With `whole` it
    /// reads all of the data.
    fn look_after(&self, whole: bool);

    /// Returns the free bytes on the disk.
    fn free_bytes(&self) -> Option<u64>;

    /// Returns the recent rate of fetching in bytes per second; `None` if nothing was fetched yet.
    fn fetched_bytes_per_s(&self) -> Option<u64>;

    /// Returns the reads of each local serving partition that has any. They are measured every ten
    /// seconds.
    fn reads(&self) -> Vec<ReadsReport>;
}

/// The source of manifests for the coordinator.
pub trait VersionSummaries: Debug + Send + Sync {
    /// Reads the summary of a version. An error of kind `NotFound` says that the version does not
    /// exist.
    fn summary(&self, place: &VersionPlace) -> io::Result<VersionSummary>;
}
