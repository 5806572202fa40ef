//! The planner's searches for layouts, each up to a second of a processor.
//!
//! Thousands of simulated clusters ask for the same few hundred, so tests remember what was found.

use std::fmt::Debug;

use forebay_plan::lists::{Class, LayoutChange, Line, ListNode, ListsError, change, lay_out};

/// How many ranges of slots a node heads at most: so many class ports it wants.
pub const HEADS: u32 = 2;

/// A layout of a line over nodes, from nothing.
#[cfg(not(test))]
pub fn first_layout(
    nodes: &[ListNode],
    line: &Line,
    replicas: usize,
) -> Result<Vec<Class>, ListsError> {
    lay_out(nodes, line, replicas, HEADS)
}

/// The same, of a layout for nodes that are alike: those of a zone are, and so are zones of as
/// many nodes.
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

/// A layout from an old one, for other nodes or other loads.
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
