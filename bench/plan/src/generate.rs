//! Instances of the move/insert problem, by family and seed.

use forebay_plan::Random;
use forebay_plan::insert::{InsertItem, Machine, Problem};

/// How the existing and the new records are spread, and how partitions lie on machines. What a
/// family does not say is uniform.
pub const FAMILIES: [&str; 12] = [
    "uniform",
    // New records by Zipf's law, exponent 1, in random order.
    "zipf",
    // Neighbours on one machine.
    "clustered",
    // Most new records into the first tenth of the ranges, neighbours on one machine.
    "hot-range",
    // New records only into the last fifth, which is empty and on one machine.
    "append",
    // Twenty times as many existing records as new ones.
    "few-new",
    // The other way round.
    "light",
    "zeros",
    // All partitions alike, with one or two times the new records.
    "ties",
    // Machines with more to insert have less to move.
    "opposed",
    "one-home",
    // Pareto-distributed, both.
    "heavy-tail",
];

pub fn instance(family: &str, machines: usize, partitions: usize, seed: u64) -> Problem {
    let mut random = Random::new(seed ^ hash(family));
    let zipf = zipf_counts(partitions, &mut random);
    let items = (0..partitions).map(|index| {
        let mut moving = (random.unit() * 1000.0).floor();
        let mut insert = (random.unit() * 1000.0).floor();
        let mut home = random.below(machines);
        let neighbours = index * machines / partitions;
        let mut pareto = || (100.0 / (1.0 - random.unit()).powf(0.7)).floor();
        match family {
            "zipf" => insert = zipf[index],
            "clustered" => home = neighbours,
            "hot-range" => {
                home = neighbours;
                insert = if index * 10 < partitions {
                    insert * 20.0
                } else {
                    insert / 10.0
                };
            }
            "append" if index * 5 >= partitions * 4 => (moving, home) = (0.0, machines - 1),
            "append" => insert = 0.0,
            "few-new" => moving *= 20.0,
            "light" => moving /= 20.0,
            "zeros" => {
                let kept = random.below(9);
                insert *= f64::from(kept % 3 == 0);
                moving *= f64::from(kept / 3 != 0);
            }
            "ties" => (moving, insert) = (100.0, if insert < 500.0 { 100.0 } else { 200.0 }),
            "opposed" => {
                home = neighbours;
                insert *= (home + 1) as f64;
                moving *= (machines - home) as f64;
            }
            "one-home" => home = 0,
            "heavy-tail" => (insert, moving) = (pareto(), pareto()),
            _ => {}
        }
        Item {
            insert,
            moving,
            home: home as u32,
            pinned: false,
        }
    });
    Problem {
        items: items.collect(),
        machines: vec![Machine::default(); machines],
        limits: None,
    }
}

fn zipf_counts(count: usize, random: &mut Random) -> Vec<f64> {
    let total = 500.0 * count as f64 / (count as f64).ln().max(1.0);
    let mut counts: Vec<f64> = (1..=count)
        .map(|rank| (total / rank as f64).floor())
        .collect();
    random.shuffle(&mut counts);
    counts
}

/// FNV-1a.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}
