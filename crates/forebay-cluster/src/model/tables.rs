//! The tables of a cluster.

use std::collections::BTreeMap;

use forebay_engine::TableName;
use forebay_run::Order;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use super::layout::LayoutName;
use super::live::LiveEntry;
use super::names::RolloutId;
use crate::ids::NodeId;

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
    /// While that changes, as many hold it as before or as afterwards, whichever is more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas_held: Option<usize>,
    /// The version that serves; none before the first commit.
    pub serving: Option<u64>,
    /// The versions that served before, oldest first: a rollback goes to the last one.
    #[serde(default)]
    pub history: Vec<u64>,
    /// Versions that an operator rolled back from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bad: Vec<u64>,
    /// The rollout that made it: a table of the same name that was dropped before is another one,
    /// though its versions have the same numbers. Not known in catalogs of format 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made: Option<RolloutId>,
    /// The work under way that concerns it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<RolloutId>,
    /// Each range of its layout, which is its own, is held by its whole list: what is read most by
    /// more nodes than `replicas`, which is the least. Of format 3.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_range: bool,
    /// It is a live table: it has groups, and neither versions nor rollouts. Of format 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub live: Option<Box<LiveEntry>>,
}

impl TableEntry {
    /// A table that serves nothing yet.
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

    /// How many of a list hold a part of it, or are to.
    pub fn holding(&self) -> usize {
        match self.by_range {
            true => usize::MAX,
            false => self.wanted(),
        }
    }

    /// How long the lists of its layout have to be.
    pub fn wanted(&self) -> usize {
        self.replicas.max(self.replicas_held.unwrap_or(0))
    }

    /// Who of a range's list holds it.
    pub fn of_list<'a>(&self, list: &'a [NodeId]) -> &'a [NodeId] {
        match self.by_range {
            true => list,
            false => &list[..list.len().min(self.replicas)],
        }
    }
}

/// The page of a table.
pub(super) fn page_of(table: &TableName) -> u32 {
    (xxh3_64(table.as_str().as_bytes()) % PAGES) as u32
}
