//! Drives rollouts: a swap happens on all nodes or on none.
//!
//! In Spock (3.1.2 and 4.3) a swap that fails on one node is rolled back on the others. In Forebay
//! this also works after the coordinator has changed.
//!
//! ```text
//! preparing -> committed (head) -> confirmed
//!          `-> aborted         `-> reverting (head) -> reverted
//! ```
//!
//! Before the commit each participant proves that it has what the manifest says: it counts and sums
//! every row. A node that is down is excluded if every range still has enough nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use forebay_engine::{Bounds, Pointer, TableName};

use super::{Step, Summary};
use crate::bugs::{Bug, is_planted};
use crate::ids::NodeId;
use crate::message::Readiness;
use crate::model::{
    NodeState, OnFailure, Phase, Proof, Rollout, RolloutId, RolloutRole, RolloutTable, TableEntry,
};
use crate::routing::version::ranges_of;
use crate::time::Now;

/// What the coordinator knows of a rollout beyond the catalog.
#[derive(Debug, Default)]
pub struct Watch {
    /// The bytes that each node had fetched, and since when.
    progress: BTreeMap<NodeId, (u64, Duration)>,
    /// Since when this coordinator has known of the rollout.
    known_since: Option<Duration>,
    /// Since when the commit, or the revert, has been in the catalog.
    stands_since: Option<Duration>,
}

/// The proof that each node has to give for each table.
type ExpectedProofs = BTreeMap<NodeId, BTreeMap<TableName, Proof>>;

/// The progress of a participant.
enum ParticipantState {
    Ready(BTreeMap<TableName, Proof>),
    /// The participant is not ready yet, and may still become ready.
    Coming,
    /// The participant was down for long enough, or made no progress before the deadline.
    Away,
    Failed(String),
}

impl Step<'_> {
    /// Advances every rollout as far as possible now.
    pub fn drive(&mut self) {
        let under_way: Vec<RolloutId> = self.model.work.under_way().map(|one| one.id).collect();
        self.watches.retain(|id, _| under_way.contains(id));
        let first_new = self.first_new;
        for id in under_way.into_iter().filter(|id| *id < first_new) {
            let Some(rollout) = self.model.work.rollouts.get(&id).cloned() else {
                continue;
            };
            match rollout.phase {
                Phase::Preparing => self.prepare(rollout),
                Phase::Committed => self.confirm(rollout),
                Phase::Reverting => self.finish_revert(rollout),
                Phase::Confirmed | Phase::Aborted | Phase::Reverted => {}
            }
        }
    }

    fn prepare(&mut self, mut rollout: Rollout) {
        // Nodes that have joined in the meantime take part.
        let up = self.model.all_nodes().filter(|node| node.is_up());
        let new: BTreeSet<NodeId> = up
            .map(|node| node.id)
            .filter(|id| !rollout.participants.contains(id))
            .collect();
        if !new.is_empty() {
            rollout.participants.extend(&new);
            rollout.excluded.retain(|id| !new.contains(id));
            self.put(rollout.clone());
        }
        let expected = match self.expected(&rollout) {
            Ok(Some(expected)) => expected,
            Ok(None) => return,
            Err(problem) => return self.abort(rollout.id, problem),
        };
        let mut verified = BTreeMap::new();
        let mut is_waiting = false;
        for node in &rollout.participants {
            match self.standing(&rollout, *node, &expected) {
                ParticipantState::Ready(proofs) => {
                    verified.insert(*node, proofs);
                }
                ParticipantState::Coming => is_waiting = true,
                ParticipantState::Away => {}
                ParticipantState::Failed(problem) => return self.abort(rollout.id, problem),
            }
        }
        // Nodes that do not take part must have stopped answering from their old state, or are
        // known to be able to answer from it.
        let others = self.others(&rollout.participants);
        is_waiting |= !others.iter().all(|node| self.is_safe_to_leave_out(*node));
        if is_waiting && !is_planted(Bug::CommitsEarly) {
            return;
        }
        let ready: BTreeSet<NodeId> = verified.keys().copied().collect();
        if let Err(problem) = self.is_enough(&rollout, &ready) {
            return self.lack(rollout, problem);
        }
        // Each of these may answer from its old state until it reads this revision. A node that was
        // stopped in order may not have ended yet. A node that refuses reads when it is cut off may
        // still reach other nodes.
        rollout.excluded = self.others(&ready);
        rollout.participants = ready;
        rollout.verified = verified;
        rollout.reason = None;
        self.commit(rollout);
    }

    /// Returns the proof that every participant has to give for each table. `None`: a manifest is
    /// still being read.
    fn expected(&mut self, rollout: &Rollout) -> Result<Option<ExpectedProofs>, String> {
        let mut expected = ExpectedProofs::new();
        for (table, part) in &rollout.tables {
            let Some(summary) = self.summary(table, part.to)? else {
                return Ok(None);
            };
            for node in &rollout.participants {
                let ranges = self.ranges(table, *node);
                let of_node = expected.entry(*node).or_default();
                of_node.insert(table.clone(), summary.proof(&ranges));
            }
        }
        Ok(Some(expected))
    }

    fn ranges(&self, table: &TableName, node: NodeId) -> Vec<Bounds> {
        let held = |entry: &TableEntry| {
            let layout = self.model.layout_of(entry)?;
            Some(ranges_of(layout, entry, node))
        };
        self.model.table(table).and_then(held).unwrap_or_default()
    }

    fn standing(
        &mut self,
        rollout: &Rollout,
        node: NodeId,
        expected: &ExpectedProofs,
    ) -> ParticipantState {
        if !self.is_alive(node) {
            return match self.is_safe_to_leave_out(node) {
                true => ParticipantState::Away,
                false => ParticipantState::Coming,
            };
        }
        let name = |step: &Self| step.model.node_name(node);
        let readiness = self
            .received
            .get(&node)
            .and_then(|received| received.rollouts.get(&rollout.id));
        match readiness {
            Some(Readiness::Ready { proofs }) => match expected.get(&node) {
                Some(expected) if expected == proofs || is_planted(Bug::BelievesProofs) => {
                    ParticipantState::Ready(proofs.clone())
                }
                // The layout has changed since, and the node has not read that yet.
                Some(_) | None if !self.knows_this(node) => ParticipantState::Coming,
                Some(expected) => ParticipantState::Failed(format!(
                    "node {} proved {}, and the manifests say {}",
                    name(self),
                    shown(proofs),
                    shown(expected)
                )),
                None => ParticipantState::Coming,
            },
            Some(Readiness::Failed { problem }) => {
                ParticipantState::Failed(format!("node {}: {problem}", name(self)))
            }
            Some(Readiness::Fetching { done_bytes, .. }) => {
                let done_bytes = *done_bytes;
                self.watch_progress(rollout, node, done_bytes)
            }
            None => self.watch_progress(rollout, node, 0),
        }
    }

    /// Returns whether the node knows everything that is committed.
    fn knows_this(&self, node: NodeId) -> bool {
        let received = self.received.get(&node);
        received.is_some_and(|received| received.holds + 1 >= self.revision)
    }

    fn watch_progress(
        &mut self,
        rollout: &Rollout,
        node: NodeId,
        done_bytes: u64,
    ) -> ParticipantState {
        let watch = self.watches.entry(rollout.id).or_default();
        let now = self.now.monotonic;
        let (before, since) = watch.progress.entry(node).or_insert((done_bytes, now));
        if *before != done_bytes {
            (*before, *since) = (done_bytes, now);
        }
        let deadline = Duration::from_millis(rollout.options.deadline_ms);
        match self.now.since(*since) >= deadline {
            true => ParticipantState::Away,
            false => ParticipantState::Coming,
        }
    }

    /// Returns whether a node can be excluded safely. Either its reads from the old state have
    /// ended or they are known to be possible: it was stopped in order, or has sent no heartbeat
    /// for long enough.
    ///
    /// This uses the coordinator's own clock, because the times of day of two nodes may differ by
    /// hours.
    fn is_safe_to_leave_out(&self, node: NodeId) -> bool {
        match self.model.node(node).map(|entry| entry.state) {
            None | Some(NodeState::Left { .. }) => true,
            Some(NodeState::Up) => false,
            Some(NodeState::Down { .. }) if is_planted(Bug::LeavesOutEarly) => true,
            Some(NodeState::Down { .. }) => {
                let timing = self.model.timing();
                self.silent_for(node) >= timing.node_timeout() + timing.left_out_after()
            }
        }
    }

    /// Returns how long a node has sent no heartbeat, as far as this coordinator can know.
    pub fn silent_for(&self, node: NodeId) -> Duration {
        let received = self.received.get(&node).map(|received| received.at);
        let received = received.unwrap_or(self.took_over);
        self.now.since(received.max(self.took_over))
    }

    /// Checks that each range of the tables is on enough of these nodes. A rollback ignores ranges
    /// whose nodes are all down: no node answers for them, whichever version serves.
    fn is_enough(&self, rollout: &Rollout, nodes: &BTreeSet<NodeId>) -> Result<(), String> {
        for (table, part) in &rollout.tables {
            let Some(entry) = self.model.table(table) else {
                return Err(format!("table {table} was dropped meanwhile"));
            };
            let Some(layout) = self.model.layout_of(entry) else {
                return Err(format!("table {table} has no layout"));
            };
            for range in layout.ranges() {
                let list = entry.of_list(&range.list);
                let least = rollout.options.min_replicas.unwrap_or(list.len() - 1);
                let is_up = |node: &&NodeId| !self.is_safe_to_leave_out(**node);
                let most = match part.role {
                    RolloutRole::Rollback => list.iter().filter(is_up).count(),
                    _ => list.len(),
                };
                let least = least.clamp(1, list.len()).min(most);
                let ready = list.iter().filter(|node| nodes.contains(node)).count();
                if ready < least {
                    return Err(format!(
                        "of table {table}, what begins at {} would be on {ready} nodes, and has to be on {least}",
                        range.lower
                    ));
                }
            }
        }
        Ok(())
    }

    /// Handles too few ready nodes: the rollout waits for more until the deadline.
    fn lack(&mut self, rollout: Rollout, problem: String) {
        let deadline = Duration::from_millis(rollout.options.deadline_ms);
        let watch = self.watches.entry(rollout.id).or_default();
        let since = *watch.known_since.get_or_insert(self.now.monotonic);
        if self.now.since(since) >= deadline {
            let reason = format!("{problem}, and that did not change in time");
            return self.abort(rollout.id, reason);
        }
        let reason = Some(problem);
        self.put(Rollout { reason, ..rollout });
    }

    /// Returns all nodes but these.
    fn others(&self, nodes: &BTreeSet<NodeId>) -> BTreeSet<NodeId> {
        let all = self.model.all_nodes().map(|node| node.id);
        all.filter(|id| !nodes.contains(id)).collect()
    }

    fn commit(&mut self, mut rollout: Rollout) {
        debug_assert!(
            rollout.participants.iter().eq(rollout.verified.keys()),
            "rollout {} is committed with {:?}, and proved by {:?}",
            rollout.id,
            rollout.participants,
            rollout.verified.keys()
        );
        debug_assert!(
            rollout.participants.is_disjoint(&rollout.excluded),
            "rollout {} leaves out nodes that take part",
            rollout.id
        );
        for (table, part) in &rollout.tables {
            let Some(entry) = self.model.table(table) else {
                continue;
            };
            debug_assert!(
                entry.rollout == Some(rollout.id),
                "rollout {} lets table {table} serve, which takes part in {:?}",
                rollout.id,
                entry.rollout
            );
            let next = moved(entry, part);
            debug_assert_eq!(
                next.serving,
                Some(part.to),
                "rollout {} lets another version of table {table} serve",
                rollout.id
            );
            self.model.put_table(table, next);
        }
        rollout.phase = Phase::Committed;
        rollout.committed = Some(self.revision);
        self.put(rollout);
    }

    fn confirm(&mut self, mut rollout: Rollout) {
        let Some(committed) = rollout.committed else {
            return;
        };
        let missing = self.not_serving(&rollout, committed);
        if missing.is_empty() {
            rollout.phase = Phase::Confirmed;
            return self.end(rollout);
        }
        if !self.is_time_over(rollout.id) {
            return;
        }
        // A node that sends no heartbeats may be dead. Its lease shows that.
        let lost = self.model.timing().heartbeat_lost();
        let is_silent = |node: &NodeId| {
            let received = self.received.get(node);
            received.is_none_or(|received| self.now.since(received.at) >= lost)
        };
        if missing.iter().all(is_silent) && missing.iter().any(|node| self.is_alive(*node)) {
            return;
        }
        let serving = rollout.participants.difference(&missing).copied().collect();
        let is_enough = self.is_enough(&rollout, &serving).is_ok();
        // A node that is up, and does not serve what it proved to have, is faulty.
        let are_all_down = missing.iter().all(|node| !self.is_alive(*node));
        if is_enough && (are_all_down || rollout.options.on_failure == OnFailure::Keep) {
            rollout.participants = serving;
            rollout.excluded.extend(missing);
            rollout.phase = Phase::Confirmed;
            return self.end(rollout);
        }
        let names: Vec<String> = missing
            .iter()
            .filter_map(|id| Some(self.model.node(*id)?.name.to_string()))
            .collect();
        rollout.reason = Some(format!(
            "{} did not serve it {} s after the commit",
            names.join(", "),
            self.model.timing().confirm().as_secs_f64()
        ));
        self.revert(rollout);
    }

    fn revert(&mut self, mut rollout: Rollout) {
        for (table, part) in &rollout.tables {
            let Some(entry) = self.model.table(table) else {
                continue;
            };
            debug_assert_eq!(
                entry.serving,
                Some(part.to),
                "rollout {} takes back what table {table} does not serve",
                rollout.id
            );
            let mut before = entry.clone();
            before.serving = part.from;
            before.history.clone_from(&part.history);
            if part.role == RolloutRole::Rollback {
                before.bad.retain(|bad| Some(*bad) != part.from);
            }
            self.model.put_table(table, before);
        }
        self.watches.remove(&rollout.id);
        rollout.phase = Phase::Reverting;
        rollout.reverted = Some(self.revision);
        self.put(rollout);
    }

    /// Waits until every participant that is up serves the old versions again.
    fn finish_revert(&mut self, mut rollout: Rollout) {
        let Some(reverted) = rollout.reverted else {
            return;
        };
        let mut missing = self.not_serving(&rollout, reverted);
        if is_planted(Bug::ForgetsANode) {
            missing.pop_first();
        }
        let are_all_down = missing.iter().all(|node| !self.is_alive(*node));
        if missing.is_empty() || (are_all_down && self.is_time_over(rollout.id)) {
            rollout.excluded.extend(missing);
            rollout.phase = Phase::Reverted;
            self.end(rollout);
        }
    }

    /// Returns the participants that have not reported to serve a revision.
    fn not_serving(&self, rollout: &Rollout, revision: u64) -> BTreeSet<NodeId> {
        let serves = |node: &NodeId| {
            let received = self.received.get(node);
            received.is_some_and(|received| received.serves >= revision)
        };
        let missing = rollout.participants.iter().filter(|node| !serves(node));
        missing.copied().collect()
    }

    fn is_time_over(&mut self, id: RolloutId) -> bool {
        let Now { monotonic, .. } = self.now;
        let watch = self.watches.entry(id).or_default();
        let since = *watch.stands_since.get_or_insert(monotonic);
        self.now.since(since) >= self.model.timing().confirm()
    }

    /// Ends a rollout before its commit.
    pub fn abort(&mut self, id: RolloutId, reason: String) {
        let Some(mut rollout) = self.model.work.rollouts.get(&id).cloned() else {
            return;
        };
        rollout.phase = Phase::Aborted;
        rollout.reason = Some(reason);
        self.end(rollout);
    }

    /// Ends a rollout. Its tables are free for other work.
    fn end(&mut self, rollout: Rollout) {
        debug_assert!(
            rollout.phase.is_over(),
            "rollout {} ends, and is {:?}",
            rollout.id,
            rollout.phase
        );
        for (table, part) in &rollout.tables {
            let Some(mut entry) = self.model.table(table).cloned() else {
                continue;
            };
            entry.rollout = None;
            // A table that never served anything is removed.
            match entry.serving {
                None => self.model.remove_table(table),
                Some(_) => self.model.put_table(table, entry),
            }
            let place = (table.clone(), part.to);
            if matches!(self.summaries.get(&place), Some(Summary::Known(_))) {
                self.summaries.remove(&place);
            }
        }
        self.watches.remove(&rollout.id);
        self.put(rollout);
    }

    fn put(&mut self, rollout: Rollout) {
        let known = self.model.work.rollouts.get(&rollout.id);
        if known != Some(&rollout) {
            self.model.work.edit().rollouts.insert(rollout.id, rollout);
        }
    }
}

/// Returns a table's entry after the commit.
fn moved(entry: &TableEntry, part: &RolloutTable) -> TableEntry {
    let mut before = Pointer::unset();
    before.serving = entry.serving;
    before.history.clone_from(&entry.history);
    let after = match part.role {
        RolloutRole::Swap => before.swapped(part.to),
        RolloutRole::Replace => before.replaced(part.to),
        RolloutRole::Rollback => before.rolled_back().unwrap_or(before),
    };
    let mut next = entry.clone();
    next.serving = after.serving;
    next.history = after.history;
    let too_many = next
        .history
        .len()
        .saturating_sub(part.keep.saturating_sub(1));
    next.history.drain(..too_many);
    if part.role == RolloutRole::Rollback {
        next.bad
            .extend(part.from.filter(|from| !next.bad.contains(from)));
    }
    next
}

fn shown(proofs: &BTreeMap<TableName, Proof>) -> String {
    let one = |(table, proof): (&TableName, &Proof)| {
        format!(
            "{} rows of {table} in {} partitions, content {}",
            proof.rows, proof.partitions, proof.content
        )
    };
    let all: Vec<String> = proofs.iter().map(one).collect();
    all.join("; ")
}
