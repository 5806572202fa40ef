//! Progress of a plan's moves of live partitions. Their groups carry the moves out by themselves.

use std::collections::BTreeSet;

use forebay_engine::TableName;

use super::groups::{GroupWatch, stays_on};
use crate::ids::NodeId;
use crate::lost_majority::LostPartition;
use crate::model::{GroupEntry, Model, MoveBatch};
use crate::planning::fetching;

/// The moves that are left to do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MovesLeft {
    /// All partitions that the batch changes.
    pub all: usize,
    /// The partitions that are not yet on their desired nodes.
    pub partitions: usize,
    /// The number of log entries that their new replicas lack.
    behind: u64,
    /// Those of `partitions` that have no majority. They cannot move until they have one.
    pub without_majority: usize,
    /// The nodes that are to have a voting replica and have none.
    pub nodes: BTreeSet<NodeId>,
}

impl MovesLeft {
    /// Returns how many of so many bytes are copied, about, as if all partitions had the same size.
    pub fn done_of(&self, bytes: u64) -> u64 {
        let done = self.all.saturating_sub(self.partitions) as u64;
        let of_all = u128::from(bytes) * u128::from(done);
        let done = of_all.checked_div(self.all as u128).unwrap_or(0);
        u64::try_from(done).unwrap_or(bytes)
    }

    pub fn of(model: &Model, watch: &GroupWatch, batch: &MoveBatch) -> Self {
        let fetching = fetching(model, batch);
        let mut left = Self::default();
        for (table, group, wanted) in concerned(model, batch) {
            left.all += 1;
            let wanted = reachable(model, &fetching, group, wanted);
            if watch.is_there(group, &wanted) {
                continue;
            }
            left.partitions += 1;
            let is_lost = LostPartition::of(model, watch, table, group).is_some();
            left.without_majority += usize::from(is_lost);
            let lead = watch.leading(group.group).map(|leading| leading.lead);
            let behind = lead.into_iter().flat_map(|lead| &lead.behind);
            left.behind += behind.map(|(_, entries)| entries).sum::<u64>();
            let votes = |node: &NodeId| {
                let peers = lead.into_iter().flat_map(|lead| &lead.members.voters);
                let mut entries = peers.filter_map(|peer| group.peer(*peer));
                entries.any(|entry| entry.node == *node)
            };
            left.nodes.extend(wanted.iter().filter(|node| !votes(node)));
        }
        left
    }
}

/// A partition, its table, and its desired nodes.
type ConcernedPartition<'m> = (&'m TableName, &'m GroupEntry, &'m [NodeId]);

/// Returns the partitions of live tables that a batch changes, with their desired nodes.
fn concerned<'m>(model: &'m Model, batch: &MoveBatch) -> Vec<ConcernedPartition<'m>> {
    let mut concerned = Vec::new();
    for (table, entry) in model.live_tables() {
        let is_all = batch.replicas.iter().any(|change| change.table == *table);
        let lists = batch.lists.iter();
        let lists: Vec<_> = lists
            .filter(|change| change.layout == entry.layout)
            .collect();
        if !is_all && lists.is_empty() {
            continue;
        }
        let is_in = |group: &GroupEntry| {
            let lower = &group.bounds.lower;
            lists.iter().any(|change| {
                let upper = change.bounds.upper.as_ref();
                change.bounds.lower <= *lower && upper.is_none_or(|upper| lower < upper)
            })
        };
        let wanted = model.desired_groups(table).into_iter();
        let wanted = wanted.filter(|(group, _)| is_all || is_in(group));
        concerned.extend(wanted.map(|(group, nodes)| (table, group, nodes)));
    }
    concerned
}

/// Returns the desired nodes of a partition for which a plan waits. The plan does not wait for a
/// node that is down, has no replica, and was to have one already before the plan. Such a node gets
/// its replica when it is back.
fn reachable(
    model: &Model,
    fetching: &BTreeSet<NodeId>,
    group: &GroupEntry,
    wanted: &[NodeId],
) -> Vec<NodeId> {
    let is_up = |node: &NodeId| model.node(*node).is_some_and(|entry| entry.is_up());
    let is_waited_for =
        |node: &&NodeId| is_up(node) || fetching.contains(node) || stays_on(group, **node);
    wanted.iter().filter(is_waited_for).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copied_bytes_are_estimated_from_the_partitions_left() {
        let left = |all, partitions| MovesLeft {
            all,
            partitions,
            ..MovesLeft::default()
        };
        assert_eq!(left(4, 1).done_of(1000), 750);
        assert_eq!(left(0, 0).done_of(1000), 0);
        assert_eq!(left(3, 0).done_of(u64::MAX), u64::MAX);
    }
}
