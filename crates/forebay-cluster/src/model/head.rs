//! The head: the one document that is replaced.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::doc::DocRef;
use crate::ids::ClusterId;

/// The format number of all documents of a catalog that this program writes.
pub const CLUSTER_FORMAT: u64 = 1;

/// Written once, when the cluster is made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    pub forebay_cluster: u64,
    pub id: ClusterId,
    pub name: String,
    pub created_unix_ms: u64,
}

/// Names the documents that are the cluster now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Head {
    pub forebay_head: u64,
    pub cluster: ClusterId,
    /// Rises by one with every change.
    pub revision: u64,
    /// Rises with every new coordinator.
    pub term: u64,
    /// Random, so that no two heads are alike.
    pub stamp: u64,
    /// `nodes/N`, `tables/N`, `layout/NAME` and `work`.
    pub roots: BTreeMap<String, DocRef>,
}

impl Head {
    /// Of a cluster without anything.
    pub fn first(cluster: ClusterId, stamp: u64) -> Self {
        Self {
            forebay_head: CLUSTER_FORMAT,
            cluster,
            revision: 0,
            term: 0,
            stamp,
            roots: BTreeMap::new(),
        }
    }
}
