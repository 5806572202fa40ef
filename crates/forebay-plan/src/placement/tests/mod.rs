//! Tests of the placement planner against exhaustive search, the paper's tables and the notes'
//! targets.

mod figures;
mod migration;
mod placements;
mod routing;
mod steps;
mod vectors;

use super::cluster::{Input, PerNode, PlacementProblem};
use super::workload::{Distribution, Stream};
use crate::Random;

const PAPER: [(&str, Distribution); 5] = [
    ("uniform", Distribution::Uniform),
    (
        "beta",
        Distribution::Beta {
            alpha: 2.0,
            beta: 2.0,
        },
    ),
    (
        "normal",
        Distribution::Normal {
            mean: 0.0,
            deviation: 1.0,
        },
    ),
    ("powerlaw", Distribution::PowerLaw { shape: 3.0 }),
    ("gamma", Distribution::Gamma { shape: 5.0 }),
];

/// The paper's cluster: M = 4, N = 8, k = 32, 30,000 requests.
fn paper_cluster(distribution: Distribution, seed: u64) -> PlacementProblem {
    cluster(8, 32, drawn(distribution, 128, seed))
}

fn drawn(distribution: Distribution, partitions: usize, seed: u64) -> Vec<f64> {
    let shares = distribution.shares(partitions).expect("valid parameters");
    let counts = Stream::new(&shares, seed).counts(30_000);
    counts.into_iter().map(|count| count as f64).collect()
}

fn cluster(nodes: usize, slots: usize, load: Vec<f64>) -> PlacementProblem {
    let input = Input {
        nodes,
        slots: Some(PerNode::All(slots)),
        load,
        ..Input::default()
    };
    input.check().expect("a valid input")
}

fn random_loads(random: &mut Random, partitions: usize) -> Vec<f64> {
    // A third without load, the others of very different heat.
    (0..partitions)
        .map(|_| match random.below(3) {
            0 => 0.0,
            1 => random.below(10) as f64,
            _ => (random.unit() * 6.0).exp(),
        })
        .collect()
}
