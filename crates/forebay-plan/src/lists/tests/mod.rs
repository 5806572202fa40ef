//! Tests of layouts: the rules for each, and how even and how cheap they are.

mod brute;
mod changes;
mod layouts;
mod worth;

use std::collections::BTreeMap;

use super::line::Extent;
use super::shares::Shares;
use super::{Class, Line, ListNode};

const SLOTS: Line = Line::Uniform(16_384);

/// Returns this many nodes of weight 1, in turn in each zone.
fn even(nodes: u32, zones: u32) -> Vec<ListNode> {
    let node = |id| ListNode {
        id,
        zone: id % zones,
        weight: 1.0,
    };
    (0..nodes).map(node).collect()
}

/// Returns the deviations of a layout's loads from the shares, for each prefix: the furthest above,
/// and below.
fn deviations(
    classes: &[Class],
    nodes: &[ListNode],
    line: &Line,
    replicas: usize,
) -> Vec<(f64, f64)> {
    let shares = Shares::new(nodes, replicas.min(nodes.len()));
    beside(&shares, classes, nodes, &Extent::new(line))
}

/// Returns [`deviations`] with known shares.
fn beside(
    shares: &Shares,
    classes: &[Class],
    nodes: &[ListNode],
    extent: &Extent,
) -> Vec<(f64, f64)> {
    let mut loads = vec![vec![0.0; nodes.len()]; shares.prefixes.len()];
    for (index, class) in classes.iter().enumerate() {
        let end = classes
            .get(index + 1)
            .map_or(extent.places(), |next| next.start as usize);
        for (place, id) in class.list.iter().enumerate() {
            let node = nodes
                .iter()
                .position(|node| node.id == *id)
                .expect("a node");
            for prefix in &mut loads[place..] {
                prefix[node] += extent.width(class.start as usize, end);
            }
        }
    }
    let of = |(loads, shares): (&Vec<f64>, &Vec<f64>)| {
        let parts = loads
            .iter()
            .zip(shares)
            .map(|(load, share)| load / share - 1.0);
        parts.fold((0.0, 0.0), |(above, below): (f64, f64), part| {
            (above.max(part), below.min(part))
        })
    };
    loads.iter().zip(&shares.prefixes).map(of).collect()
}

/// Fails unless the classes cover the line and keep all rules.
fn valid(classes: &[Class], nodes: &[ListNode], line: &Line, replicas: usize, heads: u32) {
    assert_eq!(classes[0].start, 0, "{classes:?}");
    for pair in classes.windows(2) {
        assert!(pair[0].start < pair[1].start, "{classes:?}");
        assert_ne!(pair[0].list, pair[1].list, "neighbours with one list");
    }
    assert!((classes[classes.len() - 1].start as usize) < line.places());
    let mut headed = BTreeMap::new();
    for class in classes {
        *headed.entry(class.list[0]).or_insert(0) += 1;
        assert_eq!(class.list.len(), replicas.min(nodes.len()), "{class:?}");
        for end in 1..=class.list.len() {
            zones_even(&class.list[..end], nodes);
        }
    }
    assert!(headed.values().all(|&count| count <= heads), "{headed:?}");
}

/// Fails if a list has a node twice, or two more in one zone than in another that has a node left.
fn zones_even(list: &[u32], nodes: &[ListNode]) {
    let mut zones: BTreeMap<u32, (usize, usize)> = BTreeMap::new();
    for node in nodes {
        let (held, left) = zones.entry(node.zone).or_default();
        match list.iter().filter(|&&id| id == node.id).count() {
            0 => *left += 1,
            1 => *held += 1,
            _ => panic!("{list:?} has a node twice"),
        }
    }
    let most = zones.values().map(|&(held, _)| held).max();
    let open = zones.values().filter(|&&(_, left)| left > 0);
    let least = open.map(|&(held, _)| held).min();
    if let (Some(most), Some(least)) = (most, least) {
        assert!(most <= least + 1, "{list:?} of {nodes:?}");
    }
}
