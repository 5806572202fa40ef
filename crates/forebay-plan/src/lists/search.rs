//! Makes a layout better by one change after the other, the best for the node that is worst off.
//!
//! In passes over the nodes whose load is not their share, the furthest first. For each, the best of
//! these is done as long as there is one: its place in a list changes, it takes the place of another
//! node, another takes its place, or a boundary moves; of a whole class, or of as much of it from one
//! end as is best. Nodes that a change touched are looked at again.
//!
//! Where nothing is better any more and loads are still uneven, the layout is shaken: a class or two
//! change at random, and if the search from there ends better, that is the layout.

use std::collections::BTreeSet;

use super::board::{Board, Edit, Span};
use crate::Random;

/// A node is left alone while its loads are this near to its shares.
const CLOSE: f64 = 0.002;
/// Changes that one node gets in one pass.
const CHANGES: usize = 24;
/// Classes that are looked at for a node that is not in them, and nodes that may take its place.
const CLASSES: usize = 400;
const TAKERS: usize = 12;
/// Lists that are considered in all; passes end when there were as many.
const CONSIDERED: usize = 6_000_000;

/// A layout is shaken while a node is further than this from its share.
const FAR: f64 = 0.01;
/// Layouts of more classes than this are not shaken.
const SHAKEN: usize = 1000;
/// Shakes without gain after which the search ends.
const PATIENCE: usize = 400;

pub(super) fn improve(board: &mut Board<'_>) {
    let mut search = Search {
        random: Random::new(board.shares.zones.len() as u64),
        considered: 0,
    };
    let nodes = 0..board.shares.zones.len() as u32;
    search.descend(board, nodes.clone().collect());
    let far = |board: &Board<'_>| nodes.clone().any(|node| board.distance(node) > FAR);
    let mut idle = 0;
    while board.sections.len() <= SHAKEN
        && idle < PATIENCE
        && search.considered < CONSIDERED
        && far(board)
    {
        let mut other = board.clone();
        let gain = search.shake(&mut other);
        if gain > 1e-9 {
            *board = other;
            idle = 0;
        } else {
            idle += 1;
        }
    }
}

struct Search {
    random: Random,
    considered: usize,
}

impl Search {
    /// Makes changes for these nodes, and for those that changes touch, until none is better.
    fn descend(&mut self, board: &mut Board<'_>, nodes: Vec<u32>) -> f64 {
        let mut waiting: BTreeSet<u32> = nodes.into_iter().collect();
        let mut gain = 0.0;
        while !waiting.is_empty() && self.considered < CONSIDERED {
            let mut order: Vec<(f64, u32)> = std::mem::take(&mut waiting)
                .into_iter()
                .map(|node| (board.distance(node), node))
                .filter(|&(distance, _)| distance > CLOSE)
                .collect();
            order.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
            for (_, node) in order {
                for _ in 0..CHANGES {
                    if board.distance(node) <= CLOSE || self.considered >= CONSIDERED {
                        break;
                    }
                    let Some(edit) = self.best_for(board, node) else {
                        break;
                    };
                    gain += edit.gain;
                    waiting.extend(board.apply(&edit));
                }
            }
        }
        gain
    }

    /// Changes a class or two at random, then descends from there.
    fn shake(&mut self, board: &mut Board<'_>) -> f64 {
        let mut gain = 0.0;
        let mut touched = Vec::new();
        for _ in 0..=self.random.below(2) {
            if let Some(edit) = self.random_edit(board) {
                gain += edit.gain;
                touched.extend(board.apply(&edit));
            }
        }
        if touched.is_empty() {
            return 0.0;
        }
        gain + self.descend(board, touched)
    }

    fn random_edit(&mut self, board: &Board<'_>) -> Option<Edit> {
        self.considered += 1;
        let section = self.random.below(board.sections.len());
        let mut list = board.sections[section].list.clone();
        let spans = [Span::Left, Span::Right, Span::Whole];
        let span = spans[self.random.below(3)];
        match self.random.below(3) {
            0 if section > 0 => {
                list.clone_from(&board.sections[section - 1].list);
                return board.consider(section, Span::Whole, &list);
            }
            1 => {
                let (a, b) = (self.random.below(list.len()), self.random.below(list.len()));
                list.swap(a, b);
            }
            _ => {
                let node = self.random.below(board.shares.zones.len()) as u32;
                if list.contains(&node) {
                    return None;
                }
                list.remove(self.random.below(list.len()));
                list.insert(self.random.below(list.len() + 1), node);
            }
        }
        if !board.shares.allows(&list) {
            return None;
        }
        board.consider(section, span, &list)
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
        self.considered += best.considered;
        best.edit
    }
}

/// The nodes that are furthest below their share.
fn takers(board: &Board<'_>, node: u32) -> Vec<u32> {
    let below = |node: u32| {
        let prefixes = 0..board.loads.len();
        prefixes
            .map(|prefix| board.deviation(prefix, node))
            .sum::<f64>()
    };
    let mut nodes: Vec<(f64, u32)> = (0..board.shares.zones.len() as u32)
        .filter(|&other| other != node)
        .map(|node| (below(node), node))
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

impl Best<'_> {
    fn consider(&mut self, section: usize, span: Span, list: &[u32]) {
        self.considered += 1;
        let Some(edit) = self.board.consider(section, span, list) else {
            return;
        };
        let least = self.edit.as_ref().map_or(1e-12, |best| best.gain);
        if edit.gain > least {
            self.edit = Some(edit);
        }
    }

    fn everywhere(&mut self, section: usize, list: &[u32]) {
        if self.board.shares.allows(list) {
            for span in [Span::Left, Span::Right, Span::Whole] {
                self.consider(section, span, list);
            }
        }
    }

    /// The entry changes places with each other one.
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

    /// Another node takes the place of the entry, or comes in elsewhere.
    fn give(&mut self, section: usize, place: usize, takers: &[u32]) {
        for &taker in takers {
            if !self.board.sections[section].list.contains(&taker) {
                self.replace(section, place, taker);
            }
        }
    }

    /// The node takes the place of an entry.
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

    /// A class takes from its neighbours, or all of them.
    fn shift(&mut self, section: usize) {
        let sections = &self.board.sections;
        if section >= sections.len() {
            return;
        }
        if section > 0 {
            let list = &sections[section - 1].list;
            self.consider(section, Span::Left, list);
            self.consider(section, Span::Whole, list);
        }
        if section + 1 < sections.len() {
            let list = &sections[section + 1].list;
            self.consider(section, Span::Right, list);
            self.consider(section, Span::Whole, list);
        }
    }
}
