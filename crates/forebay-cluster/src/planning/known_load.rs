//! The known load on a cluster, and each node's part of it.

use std::collections::BTreeMap;

use forebay_engine::TableName;

use super::Summaries;
use crate::ids::NodeId;
use crate::measures::reads::BatchReads;
use crate::measures::traffic::TrafficWindow;
use crate::model::{Model, Survey};

/// The cost of a write for its leader, and for each follower that applies it, where a key that is
/// read costs 1. Both are measured in processor time; see docs/decisions/planners.md.
pub const LED_WRITE: f64 = 16.0;
pub const FOLLOWED_WRITE: f64 = 10.0;

/// The measurements from which the load of nodes is computed.
#[derive(Debug, Clone, Copy)]
pub struct KnownLoad<'a> {
    /// The serving versions of batch tables, as far as they are needed.
    pub summaries: &'a Summaries,
    /// The read rates of the batch tables.
    pub reads: &'a BatchReads,
    /// The sizes and rates of the live tables.
    pub survey: &'a Survey,
}

impl KnownLoad<'_> {
    /// Returns each node's load by the selected tables, in keys read a minute or the equivalent
    /// cost.
    pub fn by_node(
        &self,
        model: &Model,
        window: TrafficWindow,
        is_asked_for: impl Fn(&TableName) -> bool,
    ) -> BTreeMap<NodeId, f64> {
        let mut loads = BTreeMap::new();
        for (table, _) in model.live_tables().filter(|(table, _)| is_asked_for(table)) {
            for reported in self
                .survey
                .get(table)
                .into_iter()
                .flat_map(BTreeMap::values)
            {
                for (node, traffic) in &reported.traffic {
                    let rate = traffic.over(window);
                    let write = match reported.leader == Some(*node) {
                        true => LED_WRITE,
                        false => FOLLOWED_WRITE,
                    };
                    *loads.entry(*node).or_insert(0.0) +=
                        rate.reads as f64 + write * rate.writes as f64;
                }
            }
        }
        let read = self.reads.iter().filter(|(table, _)| is_asked_for(table));
        for one in read.flat_map(|(_, reported)| reported) {
            *loads.entry(one.node).or_insert(0.0) += one.rate(window).reads as f64;
        }
        loads
    }
}
