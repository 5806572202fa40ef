//! Tests of the flow against all sets of nodes.
//!
//! A placement's capacity is limited by the set that alone has the most load for each node.

use super::super::layout::Placement;
use super::super::measure::{capacity, measure, routed_loads};
use super::super::routing::{Routing, whole_loads};
use super::{cluster, random_loads};
use crate::Random;

/// Returns the least limit of a node, in parts of all load, by trying every set of nodes.
fn least_limit(placement: &Placement, loads: &[f64]) -> f64 {
    let holders = placement.holders(loads.len());
    let nodes = placement.nodes().len();
    let all: f64 = loads.iter().sum();
    let sets = 1u32..1 << nodes;
    let limit = |set: u32| {
        let within = |id: &usize| holders[*id].iter().all(|&node| set >> node & 1 == 1);
        let held: f64 = (0..loads.len()).filter(within).map(|id| loads[id]).sum();
        held / all / f64::from(set.count_ones())
    };
    sets.map(limit).fold(0.0, f64::max)
}

fn random_placement(random: &mut Random, nodes: usize, partitions: usize) -> Placement {
    let mut held = vec![Vec::new(); nodes];
    for partition in 0..partitions as u32 {
        let first = random.below(nodes);
        held[first].push(partition);
        for (node, list) in held.iter_mut().enumerate() {
            if node != first && random.below(4) == 0 {
                list.push(partition);
            }
        }
    }
    Placement::new(held)
}

#[test]
fn the_capacity_is_that_of_the_worst_set_of_nodes() {
    let mut random = Random::new(17);
    let mut limited = 0;
    for case in 0..500 {
        let nodes = 1 + random.below(7);
        let partitions = 1 + random.below(14);
        let mut loads = random_loads(&mut random, partitions);
        loads[0] += 1.0;
        let placement = random_placement(&mut random, nodes, partitions);
        let cluster = cluster(nodes, partitions, loads.clone());
        let exact = 1.0 / nodes as f64 / least_limit(&placement, &loads);
        let found = capacity(&cluster, &placement, &loads);
        assert!(
            (found - exact).abs() < 1e-9,
            "case {case}: {found}, exactly {exact}"
        );
        limited += usize::from(found < 1.0);

        let served = routed_loads(&cluster, &placement, &loads);
        assert!(
            (served.iter().sum::<f64>() - 1.0).abs() < 1e-9,
            "case {case}: {served:?}"
        );
        let most = served.iter().copied().fold(0.0, f64::max);
        assert!(
            most <= 1.0 / nodes as f64 / found + 1e-9,
            "case {case}: {served:?}"
        );

        let named = measure(&cluster, &placement, &loads).limited_by;
        assert_eq!(named.is_empty(), found == 1.0, "case {case}: {named:?}");
    }
    assert!(
        (100..450).contains(&limited),
        "{limited} of 500 are limited"
    );
}

#[test]
fn a_failed_node_equals_a_cluster_without_it() {
    let mut random = Random::new(23);
    for case in 0..200 {
        let nodes = 2 + random.below(5);
        let partitions = 1 + random.below(12);
        let mut loads = random_loads(&mut random, partitions);
        loads[0] += 1.0;
        let placement = random_placement(&mut random, nodes, partitions);
        let whole = cluster(nodes, partitions, loads.clone());
        let failure = measure(&whole, &placement, &loads).node_failure;
        let all: f64 = loads.iter().sum();
        let (mut lost, mut least) = (0.0f64, 1.0f64);
        for failed in 0..nodes {
            let mut left = placement.nodes().to_vec();
            left.remove(failed);
            let left = Placement::new(left);
            let holders = left.holders(partitions);
            let served: Vec<f64> = (0..partitions)
                .map(|id| {
                    if holders[id].is_empty() {
                        0.0
                    } else {
                        loads[id]
                    }
                })
                .collect();
            let rest: f64 = served.iter().sum();
            lost = lost.max(1.0 - rest / all);
            if rest > 0.0 {
                least = least.min(1.0 / (nodes - 1) as f64 / least_limit(&left, &served));
            }
        }
        assert!(
            (failure.lost_load - lost).abs() < 1e-9,
            "case {case}: {failure:?}, {lost}"
        );
        assert!(
            (failure.capacity - least).abs() < 1e-6,
            "case {case}: {failure:?}, {least}"
        );
    }
}

#[test]
fn a_copy_is_removed_only_if_others_can_serve_its_load() {
    let loads = whole_loads(&[3.0, 1.0]);
    let placement = Placement::new(vec![vec![0], vec![0, 1]]);
    let mut routing = Routing::new(&placement, &loads, |_| true);
    assert!(routing.settle().is_none());
    let served = [routing.served(0), routing.served(1)];
    assert!(
        !routing.remove_if_spare(0, 0, usize::MAX),
        "node 1 cannot take it all"
    );
    assert_eq!([routing.served(0), routing.served(1)], served);
    assert_eq!(routing.unrouted(), 0);
    routing.set_limit(loads.iter().sum());
    assert!(routing.remove_if_spare(0, 0, usize::MAX));
    assert_eq!(routing.unrouted(), 0);
    assert_eq!(routing.served(1), loads.iter().sum::<u64>());
}

#[test]
fn removing_copies_one_by_one_agrees_with_a_new_routing() {
    let mut random = Random::new(5);
    for case in 0..300 {
        let (nodes, partitions) = (2 + random.below(5), 2 + random.below(8));
        let raw = super::random_loads(&mut random, partitions);
        let loads = whole_loads(&raw);
        let mut held = vec![Vec::new(); nodes];
        for id in 0..partitions as u32 {
            for _ in 0..3 {
                let node = random.below(nodes);
                if !held[node].contains(&id) {
                    held[node].push(id);
                }
            }
        }
        let mut placement = Placement::new(held);
        let mut routing = Routing::new(&placement, &loads, |_| true);
        routing.settle();
        routing.set_limit(routing.limit() + routing.limit() / 5);
        routing.route();
        let limit = routing.limit();
        for node in 0..nodes as u32 {
            for id in placement.on(node as usize).to_vec() {
                let mut without = placement.clone();
                without.remove(node as usize, id);
                let mut fresh = Routing::new(&without, &loads, |_| true);
                fresh.set_limit(limit);
                fresh.route();
                let spare = routing.remove_if_spare(node, id, usize::MAX);
                assert_eq!(spare, fresh.unrouted() == 0, "case {case}");
                assert_eq!(routing.unrouted(), 0, "case {case}");
                if spare {
                    placement = without;
                }
                assert!((0..nodes as u32).all(|node| routing.served(node) <= limit));
            }
        }
    }
}
