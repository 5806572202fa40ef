//! Carries out plans: changes the assignment of ranges to nodes, batch by batch.
//!
//! ```text
//! between -> copying -> changed (head) -> between .. -> releasing -> done
//!        `-> stopped `-> stopped: nothing of the batch stays but its splits
//! ```
//!
//! If a batch splits partitions of live tables, it does so in the copying stage. A plan that splits
//! and moves has separate batches for splits and for moves.
//!
//! The new holders of a range copy it while the old holders serve it. When all of them have it, one
//! head changes the preference lists. A node that is removed from a list keeps its replica until
//! every node that is up knows the new list. It waits a while longer for requests in flight. So no
//! request is ever routed to a node that lacks the range.
//!
//! While a rollout is under way, the coordinator makes no change that would have nodes hold other
//! ranges. The rollout has priority.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Step;
use super::live_moves::MovesLeft;
use super::move_splits::SplitSoFar;
use crate::bugs::{Bug, is_planted};
use crate::ids::NodeId;
use crate::message::Readiness;
use crate::model::{
    LayoutName, Model, MoveBatch, MoveStage, Phase, Rebalance, ReplicasChange, RequestId,
};
use crate::planning::fetching;

/// The time without progress of a node after which the plan ends.
const NO_PROGRESS: Duration = Duration::from_secs(10 * 60);
/// The number of ended plans that the catalog keeps.
const KEPT: usize = 8;

/// What the coordinator knows of a plan beyond the catalog.
#[derive(Debug, Default)]
pub struct MoveWatch {
    /// The bytes that each node had fetched, and since when.
    progress: BTreeMap<NodeId, (Option<u64>, Duration)>,
    /// Since when all nodes know the present stage.
    known_since: Option<Duration>,
    /// The work left for live tables' groups, and since when.
    live: Option<(MovesLeft, Duration)>,
    /// The number of partitions that are still to be split, and since when.
    pub splits: Option<(usize, Duration)>,
}

/// How long a plan has waited for a node.
#[derive(Debug, Clone, Copy)]
struct Waited {
    without_progress: Duration,
    /// If the node is down: the time since its last heartbeat.
    unreachable: Option<Duration>,
}

impl Waited {
    /// Returns why the plan no longer waits, if so. A node that is down repeatedly, each time for
    /// less than the limit, gets the time limit of one that is up.
    fn problem(self, down_limit: Duration) -> Option<String> {
        let (time, limit, what) = match self.unreachable {
            None => (self.without_progress, NO_PROGRESS, "made no progress"),
            Some(unreachable) => (
                unreachable.min(self.without_progress),
                down_limit,
                "was down",
            ),
        };
        (time >= limit).then(|| format!("{what} for {} s", limit.as_secs()))
    }
}

impl Step<'_> {
    /// Advances the plan as far as possible now.
    pub fn move_on(&mut self) {
        let Some(moving) = self.model.work.moving().cloned() else {
            return;
        };
        match moving.stage {
            MoveStage::Between => self.begin_batch(moving),
            MoveStage::Copying { since } => self.copy_batch(moving, since),
            MoveStage::Changed { since } => self.release_batch(moving, since),
            MoveStage::Releasing { since } => self.finish(moving, since),
            MoveStage::Done | MoveStage::Stopped => {}
        }
    }

    fn begin_batch(&mut self, mut moving: Rebalance) {
        if moving.cancelled {
            return self.stop(moving, "it was cancelled".to_owned());
        }
        if self.is_rolling() {
            return;
        }
        let Some(batch) = self.model.batch_of(&moving) else {
            return self.stop(moving, "its plan is not in the catalog".to_owned());
        };
        if let Err(problem) = crate::planning::fits(&self.model, &batch) {
            return self.stop(moving, problem);
        }
        let own = batch.own.iter();
        own.for_each(|table| self.model.give_own_layout(table));
        self.model.edit_lists(&batch.lists, |change, range| {
            range.next = Some(change.new.clone());
        });
        for change in &batch.replicas {
            self.edit_replicas(change, |entry| {
                entry.replicas_held = Some(change.from.max(change.to));
            });
        }
        *self.moves = MoveWatch::default();
        moving.stage = MoveStage::Copying {
            since: self.revision,
        };
        moving.reason = None;
        self.put_moving(moving);
    }

    fn copy_batch(&mut self, mut moving: Rebalance, since: u64) {
        let Some(batch) = self.model.batch_of(&moving) else {
            return self.stop(moving, "its plan is not in the catalog".to_owned());
        };
        let mut is_waiting = false;
        let mut problem = moving.cancelled.then(|| "it was cancelled".to_owned());
        if problem.is_none() {
            match self.split_for(&batch) {
                SplitSoFar::All => {}
                SplitSoFar::NotYet => is_waiting = true,
                SplitSoFar::Failed(words) => problem = Some(words),
            }
        }
        for node in fetching(&self.model, &batch) {
            match self.fetched(node, since) {
                FetchState::All => {}
                FetchState::NotYet => is_waiting = true,
                FetchState::Failed(words) => problem = problem.or(Some(words)),
            }
        }
        match self.live_moved(&batch) {
            FetchState::All => {}
            FetchState::NotYet => is_waiting = true,
            FetchState::Failed(words) => problem = problem.or(Some(words)),
        }
        if let Some(problem) = problem {
            // This changes what nodes hold, and a rollout under way would have to start again.
            if self.is_rolling() {
                return;
            }
            self.undo(&batch);
            return self.stop(moving, problem);
        }
        if (is_waiting && !is_planted(Bug::MovesEarly)) || self.is_flipping() {
            return;
        }
        self.model.edit_lists(&batch.lists, |change, range| {
            // A range that was dropped and pushed again in the meantime has not been copied.
            if range.next.as_ref() == Some(&change.new) {
                let before = std::mem::replace(&mut range.list, change.new.clone());
                (range.next, range.before) = (None, Some(before));
            }
        });
        for change in &batch.replicas {
            self.edit_replicas(change, |entry| entry.replicas = change.to);
        }
        // Splits, and own layouts for tables, do not change the assignment.
        if !batch.moves() {
            return self.end_batch(moving, &batch);
        }
        *self.moves = MoveWatch::default();
        moving.stage = MoveStage::Changed {
            since: self.revision,
        };
        self.put_moving(moving);
    }

    fn undo(&mut self, batch: &MoveBatch) {
        self.model
            .edit_lists(&batch.lists, |_, range| range.next = None);
        for change in &batch.replicas {
            self.edit_replicas(change, |entry| entry.replicas_held = None);
        }
    }

    fn release_batch(&mut self, moving: Rebalance, since: u64) {
        let knows = |node: &NodeId| {
            let received = self.received.get(node);
            received.is_some_and(|received| received.revision >= since)
        };
        let up = self.model.all_nodes().filter(|node| node.is_up());
        if !up.map(|node| node.id).all(|node| knows(&node)) && !is_planted(Bug::ReleasesEarly) {
            self.moves.known_since = None;
            return;
        }
        let known_since = *self.moves.known_since.get_or_insert(self.now.monotonic);
        let batch = self.model.batch_of(&moving).unwrap_or_default();
        let is_time = self.now.since(known_since) >= self.model.timing().on_its_way()
            || is_of_live_tables(&self.model, &batch)
            || is_planted(Bug::ReleasesEarly);
        if !is_time || self.is_rolling() {
            return;
        }
        self.model
            .edit_lists(&batch.lists, |_, range| range.before = None);
        for change in &batch.replicas {
            self.edit_replicas(change, |entry| entry.replicas_held = None);
        }
        self.end_batch(moving, &batch);
    }

    fn end_batch(&mut self, mut moving: Rebalance, batch: &MoveBatch) {
        *self.moves = MoveWatch::default();
        moving.done += 1;
        moving.done_bytes += batch.copied_bytes;
        moving.stage = MoveStage::Between;
        if moving.done < moving.batches {
            return self.begin_batch(moving);
        }
        moving.stage = MoveStage::Releasing {
            since: self.revision,
        };
        self.put_moving(moving);
    }

    /// Ends the plan when all nodes have released what they no longer hold. A slow node delays the
    /// end only for a limited time.
    fn finish(&mut self, mut moving: Rebalance, since: u64) {
        let since_when = *self.moves.known_since.get_or_insert(self.now.monotonic);
        let holds = |node: &crate::model::NodeEntry| {
            let received = self.received.get(&node.id);
            received.is_some_and(|received| received.holds >= since)
        };
        let are_done = self
            .model
            .all_nodes()
            .filter(|node| node.is_up())
            .all(holds);
        if are_done || self.now.since(since_when) >= self.model.timing().released() {
            moving.stage = MoveStage::Done;
            self.end_moving(moving);
        }
    }

    fn stop(&mut self, mut moving: Rebalance, reason: String) {
        moving.stage = MoveStage::Stopped;
        moving.reason = Some(reason);
        let drained = moving.goal.drained();
        self.model
            .work
            .edit()
            .drained
            .retain(|node| !drained.contains(node));
        self.end_moving(moving);
    }

    fn end_moving(&mut self, moving: Rebalance) {
        debug_assert!(
            moving.stage.is_over(),
            "plan {} ends, and is {:?}",
            moving.request,
            moving.stage
        );
        *self.moves = MoveWatch::default();
        self.model.plan = None;
        self.put_moving(moving);
    }

    fn fetched(&mut self, node: NodeId, since: u64) -> FetchState {
        let received = self.received.get(&node).filter(|_| self.is_alive(node));
        let name = self.model.node_name(node);
        let done_bytes = match received.map(|received| (received.holds, &received.moving)) {
            Some((holds, _)) if holds >= since => return FetchState::All,
            Some((_, Some(Readiness::Failed { problem }))) if !self.is_rolling() => {
                let knows = received.is_some_and(|received| received.revision >= since);
                // The failure may concern an earlier revision.
                match knows {
                    true => return FetchState::Failed(format!("node {name}: {problem}")),
                    false => None,
                }
            }
            Some((_, Some(Readiness::Fetching { done_bytes, .. }))) => Some(*done_bytes),
            _ => None,
        };
        let now = self.now.monotonic;
        let (before, at) = self.moves.progress.entry(node).or_insert((done_bytes, now));
        if *before != done_bytes {
            (*before, *at) = (done_bytes, now);
        }
        let without_progress = self.now.since(*at);
        let received_at = self.received.get(&node).map_or(self.took_over, |it| it.at);
        let waited = Waited {
            without_progress,
            unreachable: (!self.is_alive(node)).then(|| self.now.since(received_at)),
        };
        match waited.problem(self.model.timing().plan_gives_up()) {
            Some(problem) => FetchState::Failed(format!("node {name} {problem}")),
            None => FetchState::NotYet,
        }
    }

    /// Returns whether the groups of live tables in a batch are on their desired nodes.
    fn live_moved(&mut self, batch: &MoveBatch) -> FetchState {
        let left = MovesLeft::of(&self.model, self.groups, batch);
        if left.partitions == 0 {
            self.moves.live = None;
            return FetchState::All;
        }
        let now = self.now.monotonic;
        let (before, at) = self.moves.live.get_or_insert((left.clone(), now));
        if *before != left {
            (*before, *at) = (left.clone(), now);
        }
        match self.now.since(*at) >= NO_PROGRESS {
            true => FetchState::Failed(format!(
                "{} partitions of live tables made no progress for {} min: see which have no leader or no majority \
                 (forebay cluster status)",
                left.partitions,
                NO_PROGRESS.as_secs() / 60
            )),
            false => FetchState::NotYet,
        }
    }

    fn is_rolling(&self) -> bool {
        self.model.work.under_way().next().is_some()
    }

    /// Returns whether nodes are switching to other versions.
    fn is_flipping(&self) -> bool {
        let mut under_way = self.model.work.under_way();
        under_way.any(|rollout| matches!(rollout.phase, Phase::Committed | Phase::Reverting))
    }

    fn edit_replicas(
        &mut self,
        change: &ReplicasChange,
        edit: impl Fn(&mut crate::model::TableEntry),
    ) {
        if let Some(mut entry) = self.model.table(&change.table).cloned() {
            edit(&mut entry);
            self.model.put_table(&change.table, entry);
        }
    }

    fn put_moving(&mut self, moving: Rebalance) {
        let work = self.model.work.edit();
        match work.rebalances.last_mut() {
            Some(last) if last.request == moving.request => *last = moving,
            _ => work.rebalances.push(moving),
        }
        let too_many = work.rebalances.len().saturating_sub(KEPT);
        work.rebalances.drain(..too_many);
    }

    /// Begins a plan that was checked.
    pub fn begin_moving(&mut self, request: &RequestId, plan: crate::model::MovePlan) {
        debug_assert!(
            self.model.work.moving().is_none(),
            "plan {request} begins, and another is carried out"
        );
        let work = self.model.work.edit();
        work.drained.extend(plan.goal.drained());
        for node in plan.goal.added() {
            work.drained.remove(&node);
        }
        let moving = Rebalance {
            request: request.clone(),
            goal: plan.goal.clone(),
            begun_unix_ms: self.now.unix_ms,
            batches: plan.batches.len(),
            done: 0,
            copied_bytes: plan.batches.iter().map(|batch| batch.copied_bytes).sum(),
            done_bytes: 0,
            stage: match plan.batches.is_empty() {
                true => MoveStage::Done,
                false => MoveStage::Between,
            },
            cancelled: false,
            reason: None,
        };
        if !plan.batches.is_empty() {
            self.model.plan = Some(crate::model::Doc::new(plan));
        }
        self.put_moving(moving);
    }

    /// Ends the plan at an operator's request.
    pub fn cancel_moving(&mut self) {
        if let Some(mut moving) = self.model.work.moving().cloned() {
            moving.cancelled = true;
            self.put_moving(moving);
        }
    }
}

/// Returns whether a batch changes only ranges of live tables. Their replicas are already on the
/// desired nodes when the lists change, and the previous holders have forwarded requests since.
fn is_of_live_tables(model: &Model, batch: &MoveBatch) -> bool {
    let is_live = |layout: &LayoutName| {
        let mut tables = model.all_tables();
        tables.all(|(_, table)| table.layout != *layout || table.live.is_some())
    };
    let is_batch = |change: &ReplicasChange| {
        let table = model.table(&change.table);
        table.is_some_and(|table| table.live.is_none())
    };
    batch.lists.iter().all(|change| is_live(&change.layout)) && !batch.replicas.iter().any(is_batch)
}

/// The progress of a node that has to fetch something.
enum FetchState {
    All,
    NotYet,
    Failed(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOWN_LIMIT: Duration = Duration::from_secs(12);

    fn problem(without_progress_s: u64, silent_s: Option<u64>) -> Option<String> {
        let waited = Waited {
            without_progress: Duration::from_secs(without_progress_s),
            unreachable: silent_s.map(Duration::from_secs),
        };
        waited.problem(DOWN_LIMIT)
    }

    #[test]
    fn a_plan_waits_for_a_node_that_is_down_briefly() {
        assert_eq!(problem(40, Some(11)), None);
        assert_eq!(problem(40, Some(12)).unwrap(), "was down for 12 s");
        // Another coordinator may have received heartbeats for longer than this one has watched.
        assert_eq!(problem(3, Some(40)), None);
        assert_eq!(problem(40, None), None);
        assert_eq!(problem(600, None).unwrap(), "made no progress for 600 s");
    }
}
