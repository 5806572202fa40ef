//! Surveys of the sizes and loads of tables, for planning.

use std::collections::{BTreeMap, BTreeSet};

use forebay_engine::live::PartitionSize;
use forebay_engine::{PartitionId, TableName};

use super::{ReceivedReports, Step};
use crate::ids::NodeId;
use crate::live_status::LiveStatus;
use crate::measures::reads::{BatchReads, ReceivedReads};
use crate::measures::traffic::ReplicaTraffic;
use crate::model::{GroupEntry, Model, Survey, SurveyedPartition};
use crate::time::Now;

/// The most split points in one survey. If there are many partitions, each has fewer.
const MOST_SPLIT_POINTS: usize = 8192;

impl Step<'_> {
    /// Returns the state of live tables, for clients that cannot ask a node over HTTP.
    pub fn live_state(&self) -> Result<serde_json::Value, String> {
        let received = ReceivedReports {
            nodes: self.received,
            groups: self.groups,
            reads: self.reads,
        };
        let status = LiveStatus::of(&self.model, received, self.now);
        serde_json::to_value(status).map_err(|error| error.to_string())
    }

    /// Returns the sizes that leaders reported last.
    pub fn survey(&self, tables: &BTreeSet<TableName>) -> Result<Survey, String> {
        let mut survey = Survey::new();
        for table in tables {
            survey.insert(table.clone(), self.survey_one(table)?);
        }
        let partitions: usize = survey.values().map(BTreeMap::len).sum();
        let most = MOST_SPLIT_POINTS / partitions.max(1);
        let sizes = survey.values_mut().flat_map(BTreeMap::values_mut);
        sizes.for_each(|one| thin(&mut one.size, most));
        Ok(survey)
    }

    /// Returns the read rates of all batch tables that nodes reported last.
    pub fn batch_reads(&self) -> BatchReads {
        serving_reads(self.reads, &self.model, self.now)
    }

    /// Returns the sizes of all live tables.
    pub fn survey_all(&self) -> Survey {
        let tables = self.model.groups.keys();
        let reported =
            tables.filter_map(|table| Some((table.clone(), self.survey_one(table).ok()?)));
        reported.collect()
    }

    fn survey_one(
        &self,
        table: &TableName,
    ) -> Result<BTreeMap<PartitionId, SurveyedPartition>, String> {
        let groups = self.model.groups.get(table);
        let groups = groups.ok_or_else(|| format!("the cluster has no live table {table}"))?;
        let reported = groups.all().filter_map(|group| {
            let leading = self.groups.leading(group.group)?;
            let reported = SurveyedPartition {
                size: leading.lead.size.clone()?,
                leader: Some(leading.node),
                traffic: self.traffic_of(group),
            };
            Some((group.partition, reported))
        });
        Ok(reported.collect())
    }

    fn traffic_of(&self, group: &GroupEntry) -> Vec<(NodeId, ReplicaTraffic)> {
        let reported = group.staying().filter_map(|peer| {
            let report = self.groups.report(group.group, peer)?;
            Some((peer.node, report.traffic?))
        });
        reported.collect()
    }
}

/// Returns the reported reads of the versions that serve.
pub fn serving_reads(received: &ReceivedReads, model: &Model, now: Now) -> BatchReads {
    received.reported(now, |table, version| {
        let entry = model.table(table);
        entry.is_some_and(|entry| entry.serving == Some(version))
    })
}

/// Keeps at most so many split points, evenly spaced.
fn thin(size: &mut PartitionSize, most: usize) {
    let step = (size.split_points.len() + 1).div_ceil(most + 1);
    let mut number = 0;
    size.split_points.retain(|_| {
        number += 1;
        number % step == 0
    });
}

#[cfg(test)]
mod tests {
    use forebay_engine::Bound;

    use super::*;

    #[test]
    fn the_remaining_split_points_are_evenly_spaced() {
        let split_points: Vec<Bound> = (1..=15).map(|key| Bound::Key(vec![key])).collect();
        let left = |most| {
            let mut size = PartitionSize {
                split_points: split_points.clone(),
                ..PartitionSize::default()
            };
            thin(&mut size, most);
            let keys = size.split_points.into_iter().map(|point| match point {
                Bound::Key(key) => key[0],
                Bound::Slot(_) => 0,
            });
            keys.collect::<Vec<u8>>()
        };
        assert_eq!(left(15), (1..=15).collect::<Vec<u8>>());
        assert_eq!(left(100), (1..=15).collect::<Vec<u8>>());
        assert_eq!(left(7), [2, 4, 6, 8, 10, 12, 14]);
        assert_eq!(left(1), [8]);
        assert!(left(0).is_empty());
    }
}
