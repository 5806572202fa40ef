//! Changes an old layout to fit the current nodes, and copies little data.

use std::collections::BTreeMap;

use super::board::{Board, Prices, Section};
use super::layout_change::LayoutChange;
use super::line::Extent;
use super::repair::{self, GONE};
use super::shake::{self, GoodEnough};
use super::shares::Shares;
use super::{Class, Line, ListNode, ListsError, check, classes, layers};

/// The prices of a change. Data is copied if two nodes' loads differ by some 5% of their shares, in
/// the mean of the prefixes that change: half the price of a copy.
const PRICES: Prices = Prices {
    copied: 0.1,
    primary: 0.005,
    order: 0.001,
    class: 0.004,
};

/// Returns a layout for these nodes from an old one. Nodes may be new or gone; replicas, weights
/// and zones may differ. The amount copied is near [`LayoutChange::lacking`]
/// (docs/decisions/planners.md has figures). Places keep their lists as far as loads allow.
pub fn change(
    old: &[Class],
    nodes: &[ListNode],
    line: &Line,
    replicas: usize,
    heads_per_node: u32,
) -> Result<LayoutChange, ListsError> {
    check(nodes, line, replicas, heads_per_node)?;
    check_old(old, line)?;
    let extent = Extent::new(line);
    let shares = Shares::new(nodes, replicas.min(nodes.len()));
    let old_sections = numbered(old, nodes);
    let mut sections = repair::repaired(&old_sections, &extent, &shares);
    Board::join(&mut sections);
    let prices = PRICES.per_node(nodes.len());
    let mut board = Board::new(
        &extent,
        &shares,
        &old_sections,
        sections,
        heads_per_node,
        prices,
    );
    let least = least_copied(&old_sections, &extent, &shares);
    let goal = GoodEnough {
        copied: least,
        classes: nodes.len() * layers(heads_per_node),
    };
    shake::improve(&mut board, goal);
    let whole = line.weight(0..line.places() as u32);
    let new = classes(nodes, &board.sections);
    Ok(LayoutChange::new(old, new, line, Some(least * whole)))
}

/// Returns the old layout with one node in place of another. The new one takes all its places, and
/// nothing else changes. If the two have different zones or weights, [`change`] gives better
/// results.
pub fn swap_node(
    old: &[Class],
    gone: u32,
    new: u32,
    line: &Line,
) -> Result<LayoutChange, ListsError> {
    check_old(old, line)?;
    if let Some(index) = old.iter().position(|class| class.list.contains(&new)) {
        return Err(ListsError::InLists { index, id: new });
    }
    let swapped = old.iter().map(|class| Class {
        start: class.start,
        list: class
            .list
            .iter()
            .map(|&id| if id == gone { new } else { id })
            .collect(),
    });
    Ok(LayoutChange::new(old, swapped.collect(), line, None))
}

/// Returns an old layout with nodes as positions in the current list.
pub(super) fn numbered(old: &[Class], nodes: &[ListNode]) -> Vec<Section> {
    let numbers: BTreeMap<u32, u32> = nodes.iter().map(|node| node.id).zip(0..).collect();
    let number = |id: &u32| numbers.get(id).copied().unwrap_or(GONE);
    let section = |class: &Class| Section {
        start: class.start as usize,
        list: class.list.iter().map(number).collect(),
    };
    old.iter().map(section).collect()
}

/// Returns a lower bound of what is copied by any layout in which no node lacks more than a place's
/// mean weight of its share. It counts what nodes lack above that, and at least what places lack of
/// their replicas.
fn least_copied(old: &[Section], extent: &Extent, shares: &Shares) -> f64 {
    let replicas = shares.prefixes.len();
    let mut held = vec![0.0; shares.zones.len()];
    let mut missing = 0.0;
    for (index, section) in old.iter().enumerate() {
        let end = old
            .get(index + 1)
            .map_or(extent.places(), |next| next.start);
        let width = extent.width(section.start, end);
        let mut count = 0;
        for &node in section.list.iter().filter(|&&node| node != GONE) {
            held[node as usize] += width;
            count += 1;
        }
        missing += width * replicas.saturating_sub(count) as f64;
    }
    let place = 1.0 / extent.places() as f64;
    let all = &shares.prefixes[replicas - 1];
    let lacking = all
        .iter()
        .zip(held)
        .map(|(share, held)| (share - held - place).max(0.0));
    lacking.sum::<f64>().max(missing)
}

pub(super) fn check_old(old: &[Class], line: &Line) -> Result<(), ListsError> {
    let wrong = |index, problem: String| Err(ListsError::Old { index, problem });
    if old.is_empty() {
        return wrong(
            0,
            "is missing: without classes, make a new layout".to_owned(),
        );
    }
    let places = line.places();
    for (index, class) in old.iter().enumerate() {
        let start = class.start;
        if index == 0 && start != 0 {
            return wrong(
                index,
                format!("begins at place {start}: the first begins at 0"),
            );
        }
        if index > 0 && start <= old[index - 1].start {
            return wrong(
                index,
                format!("begins at place {start}, not after the one before it"),
            );
        }
        if start as usize >= places {
            let problem =
                format!("begins at place {start}, of {places}: give the line that it is of");
            return wrong(index, problem);
        }
        if class.list.is_empty() {
            return wrong(
                index,
                "has no nodes: its places are held by nobody".to_owned(),
            );
        }
        for (place, id) in class.list.iter().enumerate() {
            if class.list[..place].contains(id) {
                return wrong(index, format!("names node {id} twice"));
            }
        }
    }
    Ok(())
}
