//! Runs the whole search: a descent to a local optimum, and random steps from it.
//!
//! While loads are uneven or classes many, the search shakes the layout: it changes a class or two
//! at random, and descends from there. It keeps the result if that is better. It may also keep a
//! slightly worse one, less often as the search takes longer. The best of all layouts is the
//! answer.

use super::board::Board;
use super::edit::{Edit, Span};
use super::search::Search;
use crate::Random;

/// The search shakes a layout while a node is further than this from its share.
const FAR: f64 = 0.01;
/// The most classes of a layout that is shaken.
const SHAKEN: usize = 1000;
/// The most lists that are considered in all.
const CONSIDERED: usize = 2_000_000;
/// The search ends after this many consecutive shakes without much improvement.
const PATIENCE: usize = 500;
/// The least improvement that counts, as a part of the cost of a class.
const ENOUGH: f64 = 0.1;
/// How much worse a layout may become at first, as a part of the cost of a class.
const WORSE: f64 = 0.5;

/// The goals besides even loads. While a layout exceeds them, it is shaken.
#[derive(Debug, Clone, Copy)]
pub(super) struct GoodEnough {
    /// The amount that any change copies, as a part of the line.
    pub copied: f64,
    pub classes: usize,
}

pub(super) fn improve(board: &mut Board<'_>, goal: GoodEnough) {
    let mut search = Search {
        random: Random::new(board.shares.zones.len() as u64),
        left: CONSIDERED,
    };
    let nodes = 0..board.heads.len() as u32;
    search.settle_heads(board);
    search.descend(board, nodes.clone().collect());
    if board.sections.len() > SHAKEN {
        return;
    }
    let is_open = |board: &Board<'_>| {
        let far = nodes.clone().any(|node| board.distance(node) > FAR);
        let many = board.sections.len() > goal.classes;
        far || many || board.copied() > goal.copied * (1.0 + FAR) + 1e-9
    };
    let mut now = board.clone();
    // The gain of the current layout against the best one, which is `board`.
    let mut ahead = 0.0;
    let mut idle = 0;
    while search.left > 0 && idle < PATIENCE && is_open(board) {
        idle += 1;
        let mut other = now.clone();
        let gain = shake(&mut search, &mut other);
        let cool = search.left as f64 / CONSIDERED as f64;
        if gain < -WORSE * board.prices.class * cool * search.random.unit() {
            continue;
        }
        now = other;
        ahead += gain;
        if ahead > 1e-9 {
            if ahead > ENOUGH * board.prices.class {
                idle = 0;
            }
            *board = now.clone();
            ahead = 0.0;
        }
    }
}

/// Changes a class or two at random, then descends. Returns the total gain.
fn shake(search: &mut Search, board: &mut Board<'_>) -> f64 {
    let mut gain = 0.0;
    let mut touched = Vec::new();
    for _ in 0..=search.random.below(2) {
        search.left = search.left.saturating_sub(1);
        if let Some(edit) = random_edit(&mut search.random, board) {
            gain += edit.offer.gain;
            touched.extend(board.apply(&edit));
        }
    }
    gain + search.descend(board, touched)
}

/// Returns the furthest from its share of a few nodes drawn at random.
fn far_node(random: &mut Random, board: &Board<'_>) -> u32 {
    let mut drawn = || random.below(board.heads.len()) as u32;
    let nodes = [drawn(), drawn(), drawn()];
    let furthest = nodes.into_iter().max_by(|&a, &b| {
        let (a, b) = (board.distance(a), board.distance(b));
        a.total_cmp(&b)
    });
    furthest.unwrap_or(0)
}

fn random_edit(random: &mut Random, board: &Board<'_>) -> Option<Edit> {
    let node = far_node(random, board);
    let mut section = random.below(board.sections.len());
    if random.below(2) == 0 {
        let holds = |&section: &usize| board.sections[section].list.contains(&node);
        let all: Vec<usize> = (0..board.sections.len()).filter(holds).collect();
        section = *all.get(random.below(all.len().max(1)))?;
    }
    let mut list = board.sections[section].list.clone();
    let mut span = [Span::Left, Span::Right, Span::Whole][random.below(3)];
    match random.below(3) {
        0 => {
            let other = if random.below(2) == 0 {
                section.checked_sub(1)?
            } else {
                section + 1
            };
            list.clone_from(&board.sections.get(other)?.list);
            span = Span::Whole;
        }
        1 => {
            let (a, b) = (random.below(list.len()), random.below(list.len()));
            list.swap(a, b);
        }
        _ => {
            let drawn = random.below(board.heads.len()) as u32;
            let taker = if list.contains(&node) { drawn } else { node };
            if list.contains(&taker) {
                return None;
            }
            list.remove(random.below(list.len()));
            list.insert(random.below(list.len() + 1), taker);
        }
    }
    if !board.shares.allows(&list) {
        return None;
    }
    let slopes = board.slopes(&board.sections[section].list, &list);
    let offer = board.consider(section, span, &list, slopes)?;
    Some(Edit {
        section,
        list,
        offer,
    })
}
