//! The head: the one document that is replaced.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::doc::DocRef;
use crate::ids::ClusterId;

/// The oldest and the newest format of a catalog that this program reads and writes. A new catalog
/// is of the newest. One that is there stays what it is until somebody says so: nodes of the
/// program before may read it. So nothing of a later format is written into it.
pub const FORMATS: [u64; 2] = [1, 4];
pub const NEWEST_FORMAT: u64 = FORMATS[1];

/// The first format with plans: [`Rebalance`](super::Rebalance), and what tables, lists and nodes
/// have of them.
pub const FORMAT_OF_PLANS: u64 = 2;

/// The first format that tells a table from one of the same name that was dropped.
pub const FORMAT_OF_REMAKES: u64 = 2;

/// The first format with live tables, and their groups.
pub const FORMAT_OF_LIVE: u64 = 3;

/// The first format that says another node timeout than 10 s.
pub const FORMAT_OF_TIMING: u64 = 4;

/// Written once, when the cluster is made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// The format that the catalog was made with.
    pub forebay_cluster: u64,
    pub id: ClusterId,
    pub name: String,
    pub created_unix_ms: u64,
}

/// Names the documents that are the cluster now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Head {
    /// The format of the catalog.
    pub forebay_head: u64,
    pub cluster: ClusterId,
    /// Rises by one with every change.
    pub revision: u64,
    /// Rises with every new coordinator.
    pub term: u64,
    /// Random, so that no two heads are alike.
    pub stamp: u64,
    /// `nodes/N`, `tables/N`, `layout/NAME`, `groups/TABLE`, `plan` and `work`.
    pub roots: BTreeMap<String, DocRef>,
}

impl Head {
    /// Of a cluster without anything.
    pub fn first(cluster: ClusterId, stamp: u64) -> Self {
        Self {
            forebay_head: NEWEST_FORMAT,
            cluster,
            revision: 0,
            term: 0,
            stamp,
            roots: BTreeMap::new(),
        }
    }
}
