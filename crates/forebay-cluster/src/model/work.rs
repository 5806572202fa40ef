//! The work under way in a cluster, and the outcomes of earlier requests.

use std::collections::{BTreeMap, BTreeSet};

use forebay_engine::live::PartitionSize;
use forebay_engine::{PartitionId, TableName};
use serde::{Deserialize, Serialize};

use super::loads::TableLoad;
use super::names::{RequestId, RolloutId};
use super::rebalance::Rebalance;
use super::rollout::Rollout;
use crate::ids::NodeId;
use crate::measures::reads::BatchReads;
use crate::measures::traffic::ReplicaTraffic;
use crate::time::Timing;

/// The document with all work under way and the latest outcomes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkPage {
    /// The rollouts under way, and those that ended last.
    pub rollouts: BTreeMap<RolloutId, Rollout>,
    /// The answers to the latest requests.
    pub answers: BTreeMap<RequestId, RequestAnswer>,
    /// The latest plans, and the one that is carried out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rebalances: Vec<Rebalance>,
    /// Nodes that an operator drained. They hold nothing until an operator adds them.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub drained: BTreeSet<NodeId>,
    pub next_rollout: u64,
    pub next_node: u32,
    /// The next number for a group of a live table.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub next_group: u64,
    /// The loads into live tables under way, and those that ended last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub loads: Vec<TableLoad>,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub next_load: u64,
    /// Set since [`FORMAT_OF_TIMING`](super::FORMAT_OF_TIMING).
    #[serde(default, skip_serializing_if = "Timing::is_default")]
    pub timing: Timing,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The approximate sizes of live tables' partitions, as their leaders last reported. Partitions
/// without a report are missing.
pub type Survey = BTreeMap<TableName, BTreeMap<PartitionId, SurveyedPartition>>;

/// The size and load of a partition.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SurveyedPartition {
    #[serde(flatten)]
    pub size: PartitionSize,
    /// The leader's node. `None`: a coordinator of the previous program version does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader: Option<NodeId>,
    /// The load on the partition by the nodes of its replicas. Nodes without a report are missing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub traffic: Vec<(NodeId, ReplicaTraffic)>,
}

/// The answer to a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequestAnswer {
    pub unix_ms: u64,
    pub outcome: Outcome,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Done,
    /// This rollout carries the request out.
    Rollout(RolloutId),
    /// The plan of this request is carried out.
    Rebalance,
    /// The load of this number carries the request out.
    Load(u64),
    /// The approximate sizes of live tables.
    Survey(Survey),
    /// The read rates of batch tables.
    Reads(BatchReads),
    /// The state of live tables: a `LiveStatus`, or null if there are none.
    LiveState(serde_json::Value),
    /// The reason for the refusal, and what to do.
    Refused(String),
    /// Other work is under way.
    Busy(String),
}

impl Outcome {
    /// Returns whether the answer only reports something, and nothing was changed.
    pub fn is_reported(&self) -> bool {
        matches!(
            self,
            Outcome::Survey(_) | Outcome::Reads(_) | Outcome::LiveState(_)
        )
    }
}

impl WorkPage {
    /// Returns the rollout under way that includes a table.
    pub fn rollout_of(&self, table: &TableName) -> Option<&Rollout> {
        self.under_way()
            .find(|rollout| rollout.tables.contains_key(table))
    }

    pub fn under_way(&self) -> impl Iterator<Item = &Rollout> {
        self.rollouts
            .values()
            .filter(|rollout| !rollout.phase.is_over())
    }

    /// Returns the load into a table that is under way.
    pub fn load_of(&self, table: &TableName) -> Option<&TableLoad> {
        let mut loads = self.loads.iter();
        loads.find(|load| load.table == *table && !load.stage.is_over())
    }

    /// Returns the plan that is carried out.
    pub fn moving(&self) -> Option<&Rebalance> {
        let last = self.rebalances.last();
        last.filter(|rebalance| !rebalance.stage.is_over())
    }

    /// Returns whether the request can still be cancelled. The error says how it has ended.
    pub fn can_cancel(&self, request: &RequestId) -> Result<(), String> {
        let mut rollouts = self.rollouts.values();
        if let Some(rollout) = rollouts.find(|rollout| rollout.request == *request) {
            return rollout.can_cancel();
        }
        let mut loads = self.loads.iter();
        if let Some(load) = loads.find(|load| load.request == *request) {
            return load.can_cancel();
        }
        let mut plans = self.rebalances.iter();
        match plans.find(|plan| plan.request == *request) {
            Some(plan) => plan.can_cancel(),
            None => Err(format!(
                "there is no rollout, plan or load {request}: it ended long ago, or was never begun"
            )),
        }
    }

    pub fn next_node(&mut self) -> NodeId {
        let id = NodeId(self.next_node);
        self.next_node += 1;
        id
    }
}

#[cfg(test)]
mod tests {
    use super::super::{MoveStage, Phase, PlanGoal, RolloutOptions};
    use super::*;

    fn rollout(phase: Phase) -> Rollout {
        Rollout {
            id: RolloutId(1),
            request: RequestId("r".to_owned()),
            tables: BTreeMap::new(),
            options: RolloutOptions::default(),
            phase,
            begun_unix_ms: 0,
            committed: None,
            reverted: None,
            participants: BTreeSet::new(),
            verified: BTreeMap::new(),
            excluded: BTreeSet::new(),
            gave_way: false,
            reason: Some("a disk is full".to_owned()),
        }
    }

    fn plan(stage: MoveStage, done: usize) -> Rebalance {
        Rebalance {
            request: RequestId("p".to_owned()),
            goal: PlanGoal::Even,
            begun_unix_ms: 0,
            batches: 3,
            done,
            copied_bytes: 0,
            done_bytes: 0,
            stage,
            cancelled: false,
            reason: Some("node n1 is down".to_owned()),
        }
    }

    #[test]
    fn finished_work_is_not_cancelled_and_the_refusal_states_its_outcome() {
        let mut page = WorkPage::default();
        for (phase, word) in [
            (Phase::Preparing, None),
            (Phase::Committed, Some("forebay rollback")),
            (Phase::Confirmed, Some("has ended: it serves")),
            (Phase::Aborted, Some("serves nowhere: a disk is full")),
            (
                Phase::Reverting,
                Some("is being taken back: a disk is full"),
            ),
            (Phase::Reverted, Some("taken back everywhere: a disk")),
        ] {
            page.rollouts.insert(RolloutId(1), rollout(phase));
            let answer = page.can_cancel(&RequestId("r".to_owned())).err();
            assert_eq!(answer.is_some(), word.is_some(), "{phase:?}");
            let answer = answer.unwrap_or_default();
            assert!(answer.contains(word.unwrap_or_default()), "{answer}");
        }
        for (stage, done, word) in [
            (MoveStage::Between, 2, None),
            (MoveStage::Changed { since: 1 }, 1, None),
            (
                MoveStage::Changed { since: 1 },
                2,
                Some("last batch is done"),
            ),
            (MoveStage::Done, 3, Some("has ended: all of it is done")),
            (
                MoveStage::Stopped,
                1,
                Some("after 1 of 3 batches: node n1 is down"),
            ),
        ] {
            page.rebalances = vec![plan(stage, done)];
            let answer = page.can_cancel(&RequestId("p".to_owned())).err();
            assert_eq!(answer.is_some(), word.is_some(), "{stage:?}");
            let answer = answer.unwrap_or_default();
            assert!(answer.contains(word.unwrap_or_default()), "{answer}");
        }
        let unknown = page.can_cancel(&RequestId("q".to_owned())).unwrap_err();
        assert!(unknown.contains("never begun"), "{unknown}");
    }
}
