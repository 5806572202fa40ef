//! Tests of many seeds.

use std::panic::{UnwindSafe, catch_unwind};

use forebay_io::sim::{SeedCounts, all_hold};

use super::real::StoreBug;
use super::stale::StaleBug;
use super::{Outcome, run, run_on_engine, run_stale};
use crate::bugs::Bug;

/// The number of runs of each test; `FOREBAY_TEST_SEEDS` changes it.
const SEEDS: u64 = 1000;

#[test]
fn the_same_seed_twice_is_the_same_run() {
    for seed in 0..20 {
        let trace = || run(seed, None).trace;
        assert_eq!(trace(), trace(), "seed {seed}");
    }
}

/// Returns the violation, also if the library ended the run.
fn violation(run: impl FnOnce() -> Outcome + UnwindSafe) -> (Option<String>, SeedCounts) {
    match catch_unwind(run) {
        Ok(outcome) => (outcome.violation, outcome.counts),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned().unwrap_or_default();
            (Some(format!("panic: {text}")), SeedCounts::new())
        }
    }
}

#[test]
fn all_invariants_hold_for_every_seed() {
    all_hold(SEEDS, |seed| violation(|| run(seed, None)));
}

/// Each planted defect is found within this many seeds.
const FOUND_WITHIN: u64 = 2000;

#[track_caller]
fn is_found(name: &str, run: impl Fn(u64) -> (Option<String>, SeedCounts)) {
    let begun = std::env::var("FOREBAY_TEST_SEED")
        .ok()
        .and_then(|text| text.parse().ok());
    let first = begun.unwrap_or(0);
    let found = (first..first + FOUND_WITHIN).find_map(|seed| Some((seed, run(seed).0?)));
    println!("{name}: {found:.300?}");
    assert!(found.is_some(), "no check noticed {name}");
}

#[track_caller]
fn finds(bug: Bug) {
    is_found(&format!("{bug:?}"), |seed| {
        violation(|| run(seed, Some(bug)))
    });
}

#[track_caller]
fn finds_in_store(bug: StoreBug) {
    is_found(&format!("{bug:?}"), |seed| {
        violation(|| run_on_engine(seed, Some(bug)))
    });
}

#[test]
fn an_acknowledgement_before_the_sync_is_found() {
    finds(Bug::AcksBeforeSync);
}

#[test]
fn a_vote_after_a_restart_that_forgot_is_found() {
    finds(Bug::VotesAfterForgetting);
}

#[test]
fn entries_applied_before_their_commit_are_found() {
    finds(Bug::AppliesBeforeCommit);
}

#[test]
fn reads_of_a_stale_leader_are_found() {
    finds(Bug::ReadsWhenStale);
}

#[test]
fn replicas_that_use_their_own_clocks_are_found() {
    finds(Bug::HasOwnClock);
}

#[test]
fn a_proposal_sent_again_is_found() {
    finds(Bug::ProposesTwice);
}

#[test]
fn a_lease_that_is_not_checked_after_the_read_is_found() {
    finds(Bug::LooksOnce);
}

#[test]
fn a_voter_that_has_nothing_is_found() {
    finds(Bug::PromotesTheEmpty);
}

#[test]
fn effects_that_were_evaluated_on_another_basis_are_found() {
    finds(Bug::TakesAnyBasis);
}

#[track_caller]
fn finds_stale(bug: StaleBug) {
    is_found(&format!("{bug:?}"), |seed| {
        violation(|| run_stale(seed, bug))
    });
}

#[test]
fn a_bound_that_counts_from_the_answer_is_found() {
    finds_stale(StaleBug::CountsFromAnswer);
}

#[test]
fn a_bound_that_is_not_checked_after_the_read_is_found() {
    finds_stale(StaleBug::LooksOnce);
}

/// The number of runs over the engine and its log, in each test.
const ENGINE_SEEDS: u64 = 50;

#[test]
fn the_real_engine_keeps_every_acknowledged_write() {
    all_hold(ENGINE_SEEDS, |seed| violation(|| run_on_engine(seed, None)));
}

#[test]
fn the_same_seed_twice_is_the_same_run_of_the_real_engine() {
    for seed in 0..3 {
        let trace = || run_on_engine(seed, None).trace;
        assert_eq!(trace(), trace(), "seed {seed}");
    }
}

#[test]
fn places_kept_apart_from_runs_are_found() {
    finds_in_store(StoreBug::PlacesApart);
}

#[test]
fn a_log_that_does_not_restart_after_a_copy_is_found() {
    finds_in_store(StoreBug::LogContinues);
}

#[test]
fn a_log_that_is_not_synced_is_found() {
    finds_in_store(StoreBug::SyncsNothing);
}

#[test]
fn entries_that_are_trimmed_too_early_are_found() {
    finds_in_store(StoreBug::TrimsApplied);
}
