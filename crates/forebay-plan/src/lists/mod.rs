//! Preference lists: the nodes of each place of a table's order, the primary first.
//!
//! Clients of Redis's cluster protocol receive a line for each class of places with one list. So
//! classes are contiguous ranges, and the number that a node heads is limited. The nodes of a list
//! are in distinct zones as far as possible. The same holds for each prefix: a table with fewer
//! replicas uses the first entries.
//!
//! - [`line`]: the places and their weights.
//! - [`shares`]: the share of each node.
//! - [`ring`]: a first layout from nothing.
//! - [`repair`]: adapts an old layout to other nodes, within the rules.
//! - [`board`], [`edit`]: a layout, its cost, and the gain of a change.
//! - [`search`], [`shake`]: changes that improve a layout.
//! - [`change`]: changes an old layout for other nodes.
//! - [`extend`]: makes lists longer, and moves nothing.
//! - [`changed`], [`plan`]: the change as ranges, copies and batches; as a plan with a drawing.

mod board;
mod change;
mod edit;
mod extend;
mod layout_change;
mod line;
mod plan;
mod repair;
mod ring;
mod search;
mod shake;
mod shares;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use board::{Board, Prices, Section};
pub use change::{change, swap_node};
pub use extend::extend;
pub use layout_change::{LayoutChange, ListBatch, NodeCopies, RangeChange};
use line::Extent;
pub use line::Line;
pub use plan::ListPlan;
use shake::GoodEnough;
use shares::Shares;

/// A node that has places.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListNode {
    pub id: u32,
    /// Nodes of one zone fail together.
    pub zone: u32,
    /// Its weight among the nodes: 1 for the usual node.
    #[serde(default = "usual")]
    pub weight: f64,
}

fn usual() -> f64 {
    1.0
}

/// A range of places with one preference list. It ends where the next class begins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Class {
    /// Its first place.
    pub start: u32,
    /// The ids of nodes, the primary first.
    pub list: Vec<u32>,
}

/// Limits of memory while a layout is made.
const MOST_REPLICAS: usize = 64;
const MOST_PLACES: usize = 1 << 24;

/// A reason why no layout can be made.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum ListsError {
    #[error("there are no nodes: name at least one that may hold the places")]
    NoNodes,
    #[error("0 replicas: a place needs at least 1")]
    NoReplicas,
    #[error("{0} replicas: lists have at most {MOST_REPLICAS} entries, ask for fewer")]
    ManyReplicas(usize),
    #[error("0 classes for each node to head: allow at least 1")]
    NoHeads,
    #[error("the line has no places: a table has at least one partition")]
    NoPlaces,
    #[error("{0} places: a line has at most {MOST_PLACES}, ask for fewer partitions")]
    ManyPlaces(usize),
    #[error("nodes[{index}]: node {id} is given twice: leave one out")]
    Twice { index: usize, id: u32 },
    #[error("nodes[{index}]: the weight {weight} of node {id} is not a number above 0")]
    Weight { index: usize, id: u32, weight: f64 },
    #[error("classes[{index}] of the layout so far {problem}")]
    Old { index: usize, problem: String },
    #[error(
        "node {id} is in classes[{index}] already: replace the other one by a node that is new"
    )]
    InLists { index: usize, id: u32 },
}

const FROM_NOTHING: Prices = Prices {
    copied: 0.0,
    primary: 0.0,
    order: 0.0,
    class: 0.008,
};

/// Returns a layout from nothing. Each node heads about half the classes that it may, so that the
/// others are available for changes.
pub fn lay_out(
    nodes: &[ListNode],
    line: &Line,
    replicas: usize,
    heads_per_node: u32,
) -> Result<Vec<Class>, ListsError> {
    check(nodes, line, replicas, heads_per_node)?;
    let extent = Extent::new(line);
    let shares = Shares::new(nodes, replicas.min(nodes.len()));
    let layers = layers(heads_per_node);
    let sections = ring::sections(&extent, &shares, layers);
    let mut board = Board::new(
        &extent,
        &shares,
        &[],
        sections,
        heads_per_node,
        FROM_NOTHING.per_node(nodes.len()),
    );
    let goal = GoodEnough {
        copied: 0.0,
        classes: nodes.len() * layers,
    };
    shake::improve(&mut board, goal);
    Ok(classes(nodes, &board.sections))
}

/// With more classes of a node than this, its data is spread no further.
const MOST_LAYERS: u32 = 8;

/// Returns the number of classes that each node heads in a first layout.
fn layers(heads_per_node: u32) -> usize {
    heads_per_node.div_ceil(2).min(MOST_LAYERS) as usize
}

fn classes(nodes: &[ListNode], sections: &[Section]) -> Vec<Class> {
    let class = |section: &Section| Class {
        start: section.start as u32,
        list: section
            .list
            .iter()
            .map(|&node| nodes[node as usize].id)
            .collect(),
    };
    sections.iter().map(class).collect()
}

fn check(
    nodes: &[ListNode],
    line: &Line,
    replicas: usize,
    heads_per_node: u32,
) -> Result<(), ListsError> {
    if nodes.is_empty() {
        return Err(ListsError::NoNodes);
    }
    if replicas == 0 {
        return Err(ListsError::NoReplicas);
    }
    if replicas > MOST_REPLICAS {
        return Err(ListsError::ManyReplicas(replicas));
    }
    if heads_per_node == 0 {
        return Err(ListsError::NoHeads);
    }
    if line.places() == 0 {
        return Err(ListsError::NoPlaces);
    }
    if line.places() > MOST_PLACES {
        return Err(ListsError::ManyPlaces(line.places()));
    }
    let mut ids = BTreeSet::new();
    for (index, &ListNode { id, weight, .. }) in nodes.iter().enumerate() {
        if !ids.insert(id) {
            return Err(ListsError::Twice { index, id });
        }
        if !(weight.is_finite() && weight > 0.0) {
            return Err(ListsError::Weight { index, id, weight });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
