//! Improves a layout by one change after the other, each the best for the worst node.
//!
//! It makes passes over the nodes whose load differs from their share, the furthest first. For each
//! node, it makes the best of the following changes as long as there is one. The node's place in a
//! list changes, it replaces another node, another replaces it, or a boundary moves. A change
//! applies to a whole class, or to the best width from one end. Nodes that a change touched are
//! visited again.

use std::collections::BTreeSet;

use super::board::Board;
use super::edit::{Edit, Span};
use crate::Random;

/// A node whose loads are this near to its shares is skipped.
const CLOSE: f64 = 0.002;
/// The most changes for one node in one pass.
const CHANGES: usize = 24;
/// The most classes considered for a node that is not in them, and nodes that may replace it.
const CLASSES: usize = 400;
const TAKERS: usize = 12;

pub(super) struct Search {
    pub random: Random,
    /// The number of lists that may still be considered.
    pub left: usize,
}

impl Search {
    /// Removes classes from nodes that head more than they may, at any cost. This is always
    /// possible: a class can become part of its neighbour.
    pub fn settle_heads(&mut self, board: &mut Board<'_>) {
        for node in 0..board.heads.len() as u32 {
            while board.is_over_heads(node) {
                let Some(edit) = self.best_for(board, node) else {
                    break;
                };
                board.apply(&edit);
            }
        }
    }

    /// Makes changes for these nodes, and for those that changes touch, until none is better.
    pub fn descend(&mut self, board: &mut Board<'_>, nodes: Vec<u32>) -> f64 {
        let mut waiting: BTreeSet<u32> = nodes.into_iter().collect();
        let mut gain = 0.0;
        while !waiting.is_empty() {
            let mut order: Vec<(f64, u32)> = std::mem::take(&mut waiting)
                .into_iter()
                .map(|node| (board.distance(node), node))
                .filter(|&(distance, _)| distance > CLOSE)
                .collect();
            order.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
            for (_, node) in order {
                for _ in 0..CHANGES {
                    if board.distance(node) <= CLOSE || self.left == 0 {
                        break;
                    }
                    let Some(edit) = self.best_for(board, node) else {
                        break;
                    };
                    gain += edit.offer.gain;
                    waiting.extend(board.apply(&edit));
                }
            }
        }
        gain
    }

    fn best_for(&mut self, board: &Board<'_>, node: u32) -> Option<Edit> {
        let mut best = Best {
            board,
            edit: None,
            considered: 0,
        };
        let takers = takers(board, node);
        let (mut inside, mut outside) = (Vec::new(), Vec::new());
        for (section, class) in board.sections.iter().enumerate() {
            match class.list.iter().position(|&entry| entry == node) {
                Some(place) => inside.push((section, place)),
                None => outside.push(section),
            }
        }
        for &(section, place) in &inside {
            best.reorder(section, place);
            best.give(section, place, &takers);
        }
        for &(section, _) in &inside {
            for near in section.saturating_sub(1)..=section + 1 {
                best.shift(near);
            }
        }
        if outside.len() > CLASSES {
            self.random.shuffle(&mut outside);
            outside.truncate(CLASSES);
        }
        for &section in &outside {
            best.take(section, node);
        }
        self.left = self.left.saturating_sub(best.considered);
        best.edit
    }
}

/// Returns the nodes that are furthest below their share.
fn takers(board: &Board<'_>, node: u32) -> Vec<u32> {
    let deviations = |node: u32| {
        let prefixes = 0..board.prefixes();
        prefixes
            .map(|prefix| board.deviation(prefix, node))
            .sum::<f64>()
    };
    let mut nodes: Vec<(f64, u32)> = (0..board.heads.len() as u32)
        .filter(|&other| other != node)
        .map(|node| (deviations(node), node))
        .collect();
    if nodes.len() > TAKERS {
        nodes.select_nth_unstable_by(TAKERS, |a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        nodes.truncate(TAKERS);
    }
    nodes.into_iter().map(|(_, node)| node).collect()
}

/// The best change so far.
struct Best<'a> {
    board: &'a Board<'a>,
    edit: Option<Edit>,
    considered: usize,
}

const EVERYWHERE: [Span; 3] = [Span::Left, Span::Right, Span::Whole];

impl Best<'_> {
    fn consider(&mut self, section: usize, list: &[u32], spans: &[Span]) {
        self.considered += 1;
        let slopes = self.board.slopes(&self.board.sections[section].list, list);
        for &span in spans {
            let least = self.edit.as_ref().map_or(1e-12, |best| best.offer.gain);
            let offer = self.board.consider(section, span, list, slopes);
            if let Some(offer) = offer.filter(|offer| offer.gain > least) {
                self.edit = Some(Edit {
                    section,
                    list: list.to_vec(),
                    offer,
                });
            }
        }
    }

    fn everywhere(&mut self, section: usize, list: &[u32]) {
        if self.board.shares.allows(list) {
            self.consider(section, list, &EVERYWHERE);
        }
    }

    /// Considers exchanging the entry with each other entry.
    fn reorder(&mut self, section: usize, place: usize) {
        let mut list = self.board.sections[section].list.clone();
        for other in 0..list.len() {
            if other != place {
                list.swap(place, other);
                self.everywhere(section, &list);
                list.swap(place, other);
            }
        }
    }

    /// Considers another node in place of the entry, or elsewhere in the list.
    fn give(&mut self, section: usize, place: usize, takers: &[u32]) {
        for &taker in takers {
            if !self.board.sections[section].list.contains(&taker) {
                self.replace(section, place, taker);
            }
        }
    }

    /// Considers the node in place of an entry.
    fn take(&mut self, section: usize, node: u32) {
        for place in 0..self.board.sections[section].list.len() {
            self.replace(section, place, node);
        }
    }

    fn replace(&mut self, section: usize, place: usize, node: u32) {
        let mut list = self.board.sections[section].list.clone();
        list.remove(place);
        for to in 0..=list.len() {
            list.insert(to, node);
            self.everywhere(section, &list);
            list.remove(to);
        }
    }

    /// Considers a neighbour's list for a part of a class, or all of it.
    fn shift(&mut self, section: usize) {
        let sections = &self.board.sections;
        if section >= sections.len() {
            return;
        }
        if section > 0 {
            self.consider(
                section,
                &sections[section - 1].list,
                &[Span::Left, Span::Whole],
            );
        }
        if section + 1 < sections.len() {
            self.consider(
                section,
                &sections[section + 1].list,
                &[Span::Right, Span::Whole],
            );
        }
    }
}
