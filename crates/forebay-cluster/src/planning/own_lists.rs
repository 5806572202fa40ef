//! Changes the lists of tables that were placed by load, when nodes join or leave.
//!
//! The lists stay as they are as far as possible. The places of a node that leaves go to the nodes
//! that hold least, in other zones if possible. A node that joins gets nothing until the next plan
//! by load.

use std::collections::{BTreeMap, BTreeSet};

use forebay_engine::{Bound, Bounds};

use super::Summaries;
use crate::ids::{NodeId, Zone};
use crate::model::{LayoutName, ListChange, Model, MoveBatch, PlanGoal, RangeEntry, TableEntry};
use crate::routing::version::{overlaps_any, ranges_answered};

/// The lists of one table's own layout.
pub struct OwnLists<'m> {
    model: &'m Model,
    layout: &'m LayoutName,
    ranges: Vec<(&'m RangeEntry, Bounds)>,
    /// The nodes that may hold parts of the table.
    nodes: &'m BTreeSet<NodeId>,
    /// The approximate bytes of each range.
    bytes: Vec<u64>,
    held: BTreeMap<NodeId, u64>,
}

impl<'m> OwnLists<'m> {
    /// Returns the lists of a layout. `None`: no table that was placed by load has this layout.
    pub fn of(
        model: &'m Model,
        summaries: &Summaries,
        layout: &'m LayoutName,
        nodes: &'m BTreeSet<NodeId>,
    ) -> Option<Self> {
        let mut tables = model.all_tables();
        let (table, entry) = tables.find(|(_, entry)| entry.by_range && entry.layout == *layout)?;
        let ranges = ranges(model, entry);
        let summary = summaries.get(table);
        let bytes = |bounds: &Bounds| {
            let partitions = summary.into_iter().flat_map(|summary| &summary.partitions);
            let within =
                partitions.filter(|one| overlaps_any(&one.bounds, std::slice::from_ref(bounds)));
            within.map(|one| one.file_bytes).sum()
        };
        let held = |node: &NodeId| {
            let answered = model.layout_of(entry);
            let answered = answered.map(|layout| ranges_answered(layout, entry, *node));
            let bytes = summary.zip(answered);
            (
                *node,
                bytes.map_or(0, |(summary, ranges)| summary.file_bytes(&ranges)),
            )
        };
        Some(Self {
            model,
            layout,
            bytes: ranges.iter().map(|(_, bounds)| bytes(bounds)).collect(),
            ranges,
            nodes,
            held: nodes.iter().map(held).collect(),
        })
    }

    /// Returns a batch for each list that must change.
    pub fn moved(mut self, goal: &PlanGoal) -> Vec<MoveBatch> {
        let changes = (0..self.ranges.len()).filter_map(|at| {
            let old = &self.ranges[at].0.list;
            let kept = self.kept(goal, old);
            let new = self.filled(at, kept, old.len());
            self.change(at, new)
        });
        changes.collect()
    }

    /// Returns a batch for each list that must change to have `count` nodes.
    pub fn of_length(mut self, count: usize) -> Vec<MoveBatch> {
        let changes = (0..self.ranges.len()).filter_map(|at| {
            let mut kept = self.ranges[at].0.list.clone();
            kept.truncate(count);
            let new = self.filled(at, kept, count);
            self.change(at, new)
        });
        changes.collect()
    }

    fn kept(&self, goal: &PlanGoal, list: &[NodeId]) -> Vec<NodeId> {
        let kept = list.iter().filter_map(|node| match goal {
            PlanGoal::Replace { gone, new } if node == gone => {
                Some(*new).filter(|new| !list.contains(new))
            }
            _ => Some(*node).filter(|node| self.nodes.contains(node)),
        });
        kept.collect()
    }

    fn filled(&mut self, at: usize, mut list: Vec<NodeId>, count: usize) -> Vec<NodeId> {
        while list.len() < count {
            let zones: BTreeSet<Option<&Zone>> = list.iter().map(|node| self.zone(*node)).collect();
            let others = self.nodes.iter().filter(|node| !list.contains(node));
            let least = others.min_by_key(|node| {
                let held = self.held.get(node).copied().unwrap_or(0);
                (zones.contains(&self.zone(**node)), held, **node)
            });
            let Some(node) = least.copied() else { break };
            *self.held.entry(node).or_default() += self.bytes[at];
            list.push(node);
        }
        list
    }

    fn zone(&self, node: NodeId) -> Option<&'m Zone> {
        self.model.node(node).map(|entry| &entry.zone)
    }

    fn change(&self, at: usize, new: Vec<NodeId>) -> Option<MoveBatch> {
        let (range, bounds) = &self.ranges[at];
        let change = ListChange {
            layout: self.layout.clone(),
            bounds: bounds.clone(),
            old: range.list.clone(),
            new,
        };
        (change.old != change.new).then(|| MoveBatch {
            lists: vec![change],
            ..MoveBatch::default()
        })
    }
}

/// Returns the ranges of a table's layout, with their bounds.
pub fn ranges<'m>(model: &'m Model, entry: &TableEntry) -> Vec<(&'m RangeEntry, Bounds)> {
    let ranges = model.layout_of(entry).into_iter();
    let ranges: Vec<&RangeEntry> = ranges.flat_map(|layout| layout.ranges()).collect();
    let uppers = ranges.iter().skip(1).map(|range| Some(range.lower.clone()));
    let uppers: Vec<Option<Bound>> = uppers.chain([None]).collect();
    let with_ends = ranges.into_iter().zip(uppers).map(|(range, upper)| {
        let lower = range.lower.clone();
        (range, Bounds { lower, upper })
    });
    with_ends.collect()
}
