//! Estimates how long a plan takes, by the pace at which nodes last copied.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Proposal;
use crate::ids::NodeId;
use crate::model::{LayoutName, Model, MoveBatch};

/// The measured time of a batch beside its bytes: requests, heartbeats and commits. In a batch
/// table the previous holders serve for [`Timing::on_its_way`](crate::time::Timing::on_its_way)
/// longer.
const BATCH: Duration = Duration::from_millis(2500);
pub(super) const LIVE_BATCH: Duration = Duration::from_secs(1);
/// The time to split a partition: for the first child of a batch, and for each further one.
const FIRST_CHILD: Duration = Duration::from_millis(350);
const CHILD: Duration = Duration::from_millis(30);

/// The bytes a second that nodes last copied, if known.
pub type Paces = BTreeMap<NodeId, u64>;

impl Proposal {
    /// Sets the expected duration. Nodes that have copied nothing yet count with the slowest pace
    /// of any other. If something is copied and no pace is known, there is no estimate.
    pub fn estimate(&mut self, model: &Model, paces: &Paces) {
        self.expected = self.time(model, paces, paces.values().min().copied());
    }

    /// Returns the plan's duration. `otherwise` is the pace of nodes that have copied nothing yet.
    pub(super) fn time(
        &self,
        model: &Model,
        paces: &Paces,
        otherwise: Option<u64>,
    ) -> Option<Duration> {
        let batches = self.plan.batches.iter();
        let mut times: Vec<Duration> = batches.map(|batch| fixed(model, batch)).collect();
        let mut fetched: BTreeMap<(usize, NodeId), u64> = BTreeMap::new();
        for copy in &self.copies {
            *fetched.entry((copy.batch, copy.to)).or_default() += copy.bytes;
        }
        let mut longest = vec![0.0_f64; times.len()];
        for ((batch, node), bytes) in fetched.into_iter().filter(|(_, bytes)| *bytes > 0) {
            let pace = paces.get(&node).copied().or(otherwise)?;
            let seconds = bytes as f64 / pace.max(1) as f64;
            longest[batch] = longest[batch].max(seconds);
        }
        for (time, seconds) in times.iter_mut().zip(longest) {
            *time += Duration::from_secs_f64(seconds);
        }
        Some(times.iter().sum())
    }
}

/// Returns the time that a batch takes whatever it copies.
fn fixed(model: &Model, batch: &MoveBatch) -> Duration {
    let is_live = |layout: &LayoutName| match layout {
        LayoutName::Main => false,
        LayoutName::Table(table) => model
            .table(table)
            .is_some_and(|entry| entry.live().is_some()),
    };
    let mut lists = batch.lists.iter();
    let moved = if batch.lists.is_empty() && batch.replicas.is_empty() {
        Duration::ZERO
    } else if batch.replicas.is_empty() && lists.all(|change| is_live(&change.layout)) {
        LIVE_BATCH
    } else {
        BATCH + model.timing().on_its_way()
    };
    let split = match batch.splits.len() {
        0 => Duration::ZERO,
        children => FIRST_CHILD + CHILD * (children - 1) as u32,
    };
    moved + split
}

#[cfg(test)]
mod tests {
    use super::super::tests::{cluster, nodes};
    use super::super::{BATCH_BYTES, propose};
    use super::*;
    use crate::model::PlanGoal;

    /// A plan that adds one node, in one batch.
    fn plan() -> (Model, Proposal) {
        let (model, summaries) = cluster(4, 5, 1);
        let goal = PlanGoal::Add(nodes(&[4]));
        let proposal = propose(&model, &summaries, &goal, BATCH_BYTES).unwrap();
        assert_eq!(proposal.plan.batches.len(), 1);
        (model, proposal)
    }

    #[test]
    fn the_duration_of_a_plan_is_that_of_its_busiest_node() {
        let (model, mut proposal) = plan();
        let bytes_per_s = proposal.plan.copies[&NodeId(4)] / 10;
        proposal.estimate(&model, &Paces::from([(NodeId(4), bytes_per_s)]));
        let time = proposal.expected.unwrap();
        assert!(time.abs_diff(BATCH + Duration::from_secs(15)) < Duration::from_millis(100));
        // This node has copied nothing yet.
        let others = Paces::from([(NodeId(1), bytes_per_s), (NodeId(2), 100 * bytes_per_s)]);
        proposal.estimate(&model, &others);
        assert_eq!(proposal.expected, Some(time));
    }

    #[test]
    fn a_plan_without_a_known_pace_has_no_duration() {
        let (model, mut proposal) = plan();
        proposal.estimate(&model, &Paces::new());
        assert_eq!(proposal.expected, None);
        assert!(!proposal.figures().contains("about"));
        proposal.copies.clear();
        proposal.estimate(&model, &Paces::new());
        assert_eq!(proposal.expected, Some(BATCH + Duration::from_secs(5)));
        assert!(
            proposal.figures().contains("about 8 s"),
            "{}",
            proposal.figures()
        );
    }
}
