//! Splits partitions for a plan, before the batch copies anything. Each partition is split at all
//! its points in one step.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use forebay_engine::{Bound, TableName};
use forebay_replica::{GroupId, MOST_CHILDREN};

use super::Step;
use super::requests::Refusal;
use crate::ids::NodeId;
use crate::model::{GroupEntry, Model, MoveBatch, SplitChange};

/// The most partitions that are split at the same time: this many at least, or the given number for
/// each node that is up. Their children accept no writes for some hundredths of a second.
const AT_ONCE: usize = 4;
const AT_ONCE_A_NODE: usize = 2;
/// The time without progress after which the plan ends.
const NO_PROGRESS: Duration = Duration::from_secs(5 * 60);

/// The progress of a batch's splits.
pub enum SplitSoFar {
    All,
    NotYet,
    Failed(String),
}

impl Step<'_> {
    /// Advances the splits of a batch as far as possible now.
    pub fn split_for(&mut self, batch: &MoveBatch) -> SplitSoFar {
        let left = unfinished_splits(&self.model, batch);
        if left.is_empty() {
            self.moves.splits = None;
            return SplitSoFar::All;
        }
        let now = self.now.monotonic;
        let (before, at) = self.moves.splits.get_or_insert((left.len(), now));
        if *before != left.len() {
            (*before, *at) = (left.len(), now);
        }
        let waited = self.now.since(*at);
        let mut why = None;
        let up = self.model.all_nodes().filter(|node| node.is_up()).count();
        let at_once = AT_ONCE.max(AT_ONCE_A_NODE * up);
        let mut under_way = under_way(&self.model, &left);
        for (table, group, points) in due(&self.model, &left) {
            if under_way >= at_once {
                break;
            }
            match self.split_at(&table, &group, &points) {
                Ok(()) => under_way += 1,
                // A load is under way, or replicas are still missing.
                Err(Refusal::Busy(words)) => why = why.or(Some(words)),
                Err(Refusal::Words(words)) => return SplitSoFar::Failed(words),
            }
        }
        match waited >= NO_PROGRESS {
            true => SplitSoFar::Failed(format!(
                "no partition was split for {} min: {}",
                NO_PROGRESS.as_secs() / 60,
                why.as_deref()
                    .unwrap_or("see which have no leader or no majority (forebay cluster status)")
            )),
            false => SplitSoFar::NotYet,
        }
    }
}

/// Returns the partitions that are still to be split, each with its split points.
fn due(model: &Model, left: &[SplitChange]) -> Vec<(TableName, GroupEntry, Vec<Bound>)> {
    let mut points: BTreeMap<(&TableName, GroupId), Vec<Bound>> = BTreeMap::new();
    for split in left {
        let whole = holder(model, split).filter(|group| group.bounds.lower != split.at);
        if let Some(whole) = whole.filter(|group| group.split.is_none()) {
            let points = points.entry((&split.table, whole.group)).or_default();
            points.push(split.at.clone());
        }
    }
    let mut due = Vec::with_capacity(points.len());
    for ((table, id), mut points) in points {
        points.sort();
        points.dedup();
        points.truncate(MOST_CHILDREN);
        let groups = model.groups.get(table).into_iter();
        let mut all = groups.flat_map(|groups| groups.all());
        let whole = all.find(|group| group.group == id);
        due.extend(whole.map(|whole| (table.clone(), whole.clone(), points)));
    }
    due
}

/// Counts the partitions that are being split or have a child without a leader.
fn under_way(model: &Model, left: &[SplitChange]) -> usize {
    let wholes = left.iter().filter_map(|split| {
        let group = holder(model, split)?;
        match &group.split_from {
            Some(from) if group.bounds.lower == split.at => Some(from.group),
            _ => group.split.is_some().then_some(group.group),
        }
    });
    wholes.collect::<BTreeSet<GroupId>>().len()
}

/// Returns the partition that contains a split point.
fn holder<'a>(model: &'a Model, split: &SplitChange) -> Option<&'a GroupEntry> {
    let groups = model.groups.get(&split.table)?;
    groups.all().find(|group| group.bounds.holds(&split.at))
}

/// Returns the splits of a batch that are not done: no partition with a leader begins at their
/// points.
pub fn unfinished_splits(model: &Model, batch: &MoveBatch) -> Vec<SplitChange> {
    let begins = |split: &&SplitChange| {
        let groups = model.groups.get(&split.table).into_iter();
        let mut all = groups.flat_map(|groups| groups.all());
        all.any(|group| group.bounds.lower == split.at && group.term > 0)
    };
    let left = batch.splits.iter().filter(|split| !begins(split));
    left.cloned().collect()
}

/// Returns the nodes that are down and have replicas of partitions that are still to be split.
pub fn splits_wait_for(model: &Model, left: &[SplitChange]) -> BTreeSet<NodeId> {
    let is_to_be_split = |table: &TableName, group: &GroupEntry| {
        let mut own = left.iter().filter(|split| split.table == *table);
        own.any(|split| group.bounds.holds(&split.at))
    };
    let mut nodes = BTreeSet::new();
    for (table, groups) in &model.groups {
        let to_be_split = groups.all().filter(|group| is_to_be_split(table, group));
        let peers = to_be_split.flat_map(|group| &group.peers);
        let staying = peers.filter(|peer| peer.state.stays());
        nodes.extend(staying.map(|peer| peer.node));
    }
    nodes.retain(|node| model.node(*node).is_some_and(|node| !node.is_up()));
    nodes
}
