//! The connected parts of a minimum cut.
//!
//! They are groups of full nodes that share no partition with each other, so that each needs its
//! own relief.

use super::super::routing::{Cut, Routing};

/// Nodes of a cut that are connected by partitions that only they have.
#[derive(Debug)]
pub struct Part {
    pub partitions: Vec<u32>,
    /// The load that these nodes cannot take.
    pub excess: u64,
}

/// Returns the parts that have remaining load.
pub fn parts(routing: &Routing, cut: &Cut) -> Vec<Part> {
    let mut roots: Vec<usize> = (0..cut.nodes.len()).collect();
    let place_of = |node: u32| cut.nodes.binary_search(&node).ok();
    let places = |partition: u32| routing.holders(partition).filter_map(place_of);
    for &partition in &cut.partitions {
        let mut first = None;
        for place in places(partition) {
            let root = find(&mut roots, place);
            let to = *first.get_or_insert(root);
            roots[root] = to;
            first = Some(find(&mut roots, to));
        }
    }
    let mut parts: Vec<Part> = roots
        .iter()
        .map(|_| Part {
            partitions: Vec::new(),
            excess: 0,
        })
        .collect();
    for &partition in &cut.partitions {
        let place = places(partition).next();
        if let Some(place) = place {
            let part = &mut parts[find(&mut roots, place)];
            part.partitions.push(partition);
            part.excess += routing.left_over(partition);
        }
    }
    parts.retain(|part| part.excess > 0);
    parts
}

fn find(roots: &mut [usize], mut place: usize) -> usize {
    while roots[place] != place {
        roots[place] = roots[roots[place]];
        place = roots[place];
    }
    place
}
