//! The places in a layout at which a range can begin, as the planner's line.

use std::collections::{BTreeMap, BTreeSet};

use forebay_engine::{Bound, Bounds};
use forebay_plan::lists::{Class, LayoutChange, Line, ListBatch, swap_node};
use forebay_run::Order;
use forebay_run::hash::SLOTS;

use super::{PlanningError, Summaries};
use crate::ids::NodeId;
use crate::model::{
    Layout, LayoutName, ListChange, Model, MoveBatch, PlanGoal, RangeEntry, TableGroups,
};
use crate::routing::layouts::{list_nodes, longest, slot_bound};
use crate::routing::searches::next_layout;
use crate::routing::version::VersionSummary;

/// The possible bounds of a layout's ranges, with their weights.
pub struct Places {
    bounds: Vec<Bound>,
    line: Line,
    bytes_per_weight: f64,
}

impl Places {
    pub fn of(model: &Model, summaries: &Summaries, name: &LayoutName, layout: &Layout) -> Self {
        if let LayoutName::Table(table) = name
            && let Some(groups) = model.groups.get(table)
        {
            return Self::live(layout, groups, summaries.get(table));
        }
        match layout.order {
            Order::Hashed => {
                let tables = model
                    .all_tables()
                    .filter(|(_, table)| table.layout == *name);
                let bytes = |table| summaries.get(table).map_or(0, whole_bytes);
                let bytes: u64 = tables.map(|(table, _)| bytes(table)).sum();
                Self {
                    bounds: (0..SLOTS).map(slot_bound).collect(),
                    line: Line::Uniform(SLOTS),
                    bytes_per_weight: bytes as f64 / f64::from(SLOTS),
                }
            }
            Order::Ordered => {
                let summary = match name {
                    LayoutName::Table(table) => summaries.get(table),
                    LayoutName::Main => None,
                };
                Self::ordered(layout, summary)
            }
        }
    }

    /// Returns the places of a live table, whose partitions move whole. Half of a partition's
    /// weight is its bytes. The other half is the same for each partition, because each receives
    /// requests and may get rows.
    fn live(layout: &Layout, groups: &TableGroups, summary: Option<&VersionSummary>) -> Self {
        let partitions = groups.all().map(|group| &group.bounds.lower);
        let ranges = layout.ranges().map(|range| &range.lower);
        let bounds: BTreeSet<&Bound> = partitions.chain(ranges).collect();
        let mean_bytes = summary.map_or(0, whole_bytes) / bounds.len().max(1) as u64;
        let mut weights: BTreeMap<&Bound, u64> = bounds
            .iter()
            .map(|bound| (*bound, mean_bytes.max(1)))
            .collect();
        for partition in summary.into_iter().flat_map(|summary| &summary.partitions) {
            let mut before = weights.range_mut::<Bound, _>(..=&partition.bounds.lower);
            if let Some((_, weight)) = before.next_back() {
                *weight += partition.file_bytes;
            }
        }
        Self {
            line: Line::Weighed(weights.into_values().collect()),
            bytes_per_weight: 0.5,
            bounds: bounds.into_iter().cloned().collect(),
        }
    }

    /// Returns the places of an ordered table: the lower bounds of its partitions and of its
    /// ranges. A partition's bytes are divided evenly among its places.
    fn ordered(layout: &Layout, summary: Option<&VersionSummary>) -> Self {
        let partitions = summary.map_or(&[][..], |summary| &summary.partitions);
        let lowers = partitions.iter().map(|partition| &partition.bounds.lower);
        let ranges = layout.ranges().map(|range| &range.lower);
        let bounds: BTreeSet<&Bound> = lowers.chain(ranges).collect();
        let bounds: Vec<Bound> = bounds.into_iter().cloned().collect();
        let of_partition = |place: &Bound| {
            let next = partitions.partition_point(|one| one.bounds.lower <= *place);
            next.checked_sub(1)
        };
        let owners: Vec<Option<usize>> = bounds.iter().map(of_partition).collect();
        let mut counts: BTreeMap<usize, u64> = BTreeMap::new();
        for owner in owners.iter().flatten() {
            *counts.entry(*owner).or_default() += 1;
        }
        let weight = |owner: &Option<usize>| {
            owner.map_or(1, |at| (partitions[at].file_bytes / counts[&at]).max(1))
        };
        Self {
            line: Line::Weighed(owners.iter().map(weight).collect()),
            bounds,
            bytes_per_weight: 1.0,
        }
    }

    fn classes(&self, layout: &Layout) -> Vec<Class> {
        let place = |bound: &Bound| self.bounds.partition_point(|other| other < bound) as u32;
        let class = |range: &RangeEntry| Class {
            start: place(&range.lower),
            list: range.list.iter().map(|node| node.0).collect(),
        };
        layout.ranges().map(class).collect()
    }

    pub fn changed(
        &self,
        model: &Model,
        goal: &PlanGoal,
        name: &LayoutName,
        layout: &Layout,
        nodes: &BTreeSet<NodeId>,
    ) -> Result<LayoutChange, PlanningError> {
        let old = self.classes(layout);
        let zone = |node: &NodeId| model.node(*node).map(|entry| &entry.zone);
        let changed = match goal {
            PlanGoal::Replace { gone, new } if zone(gone) == zone(new) => {
                swap_node(&old, gone.0, new.0, &self.line)
            }
            _ => {
                let nodes = list_nodes(model, nodes);
                next_layout(&old, &nodes, &self.line, longest(model, name))
            }
        };
        changed.map_err(|error| PlanningError::Planner(error.to_string()))
    }

    pub fn batches(
        &self,
        name: &LayoutName,
        changed: &LayoutChange,
        most_bytes: u64,
    ) -> Vec<MoveBatch> {
        let batches = changed.batches(&self.line, self.bytes_per_weight, most_bytes as f64);
        let ids = |list: &[u32]| list.iter().copied().map(NodeId).collect();
        let batch = |batch: ListBatch| MoveBatch {
            copied_bytes: 0,
            lists: batch
                .ranges
                .iter()
                .map(|range| ListChange {
                    layout: name.clone(),
                    bounds: Bounds {
                        lower: self.bounds[range.places.start as usize].clone(),
                        upper: self.bounds.get(range.places.end as usize).cloned(),
                    },
                    old: ids(&range.old),
                    new: ids(&range.new),
                })
                .collect(),
            ..MoveBatch::default()
        };
        batches.into_iter().map(batch).collect()
    }
}

fn whole_bytes(summary: &VersionSummary) -> u64 {
    let partitions = summary.partitions.iter();
    partitions.map(|partition| partition.file_bytes).sum()
}
