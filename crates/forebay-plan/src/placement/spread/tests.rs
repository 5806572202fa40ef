use std::collections::BTreeSet;

use super::*;
use crate::Random;

fn limits(most_copies: usize) -> LoadLimits {
    LoadLimits {
        most_copies,
        share: 0.99,
    }
}

fn even_nodes(count: u32) -> Vec<SpreadNode> {
    let node = |zone| SpreadNode {
        zone,
        takes: true,
        other_load: 0.0,
    };
    (0..count).map(|at| node(at % 3)).collect()
}

/// Partitions of these loads on two nodes side by side.
fn cluster(loads: &[f64], nodes: u32) -> SpreadCluster {
    let partition = |(at, load): (usize, &f64)| SpreadPartition {
        holders: vec![at as u32 % nodes, (at as u32 + 1) % nodes],
        load: *load,
        bytes: 1000,
    };
    SpreadCluster {
        nodes: even_nodes(nodes),
        partitions: loads.iter().enumerate().map(partition).collect(),
        least: 2,
        most_in_all: loads.len() * 5 / 2,
    }
}

fn check(cluster: &SpreadCluster, plan: &LoadPlan, most_copies: usize) {
    let mut loads: Vec<f64> = cluster.nodes.iter().map(|node| node.other_load).collect();
    for (partition, list) in cluster.partitions.iter().zip(&plan.lists) {
        let distinct: BTreeSet<&u32> = list.iter().collect();
        assert_eq!(distinct.len(), list.len());
        assert!(list.len() >= cluster.least.min(partition.holders.len()));
        let zones = |list: &[u32]| {
            let zones = list.iter().map(|node| cluster.nodes[*node as usize].zone);
            zones.collect::<BTreeSet<u32>>().len()
        };
        assert!(zones(list) >= zones(&partition.holders).min(cluster.least));
        for node in list {
            let may_hold = cluster.nodes[*node as usize].takes || partition.holders.contains(node);
            assert!(may_hold, "{list:?}");
            loads[*node as usize] += partition.load / list.len() as f64;
        }
    }
    for (load, again) in plan.after.iter().zip(&loads) {
        assert!((load - again).abs() < 1e-6 * plan.mean.max(1.0));
    }
    let (before, after) = plan.hottest();
    assert!(after <= before + 1e-9, "{after} after {before}");
    assert!(after >= plan.bound - 1e-9 || after >= before - 1e-9);
    let held: usize = plan.lists.iter().map(Vec::len).sum();
    let had: usize = cluster.partitions.iter().map(|one| one.holders.len()).sum();
    assert!(held <= cluster.most_in_all.max(had), "{held} replicas");
    assert_eq!(held + plan.drops, had + plan.copies);
    assert!(plan.copies <= most_copies);
    assert_eq!(plan.copied_bytes, 1000 * plan.copies as u64);
}

#[test]
fn one_hot_partition_gets_replicas_on_more_nodes() {
    let mut loads = vec![10.0; 12];
    loads[3] = 600.0;
    let cluster = cluster(&loads, 6);
    let plan = place_spread(&cluster, limits(20));
    check(&cluster, &plan, 20);
    assert!(plan.lists[3].len() >= 5, "{:?}", plan.lists);
    let (before, after) = plan.hottest();
    assert!(
        before > 2.6 * plan.mean && after < 1.1 * plan.mean,
        "{before} {after} {}",
        plan.mean
    );
}

#[test]
fn even_load_is_left_alone() {
    let cluster = cluster(&[5.0; 12], 6);
    let plan = place_spread(&cluster, limits(20));
    check(&cluster, &plan, 20);
    assert_eq!((plan.copies, plan.drops, plan.handed_over), (0, 0, 0));
    let nothing = SpreadCluster::default();
    assert_eq!(place_spread(&nothing, limits(20)).copies, 0);
    let idle = super::SpreadCluster {
        most_in_all: 0,
        ..self::cluster(&[0.0; 6], 3)
    };
    assert_eq!(place_spread(&idle, limits(20)).copies, 0);
}

#[test]
fn formerly_hot_partitions_make_room_for_hot_ones() {
    let mut loads = vec![10.0; 12];
    loads[3] = 600.0;
    let first = cluster(&loads, 6);
    let plan = place_spread(&first, limits(20));
    loads.swap(3, 9);
    let mut shifted = cluster(&loads, 6);
    for (partition, list) in shifted.partitions.iter_mut().zip(plan.lists) {
        partition.holders = list;
    }
    // The replicas are at their maximum: those of cold partitions must be removed first.
    shifted.most_in_all = shifted.partitions.iter().map(|one| one.holders.len()).sum();
    let plan = place_spread(&shifted, limits(20));
    check(&shifted, &plan, 20);
    assert!(
        plan.drops > 0 && plan.lists[9].len() >= 4,
        "{:?}",
        plan.lists
    );
    assert!(plan.hottest().1 < 1.3 * plan.mean);
}

#[test]
fn nodes_with_other_load_get_less() {
    let mut cluster = cluster(&[20.0; 24], 6);
    cluster.nodes[2].other_load = 60.0;
    cluster.nodes[4].takes = false;
    let plan = place_spread(&cluster, limits(30));
    check(&cluster, &plan, 30);
    assert!(plan.after[2] < plan.before[2] - 20.0, "{plan:?}");
}

#[test]
fn no_plan_breaks_its_limits() {
    let seed = std::env::var("FOREBAY_TEST_SEED").map_or(7, |seed| seed.parse().unwrap());
    for seed in seed..seed + 60 {
        let mut random = Random::new(seed);
        let nodes = 3 + (10.0 * random.unit()) as u32;
        let count = 1 + (60.0 * random.unit()) as usize;
        let load = |at: usize, random: &mut Random| 1000.0 / (at + 1) as f64 * random.unit();
        let loads: Vec<f64> = (0..count).map(|at| load(at, &mut random)).collect();
        let mut cluster = cluster(&loads, nodes);
        for node in &mut cluster.nodes {
            node.takes = random.unit() < 0.9;
            node.other_load = if random.unit() < 0.3 {
                100.0 * random.unit()
            } else {
                0.0
            };
        }
        cluster.most_in_all = (2.0 * count as f64 * (0.8 + random.unit())) as usize;
        let most_copies = (30.0 * random.unit()) as usize;
        let plan = place_spread(&cluster, limits(most_copies));
        println!("seed {seed}: {:?}", plan.hottest());
        check(&cluster, &plan, most_copies);
    }
}
