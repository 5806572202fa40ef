//! Placements of the paper's workloads: its tables and figures over again, and what the notes'
//! targets ask for. One JSON object.

use std::time::Instant;

use clap::Args;
use forebay_plan::Random;
use forebay_plan::placement::cluster::{Input, PerNode, PlacementProblem};
use forebay_plan::placement::layout::Placement;
use forebay_plan::placement::measure::{capacity, measure};
use forebay_plan::placement::migrate::{migrate, relabel, shipped};
use forebay_plan::placement::replicas::Objective;
use forebay_plan::placement::schemes::{Scheme, place};
use forebay_plan::placement::simulate::{Policy, route, throughput};
use forebay_plan::placement::workload::{Distribution, Stream};
use serde_json::{Value, json};

const REQUESTS: u64 = 30_000;
const NODES: usize = 8;
/// The smallest cluster that holds all data.
const LEAST_NODES: usize = 4;
const SLOTS: usize = 32;
const SCHEMES: [Scheme; 6] = [
    Scheme::Base,
    Scheme::Coarse,
    Scheme::Compact,
    Scheme::Balanced,
    Scheme::Smooth,
    Scheme::Complete,
];

#[derive(Debug, Args)]
pub struct Placements {
    /// Instances of each workload
    #[arg(long, default_value_t = 100)]
    instances: u64,
    /// Nodes of the largest cluster that is timed
    #[arg(long, default_value_t = 1000)]
    nodes: usize,
}

pub fn run(args: &Placements) {
    let object = json!({
        "table1": table_1(),
        "table2": table_2(),
        "figure5": figure_5(),
        "figure6": figure_6(args.instances),
        "figure8": figure_8(),
        "shifts": shifts(args.instances),
        "migration": migrations(args.instances.min(20)),
        "scale": scale(args.nodes),
    });
    println!("{object}");
}

fn workloads() -> [(&'static str, Distribution); 5] {
    [
        ("uniform", Distribution::Uniform),
        ("beta", Distribution::Beta { alpha: 2.0, beta: 2.0 }),
        ("normal", Distribution::Normal { mean: 0.0, deviation: 1.0 }),
        ("power law", Distribution::PowerLaw { shape: 3.0 }),
        ("gamma", Distribution::Gamma { shape: 5.0 }),
    ]
}

fn shares(distribution: Distribution, partitions: usize) -> Vec<f64> {
    distribution.shares(partitions).expect("right parameters")
}

fn drawn(distribution: Distribution, partitions: usize, requests: u64, seed: u64) -> Vec<f64> {
    let counts = Stream::new(&shares(distribution, partitions), seed).counts(requests);
    counts.into_iter().map(|count| count as f64).collect()
}

fn cluster(nodes: usize, slots: usize, load: Vec<f64>) -> PlacementProblem {
    let slots = Some(PerNode::All(slots));
    Input { nodes, slots, load, ..Input::default() }.check().expect("a right input")
}

/// The paper's cluster with k slots a node.
fn paper(distribution: Distribution, slots: usize, seed: u64) -> PlacementProblem {
    cluster(NODES, slots, drawn(distribution, LEAST_NODES * slots, REQUESTS, seed))
}

fn placed(cluster: &PlacementProblem, scheme: Scheme) -> Placement {
    place(cluster, scheme, Objective::MinMax).expect("a placement")
}

fn table_1() -> Value {
    let rows = workloads().map(|(name, distribution)| {
        let mut counts = drawn(distribution, LEAST_NODES, REQUESTS, 1);
        counts.sort_by(|a, b| b.total_cmp(a));
        json!({"workload": name, "requests": counts})
    });
    json!(rows)
}

fn table_2() -> Value {
    let mut rows = Vec::new();
    for (name, distribution) in workloads() {
        let cluster = paper(distribution, SLOTS, 1);
        for scheme in SCHEMES {
            let placement = placed(&cluster, scheme);
            let measures = measure(&cluster, &placement, &cluster.loads);
            let routed = |policy| {
                let mut stream = Stream::new(&shares(distribution, LEAST_NODES * SLOTS), 1);
                throughput(&route(&placement, &mut stream, REQUESTS, policy, 1))
            };
            rows.push(json!({
                "workload": name,
                "scheme": scheme.name(),
                "capacity": measures.capacity,
                "even_split": 1.0 / measures.even_split_max_to_mean,
                "random": routed(Policy::Random),
                "least_loaded": routed(Policy::LeastLoaded),
                "partitions_a_node": measures.footprint.mean_partitions,
                "lost_load": measures.node_failure.lost_load,
                "capacity_with_a_node_down": measures.node_failure.capacity,
            }));
        }
    }
    json!(rows)
}

/// Different partitions a node under the power law.
fn figure_5() -> Value {
    let mut rows = Vec::new();
    for slots in granularities() {
        let cluster = paper(Distribution::PowerLaw { shape: 3.0 }, slots, 1);
        for scheme in [Scheme::Compact, Scheme::Balanced, Scheme::Smooth] {
            let measures = measure(&cluster, &placed(&cluster, scheme), &cluster.loads);
            rows.push(json!({
                "slots": slots,
                "scheme": scheme.name(),
                "mean": measures.footprint.mean_partitions,
                "max": measures.footprint.max_partitions,
            }));
        }
    }
    json!(rows)
}

fn granularities() -> [usize; 8] {
    [1, 2, 4, 8, 16, 32, 64, 128]
}

/// The hottest node's load over the mean, of balanced placements.
fn figure_6(instances: u64) -> Value {
    let mut rows = Vec::new();
    for (name, distribution) in workloads() {
        for slots in granularities() {
            let (mut even, mut best) = (Vec::new(), Vec::new());
            for seed in 1..=instances {
                let cluster = paper(distribution, slots, seed);
                let placement = placed(&cluster, Scheme::Balanced);
                let measures = measure(&cluster, &placement, &cluster.loads);
                even.push(measures.even_split_max_to_mean);
                best.push(1.0 / measures.capacity);
            }
            rows.push(json!({
                "workload": name,
                "slots": slots,
                "even_split": mean(&even),
                "best_routing": mean(&best),
            }));
        }
    }
    json!(rows)
}

/// The paper's Table IV: the workload that is planned for, and those that come.
fn table_4() -> [(&'static str, Distribution, [Distribution; 5]); 3] {
    let beta = |shape| Distribution::Beta { alpha: shape, beta: shape };
    let power = |shape| Distribution::PowerLaw { shape };
    let gamma = |shape| Distribution::Gamma { shape };
    [
        ("beta", beta(2.0), [1.0, 1.5, 2.0, 4.0, 5.0].map(beta)),
        ("power law", power(3.0), [2.0, 2.5, 3.0, 4.0, 5.0].map(power)),
        ("gamma", gamma(5.0), [7.0, 6.0, 5.0, 4.0, 3.0].map(gamma)),
    ]
}

fn figure_8() -> Value {
    let mut rows = Vec::new();
    for (name, planned, shifted) in table_4() {
        let cluster = paper(planned, SLOTS, 1);
        for scheme in [Scheme::Coarse, Scheme::Compact, Scheme::Balanced, Scheme::Smooth] {
            let placement = placed(&cluster, scheme);
            let of = |policy| {
                shifted.map(|distribution| {
                    let mut stream = Stream::new(&shares(distribution, LEAST_NODES * SLOTS), 2);
                    throughput(&route(&placement, &mut stream, REQUESTS, policy, 1))
                })
            };
            rows.push(json!({
                "workload": name,
                "scheme": scheme.name(),
                "least_loaded": of(Policy::LeastLoaded),
                "random": of(Policy::Random),
            }));
        }
    }
    json!(rows)
}

/// Capacity when the load is another than was planned for: log-normal noise of sigma 1 on each
/// partition, or the hot range moved on by a quarter of the partitions.
fn shifts(instances: u64) -> Value {
    let mut random = Random::new(1);
    let mut rows = Vec::new();
    for (name, distribution) in workloads() {
        let cluster = paper(distribution, SLOTS, 1);
        for scheme in [Scheme::Compact, Scheme::Balanced, Scheme::Smooth] {
            let placement = placed(&cluster, scheme);
            let mut noisy: Vec<f64> = (0..instances)
                .map(|_| capacity(&cluster, &placement, &with_noise(&cluster.loads, &mut random)))
                .collect();
            noisy.sort_by(f64::total_cmp);
            let mut moved = cluster.loads.clone();
            moved.rotate_right(LEAST_NODES * SLOTS / 4);
            rows.push(json!({
                "workload": name,
                "scheme": scheme.name(),
                "noise_median": noisy[noisy.len() / 2],
                "noise_tenth": noisy[noisy.len() / 10],
                "noise_least": noisy[0],
                "moved": capacity(&cluster, &placement, &moved),
            }));
        }
    }
    json!(rows)
}

fn with_noise(loads: &[f64], random: &mut Random) -> Vec<f64> {
    let mut normal = || {
        let radius = (-2.0 * (1.0 - random.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * random.unit()).cos()
    };
    loads.iter().map(|load| load * normal().exp()).collect()
}

/// From base to 0.99 of the best capacity.
fn migrations(instances: u64) -> Value {
    let mut rows = Vec::new();
    for (name, distribution) in workloads() {
        let (mut copies, mut least, mut anew, mut carried) = (vec![], vec![], vec![], vec![]);
        for seed in 1..=instances {
            let mut cluster = paper(distribution, SLOTS, seed);
            let base = placed(&cluster, Scheme::Base);
            cluster.current = Some(base.clone());
            let migration = migrate(&cluster, 0.99, Objective::MinMax).expect("a migration");
            copies.push(migration.shipped as f64);
            least.push(migration.least_shipped as f64);
            carried.push(migration.capacity);
            let smooth = relabel(&cluster, &base, placed(&cluster, Scheme::Smooth));
            anew.push(shipped(&cluster, &smooth).1 as f64);
        }
        rows.push(json!({
            "workload": name,
            "copies_mean": mean(&copies),
            "copies_max": copies.iter().copied().fold(0.0, f64::max),
            "bound_mean": mean(&least),
            "anew_mean": mean(&anew),
            "capacity_least": carried.iter().copied().fold(1.0, f64::min),
        }));
    }
    json!(rows)
}

/// Times, in milliseconds.
fn scale(most: usize) -> Value {
    let sizes = [10, 100, 300, 1000, 3000].into_iter().filter(|&nodes| nodes <= most);
    let rows = sizes.map(|nodes| {
        let requests = 10_000 * nodes as u64;
        let load = drawn(Distribution::Gamma { shape: 5.0 }, nodes * 32, requests, 1);
        let mut cluster = cluster(nodes, 64, load);
        let mut row = json!({"nodes": nodes, "partitions": nodes * 32});
        for scheme in [Scheme::Base, Scheme::Compact, Scheme::Balanced, Scheme::Smooth] {
            let (placement, elapsed) = timed(|| placed(&cluster, scheme));
            row[scheme.name()] = json!(elapsed);
            let (carried, elapsed) = timed(|| capacity(&cluster, &placement, &cluster.loads));
            row[format!("{}_capacity", scheme.name())] = json!(carried);
            row["max_flow"] = json!(elapsed);
            if scheme == Scheme::Smooth {
                let (_, elapsed) = timed(|| measure(&cluster, &placement, &cluster.loads));
                row["all_failures"] = json!(elapsed);
            }
            if scheme == Scheme::Base {
                cluster.current = Some(placement);
            }
        }
        let migrated = || migrate(&cluster, 0.99, Objective::MinMax).expect("a migration");
        let (migration, elapsed) = timed(migrated);
        row["migrate"] = json!(elapsed);
        row["migrate_copies"] = json!(migration.shipped);
        row["migrate_bound"] = json!(migration.least_shipped);
        row["migrate_capacity"] = json!(migration.capacity);
        row
    });
    json!(rows.collect::<Vec<Value>>())
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let start = Instant::now();
    let result = work();
    (result, start.elapsed().as_secs_f64() * 1e3)
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}
