//! What is known of the load on a cluster, and what of it each node has.

use std::collections::BTreeMap;

use forebay_engine::TableName;

use super::Summaries;
use crate::ids::NodeId;
use crate::model::{Model, Survey};
use crate::reads::BatchReads;
use crate::traffic::TrafficWindow;

/// What requests cost a node's processors, where a key that is read costs 1: a write costs its
/// leader so much, and each follower that applies it so much. Measured; see
/// docs/decisions/planners.md.
pub const LED_WRITE: f64 = 16.0;
pub const FOLLOWED_WRITE: f64 = 10.0;

/// See the module's text.
#[derive(Debug, Clone, Copy)]
pub struct KnownLoad<'a> {
    /// Of the batch tables what serves, as far as it is needed.
    pub summaries: &'a Summaries,
    /// How much they are read.
    pub reads: &'a BatchReads,
    /// Of the live tables.
    pub survey: &'a Survey,
}

impl KnownLoad<'_> {
    /// What nodes do for tables that are asked for, in keys read a minute or what costs as much.
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
