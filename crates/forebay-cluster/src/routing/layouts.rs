//! Layouts of nodes, computed by the planner.

use std::collections::{BTreeMap, BTreeSet};

use forebay_engine::Bound;
use forebay_plan::lists::{Class, Line, ListNode, extend};
use forebay_run::hash::SLOTS;

use crate::ids::{NodeId, Zone};
use crate::model::{Layout, LayoutName, Model, RangeEntry};
use crate::request::REPLICAS;
use crate::routing::searches::first_layout;
use crate::routing::version::VersionSummary;

/// The maximum number of replicas of a table.
pub const MOST_REPLICAS: usize = 5;

/// Computes ranges of slots over all nodes that may hold data, with preference lists of `replicas`
/// nodes.
pub fn slot_layout(model: &Model, replicas: usize) -> Result<Vec<RangeEntry>, String> {
    let nodes = holders(model)?;
    let classes = planned(&nodes, &Line::Uniform(SLOTS), replicas)?;
    Ok(ranges(&classes, slot_bound))
}

/// Computes the ranges of an ordered table from the partitions of its first version.
pub fn ordered_layout(
    model: &Model,
    version: &VersionSummary,
    replicas: usize,
) -> Result<Vec<RangeEntry>, String> {
    let partitions = &version.partitions;
    let weights = partitions
        .iter()
        .map(|partition| partition.file_bytes.max(1));
    let line = Line::Weighed(weights.collect());
    let classes = planned(&holders(model)?, &line, replicas)?;
    let lower = |place: u32| partitions[place as usize].bounds.lower.clone();
    Ok(ranges(&classes, lower))
}

/// Computes the ranges of a live table from the lower bounds of its partitions, over the nodes that
/// are up.
pub fn live_layout(
    model: &Model,
    lowers: &[Bound],
    replicas: usize,
) -> Result<Vec<RangeEntry>, String> {
    let up = model.all_nodes().filter(|node| node.is_up());
    let drained = &model.work.drained;
    let up = up.map(|node| node.id).filter(|id| !drained.contains(id));
    let nodes = list_nodes(model, &up.collect());
    if nodes.len() < replicas {
        return Err(format!(
            "{replicas} replicas want as many nodes, and {} are up that may hold tables: start more, forebay cluster \
             add those that were drained, or choose fewer (--replicas)",
            nodes.len()
        ));
    }
    let line = Line::Weighed(vec![1; lowers.len()]);
    let classes = planned(&nodes, &line, replicas)?;
    Ok(ranges(&classes, |place| lowers[place as usize].clone()))
}

/// Returns a layout with longer lists of the nodes that it already has. Existing data does not
/// move.
pub fn longer_lists(
    model: &Model,
    layout: &Layout,
    replicas: usize,
) -> Result<Vec<RangeEntry>, String> {
    let bounds: Vec<Bound> = layout.ranges().map(|range| range.lower.clone()).collect();
    let nodes = list_nodes(model, &listed(layout));
    let old = layout.ranges().zip(0..).map(|(range, start)| Class {
        start,
        list: range.list.iter().map(|node| node.0).collect(),
    });
    let line = Line::Weighed(widths(&bounds));
    let extended = extend(&old.collect::<Vec<_>>(), &nodes, &line, replicas);
    let classes = extended.map_err(|error| error.to_string())?;
    Ok(ranges(&classes, |place| bounds[place as usize].clone()))
}

/// Returns the number of slots of each range. All ranges of keys count alike.
fn widths(lowers: &[Bound]) -> Vec<u64> {
    let end = Bound::Slot(SLOTS as u16);
    let ends = lowers.iter().skip(1).chain([&end]);
    let width = |(lower, end): (&Bound, &Bound)| match (lower, end) {
        (Bound::Slot(lower), Bound::Slot(end)) => u64::from(end - lower),
        _ => 1,
    };
    lowers.iter().zip(ends).map(width).collect()
}

pub fn slot_bound(place: u32) -> Bound {
    Bound::Slot(place as u16)
}

/// Returns the nodes in the lists of a layout.
pub fn listed(layout: &Layout) -> BTreeSet<NodeId> {
    let ranges = layout.ranges();
    ranges.flat_map(|range| &range.list).copied().collect()
}

/// Returns the necessary length of a layout's lists. The first R nodes of a list hold a table of R
/// replicas, and a list has at least three nodes. If a table was placed by its load, each list
/// names exactly the nodes that hold the range.
pub fn longest(model: &Model, name: &LayoutName) -> usize {
    let tables = model.all_tables();
    let mut tables = tables.filter(|(_, table)| table.layout == *name).peekable();
    let least = match tables.peek() {
        Some((_, table)) if table.by_range => 1,
        _ => REPLICAS,
    };
    let most = tables.map(|(_, table)| table.wanted()).max();
    most.unwrap_or(REPLICAS).max(least)
}

/// Returns these nodes in the planner's form.
pub fn list_nodes(model: &Model, nodes: &BTreeSet<NodeId>) -> Vec<ListNode> {
    let mut zones: BTreeMap<&Zone, u32> = BTreeMap::new();
    let known = model.all_nodes().filter(|node| nodes.contains(&node.id));
    let known = known.map(|node| {
        let next = zones.len() as u32;
        ListNode {
            id: node.id.0,
            zone: *zones.entry(&node.zone).or_insert(next),
            weight: 1.0,
        }
    });
    known.collect()
}

fn holders(model: &Model) -> Result<Vec<ListNode>, String> {
    let all = model.all_nodes().map(|node| node.id);
    let holders = all.filter(|node| !model.work.drained.contains(node));
    let nodes = list_nodes(model, &holders.collect());
    match nodes.is_empty() {
        true => {
            Err("the cluster has no nodes yet: start some (forebay serve --cluster)".to_owned())
        }
        false => Ok(nodes),
    }
}

fn planned(nodes: &[ListNode], line: &Line, replicas: usize) -> Result<Vec<Class>, String> {
    first_layout(nodes, line, replicas).map_err(|error| error.to_string())
}

fn ranges(classes: &[Class], lower: impl Fn(u32) -> Bound) -> Vec<RangeEntry> {
    let list = |class: &Class| class.list.iter().copied().map(NodeId).collect();
    let range = |class: &Class| RangeEntry::new(lower(class.start), list(class));
    classes.iter().map(range).collect()
}
