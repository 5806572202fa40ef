//! The traffic of each node and of the hottest partitions, for people and their programs.

use std::collections::BTreeMap;

use forebay_engine::{PartitionId, TableName};
use serde::{Deserialize, Serialize};

use crate::coordinator::ReceivedReports;
use crate::measures::traffic::TrafficRate;
use crate::model::{GroupEntry, Model};

/// The maximum number of partitions that are listed one by one.
const MOST_HOT: usize = 8;

/// The traffic of the last minute. Nodes report each partition about once a minute.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrafficStatus {
    /// The traffic of nodes that have replicas of live tables.
    pub nodes: BTreeMap<String, NodeTraffic>,
    /// The partitions with the most requests, the hottest first.
    pub hottest: Vec<HotPartition>,
}

/// The traffic of a node per minute.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeTraffic {
    /// The number of partitions that the node leads.
    pub leads: usize,
    /// The traffic in partitions that the node leads.
    pub led: TrafficRate,
    /// The traffic in other partitions: reads after READONLY, and writes that it applies.
    pub followed: TrafficRate,
}

/// The traffic of a partition per minute, by the node that leads it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HotPartition {
    pub table: TableName,
    pub partition: PartitionId,
    pub node: String,
    pub led: TrafficRate,
}

impl TrafficStatus {
    pub fn of(model: &Model, received: ReceivedReports<'_>) -> Self {
        let mut status = Self::default();
        for (table, _) in model.live_tables() {
            for (group, _) in model.desired_groups(table) {
                status.count(model, received, (table, group));
            }
        }
        let hot = &mut status.hottest;
        hot.sort_by_key(|hot| std::cmp::Reverse(hot.led.requests()));
        hot.truncate(MOST_HOT);
        status
    }

    fn count(
        &mut self,
        model: &Model,
        received: ReceivedReports<'_>,
        (table, group): (&TableName, &GroupEntry),
    ) {
        let leading = received.groups.leading(group.group);
        for peer in group.staying() {
            let name = model.node_name(peer.node);
            let node = self.nodes.entry(name.clone()).or_default();
            let leads = leading.is_some_and(|leading| leading.node == peer.node);
            node.leads += usize::from(leads);
            let report = received.groups.report(group.group, peer);
            let Some(traffic) = report.and_then(|report| report.traffic) else {
                continue;
            };
            let minute = traffic.minute;
            match leads {
                false => node.followed.add(&minute),
                true => node.led.add(&minute),
            }
            if leads && minute.requests() > 0 {
                self.hottest.push(HotPartition {
                    table: table.clone(),
                    partition: group.partition,
                    node: name,
                    led: minute,
                });
            }
        }
    }

    /// Returns whether no node reported any traffic.
    pub fn is_quiet(&self) -> bool {
        let quiet = TrafficRate::default();
        let mut nodes = self.nodes.values();
        nodes.all(|node| node.led == quiet && node.followed == quiet)
    }
}
