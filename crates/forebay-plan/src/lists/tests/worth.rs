//! Tests that the search's gain of a change is what the layout then pays less.

use super::super::board::{Board, Prices, Section};
use super::super::edit::{Edit, Span};
use super::super::line::Extent;
use super::super::shares::Shares;
use super::{SLOTS, even};
use crate::Random;

/// Returns a layout with random lists, which follow no rule.
fn random_sections(random: &mut Random, places: usize, nodes: usize) -> Vec<Section> {
    let mut starts: Vec<usize> = (0..12).map(|_| random.below(places)).collect();
    starts.push(0);
    starts.sort_unstable();
    starts.dedup();
    let mut section = |start| Section {
        start,
        list: random_list(random, nodes),
    };
    let mut sections: Vec<Section> = starts.into_iter().map(&mut section).collect();
    Board::join(&mut sections);
    sections
}

fn random_list(random: &mut Random, nodes: usize) -> Vec<u32> {
    let mut list: Vec<u32> = (0..nodes as u32).collect();
    random.shuffle(&mut list);
    list.truncate(3);
    list
}

#[test]
fn a_gain_is_the_reduction_of_the_layouts_price() {
    let mut random = Random::new(5);
    let nodes = even(6, 2);
    let shares = Shares::new(&nodes, 3);
    let extent = Extent::new(&SLOTS);
    let prices = Prices {
        copied: 0.1,
        primary: 0.02,
        order: 0.01,
        class: 0.001,
    };
    for _ in 0..100 {
        let old = random_sections(&mut random, extent.places(), nodes.len());
        let sections = random_sections(&mut random, extent.places(), nodes.len());
        let mut board = Board::new(&extent, &shares, &old, sections, 100, prices);
        for _ in 0..100 {
            let section = random.below(board.sections.len());
            let span = [Span::Left, Span::Right, Span::Whole][random.below(3)];
            let list = match random.below(2) {
                0 => random_list(&mut random, nodes.len()),
                _ => board.sections[random.below(board.sections.len())]
                    .list
                    .clone(),
            };
            let slopes = board.slopes(&board.sections[section].list, &list);
            let Some(offer) = board.consider(section, span, &list, slopes) else {
                continue;
            };
            let edit = Edit {
                section,
                list,
                offer,
            };
            let before = board.pays();
            board.apply(&edit);
            let gain = before - board.pays();
            assert!((gain - offer.gain).abs() < 1e-9, "{edit:?}: {gain}");
            let mut heads = vec![0; nodes.len()];
            for section in &board.sections {
                heads[section.list[0] as usize] += 1;
            }
            assert_eq!(board.heads, heads);
        }
    }
}
