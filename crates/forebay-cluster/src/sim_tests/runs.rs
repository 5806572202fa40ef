//! Runs of many seeds.

use forebay_io::sim::all_hold;

use super::run;
use super::world::PlantedDefects;
use crate::bugs::Bug;

/// How many runs each test run makes; `FOREBAY_TEST_SEEDS` asks for others.
const SEEDS: u64 = 1000;

#[test]
fn the_same_seed_twice_is_the_same_run() {
    for seed in 0..5 {
        let trace = || run(seed, None, PlantedDefects::default()).trace;
        assert_eq!(trace(), trace(), "seed {seed}");
    }
}

#[test]
fn all_invariants_hold_for_every_seed() {
    all_hold(SEEDS, |seed| {
        let outcome = run(seed, None, PlantedDefects::default());
        (outcome.violation, outcome.counts)
    });
}

/// The number of seeds within which each planted defect is found.
const FOUND_WITHIN: u64 = 400;

fn finds(bug: Option<Bug>, wrong: PlantedDefects) {
    let found = (0..FOUND_WITHIN).find_map(|seed| Some((seed, run(seed, bug, wrong).violation?)));
    println!("{bug:?} {wrong:?}: {found:?}");
    assert!(found.is_some(), "no check noticed {bug:?} {wrong:?}");
}

#[test]
fn a_swap_committed_without_all_reports_is_found() {
    finds(Some(Bug::CommitsEarly), PlantedDefects::default());
}

#[test]
fn proofs_that_are_not_compared_are_found() {
    finds(Some(Bug::BelievesProofs), PlantedDefects::default());
}

#[test]
fn a_stale_heartbeat_that_counts_is_found() {
    finds(Some(Bug::HearsStale), PlantedDefects::default());
}

#[test]
fn a_revert_that_forgets_a_node_is_found() {
    finds(Some(Bug::ForgetsANode), PlantedDefects::default());
}

#[test]
fn a_drop_that_is_not_tried_again_is_found() {
    finds(Some(Bug::ForgetsADrop), PlantedDefects::default());
}

#[test]
fn a_node_left_out_too_early_is_found() {
    finds(Some(Bug::LeavesOutEarly), PlantedDefects::default());
}

#[test]
fn lists_that_change_before_their_nodes_hold_the_data_are_found() {
    finds(Some(Bug::MovesEarly), PlantedDefects::default());
}

#[test]
fn data_given_up_before_all_nodes_know_is_found() {
    finds(Some(Bug::ReleasesEarly), PlantedDefects::default());
}

#[test]
fn a_request_done_twice_is_found() {
    finds(Some(Bug::DoesTwice), PlantedDefects::default());
}

#[test]
fn a_node_that_serves_before_it_knows_the_catalog_is_found() {
    let wrong = PlantedDefects {
        serves_at_once: true,
        ..PlantedDefects::default()
    };
    finds(None, wrong);
}

#[test]
fn an_old_coordinator_that_keeps_writing_is_found() {
    let wrong = PlantedDefects {
        overwrites: true,
        ..PlantedDefects::default()
    };
    finds(None, wrong);
}
