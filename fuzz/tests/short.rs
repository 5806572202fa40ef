//! A short run of every fuzz target on the stable compiler: good inputs, randomly changed. A
//! failure prints its seed; FOREBAY_FUZZ_SEED repeats it, FOREBAY_FUZZ_ROUNDS makes the run longer.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use forebay_fuzz::{log, manifest, mutate::mutate, replica_log, resp, run};
use forebay_io::sim::Rng;
use forebay_io::{Random, SystemRandom};

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn short_run(samples: &[Vec<u8>], rounds: u64, check: fn(&[u8])) {
    let seed = number("FOREBAY_FUZZ_SEED").unwrap_or_else(|| SystemRandom.next_u64());
    let mut rng = Rng(seed);
    for sample in samples {
        check(sample);
    }
    for round in 0..number("FOREBAY_FUZZ_ROUNDS").unwrap_or(rounds) {
        let mut data = samples[rng.below(samples.len() as u64) as usize].clone();
        mutate(&mut data, &mut rng);
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| check(&data))) {
            eprintln!(
                "round {round} of FOREBAY_FUZZ_SEED={seed} failed on {} bytes",
                data.len()
            );
            resume_unwind(panic);
        }
    }
}

#[test]
fn resp_parser() {
    short_run(&resp::samples(), 100_000, resp::check);
}

#[test]
fn run_reader() {
    short_run(&run::samples(), 20_000, run::check);
}

#[test]
fn log_recovery() {
    short_run(&log::samples(), 5_000, log::check);
}

#[test]
fn replica_log_recovery() {
    short_run(&replica_log::samples(), 20_000, replica_log::check);
}

#[test]
fn manifest_reader() {
    let samples = manifest::samples();
    assert!(
        forebay_engine::Manifest::parse(&samples[0]).is_ok(),
        "the sample is a manifest"
    );
    assert!(
        forebay_engine::Pointer::parse(&samples[1]).is_ok(),
        "the sample is a pointer"
    );
    assert!(
        forebay_engine::Manifest::parse(&samples[2]).is_ok(),
        "the sample is a manifest of format 1"
    );
    short_run(&samples, 40_000, manifest::check);
}
