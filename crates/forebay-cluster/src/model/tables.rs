//! The tables of a cluster, as the catalog describes them.

use std::collections::BTreeMap;

use forebay_engine::TableName;
use forebay_run::Order;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use super::layout::LayoutName;
use super::live::LiveEntry;
use super::names::RolloutId;
use crate::ids::NodeId;

/// The number of documents over which tables are spread by name.
const PAGES: u64 = 64;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TablesPage {
    pub tables: BTreeMap<TableName, TableEntry>,
}

/// The catalog's entry for a table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableEntry {
    pub order: Order,
    pub layout: LayoutName,
    /// The desired number of nodes for each part. If the cluster has fewer nodes, fewer hold it.
    pub replicas: usize,
    /// During a change of `replicas`, the number before or after it, whichever is higher.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas_held: Option<usize>,
    /// The serving version. `None` before the first commit.
    pub serving: Option<u64>,
    /// The versions that served before, oldest first. A rollback goes to the last one.
    #[serde(default)]
    pub history: Vec<u64>,
    /// The versions that an operator rolled back from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bad: Vec<u64>,
    /// The rollout that created the table. It distinguishes the table from a dropped one of the
    /// same name, whose versions have the same numbers. Catalogs of format 1 do not have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made: Option<RolloutId>,
    /// The rollout under way that includes the table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<RolloutId>,
    /// Whether every node of a list holds its range. The table then has its own layout. Ranges that
    /// are read most are on more nodes than `replicas`, which is the minimum. Since format 3.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_range: bool,
    /// The settings of a live table, which has groups, and neither versions nor rollouts. Since
    /// format 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub live: Option<Box<LiveEntry>>,
}

impl TableEntry {
    /// Creates a table that serves nothing yet.
    pub fn new(order: Order, layout: LayoutName, replicas: usize) -> Self {
        Self {
            order,
            layout,
            replicas,
            replicas_held: None,
            serving: None,
            history: Vec::new(),
            bad: Vec::new(),
            made: None,
            rollout: None,
            by_range: false,
            live: None,
        }
    }

    /// Returns how many nodes of a list hold its range, or are to hold it.
    pub fn holding(&self) -> usize {
        match self.by_range {
            true => usize::MAX,
            false => self.wanted(),
        }
    }

    /// Returns the length that the lists of the table's layout need.
    pub fn wanted(&self) -> usize {
        self.replicas.max(self.replicas_held.unwrap_or(0))
    }

    /// Returns the nodes of a range's list that hold it.
    pub fn of_list<'a>(&self, list: &'a [NodeId]) -> &'a [NodeId] {
        match self.by_range {
            true => list,
            false => &list[..list.len().min(self.replicas)],
        }
    }
}

/// Returns the page of a table.
pub(super) fn page_of(table: &TableName) -> u32 {
    (xxh3_64(table.as_str().as_bytes()) % PAGES) as u32
}
