//! Tests of short lines against every possible layout.

use super::super::line::Extent;
use super::super::shares::Shares;
use super::super::{Class, Line, ListNode, change, lay_out};
use super::{beside, even};

/// All layouts of a line of few places, one after the other.
struct Every<'a> {
    nodes: &'a [ListNode],
    lists: Vec<Vec<u32>>,
    line: Line,
    heads: usize,
    shares: Shares,
    extent: Extent,
}

impl Every<'_> {
    /// Calls a function with each layout in which no node heads more classes than it may.
    fn visit(&self, classes: &mut Vec<Class>, place: u32, each: &mut impl FnMut(&[Class])) {
        if place as usize == self.line.places() {
            each(classes);
            return;
        }
        for list in &self.lists {
            let joins = classes.last().is_some_and(|class| class.list == *list);
            if joins {
                self.visit(classes, place + 1, each);
                continue;
            }
            let headed = classes.iter().filter(|class| class.list[0] == list[0]);
            if headed.count() < self.heads {
                let list = list.clone();
                classes.push(Class { start: place, list });
                self.visit(classes, place + 1, each);
                classes.pop();
            }
        }
    }

    /// Returns the distance of a node from its share, for each prefix.
    fn uneven(&self, classes: &[Class]) -> Vec<f64> {
        let all = beside(&self.shares, classes, self.nodes, &self.extent);
        all.into_iter()
            .map(|(above, below)| above.max(-below))
            .collect()
    }
}

/// Returns lists of two distinct nodes; all are valid if there is one zone.
fn pairs(nodes: &[ListNode]) -> Vec<Vec<u32>> {
    let ids = || nodes.iter().map(|node| node.id);
    let with = |a| ids().filter(move |&b| b != a).map(move |b| vec![a, b]);
    ids().flat_map(with).collect()
}

fn every(nodes: &[ListNode], places: u32, heads: usize) -> Every<'_> {
    let line = Line::Uniform(places);
    Every {
        nodes,
        lists: pairs(nodes),
        extent: Extent::new(&line),
        shares: Shares::new(nodes, 2),
        line,
        heads,
    }
}

#[test]
fn no_layout_of_few_places_is_more_even() {
    for (weights, places, heads) in [
        (vec![1.0, 1.0, 1.0], 6, 2),
        (vec![1.0, 2.0, 3.0], 6, 2),
        (vec![1.0, 1.0, 2.0], 6, 1),
        (vec![1.0, 1.0, 1.0, 2.0], 5, 2),
    ] {
        let mut nodes = even(weights.len() as u32, 1);
        for (node, &weight) in nodes.iter_mut().zip(&weights) {
            node.weight = weight;
        }
        let every = every(&nodes, places, heads);
        let worst = |classes: &[Class]| every.uneven(classes).into_iter().fold(0.0, f64::max);
        let mut best = f64::INFINITY;
        every.visit(&mut Vec::new(), 0, &mut |classes| {
            best = best.min(worst(classes))
        });
        let classes = lay_out(&nodes, &every.line, 2, heads as u32).expect("a layout");
        let ours = worst(&classes);
        assert!(ours <= best + 1e-9, "{weights:?}: {ours} for {best}");
    }
}

#[test]
fn no_change_of_few_places_that_is_as_even_copies_less() {
    for (before, after, places, heads) in [
        (3, 4, 6, 1),
        (3, 4, 6, 2),
        (4, 3, 6, 1),
        (4, 3, 6, 2),
        (2, 4, 6, 2),
    ] {
        let old = lay_out(&even(before, 1), &Line::Uniform(places), 2, heads).expect("a layout");
        let nodes = even(after, 1);
        let every = every(&nodes, places, heads as usize);
        let changed = change(&old, &nodes, &every.line, 2, heads).expect("a change");
        let uneven = every.uneven(&changed.classes);
        let mut best = f64::INFINITY;
        every.visit(&mut Vec::new(), 0, &mut |classes| {
            let copied = super::changes::copied(&old, classes, &every.line);
            let even = every
                .uneven(classes)
                .into_iter()
                .zip(&uneven)
                .all(|(a, b)| a <= b + 1e-9);
            if copied < best && even {
                best = copied;
            }
        });
        assert!(
            changed.copied <= best,
            "{before} to {after} nodes: {} for {best}",
            changed.copied
        );
    }
}
