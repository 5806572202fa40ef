//! What a plan costs: who brings what from where, partition by partition.

use std::collections::{BTreeMap, BTreeSet};

use super::{BatchCopy, NodeBytes, Summaries};
use crate::ids::NodeId;
use crate::layouts::listed;
use crate::model::{Model, MoveBatch, MovePlan, TableEntry, Wish};
use crate::version::{PartitionSummary, VersionSummary, overlaps_any, ranges_answered};

/// Batches, and what they cost.
pub struct Priced {
    pub batches: Vec<MoveBatch>,
    pub nodes: BTreeMap<NodeId, NodeBytes>,
    pub copies: Vec<BatchCopy>,
    /// The cluster when all is done.
    pub after: Model,
}

/// Carries the batches out on a model of the cluster, and notes what each node brings. Neighbours
/// that copy no more than `most_bytes` together become one: each batch takes some seconds, whatever
/// it copies. `None`: they stay as they are.
pub fn price(
    model: &Model,
    summaries: &Summaries,
    batches: Vec<MoveBatch>,
    most_bytes: Option<u64>,
) -> Priced {
    let mut priced = Priced {
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

impl Priced {
    pub fn plan(&self, wish: Wish) -> MovePlan {
        let copies = self.nodes.iter().filter(|(_, bytes)| bytes.copied > 0);
        MovePlan {
            wish,
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

/// What the model is after a batch.
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

/// What nodes hold of the versions that serve.
fn held(model: &Model, summaries: &Summaries) -> BTreeMap<NodeId, u64> {
    let mut held = BTreeMap::new();
    for (name, entry) in model.all_tables() {
        let (Some(summary), Some(layout)) = (summaries.get(name), model.layout_of(entry)) else {
            continue;
        };
        for node in listed(layout) {
            let ranges = ranges_answered(layout, entry, node);
            *held.entry(node).or_insert(0) += summary.file_bytes(&ranges);
        }
    }
    held
}

/// Of a batch, by who has it and who brings it.
type CopiedBytes = BTreeMap<(Option<NodeId>, NodeId), u64>;

fn copies(before: &Model, after: &Model, summaries: &Summaries, batch: &MoveBatch) -> CopiedBytes {
    let mut copies = CopiedBytes::new();
    for (name, entry) in after.all_tables() {
        let mut lists = batch.lists.iter();
        let mut replicas = batch.replicas.iter();
        let is_concerned = lists.any(|change| change.layout == entry.layout)
            || replicas.any(|change| change.table == *name);
        if let (true, Some(summary), Some(old)) =
            (is_concerned, summaries.get(name), before.table(name))
        {
            copies_of(before, after, summary, (old, entry), &mut copies);
        }
    }
    copies
}

/// A node brings the partitions of which it holds no part before.
fn copies_of(
    before: &Model,
    after: &Model,
    summary: &VersionSummary,
    (old, new): (&TableEntry, &TableEntry),
    copies: &mut CopiedBytes,
) {
    let (Some(had_layout), Some(has_layout)) = (before.layout_of(old), after.layout_of(new)) else {
        return;
    };
    let holders: BTreeSet<NodeId> = listed(had_layout);
    let had = |node: NodeId| ranges_answered(had_layout, old, node);
    let had: BTreeMap<NodeId, _> = holders.iter().map(|node| (*node, had(*node))).collect();
    let holds = |node: &NodeId, partition: &PartitionSummary| {
        let ranges = had.get(node);
        ranges.is_some_and(|ranges| overlaps_any(&partition.bounds, ranges))
    };
    let zone = |node: &NodeId| before.node(*node).map(|entry| &entry.zone);
    for to in listed(has_layout) {
        let has = ranges_answered(has_layout, new, to);
        let partitions = summary.partitions.iter();
        let brought = partitions.filter(|one| overlaps_any(&one.bounds, &has) && !holds(&to, one));
        for partition in brought {
            let has_it = |node: &&NodeId| {
                let is_up = before.node(**node).is_some_and(|entry| entry.is_up());
                is_up && holds(node, partition)
            };
            let mut near = holders.iter().filter(|node| zone(node) == zone(&to));
            // A live table is not in the store.
            let mut all = holders.iter().filter(|_| new.live().is_some());
            let from = near.find(has_it).or_else(|| all.find(has_it));
            *copies.entry((from.copied(), to)).or_insert(0) += partition.file_bytes;
        }
    }
}
