use std::collections::BTreeSet;

use super::*;
use crate::Random;
use crate::placement::load_plan::most;

fn node(zone: u32) -> LedNode {
    LedNode {
        zone,
        takes: true,
        may_lead: true,
        other_load: 0.0,
    }
}

fn limits(most_copies: usize) -> LoadLimits {
    LoadLimits {
        most_copies,
        share: 0.99,
    }
}

/// Partitions with a power law of reads, their replicas side by side.
fn skewed(nodes: u32, partitions: u32, replicas: u32, random: &mut Random) -> LedCluster {
    let partition = |at: u32| {
        let reads = 1000.0 / f64::from(at + 1) * (0.5 + random.unit());
        let writes = 100.0 * random.unit();
        LedPartition {
            holders: (0..replicas).map(|place| (at + place) % nodes).collect(),
            leader_load: reads + writes,
            follower_load: writes,
            bytes: 1000,
        }
    };
    LedCluster {
        partitions: (0..partitions).map(partition).collect(),
        nodes: (0..nodes).map(node).collect(),
    }
}

fn loads_of(cluster: &LedCluster, lists: &[Vec<u32>]) -> Vec<f64> {
    let mut loads: Vec<f64> = cluster.nodes.iter().map(|node| node.other_load).collect();
    for (partition, list) in cluster.partitions.iter().zip(lists) {
        for (place, node) in list.iter().enumerate() {
            loads[*node as usize] += match place {
                0 => partition.leader_load,
                _ => partition.follower_load,
            };
        }
    }
    loads
}

fn check(cluster: &LedCluster, plan: &LoadPlan, most_copies: usize) {
    for (load, recomputed) in plan.after.iter().zip(loads_of(cluster, &plan.lists)) {
        assert!((load - recomputed).abs() < 1e-6 * plan.mean.max(1.0));
    }
    let (before, after) = plan.hottest();
    assert!(after <= before + 1e-9, "{after} after {before}");
    assert!(after >= plan.bound - 1e-9 || after >= before - 1e-9);
    assert!(plan.copies <= most_copies);
    for (partition, list) in cluster.partitions.iter().zip(&plan.lists) {
        let zones = |list: &[u32]| {
            let zones = list.iter().map(|node| cluster.nodes[*node as usize].zone);
            zones.collect::<BTreeSet<u32>>().len()
        };
        let distinct: BTreeSet<&u32> = list.iter().collect();
        assert_eq!(distinct.len(), partition.holders.len());
        assert!(zones(list) >= zones(&partition.holders));
    }
}

#[test]
fn nothing_is_handed_over_for_a_percent() {
    // The first node has one partition that is too hot for any, and a small one.
    let partition = |leader_load, first: u32| LedPartition {
        holders: vec![first, (first + 1) % 3],
        leader_load,
        ..LedPartition::default()
    };
    let cluster = |small| LedCluster {
        partitions: vec![
            partition(1000.0, 0),
            partition(small, 0),
            partition(100.0, 1),
        ],
        nodes: (0..3).map(node).collect(),
    };
    let plan = |small| place_leaders(&cluster(small), limits(5));
    assert_eq!((plan(10.0).handed_over, plan(10.0).copies), (0, 0));
    assert_eq!(plan(10.0).before, plan(10.0).after);
    assert_eq!(plan(50.0).hottest(), (1050.0, 1000.0));
}

#[test]
fn leaders_alone_make_skewed_reads_even() {
    // Reads only, and all of it on one node: each partition has a replica on every node.
    let partition = |at: u32| LedPartition {
        holders: vec![0, 1 + at % 2, 2 - at % 2],
        leader_load: 100.0,
        follower_load: 0.0,
        bytes: 1 << 30,
    };
    let cluster = LedCluster {
        nodes: (0..3).map(node).collect(),
        partitions: (0..12).map(partition).collect(),
    };
    let plan = place_leaders(&cluster, limits(20));
    check(&cluster, &plan, 20);
    assert_eq!((plan.copies, plan.copied_bytes), (0, 0));
    assert_eq!(plan.after, [400.0; 3]);
    assert_eq!(plan.handed_over, 8);
}

#[test]
fn a_new_node_gets_replicas_and_leads_them() {
    let partition = |at: u32| LedPartition {
        holders: (0..3).map(|place| (at + place) % 3).collect(),
        leader_load: 100.0,
        follower_load: 20.0,
        bytes: 10,
    };
    let cluster = LedCluster {
        nodes: (0..4).map(node).collect(),
        partitions: (0..12).map(partition).collect(),
    };
    let plan = place_leaders(&cluster, limits(20));
    check(&cluster, &plan, 20);
    let (before, after) = plan.hottest();
    assert!(before == 560.0 && after <= 1.06 * plan.mean, "{plan:?}");
    assert_eq!(plan.copied_bytes, 10 * plan.copies as u64);
}

#[test]
fn nodes_that_are_down_get_nothing_and_zones_stay_apart() {
    let mut random = Random::new(7);
    for _ in 0..40 {
        let mut cluster = skewed(6, 48, 3, &mut random);
        for (at, node) in cluster.nodes.iter_mut().enumerate() {
            node.zone = at as u32 % 3;
        }
        (cluster.nodes[4].takes, cluster.nodes[4].may_lead) = (false, false);
        let plan = place_leaders(&cluster, limits(20));
        check(&cluster, &plan, 20);
        for (partition, list) in cluster.partitions.iter().zip(&plan.lists) {
            assert!(!list.contains(&4) || partition.holders.contains(&4));
            assert!(list[0] != 4 || partition.holders[0] == 4);
        }
    }
}

#[test]
fn skewed_loads_come_near_the_bound_with_few_copies() {
    let mut random = Random::new(11);
    let mut worst: f64 = 1.0;
    for (nodes, partitions) in [(4, 32), (5, 60), (8, 128), (12, 384)] {
        for _ in 0..20 {
            let cluster = skewed(nodes, partitions, 3, &mut random);
            let plan = place_leaders(&cluster, limits(20));
            check(&cluster, &plan, 20);
            worst = worst.max(plan.hottest().1 / plan.bound);
        }
    }
    assert!(worst < 1.05, "{worst}");
}

#[test]
fn leaders_of_small_tables_are_the_best_there_are() {
    let mut random = Random::new(3);
    let (mut sum, mut worst): (f64, f64) = (0.0, 1.0);
    for _ in 0..60 {
        let cluster = skewed(4, 6, 3, &mut random);
        let plan = place_leaders(&cluster, limits(0));
        check(&cluster, &plan, 0);
        let mut best = f64::INFINITY;
        for choice in 0..3_usize.pow(6) {
            let mut lists: Vec<Vec<u32>> = Vec::new();
            let mut left = choice;
            for partition in &cluster.partitions {
                let mut list = partition.holders.clone();
                list.swap(0, left % 3);
                left /= 3;
                lists.push(list);
            }
            best = best.min(most(&loads_of(&cluster, &lists)));
        }
        let ratio = plan.hottest().1 / best;
        (sum, worst) = (sum + ratio, worst.max(ratio));
    }
    assert!(sum / 60.0 < 1.01 && worst < 1.1, "{} {worst}", sum / 60.0);
}

#[test]
fn nothing_is_planned_where_nothing_is_asked() {
    let mut random = Random::new(5);
    let mut cluster = skewed(4, 8, 3, &mut random);
    for partition in &mut cluster.partitions {
        (partition.leader_load, partition.follower_load) = (0.0, 0.0);
    }
    let plan = place_leaders(&cluster, limits(20));
    assert_eq!((plan.copies, plan.handed_over), (0, 0));
    let empty = place_leaders(&LedCluster::default(), limits(20));
    assert!(empty.lists.is_empty());
}
