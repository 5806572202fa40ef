//! The planner's searches for layouts. Each takes up to a second of processor time.
//!
//! Thousands of simulated clusters search for the same few hundred layouts, so tests cache the
//! results.

use std::fmt::Debug;

use forebay_plan::lists::{Class, LayoutChange, Line, ListNode, ListsError, change, lay_out};

/// The maximum number of ranges of slots of which a node is the primary. It needs as many class
/// ports.
pub const HEADS: u32 = 2;

/// Computes a layout of a line over nodes, without an earlier layout.
#[cfg(not(test))]
pub fn first_layout(
    nodes: &[ListNode],
    line: &Line,
    replicas: usize,
) -> Result<Vec<Class>, ListsError> {
    lay_out(nodes, line, replicas, HEADS)
}

/// Computes the same for a layout of nodes that are alike: nodes of one zone are alike, and so are
/// zones with the same number of nodes.
#[cfg(test)]
pub fn first_layout(
    nodes: &[ListNode],
    line: &Line,
    replicas: usize,
) -> Result<Vec<Class>, ListsError> {
    let size = |zone| nodes.iter().filter(|node| node.zone == zone).count();
    let mut sorted = nodes.to_vec();
    sorted.sort_by_key(|node| (std::cmp::Reverse(size(node.zone)), node.zone, node.id));
    let mut alike: Vec<ListNode> = Vec::new();
    for (at, node) in sorted.iter().enumerate() {
        let zone = match alike.last() {
            Some(before) => before.zone + u32::from(sorted[at - 1].zone != node.zone),
            None => 0,
        };
        let id = at as u32;
        let weight = node.weight;
        alike.push(ListNode { id, zone, weight });
    }
    let mut classes = remembered(("first", &alike, line, replicas), || {
        lay_out(&alike, line, replicas, HEADS)
    })?;
    for class in &mut classes {
        class
            .list
            .iter_mut()
            .for_each(|id| *id = sorted[*id as usize].id);
    }
    Ok(classes)
}

/// Computes a layout from an earlier one, for other nodes or other loads.
pub fn next_layout(
    old: &[Class],
    nodes: &[ListNode],
    line: &Line,
    replicas: usize,
) -> Result<LayoutChange, ListsError> {
    remembered(("next", old, nodes, line, replicas), || {
        change(old, nodes, line, replicas, HEADS)
    })
}

#[cfg(not(test))]
fn remembered<T>(_: impl Debug, search: impl FnOnce() -> T) -> T {
    search()
}

#[cfg(test)]
fn remembered<T: Clone + Send + 'static>(input: impl Debug, search: impl FnOnce() -> T) -> T {
    use std::any::Any;
    use std::collections::BTreeMap;

    type KnownSearches = parking_lot::Mutex<BTreeMap<String, Box<dyn Any + Send>>>;
    static KNOWN: KnownSearches = parking_lot::Mutex::new(BTreeMap::new());
    let input = format!("{input:?}");
    let known = |found: &Box<dyn Any + Send>| found.downcast_ref::<T>().cloned();
    if let Some(found) = KNOWN.lock().get(&input).and_then(known) {
        return found;
    }
    let found = search();
    KNOWN.lock().insert(input, Box::new(found.clone()));
    found
}
