//! Carrying out plans: who holds what is changed a batch after the other.
//!
//! ```text
//! between -> copying -> changed (head) -> between .. -> releasing -> done
//!        `-> stopped `-> stopped: nothing of the batch stays but its cuts
//! ```
//!
//! Where a batch cuts partitions of live tables in two, that is done while copies are made. A plan
//! that cuts and moves has batches of its own for either.
//!
//! Those who come to hold a part bring it while others answer. When all of them hold it, one head
//! changes the lists. Who is in them no longer holds on until every node that is up knows that,
//! and a while longer for what is on its way. So there is no moment in which somebody is led to a
//! node that lacks what is asked for.
//!
//! While a rollout is under way nothing changes that would have nodes hold something else: the
//! rollout goes first.

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

/// A node that makes no progress for so long ends a plan.
const NO_PROGRESS: Duration = Duration::from_secs(10 * 60);
/// How many plans are told.
const KEPT: usize = 8;

/// What is known of a plan besides what the catalog says.
#[derive(Debug, Default)]
pub struct MoveWatch {
    /// How much nodes had brought, and since when.
    progress: BTreeMap<NodeId, (Option<u64>, Duration)>,
    /// Since when all have heard of what stands.
    known_since: Option<Duration>,
    /// How much was left of what live tables' groups have to do, and since when.
    live: Option<(MovesLeft, Duration)>,
    /// How many partitions were still to be cut, and since when.
    pub splits: Option<(usize, Duration)>,
}

/// For how long a plan has waited for a node.
#[derive(Debug, Clone, Copy)]
struct Waited {
    without_progress: Duration,
    /// Since its last heartbeat, where the node is down.
    unreachable: Option<Duration>,
}

impl Waited {
    /// Why the plan waits no longer. A node that is down again and again, each time for less than
    /// the limit, has the time of one that is up.
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
    /// Takes the plan as far as it goes now.
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
            // What nodes hold changes, which a rollout would have to begin anew for.
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
            // The nodes have not brought what was dropped and pushed again meanwhile.
            if range.next.as_ref() == Some(&change.new) {
                let before = std::mem::replace(&mut range.list, change.new.clone());
                (range.next, range.before) = (None, Some(before));
            }
        });
        for change in &batch.replicas {
            self.edit_replicas(change, |entry| entry.replicas = change.to);
        }
        // Cuts, and layouts of tables' own, change nothing about who holds what.
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

    /// The end waits until nodes have given up what they hold no longer; who is slow at that holds
    /// nobody up for good.
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
                // It may be about what was before.
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

    /// Whether the groups of live tables that a batch is about are where it wants them.
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

    /// Whether nodes are about to let other versions serve.
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

    /// An operator wants the plan to end.
    pub fn cancel_moving(&mut self) {
        if let Some(mut moving) = self.model.work.moving().cloned() {
            moving.cancelled = true;
            self.put_moving(moving);
        }
    }
}

/// Whether a batch is about parts of live tables alone. Their replicas are where it wants them when
/// the lists change, and who held a part before has forwarded for it since.
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

/// How a node stands that has to bring something.
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
    fn a_plan_waits_for_a_node_that_is_down_for_moments() {
        assert_eq!(problem(40, Some(11)), None);
        assert_eq!(problem(40, Some(12)).unwrap(), "was down for 12 s");
        // Another coordinator may have heard of it for longer than this one has watched.
        assert_eq!(problem(3, Some(40)), None);
        assert_eq!(problem(40, None), None);
        assert_eq!(problem(600, None).unwrap(), "made no progress for 600 s");
    }
}
