//! Partitions that a plan has cut in two, before anything of the batch is copied.

use std::collections::BTreeSet;
use std::time::Duration;

use forebay_engine::{Bound, TableName};

use super::Step;
use super::requests::Refusal;
use crate::ids::NodeId;
use crate::model::{GroupEntry, Model, MoveBatch, SplitChange};

/// How many partitions are cut at once, at least, and of each node that is up: what is cut off
/// answers no writes for some hundredths of a second.
const AT_ONCE: usize = 4;
const AT_ONCE_A_NODE: usize = 2;
/// Without progress for so long the plan ends.
const NO_PROGRESS: Duration = Duration::from_secs(5 * 60);

/// How far the cuts of a batch are.
pub enum CutSoFar {
    All,
    NotYet,
    Failed(String),
}

impl Step<'_> {
    /// Takes the cuts of a batch as far as they go now.
    pub fn cut_for(&mut self, batch: &MoveBatch) -> CutSoFar {
        let left = splits_left(&self.model, batch);
        if left.is_empty() {
            self.moves.cuts = None;
            return CutSoFar::All;
        }
        let now = self.now.monotonic;
        let (before, at) = self.moves.cuts.get_or_insert((left.len(), now));
        if *before != left.len() {
            (*before, *at) = (left.len(), now);
        }
        let waited = self.now.since(*at);
        let mut why = None;
        let up = self.model.all_nodes().filter(|node| node.is_up()).count();
        let at_once = AT_ONCE.max(AT_ONCE_A_NODE * up);
        let mut under_way = left
            .iter()
            .filter(|split| is_planned(&self.model, split))
            .count();
        for split in &left {
            if under_way >= at_once {
                break;
            }
            if is_planned(&self.model, split) {
                continue;
            }
            match self.plan_split(&split.table, &split.at) {
                Ok(()) => under_way += 1,
                // Another cut of the partition, a load, or replicas that are not there yet.
                Err(Refusal::Busy(words)) => why = why.or(Some(words)),
                Err(Refusal::Words(words)) => return CutSoFar::Failed(words),
            }
        }
        match waited >= NO_PROGRESS {
            true => CutSoFar::Failed(format!(
                "no partition was cut for {} min: {}",
                NO_PROGRESS.as_secs() / 60,
                why.as_deref()
                    .unwrap_or("see which have no leader or no majority (forebay cluster status)")
            )),
            false => CutSoFar::NotYet,
        }
    }
}

/// The cuts of a batch that are not done: where no partition with a leader begins.
pub fn splits_left(model: &Model, batch: &MoveBatch) -> Vec<SplitChange> {
    let begins = |split: &&SplitChange| {
        let groups = model.groups.get(&split.table).into_iter();
        let mut all = groups.flat_map(|groups| groups.all());
        all.any(|group| group.bounds.lower == split.at && group.term > 0)
    };
    let left = batch.splits.iter().filter(|split| !begins(split));
    left.cloned().collect()
}

/// Nodes that are down and have replicas of partitions that are still to be cut.
pub fn cuts_wait_for(model: &Model, left: &[SplitChange]) -> BTreeSet<NodeId> {
    let is_cut = |table: &TableName, group: &GroupEntry| {
        let mut own = left.iter().filter(|split| split.table == *table);
        own.any(|split| group.bounds.holds(&split.at))
    };
    let mut nodes = BTreeSet::new();
    for (table, groups) in &model.groups {
        let cut = groups.all().filter(|group| is_cut(table, group));
        let peers = cut.flat_map(|group| &group.peers);
        let staying = peers.filter(|peer| peer.state.stays());
        nodes.extend(staying.map(|peer| peer.node));
    }
    nodes.retain(|node| model.node(*node).is_some_and(|node| !node.is_up()));
    nodes
}

/// Whether it is begun: planned, or cut off and without a leader yet.
fn is_planned(model: &Model, split: &SplitChange) -> bool {
    let groups = model.groups.get(&split.table).into_iter();
    let mut all = groups.flat_map(|groups| groups.all());
    let is_at = |bound: &Bound| *bound == split.at;
    all.any(|group| {
        let planned = group.splits_off.as_ref();
        is_at(&group.bounds.lower) || planned.is_some_and(|planned| is_at(planned.at()))
    })
}
