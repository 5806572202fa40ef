//! The tables of a cluster.

use std::collections::BTreeMap;

use forebay_engine::TableName;
use forebay_run::Order;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use super::layout::LayoutName;
use super::names::RolloutId;

/// Over so many documents tables are spread, by their names.
const PAGES: u64 = 64;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TablesPage {
    pub tables: BTreeMap<TableName, TableEntry>,
}

/// A table as the catalog knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableEntry {
    pub order: Order,
    pub layout: LayoutName,
    /// How many nodes are to hold each part. Fewer do where there are fewer.
    pub replicas: usize,
    /// The version that serves; none before the first commit.
    pub serving: Option<u64>,
    /// The versions that served before, oldest first: a rollback goes to the last one.
    #[serde(default)]
    pub history: Vec<u64>,
    /// Versions that an operator rolled back from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bad: Vec<u64>,
    /// The work under way that concerns it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<RolloutId>,
}

/// The page of a table.
pub(super) fn page_of(table: &TableName) -> u32 {
    (xxh3_64(table.as_str().as_bytes()) % PAGES) as u32
}
