//! Tests of a coordinator that reaches the store, and only few of the nodes.

use std::collections::BTreeSet;

use super::matrix::quiet_cluster;
use super::world::World;
use crate::ids::NodeId;

const NODES: usize = 5;
const SEEDS: u64 = 20;
/// The time to detect unreachable nodes, offer the lease, and take it.
const TAKEN_WITHIN_S: u64 = 15;

fn cluster(seed: u64) -> World {
    quiet_cluster(World::new(seed), NODES, 0)
}

fn coordinators(world: &World) -> Vec<usize> {
    let is_it = |at: &usize| {
        let process = world.hosts[*at].process.as_ref();
        process.is_some_and(|process| process.node.coordinator().is_some())
    };
    (0..NODES).filter(is_it).collect()
}

/// Returns the nodes that a coordinator considers unreachable.
fn suspects(world: &World, coordinator: usize) -> BTreeSet<NodeId> {
    let process = world.hosts[coordinator].process.as_ref().unwrap();
    process.node.coordinator().unwrap().suspects().clone()
}

fn ids(world: &World, hosts: &[usize]) -> BTreeSet<NodeId> {
    let model = world.store.current();
    let id = |at: &usize| model.node_named(&world.hosts[*at].name).unwrap().id;
    hosts.iter().map(id).collect()
}

/// Cuts these nodes off from the others; all reach the store.
fn isolate_group(world: &mut World, few: &[usize]) {
    let others = (0..NODES).filter(|at| !few.contains(at));
    for other in others {
        for at in few {
            world.net.cuts.extend([(*at, other), (other, *at)]);
        }
    }
}

/// Counts how often a node became the coordinator since its process began.
fn terms(world: &World, at: usize) -> u64 {
    world.hosts[at].process.as_ref().unwrap().terms_of
}

#[test]
fn a_node_of_the_majority_takes_the_lease() {
    for seed in 0..SEEDS {
        let mut world = cluster(seed);
        let few: &[usize] = if seed % 2 == 0 { &[0, 3] } else { &[0] };
        isolate_group(&mut world, few);
        world.run_for_s(TAKEN_WITHIN_S);
        let now = coordinators(&world);
        assert!(
            now.len() == 1 && !few.contains(&now[0]),
            "seed {seed}: {now:?}"
        );
        assert_eq!(suspects(&world, now[0]), ids(&world, few), "seed {seed}");
        world.run_for_s(60);
        assert_eq!(
            coordinators(&world),
            now,
            "seed {seed}: the coordinator stays"
        );
        world.heal();
        world.run_for_s(20);
        assert_eq!(
            coordinators(&world),
            now,
            "seed {seed}: the coordinator stays"
        );
        assert!(suspects(&world, now[0]).is_empty(), "seed {seed}");
        assert_eq!(world.checks.violation, None, "seed {seed}");
    }
}

#[test]
fn the_coordinator_stays_if_most_nodes_are_dead() {
    for seed in 0..SEEDS {
        let mut world = cluster(seed);
        (2..NODES).for_each(|at| world.kill(at));
        world.run_for_s(60);
        // In a small cluster, a node that starts knows no others at first.
        world.kill(1);
        world.start(1);
        world.run_for_s(30);
        assert_eq!(coordinators(&world), [0], "seed {seed}");
        let lease = world.store.lease.as_ref().map(|(lease, _)| lease.offered);
        assert_eq!((terms(&world, 0), lease), (1, Some(true)), "seed {seed}");
        (2..NODES).for_each(|at| world.start(at));
        world.run_for_s(30);
        assert_eq!(coordinators(&world), [0], "seed {seed}");
        let lease = world.store.lease.as_ref().map(|(lease, _)| lease.offered);
        assert_eq!((terms(&world, 0), lease), (1, Some(false)), "seed {seed}");
        assert_eq!(world.checks.violation, None, "seed {seed}");
    }
}

#[test]
fn a_briefly_stopped_coordinator_does_not_offer_its_lease() {
    for seed in 0..SEEDS {
        let mut world = cluster(seed);
        world.pause(0);
        world.run_for_s(5);
        world.resume(0);
        for _ in 0..50 {
            world.run_for_s(1);
            let lease = world.store.lease.as_ref();
            assert!(
                lease.is_some_and(|(lease, _)| !lease.offered),
                "seed {seed}"
            );
        }
        assert_eq!(
            (coordinators(&world), terms(&world, 0)),
            (vec![0], 1),
            "seed {seed}"
        );
        assert_eq!(world.checks.violation, None, "seed {seed}");
    }
}
