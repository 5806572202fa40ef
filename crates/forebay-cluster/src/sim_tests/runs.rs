//! Runs of many seeds.

use forebay_io::sim::all_hold;

use super::run;
use super::world::Wrong;
use crate::bugs::Bug;

/// How many runs each test run makes; `FOREBAY_TEST_SEEDS` asks for others.
const SEEDS: u64 = 1000;

#[test]
fn the_same_seed_twice_is_the_same_run() {
    for seed in 0..5 {
        let trace = || run(seed, None, Wrong::default()).trace;
        assert_eq!(trace(), trace(), "seed {seed}");
    }
}

#[test]
fn all_holds_with_every_seed() {
    all_hold(SEEDS, |seed| {
        let outcome = run(seed, None, Wrong::default());
        (outcome.violation, outcome.counts)
    });
}

/// Each planted defect is found within so many seeds.
const FOUND_WITHIN: u64 = 400;

fn finds(bug: Option<Bug>, wrong: Wrong) {
    let found = (0..FOUND_WITHIN).find_map(|seed| Some((seed, run(seed, bug, wrong).violation?)));
    println!("{bug:?} {wrong:?}: {found:?}");
    assert!(found.is_some(), "nobody noticed {bug:?} {wrong:?}");
}

#[test]
fn a_swap_committed_without_all_reports_is_found() {
    finds(Some(Bug::CommitsEarly), Wrong::default());
}

#[test]
fn proofs_that_are_not_compared_are_found() {
    finds(Some(Bug::BelievesProofs), Wrong::default());
}

#[test]
fn a_stale_heartbeat_that_counts_is_found() {
    finds(Some(Bug::HearsStale), Wrong::default());
}

#[test]
fn a_revert_that_forgets_a_node_is_found() {
    finds(Some(Bug::ForgetsANode), Wrong::default());
}

#[test]
fn a_drop_that_is_not_tried_again_is_found() {
    finds(Some(Bug::ForgetsADrop), Wrong::default());
}

#[test]
fn a_node_left_out_too_early_is_found() {
    finds(Some(Bug::LeavesOutEarly), Wrong::default());
}

#[test]
fn lists_that_change_before_their_nodes_hold_it_are_found() {
    finds(Some(Bug::MovesEarly), Wrong::default());
}

#[test]
fn what_is_given_up_before_all_know_is_found() {
    finds(Some(Bug::ReleasesEarly), Wrong::default());
}

#[test]
fn a_request_done_twice_is_found() {
    finds(Some(Bug::DoesTwice), Wrong::default());
}

#[test]
fn a_node_that_serves_before_it_knows_the_catalog_is_found() {
    let wrong = Wrong {
        serves_at_once: true,
        ..Wrong::default()
    };
    finds(None, wrong);
}

#[test]
fn an_old_coordinator_that_writes_on_is_found() {
    let wrong = Wrong {
        overwrites: true,
        ..Wrong::default()
    };
    finds(None, wrong);
}
