//! Tests that every step to a placement keeps the limits: slots, bytes, replicas, capacity.

use super::super::cluster::{Fate, Input, PerNode, PlacementProblem};
use super::super::layout::Placement;
use super::super::measure::capacity;
use super::super::migrate::{Transfer, TransferOrder, in_order, migrate};
use super::super::replicas::Objective;
use super::super::schemes::{Scheme, place};
use crate::Random;

const MINMAX: Objective = Objective::MinMax;

/// The steps beyond the limits that a walk finds, and its end.
#[derive(Debug, Default)]
struct StepsWalk {
    slots: usize,
    bytes: usize,
    replicas: usize,
    capacity: usize,
    end: Placement,
}

/// Carries the transfers out, and checks every moment against the input.
fn walk(cluster: &PlacementProblem, order: &TransferOrder, wanted: &Placement) -> StepsWalk {
    let mut now = cluster.current.clone().expect("a current placement");
    for (node, entry) in cluster.nodes.iter().enumerate() {
        if entry.fate == Fate::Lost {
            for id in now.on(node).to_vec() {
                now.remove(node, id);
            }
        }
    }
    let counts = |placement: &Placement| -> Vec<usize> {
        let holders = placement.holders(cluster.partitions());
        holders.iter().map(Vec::len).collect()
    };
    let carries = |placement: &Placement| serving(cluster, placement);
    let (before, after) = (counts(&now), counts(wanted));
    let least = carries(&now).min(carries(wanted));
    let bytes = |placement: &Placement, node: usize| -> u64 {
        placement.distinct(node).map(|id| cluster.size(id)).sum()
    };
    let mut walked = StepsWalk::default();
    for transfer in &order.transfers {
        match *transfer {
            Transfer::Copy {
                partition,
                from,
                to,
            } => {
                if let Some(from) = from {
                    assert!(now.holds(from as usize, partition), "{transfer:?}");
                }
                now.add(to as usize, partition);
                let to = to as usize;
                let slots = cluster.max_partitions(to).max(wanted.distinct(to).count());
                walked.slots += usize::from(now.distinct(to).count() > slots);
                let room = cluster.nodes[to].bytes.unwrap_or(u64::MAX);
                walked.bytes += usize::from(bytes(&now, to) > room.max(bytes(wanted, to)));
            }
            Transfer::Drop { partition, node } => {
                assert!(now.holds(node as usize, partition), "{transfer:?}");
                now.remove(node as usize, partition);
                let id = partition as usize;
                let count = now.holders(cluster.partitions())[id].len();
                walked.replicas += usize::from(count < before[id].min(after[id]));
                walked.capacity += usize::from(carries(&now) < least - 1e-9);
            }
        }
    }
    walked.end = now;
    walked
}

/// Returns the capacity while drained nodes still serve their partitions.
fn serving(cluster: &PlacementProblem, placement: &Placement) -> f64 {
    let mut serving = cluster.clone();
    let leaves = |node: usize| placement.on(node).is_empty();
    for (number, node) in serving.nodes.iter_mut().enumerate() {
        if node.fate == Fate::Drains && !leaves(number) {
            node.fate = Fate::Stays;
        }
    }
    let nodes = serving.staying().len() as f64;
    // In load that can be carried, not as a share of what the nodes could.
    capacity(&serving, placement, &cluster.loads) * nodes
}

fn random_input(random: &mut Random) -> Input {
    let nodes = 3 + random.below(7);
    let zones = 1 + random.below(4);
    let replicas = 1 + random.below(3.min(nodes - 1));
    let partitions = 4 + random.below(24);
    let slots = (partitions * replicas).div_ceil(nodes) + random.below(4);
    let sized = random.below(2) == 0;
    let bytes: Vec<u64> = (0..partitions)
        .map(|_| 1 + random.below(100) as u64)
        .collect();
    let whole: u64 = bytes.iter().sum();
    let room = (whole * replicas as u64).div_ceil(nodes as u64) * (105 + random.below(60) as u64)
        / 100
        + 50;
    Input {
        nodes,
        slots: Some(PerNode::All(slots)),
        load: super::random_loads(random, partitions),
        min: Some(replicas),
        max: (random.below(2) == 0).then_some(replicas),
        bytes: sized.then_some(bytes),
        node_bytes: sized.then_some(PerNode::All(room)),
        zones: (zones > 1).then(|| (0..nodes).map(|node| (node % zones).to_string()).collect()),
        ..Input::default()
    }
}

/// Returns a cluster with a placement made for another load, and with some nodes leaving.
fn random_cluster(random: &mut Random) -> Option<PlacementProblem> {
    let mut input = random_input(random);
    let mut before = input.clone();
    before.load.reverse();
    let scheme = [Scheme::Smooth, Scheme::Balanced][random.below(2)];
    let current = place(&before.check().ok()?, scheme, MINMAX).ok()?;
    input.current = Some(current.nodes().to_vec());
    for node in 0..input.nodes {
        match random.below(12) {
            0 => input.drain.push(node),
            1 => input.lost.push(node),
            _ => {}
        }
    }
    input.check().ok()
}

#[test]
fn every_step_keeps_the_limits() {
    let (mut walks, mut beyond_slots, mut refused) = (0, 0, 0);
    for seed in 0..60u64 {
        let Some(cluster) = random_cluster(&mut Random::new(seed)) else {
            continue;
        };
        let mut orders = Vec::new();
        match migrate(&cluster, 0.95, MINMAX) {
            Ok(migration) => orders.push((migration.order, migration.placement)),
            Err(error) => refused += usize::from(error.path == "node_bytes"),
        }
        for scheme in [Scheme::Balanced, Scheme::Smooth, Scheme::Base] {
            let Ok(placement) = place(&cluster, scheme, MINMAX) else {
                continue;
            };
            match in_order(&cluster, &placement) {
                Ok(order) => orders.push((order, placement)),
                Err(error) => refused += usize::from(error.path == "node_bytes"),
            }
        }
        for (order, placement) in orders {
            let walked = walk(&cluster, &order, &placement);
            assert_eq!(
                walked.end.nodes(),
                placement_without_stacks(&placement).nodes(),
                "seed {seed}"
            );
            assert_eq!(walked.bytes, 0, "seed {seed}");
            assert!(
                walked.slots <= order.exceeded.slots * 64,
                "seed {seed}: {walked:?}"
            );
            assert_eq!(
                walked.slots == 0,
                order.exceeded.slots == 0,
                "seed {seed}: {walked:?}"
            );
            assert_eq!(
                walked.replicas, order.exceeded.replicas,
                "seed {seed}: {walked:?}"
            );
            assert!(
                walked.capacity == 0 || order.exceeded.capacity > 0,
                "seed {seed}: {walked:?}"
            );
            walks += 1;
            beyond_slots += usize::from(walked.slots > 0);
        }
    }
    println!("{walks} walks, {beyond_slots} beyond slots, {refused} without an order");
    assert!(walks > 100, "{walks}");
}

fn placement_without_stacks(placement: &Placement) -> Placement {
    let nodes = 0..placement.nodes().len();
    Placement::new(
        nodes
            .map(|node| placement.distinct(node).collect())
            .collect(),
    )
}

#[test]
fn full_nodes_move_single_copies_within_their_zones() {
    for seed in 1..=12u64 {
        let mut random = Random::new(seed);
        // Four groups of three nodes, one in each zone, which have the same partitions.
        let group = |node: usize| (node / 3 * 24) as u32;
        let load = (0..96).map(|id| {
            let hot = if id < 24 { 1.2 } else { 1.0 };
            hot * (1.0 + random.unit())
        });
        let free = (seed % 3) as usize;
        let input = Input {
            nodes: 12,
            slots: Some(PerNode::All(24 + free)),
            load: load.collect(),
            min: Some(3),
            max: Some(3),
            zones: Some((0..12).map(|node| (node % 3).to_string()).collect()),
            current: Some(
                (0..12)
                    .map(|node| (group(node)..group(node) + 24).collect())
                    .collect(),
            ),
            ..Input::default()
        };
        let cluster = input.check().expect("a valid input");
        let migration = migrate(&cluster, 0.99, MINMAX).expect("a migration");
        assert!(migration.reached, "seed {seed}: {}", migration.capacity);
        let least = migration.least_shipped;
        assert!(
            least >= 1 && migration.shipped <= 2 * least + 4,
            "seed {seed}: {} copies, at least {least}",
            migration.shipped
        );
        for holders in migration.placement.holders(96) {
            let mut zones: Vec<u32> = holders.iter().map(|node| node % 3).collect();
            zones.sort_unstable();
            assert_eq!(zones, [0, 1, 2], "seed {seed}");
        }
        let walked = walk(&cluster, &migration.order, &migration.placement);
        assert_eq!(
            (walked.bytes, walked.replicas, walked.capacity),
            (0, 0, 0),
            "seed {seed}"
        );
        assert_eq!(walked.slots > 0, free == 0, "seed {seed}");
    }
}

#[test]
fn a_hundred_nodes_ship_hardly_more_than_the_least() {
    let mut random = Random::new(3);
    let (nodes, partitions) = (102, 3200);
    let groups = nodes / 3;
    let mut current = vec![Vec::new(); nodes];
    for id in 0..partitions {
        let group = id * groups / partitions;
        for held in &mut current[group * 3..group * 3 + 3] {
            held.push(id as u32);
        }
    }
    let input = Input {
        nodes,
        slots: Some(PerNode::All(96)),
        load: (0..partitions)
            .map(|_| (random.unit() * 2.0).exp())
            .collect(),
        min: Some(3),
        max: Some(3),
        zones: Some((0..nodes).map(|node| (node % 3).to_string()).collect()),
        current: Some(current),
        ..Input::default()
    };
    let cluster = input.check().expect("a valid input");
    let migration = migrate(&cluster, 0.99, MINMAX).expect("a migration");
    assert!(migration.reached, "{}", migration.capacity);
    let least = migration.least_shipped;
    assert!(
        least > 0 && migration.shipped as f64 <= 1.1 * least as f64 + 1.0,
        "{} copies, at least {least}",
        migration.shipped
    );
}
