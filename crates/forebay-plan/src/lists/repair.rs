//! Adapts the old lists to the current nodes, as the start of the search for a changed layout.

use super::board::Section;
use super::line::Extent;
use super::shares::Shares;

/// The number of a removed node in old layouts.
pub(super) const GONE: u32 = u32::MAX;

/// Each class keeps its nodes, in their order, as far as the nodes still exist, replicas are wanted
/// and zones allow it. Nodes furthest below their share fill the gaps.
pub(super) fn repaired(old: &[Section], extent: &Extent, shares: &Shares) -> Vec<Section> {
    let replicas = shares.prefixes.len();
    let end = |index: usize| {
        old.get(index + 1)
            .map_or(extent.places(), |next| next.start)
    };
    let width = |index: usize| extent.width(old[index].start, end(index));
    let mut loads = vec![0.0; shares.zones.len()];
    for (index, section) in old.iter().enumerate() {
        for &node in section
            .list
            .iter()
            .take(replicas)
            .filter(|&&node| node != GONE)
        {
            loads[node as usize] += width(index);
        }
    }
    let mut sections = Vec::with_capacity(old.len());
    for (index, section) in old.iter().enumerate() {
        let list = repaired_list(&section.list, shares, &loads);
        let kept = section
            .list
            .iter()
            .take(replicas)
            .filter(|&&node| node != GONE);
        for &node in kept {
            loads[node as usize] -= width(index);
        }
        for &node in &list {
            loads[node as usize] += width(index);
        }
        sections.push(Section {
            start: section.start,
            list,
        });
    }
    sections
}

fn repaired_list(old: &[u32], shares: &Shares, loads: &[f64]) -> Vec<u32> {
    let mut list: Vec<u32> = Vec::with_capacity(shares.prefixes.len());
    let all = &shares.prefixes[shares.prefixes.len() - 1];
    while list.len() < shares.prefixes.len() {
        let kept = old.iter().copied().filter(|&node| node != GONE);
        let fresh = || {
            let below = |node: u32| loads[node as usize] / all[node as usize];
            (0..loads.len() as u32)
                .filter(|&node| shares.may_follow(&list, node))
                .min_by(|&a, &b| below(a).total_cmp(&below(b)))
        };
        let next = kept
            .clone()
            .find(|&node| shares.may_follow(&list, node))
            .or_else(fresh);
        let Some(node) = next else { break };
        list.push(node);
    }
    list
}
