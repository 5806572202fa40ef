//! How much batch tables are read, on which node and where most, for people and their programs.

use std::collections::BTreeMap;

use forebay_engine::{Bounds, TableName};
use serde::{Deserialize, Serialize};

use crate::model::Model;
use crate::reads::BatchReads;
use crate::traffic::TrafficWindow;

/// So many partitions are told one by one.
const MOST_HOT: usize = 8;

/// What nodes told of the last minute, each about once a minute.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadsStatus {
    /// Keys that each node looks up in a minute.
    pub nodes: BTreeMap<String, u64>,
    /// The partitions that are read most, the first most.
    pub hottest: Vec<ReadPartition>,
}

/// A partition of a batch table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadPartition {
    pub table: TableName,
    pub bounds: Bounds,
    /// In a minute, by all nodes together.
    pub reads: u64,
    /// On how many nodes that was.
    pub nodes: usize,
}

impl ReadsStatus {
    /// `None`: nobody told of any.
    pub fn of(model: &Model, reported: &BatchReads) -> Option<Self> {
        let mut status = Self::default();
        for (table, reported) in reported {
            // Bounds by where they begin.
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
