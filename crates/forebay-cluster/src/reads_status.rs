//! The reads of batch tables by node, and the most-read partitions, for people and their programs.

use std::collections::BTreeMap;

use forebay_engine::{Bounds, TableName};
use serde::{Deserialize, Serialize};

use crate::measures::reads::BatchReads;
use crate::measures::traffic::TrafficWindow;
use crate::model::Model;

/// The maximum number of partitions that are listed one by one.
const MOST_HOT: usize = 8;

/// The reads of the last minute. Nodes report each partition about once a minute.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadsStatus {
    /// The number of keys that each node looks up per minute.
    pub nodes: BTreeMap<String, u64>,
    /// The most-read partitions, in descending order.
    pub hottest: Vec<ReadPartition>,
}

/// The reads of one partition of a batch table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadPartition {
    pub table: TableName,
    pub bounds: Bounds,
    /// Reads per minute by all nodes together.
    pub reads: u64,
    /// The number of nodes that reported reads.
    pub nodes: usize,
}

impl ReadsStatus {
    /// Returns `None` if no node reported any reads.
    pub fn of(model: &Model, reported: &BatchReads) -> Option<Self> {
        let mut status = Self::default();
        for (table, reported) in reported {
            // Keyed by the lower bounds.
            let mut parts: BTreeMap<_, ReadPartition> = BTreeMap::new();
            for one in reported {
                let reads = one.rate(TrafficWindow::Minute).reads;
                if reads == 0 {
                    continue;
                }
                *status.nodes.entry(model.node_name(one.node)).or_default() += reads;
                let part = parts
                    .entry(&one.bounds.lower)
                    .or_insert_with(|| ReadPartition {
                        table: table.clone(),
                        bounds: one.bounds.clone(),
                        reads: 0,
                        nodes: 0,
                    });
                part.reads += reads;
                part.nodes += 1;
            }
            status.hottest.extend(parts.into_values());
        }
        status
            .hottest
            .sort_by_key(|part| std::cmp::Reverse(part.reads));
        status.hottest.truncate(MOST_HOT);
        (!status.nodes.is_empty()).then_some(status)
    }
}
