//! What is under way, and what came of it.

use std::collections::{BTreeMap, BTreeSet};

use forebay_engine::live::PartitionSize;
use forebay_engine::{PartitionId, TableName};
use serde::{Deserialize, Serialize};

use super::loads::TableLoad;
use super::names::{RequestId, RolloutId};
use super::rebalance::Rebalance;
use super::rollout::Rollout;
use crate::ids::NodeId;
use crate::reads::BatchReads;
use crate::time::Timing;
use crate::traffic::ReplicaTraffic;

/// See the module's text.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkPage {
    /// Under way, and those that ended last.
    pub rollouts: BTreeMap<RolloutId, Rollout>,
    /// The requests that were taken up last.
    pub answers: BTreeMap<RequestId, RequestAnswer>,
    /// The plans that were carried out last, and the one that is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rebalances: Vec<Rebalance>,
    /// Nodes that somebody drained: they hold nothing until somebody adds them.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub drained: BTreeSet<NodeId>,
    pub next_rollout: u64,
    pub next_node: u32,
    /// Of the groups of live tables.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub next_group: u64,
    /// Loads into live tables: those under way, and those that ended last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub loads: Vec<TableLoad>,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub next_load: u64,
    /// From [`FORMAT_OF_TIMING`](super::FORMAT_OF_TIMING) on.
    #[serde(default, skip_serializing_if = "Timing::is_default")]
    pub timing: Timing,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// About how much partitions of live tables hold, as their leaders told last. Those of which nobody
/// told are not in it.
pub type Survey = BTreeMap<TableName, BTreeMap<PartitionId, SurveyedPartition>>;

/// What is known of a partition.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SurveyedPartition {
    #[serde(flatten)]
    pub size: PartitionSize,
    /// Who leads it; none: a coordinator of the version before does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader: Option<NodeId>,
    /// How much is done there, by the nodes of its replicas; those that told of nothing are not in
    /// it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub traffic: Vec<(NodeId, ReplicaTraffic)>,
}

/// What became of a request.
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
    /// A rollout does it.
    Rollout(RolloutId),
    /// The plan of this request is carried out.
    Rebalance,
    /// The load of this number.
    Load(u64),
    /// About how much live tables hold.
    Survey(Survey),
    /// How much batch tables are read.
    Reads(BatchReads),
    /// How they stand: a `LiveStatus`; null where there are none.
    LiveState(serde_json::Value),
    /// The words say why, and what to do.
    Refused(String),
    /// Something else is under way.
    Busy(String),
}

impl Outcome {
    /// Whether it tells of something, and changed nothing.
    pub fn is_reported(&self) -> bool {
        matches!(
            self,
            Outcome::Survey(_) | Outcome::Reads(_) | Outcome::LiveState(_)
        )
    }
}

impl WorkPage {
    /// The rollout under way that a table takes part in.
    pub fn rollout_of(&self, table: &TableName) -> Option<&Rollout> {
        self.under_way()
            .find(|rollout| rollout.tables.contains_key(table))
    }

    pub fn under_way(&self) -> impl Iterator<Item = &Rollout> {
        self.rollouts
            .values()
            .filter(|rollout| !rollout.phase.is_over())
    }

    /// The load into a table that is under way.
    pub fn load_of(&self, table: &TableName) -> Option<&TableLoad> {
        let mut loads = self.loads.iter();
        loads.find(|load| load.table == *table && !load.stage.is_over())
    }

    /// The plan that is carried out.
    pub fn moving(&self) -> Option<&Rebalance> {
        let last = self.rebalances.last();
        last.filter(|rebalance| !rebalance.stage.is_over())
    }

    /// Whether what was asked for can still be given up; the words say how it has ended.
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
    fn what_has_ended_is_not_cancelled_and_the_words_say_how_it_ended() {
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
