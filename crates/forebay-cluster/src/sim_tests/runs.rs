//! Runs of many seeds.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use forebay_io::crew;

use super::run;
use super::world::Wrong;
use crate::bugs::Bug;

/// How many runs each test run makes; `FOREBAY_TEST_SEEDS` asks for others.
const SEEDS: u64 = 2000;

#[test]
fn the_same_seed_twice_is_the_same_run() {
    for seed in 0..5 {
        let trace = || run(seed, None, Wrong::default()).trace;
        assert_eq!(trace(), trace(), "seed {seed}");
    }
}

/// Runs the seeds on two threads: what did not hold, by seeds, and how often what happened.
fn runs(first: u64, count: u64) -> (BTreeMap<u64, String>, BTreeMap<&'static str, u64>) {
    let next = AtomicU64::new(first);
    let both = crew(2, || {
        let (mut problems, mut counts) = (BTreeMap::new(), BTreeMap::new());
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= first + count {
                return (problems, counts);
            }
            let outcome = run(seed, None, Wrong::default());
            problems.extend(outcome.violation.map(|problem| (seed, problem)));
            for (what, count) in outcome.counts {
                *counts.entry(what).or_insert(0) += count;
            }
        }
    });
    let (mut problems, mut counts) = (BTreeMap::new(), BTreeMap::new());
    for (some, counted) in both {
        problems.extend(some);
        for (what, count) in counted {
            *counts.entry(what).or_insert(0) += count;
        }
    }
    (problems, counts)
}

#[test]
fn all_holds_with_every_seed() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let (first, count) = match number("FOREBAY_TEST_SEED") {
        Some(seed) => (seed, 1),
        None => (0, number("FOREBAY_TEST_SEEDS").unwrap_or(SEEDS)),
    };
    let (problems, counts) = runs(first, count);
    println!("{counts:?}");
    let shown = problems.iter().take(20);
    let shown: Vec<String> = shown
        .map(|(seed, problem)| format!("FOREBAY_TEST_SEED={seed} repeats this: {problem}"))
        .collect();
    assert!(
        problems.is_empty(),
        "{} of {count} runs: {shown:#?}",
        problems.len()
    );
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
fn a_node_left_out_too_early_is_found() {
    finds(Some(Bug::LeavesOutEarly), Wrong::default());
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
