//! Layouts of all nodes, by the planner.

use forebay_engine::Bound;
use forebay_run::hash::SLOTS;

use crate::ids::NodeId;
use crate::model::{Model, RangeEntry};
use crate::version::VersionSummary;

/// How long preference lists are at most: as many replicas can a table have without a plan.
pub const MOST_REPLICAS: usize = 5;

/// Ranges of slots over all nodes.
pub fn slot_layout(model: &Model) -> Result<Vec<RangeEntry>, String> {
    let nodes: Vec<NodeId> = model.all_nodes().map(|node| node.id).collect();
    even(&nodes, |at, count| {
        Bound::Slot((at as u64 * SLOTS as u64 / count as u64) as u16)
    })
}

/// Ranges of an ordered table, by the partitions of its first version.
pub fn ordered_layout(model: &Model, version: &VersionSummary) -> Result<Vec<RangeEntry>, String> {
    let nodes: Vec<NodeId> = model.all_nodes().map(|node| node.id).collect();
    let lowers: Vec<Bound> = version
        .partitions
        .iter()
        .map(|partition| partition.bounds.lower.clone())
        .collect();
    if nodes.is_empty() {
        return Err(NO_NODES.to_owned());
    }
    let lists = lowers
        .into_iter()
        .enumerate()
        .map(|(at, lower)| RangeEntry {
            lower,
            list: list(&nodes, at),
            next: None,
        });
    Ok(lists.collect())
}

const NO_NODES: &str = "the cluster has no nodes yet: start some (forebay serve --cluster)";

fn even(
    nodes: &[NodeId],
    lower: impl Fn(usize, usize) -> Bound,
) -> Result<Vec<RangeEntry>, String> {
    if nodes.is_empty() {
        return Err(NO_NODES.to_owned());
    }
    let ranges = (0..nodes.len()).map(|at| RangeEntry {
        lower: lower(at, nodes.len()),
        list: list(nodes, at),
        next: None,
    });
    Ok(ranges.collect())
}

fn list(nodes: &[NodeId], first: usize) -> Vec<NodeId> {
    let places = (0..nodes.len().min(MOST_REPLICAS)).map(|step| (first + step) % nodes.len());
    places.map(|at| nodes[at]).collect()
}
