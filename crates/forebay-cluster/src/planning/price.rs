//! Computes the cost of a plan: the copies between nodes, partition by partition.

use std::collections::{BTreeMap, BTreeSet};

use forebay_engine::{Bound, Bounds};

use super::{BatchCopy, NodeBytes, Summaries};
use crate::ids::NodeId;
use crate::model::{Layout, Model, MoveBatch, MovePlan, PlanGoal, TableEntry};
use crate::routing::version::{PartitionSummary, VersionSummary};

/// Batches, and their cost.
pub struct PricedBatches {
    pub batches: Vec<MoveBatch>,
    pub nodes: BTreeMap<NodeId, NodeBytes>,
    pub copies: Vec<BatchCopy>,
    /// The cluster after all batches.
    pub after: Model,
}

/// Carries the batches out on a model of the cluster, and counts the bytes that each node copies.
/// Adjacent batches that together copy at most `most_bytes` become one, because each batch takes
/// some seconds, whatever it copies. `None`: the batches stay as they are.
pub fn price(
    model: &Model,
    summaries: &Summaries,
    batches: Vec<MoveBatch>,
    most_bytes: Option<u64>,
) -> PricedBatches {
    let mut priced = PricedBatches {
        batches: Vec::new(),
        nodes: BTreeMap::new(),
        copies: Vec::new(),
        after: model.clone(),
    };
    for (node, bytes) in held(model, summaries) {
        priced.nodes.entry(node).or_default().before = bytes;
    }
    for mut batch in batches {
        let before = priced.after.clone();
        carry_out(&mut priced.after, &batch);
        let copies = copies(&before, &priced.after, summaries, &batch);
        batch.copied_bytes = copies.values().sum();
        priced.add(batch, most_bytes);
        let last = priced.batches.len() - 1;
        for ((from, to), bytes) in copies {
            priced.nodes.entry(to).or_default().copied += bytes;
            priced.copies.push(BatchCopy {
                batch: last,
                from,
                to,
                bytes,
            });
        }
    }
    for (node, bytes) in held(&priced.after, summaries) {
        priced.nodes.entry(node).or_default().after = bytes;
    }
    priced
        .nodes
        .retain(|_, bytes| *bytes != NodeBytes::default());
    priced
}

impl PricedBatches {
    pub fn plan(&self, goal: PlanGoal) -> MovePlan {
        let copies = self.nodes.iter().filter(|(_, bytes)| bytes.copied > 0);
        MovePlan {
            goal,
            batches: self.batches.clone(),
            copies: copies.map(|(node, bytes)| (*node, bytes.copied)).collect(),
        }
    }

    fn add(&mut self, batch: MoveBatch, most_bytes: Option<u64>) {
        match self.batches.last_mut() {
            Some(last)
                if last.is_of_lists()
                    && batch.is_of_lists()
                    && most_bytes.is_some_and(|most| {
                        last.copied_bytes.saturating_add(batch.copied_bytes) <= most
                    }) =>
            {
                last.copied_bytes += batch.copied_bytes;
                last.lists.extend(batch.lists);
            }
            _ => self.batches.push(batch),
        }
    }
}

/// Applies a batch to the model.
pub fn carry_out(model: &mut Model, batch: &MoveBatch) {
    let own = batch.own.iter();
    own.for_each(|table| model.give_own_layout(table));
    model.edit_lists(&batch.lists, |change, range| {
        range.list.clone_from(&change.new);
    });
    for change in &batch.replicas {
        if let Some(mut entry) = model.table(&change.table).cloned() {
            entry.replicas = change.to;
            model.put_table(&change.table, entry);
        }
    }
}

/// Returns the bytes of the serving versions on each node.
fn held(model: &Model, summaries: &Summaries) -> BTreeMap<NodeId, u64> {
    let mut held = BTreeMap::new();
    for (name, entry) in model.all_tables() {
        let (Some(summary), Some(layout)) = (summaries.get(name), model.layout_of(entry)) else {
            continue;
        };
        let holders = RangeHolders::of(layout, entry);
        for partition in &summary.partitions {
            for node in holders.of_bounds(&partition.bounds) {
                let sum: &mut u64 = held.entry(node).or_default();
                *sum = sum.saturating_add(partition.file_bytes);
            }
        }
    }
    held
}

/// The holders of a table's ranges.
struct RangeHolders<'a> {
    /// The ranges, by their lower bounds.
    ranges: Vec<(&'a Bound, &'a [NodeId])>,
}

impl<'a> RangeHolders<'a> {
    fn of(layout: &'a Layout, entry: &TableEntry) -> Self {
        let ranges = layout.ranges();
        let ranges = ranges.map(|range| (&range.lower, entry.of_list(&range.list)));
        Self {
            ranges: ranges.collect(),
        }
    }

    /// Returns the nodes that hold any part of these bounds.
    fn of_bounds(&self, bounds: &Bounds) -> BTreeSet<NodeId> {
        let behind = self
            .ranges
            .partition_point(|(lower, _)| **lower <= bounds.lower);
        let its = self.ranges[behind.saturating_sub(1)..].iter();
        let its = its.take_while(|(lower, _)| bounds.upper.as_ref().is_none_or(|it| *lower < it));
        its.flat_map(|(_, list)| list.iter().copied()).collect()
    }
}

/// The bytes of a batch, by the source and the copying node.
type CopiedBytes = BTreeMap<(Option<NodeId>, NodeId), u64>;

fn copies(before: &Model, after: &Model, summaries: &Summaries, batch: &MoveBatch) -> CopiedBytes {
    let mut copies = CopiedBytes::new();
    for (name, entry) in after.all_tables() {
        let mut replicas = batch.replicas.iter();
        let has_more = replicas.any(|change| change.table == *name);
        let lists = batch.lists.iter();
        let lists = lists.filter(|change| change.layout == entry.layout);
        let changed: Vec<&Bounds> = lists.map(|change| &change.bounds).collect();
        let (Some(summary), Some(old)) = (summaries.get(name), before.table(name)) else {
            continue;
        };
        let partitions = match has_more {
            true => (0..summary.partitions.len()).collect(),
            false => within(summary, &changed),
        };
        if !partitions.is_empty() {
            let partitions = partitions.into_iter().map(|at| &summary.partitions[at]);
            copies_of((before, old), (after, entry), partitions, &mut copies);
        }
    }
    copies
}

/// Returns the partitions that overlap one of the bounds.
fn within(summary: &VersionSummary, changed: &[&Bounds]) -> BTreeSet<usize> {
    let all = &summary.partitions;
    debug_assert!(
        all.is_sorted_by(|one, next| one.bounds.lower < next.bounds.lower),
        "partitions that do not rise would be missed"
    );
    let mut found = BTreeSet::new();
    for bounds in changed {
        let behind = all.partition_point(|one| one.bounds.lower <= bounds.lower);
        let first = behind.saturating_sub(1);
        let end = bounds.upper.as_ref().map_or(all.len(), |upper| {
            all.partition_point(|one| one.bounds.lower < *upper)
        });
        found.extend(first..end);
    }
    found
}

/// Returns the copies: a node copies each partition of which it held no part before.
fn copies_of<'a>(
    (before, old): (&Model, &TableEntry),
    (after, new): (&Model, &TableEntry),
    partitions: impl Iterator<Item = &'a PartitionSummary>,
    copies: &mut CopiedBytes,
) {
    let (Some(had_layout), Some(has_layout)) = (before.layout_of(old), after.layout_of(new)) else {
        return;
    };
    let had = RangeHolders::of(had_layout, old);
    let has = RangeHolders::of(has_layout, new);
    let zone = |node: &NodeId| before.node(*node).map(|entry| &entry.zone);
    let is_up = |node: &&NodeId| before.node(**node).is_some_and(|entry| entry.is_up());
    for partition in partitions {
        let holders = had.of_bounds(&partition.bounds);
        for to in has.of_bounds(&partition.bounds).difference(&holders) {
            let mut near = holders.iter().filter(|node| zone(node) == zone(to));
            // A live table is not in the store.
            let mut all = holders.iter().filter(|_| new.live().is_some());
            let from = near.find(is_up).or_else(|| all.find(is_up));
            let sum = copies.entry((from.copied(), *to)).or_insert(0);
            *sum = sum.saturating_add(partition.file_bytes);
        }
    }
}
