//! Reads of batch tables: the reports of nodes, and the coordinator's record of them.
//!
//! Any node that holds a range answers for it. So the reads of a range are the sum of the reports
//! of all its nodes.

use std::collections::BTreeMap;
use std::time::Duration;

use forebay_engine::{Bound, Bounds, TableName};
use serde::{Deserialize, Serialize};

use crate::ids::NodeId;
use crate::measures::reporting::Report;
use crate::measures::traffic::{ReplicaTraffic, TrafficRate, TrafficWindow};
use crate::time::Now;

/// A report is dropped if the node does not repeat it for this long. Nodes repeat each report about
/// once a minute.
const FORGOTTEN: Duration = Duration::from_secs(3 * 60);

/// The reads of a partition of a batch table on one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadsReport {
    pub table: TableName,
    /// The version that serves on the node.
    pub version: u64,
    /// The bounds of the partition in that version.
    pub bounds: Bounds,
    pub traffic: ReplicaTraffic,
}

/// The reads of a partition, with the node that reported them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeReads {
    pub node: NodeId,
    pub version: u64,
    pub bounds: Bounds,
    pub traffic: ReplicaTraffic,
}

/// The reported reads of batch tables, by table name.
pub type BatchReads = BTreeMap<TableName, Vec<NodeReads>>;

/// A table, and the bounds of a partition.
pub type ReadsPlace = (TableName, Bound, Option<Bound>);

pub fn reads_place(table: &TableName, bounds: &Bounds) -> ReadsPlace {
    (table.clone(), bounds.lower.clone(), bounds.upper.clone())
}

impl Report for ReadsReport {
    type Place = ReadsPlace;

    fn place(&self) -> Self::Place {
        reads_place(&self.table, &self.bounds)
    }

    fn is_like(&self, other: &Self) -> bool {
        let shape = |report: &Self| (report.version, report.traffic.requests_roughly());
        shape(self) == shape(other)
    }
}

impl NodeReads {
    pub fn rate(&self, window: TrafficWindow) -> &TrafficRate {
        self.traffic.over(window)
    }
}

/// The reports of a node by partition, with the time of each.
type ReportedReads = BTreeMap<ReadsPlace, (Duration, ReadsReport)>;

/// The reports of all nodes.
#[derive(Debug, Default)]
pub struct ReceivedReads(BTreeMap<NodeId, ReportedReads>);

impl ReceivedReads {
    /// Records the reports of a node; returns whether there are any.
    pub fn receive(&mut self, now: Now, node: NodeId, reports: Vec<ReadsReport>) -> bool {
        let is_news = !reports.is_empty();
        if let (false, None) = (is_news, self.0.get(&node)) {
            return false;
        }
        let reported = self.0.entry(node).or_default();
        for report in reports {
            // Partitions of an earlier version no longer exist.
            let is_of_another = |known: &ReadsReport| {
                known.table == report.table && known.version != report.version
            };
            reported.retain(|_, (_, known)| !is_of_another(known));
            reported.insert(report.place(), (now.monotonic, report));
        }
        reported.retain(|_, (at, _)| now.since(*at) < FORGOTTEN);
        is_news
    }

    /// Drops the reports of a node that runs another process now.
    pub fn restarted(&mut self, node: NodeId) {
        self.0.remove(&node);
    }

    /// Returns the reads of the versions for which `is_asked_for` is true.
    pub fn reported(&self, now: Now, is_asked_for: impl Fn(&TableName, u64) -> bool) -> BatchReads {
        let mut all = BatchReads::new();
        for (node, reported) in &self.0 {
            let reported = reported.values();
            let reported = reported.filter(|(at, report)| {
                now.since(*at) < FORGOTTEN && is_asked_for(&report.table, report.version)
            });
            for (_, report) in reported {
                all.entry(report.table.clone())
                    .or_default()
                    .push(NodeReads {
                        node: *node,
                        version: report.version,
                        bounds: report.bounds.clone(),
                        traffic: report.traffic,
                    });
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Now {
        Now {
            monotonic: Duration::from_secs(seconds),
            unix_ms: 0,
        }
    }

    fn report(table: &str, lower: u16, reads: u64) -> ReadsReport {
        let mut traffic = ReplicaTraffic::default();
        traffic.minute.reads = reads;
        ReadsReport {
            table: TableName::new(table).unwrap(),
            version: 1,
            bounds: Bounds {
                lower: Bound::Slot(lower),
                upper: None,
            },
            traffic,
        }
    }

    #[test]
    fn reports_that_are_not_repeated_expire() {
        let mut received = ReceivedReads::default();
        let (one, two) = (NodeId(1), NodeId(2));
        assert!(!received.receive(at(0), one, Vec::new()));
        assert!(received.receive(at(0), one, vec![report("a", 0, 10), report("b", 0, 1)]));
        assert!(received.receive(at(100), one, vec![report("a", 0, 20), report("a", 5, 1)]));
        assert!(received.receive(at(100), two, vec![report("a", 0, 3)]));
        let reads = |now: Now| -> Vec<(u32, u64)> {
            let reported = received.reported(now, |table, _| table.as_str() == "a");
            let reported = reported.into_values().flatten();
            reported
                .map(|one| (one.node.0, one.rate(TrafficWindow::Minute).reads))
                .collect()
        };
        assert_eq!(reads(at(120)), [(1, 20), (1, 1), (2, 3)]);
        assert_eq!(received.reported(at(120), |_, _| true).len(), 2);
        assert_eq!(
            received.reported(at(200), |_, _| true).len(),
            1,
            "the report about b has expired"
        );
        assert!(reads(at(300)).is_empty());
        received.restarted(two);
        assert_eq!(received.reported(at(120), |_, _| true).len(), 2);
    }

    #[test]
    fn reports_about_an_earlier_version_are_discarded() {
        let mut received = ReceivedReads::default();
        let one = NodeId(1);
        received.receive(
            at(0),
            one,
            vec![report("a", 0, 10), report("a", 7, 10), report("b", 0, 1)],
        );
        let next = ReadsReport {
            version: 2,
            ..report("a", 3, 50)
        };
        received.receive(at(5), one, vec![next]);
        let reported = received.reported(at(6), |_, _| true);
        let lowers = |table: &str| -> Vec<Bound> {
            let reported = &reported[&TableName::new(table).unwrap()];
            reported
                .iter()
                .map(|one| one.bounds.lower.clone())
                .collect()
        };
        assert_eq!(
            (lowers("a"), lowers("b")),
            (vec![Bound::Slot(3)], vec![Bound::Slot(0)])
        );
        assert!(
            received
                .reported(at(6), |_, version| version == 3)
                .is_empty()
        );
    }

    #[test]
    fn a_new_version_or_a_new_rate_is_reported_again() {
        let one = report("a", 0, 1000);
        assert!(one.is_like(&report("a", 0, 1010)));
        assert!(!one.is_like(&report("a", 0, 2000)));
        let next = ReadsReport {
            version: 2,
            ..report("a", 0, 1000)
        };
        assert!(!one.is_like(&next));
        assert_eq!(one.place(), next.place());
    }
}
