//! The head: the only document of the catalog that is replaced.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::doc::DocRef;
use crate::ids::ClusterId;

/// The oldest and the newest catalog format that this program reads and writes.
///
/// A new catalog has the newest format. An existing catalog keeps its format until an operator
/// raises it, because nodes of the previous program version may read it. Until then nothing of a
/// later format is written into it.
pub const FORMATS: [u64; 2] = [1, 4];
pub const NEWEST_FORMAT: u64 = FORMATS[1];

/// The first format with plans: [`Rebalance`](super::Rebalance), and its fields in tables, lists
/// and nodes.
pub const FORMAT_OF_PLANS: u64 = 2;

/// The first format that distinguishes a table from a dropped one of the same name.
pub const FORMAT_OF_REMAKES: u64 = 2;

/// The first format with live tables, and their groups.
pub const FORMAT_OF_LIVE: u64 = 3;

/// The first format that can set a node timeout other than 10 s.
pub const FORMAT_OF_TIMING: u64 = 4;

/// The identity of a cluster. It is written once, when the cluster is created.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// The format in which the catalog was created.
    pub forebay_cluster: u64,
    pub id: ClusterId,
    pub name: String,
    pub created_unix_ms: u64,
}

/// The head document, which names all documents of the current catalog.
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
    /// A random number, so that no two heads are equal.
    pub stamp: u64,
    /// The root documents: `nodes/N`, `tables/N`, `layout/NAME`, `groups/TABLE`, `plan` and `work`.
    pub roots: BTreeMap<String, DocRef>,
}

impl Head {
    /// Creates the head of an empty cluster.
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
