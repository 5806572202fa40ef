//! The planner's searches for layouts, each up to a second of a processor.
//!
//! Thousands of simulated clusters ask for the same few hundred, so tests remember what was found.

use std::fmt::Debug;

use forebay_plan::lists::{Changed, Class, Line, ListNode, ListsError, change, lay_out};

/// How many ranges of slots a node heads at most: so many class ports it wants.
pub const HEADS: u32 = 2;

/// A layout of a line over nodes, from nothing.
pub fn first_layout(
    nodes: &[ListNode],
    line: &Line,
    replicas: usize,
) -> Result<Vec<Class>, ListsError> {
    remembered(("first", nodes, line, replicas), || {
        lay_out(nodes, line, replicas, HEADS)
    })
}

/// A layout from an old one, for other nodes or other loads.
pub fn next_layout(
    old: &[Class],
    nodes: &[ListNode],
    line: &Line,
    replicas: usize,
) -> Result<Changed, ListsError> {
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

    type Known = parking_lot::Mutex<BTreeMap<String, Box<dyn Any + Send>>>;
    static KNOWN: Known = parking_lot::Mutex::new(BTreeMap::new());
    let input = format!("{input:?}");
    let known = |found: &Box<dyn Any + Send>| found.downcast_ref::<T>().cloned();
    if let Some(found) = KNOWN.lock().get(&input).and_then(known) {
        return found;
    }
    let found = search();
    KNOWN.lock().insert(input, Box::new(found.clone()));
    found
}
