//! Layouts of all nodes, by the planner.

use std::collections::BTreeMap;

use forebay_engine::Bound;
use forebay_plan::lists::{Class, Line, ListNode, lay_out};
use forebay_run::hash::SLOTS;

use crate::ids::{NodeId, Zone};
use crate::model::{Model, RangeEntry};
use crate::version::VersionSummary;

/// How long preference lists are at most: as many replicas can a table have without a plan.
pub const MOST_REPLICAS: usize = 5;
/// How many ranges of slots a node heads at most: so many class ports it wants.
const HEADS: u32 = 2;

/// Ranges of slots over all nodes.
pub fn slot_layout(model: &Model) -> Result<Vec<RangeEntry>, String> {
    let classes = classes(model, &Line::Uniform(SLOTS))?;
    Ok(ranges(&classes, |place| Bound::Slot(place as u16)))
}

/// Ranges of an ordered table, by the partitions of its first version.
pub fn ordered_layout(model: &Model, version: &VersionSummary) -> Result<Vec<RangeEntry>, String> {
    let partitions = &version.partitions;
    let weights = partitions
        .iter()
        .map(|partition| partition.file_bytes.max(1));
    let classes = classes(model, &Line::Weighed(weights.collect()))?;
    let lower = |place: u32| partitions[place as usize].bounds.lower.clone();
    Ok(ranges(&classes, lower))
}

fn classes(model: &Model, line: &Line) -> Result<Vec<Class>, String> {
    let mut zones: BTreeMap<&Zone, u32> = BTreeMap::new();
    let nodes: Vec<ListNode> = model
        .all_nodes()
        .map(|node| {
            let next = zones.len() as u32;
            ListNode {
                id: node.id.0,
                zone: *zones.entry(&node.zone).or_insert(next),
                weight: 1.0,
            }
        })
        .collect();
    if nodes.is_empty() {
        return Err(
            "the cluster has no nodes yet: start some (forebay serve --cluster)".to_owned(),
        );
    }
    planned(&nodes, line)
}

#[cfg(not(test))]
fn planned(nodes: &[ListNode], line: &Line) -> Result<Vec<Class>, String> {
    let classes = lay_out(nodes, line, MOST_REPLICAS, HEADS);
    classes.map_err(|error| error.to_string())
}

/// Thousands of simulated clusters have the same few sets of nodes.
#[cfg(test)]
fn planned(nodes: &[ListNode], line: &Line) -> Result<Vec<Class>, String> {
    type Known = parking_lot::Mutex<BTreeMap<String, Result<Vec<Class>, String>>>;
    static KNOWN: Known = parking_lot::Mutex::new(BTreeMap::new());
    let input = format!("{nodes:?} {line:?}");
    if let Some(known) = KNOWN.lock().get(&input) {
        return known.clone();
    }
    let classes = lay_out(nodes, line, MOST_REPLICAS, HEADS).map_err(|error| error.to_string());
    KNOWN.lock().insert(input, classes.clone());
    classes
}

fn ranges(classes: &[Class], lower: impl Fn(u32) -> Bound) -> Vec<RangeEntry> {
    let range = |class: &Class| RangeEntry {
        lower: lower(class.start),
        list: class.list.iter().copied().map(NodeId).collect(),
        next: None,
    };
    classes.iter().map(range).collect()
}
