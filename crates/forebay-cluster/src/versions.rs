//! What a node does with versions, as the shell sees it.

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
use crate::model::Proof;
use crate::node::{Serve, VersionPlace};
use crate::reads::ReadsReport;
use crate::version::VersionSummary;

/// A version that is to be brought.
#[derive(Debug, Clone)]
pub struct VersionFetch {
    pub place: VersionPlace,
    pub ranges: Vec<Bounds>,
    /// Else it is kept to roll back to, and stays closed.
    pub open: bool,
    /// From each of these places on, the node of the zone that brings it from the store: this one
    /// takes it from there.
    pub passed_on: Vec<(Bound, Option<HostPort>)>,
    pub by: Arc<dyn Peers>,
    /// How long such a node is asked again for a file that it does not have yet.
    pub patience: Duration,
    pub cancelled: Arc<AtomicBool>,
    /// The node knows the catalog from its memory alone, as the store is away: what is here and
    /// verified is taken without a question to the store.
    pub from_memory: bool,
}

/// Versions on this node's disk, and those that serve.
pub trait Versions: Debug + Send + Sync {
    /// Brings a version as far as these ranges go, verifies what came by reading it back, and opens
    /// it. What is here of it with other ranges serves meanwhile. `advance` is told of bytes that
    /// are here, and of all that are wanted. The error is told to the operator.
    fn fetch_copy(
        &self,
        what: &VersionFetch,
        advance: &(dyn Fn(u64, u64) + Sync),
    ) -> Result<Proof, String>;

    /// The tables of which versions lie here.
    fn tables(&self) -> BTreeSet<TableName>;

    /// Lets these versions serve, and no others, at one moment; removes dropped tables. Returns the
    /// tables for which that failed: nothing of them serves.
    fn activate(
        &self,
        tables: &BTreeMap<TableName, Serve>,
        dropped: &BTreeSet<TableName>,
    ) -> BTreeMap<TableName, String>;

    /// A part of a run's file that is here, for another node.
    fn read(&self, table: &TableName, file: &str, range: Range<u64>) -> io::Result<Bytes>;

    /// The version is wanted no longer.
    fn forget(&self, place: &VersionPlace);

    /// Nothing is to be answered until this is taken back.
    fn cut_off(&self, cut_off: bool);

    /// Looks after what is here: brings anew what was cut, lost or found damaged, and with `whole`
    /// reads all of it for that.
    fn look_after(&self, whole: bool);

    /// Bytes that are free on the disk.
    fn free_bytes(&self) -> Option<u64>;

    /// Bytes that came in a second lately, while something was brought; `None`: nothing was yet.
    fn fetched_bytes_per_s(&self) -> Option<u64>;

    /// How much each partition that serves here is read, as far as anything is; looked at anew
    /// every ten seconds.
    fn reads(&self) -> Vec<ReadsReport>;
}

/// Where manifests are read for the coordinator.
pub trait VersionSummaries: Debug + Send + Sync {
    /// The error of kind `NotFound` says that there is no such version.
    fn summary(&self, place: &VersionPlace) -> io::Result<VersionSummary>;
}
