//! Makes lists longer, for more replicas.
//!
//! Existing entries keep their places, so no data has to move.

use super::change::{check_old, numbered};
use super::line::Extent;
use super::shares::Shares;
use super::{Class, Line, ListNode, ListsError, check, classes};

/// Returns a layout whose lists have more entries, for a table of more replicas than any had. Each
/// list gets the nodes that are furthest below their share, as the rule of zones allows.
///
/// REQUIRES: the old lists name nodes that are given.
pub fn extend(
    old: &[Class],
    nodes: &[ListNode],
    line: &Line,
    replicas: usize,
) -> Result<Vec<Class>, ListsError> {
    check(nodes, line, replicas, 1)?;
    check_old(old, line)?;
    let extent = Extent::new(line);
    let replicas = replicas.min(nodes.len());
    let shares = Shares::new(nodes, replicas);
    let wanted = &shares.prefixes[replicas - 1];
    let mut sections = numbered(old, nodes);
    let ends: Vec<usize> = sections
        .iter()
        .skip(1)
        .map(|section| section.start)
        .chain([extent.places()])
        .collect();
    let mut loads = vec![0.0; nodes.len()];
    for (section, end) in sections.iter().zip(&ends) {
        for &node in &section.list {
            if let Some(load) = loads.get_mut(node as usize) {
                *load += extent.width(section.start, *end);
            }
        }
    }
    for length in 1..=replicas {
        for (section, end) in sections.iter_mut().zip(&ends) {
            if section.list.len() >= length {
                continue;
            }
            let list = &section.list;
            let others = (0..nodes.len() as u32).filter(|node| !list.contains(node));
            let rest =
                |node: u32| loads[node as usize] / wanted[node as usize].max(f64::MIN_POSITIVE);
            let next = others.min_by(|&a, &b| {
                let allowed = |node| !shares.may_follow(list, node);
                allowed(a)
                    .cmp(&allowed(b))
                    .then(rest(a).total_cmp(&rest(b)))
            });
            if let Some(node) = next {
                loads[node as usize] += extent.width(section.start, *end);
                section.list.push(node);
            }
        }
    }
    Ok(classes(nodes, &sections))
}
