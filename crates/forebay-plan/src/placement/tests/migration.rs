//! Tests of migrations: their rules, and how near they get to the least possible.

use proptest::prelude::*;

use super::super::cluster::{Fate, Input, PerNode, PlacementProblem};
use super::super::layout::Placement;
use super::super::measure::capacity;
use super::super::migrate::{Migration, Transfer, migrate, partition_map, plan, relabel, shipped};
use super::super::replicas::Objective;
use super::super::schemes::{Scheme, place};
use super::{PAPER, cluster, paper_cluster};
use crate::Random;

const MINMAX: Objective = Objective::MinMax;

/// Carries the transfers out, and returns a fault, if there is one. Faults are a partition that
/// falls below the least number of live copies it had, and a copy without a source. Another end
/// than the placement is a fault, too.
fn fault(cluster: &PlacementProblem, migration: &Migration) -> Option<String> {
    let lives = |node: u32| cluster.nodes[node as usize].fate != Fate::Lost;
    let current = cluster.current.as_ref().expect("a current placement");
    let mut holders = current.holders(cluster.partitions());
    for holders in &mut holders {
        holders.retain(|&node| lives(node));
    }
    for (place, transfer) in migration.order.transfers.iter().enumerate() {
        match *transfer {
            Transfer::Copy {
                partition,
                from,
                to,
            } => {
                let held = &mut holders[partition as usize];
                let known = from.map_or(held.is_empty(), |from| held.contains(&from));
                if !known || held.contains(&to) || !lives(to) {
                    return Some(format!("{place}: {transfer:?} with {held:?}"));
                }
                held.push(to);
            }
            Transfer::Drop { partition, node } => {
                let held = &mut holders[partition as usize];
                let before = held.len();
                held.retain(|&holder| holder != node);
                if held.len() == before || held.len() < cluster.min.min(before) {
                    return Some(format!("{place}: {transfer:?} leaves {held:?}"));
                }
            }
        }
    }
    for held in &mut holders {
        held.sort_unstable();
    }
    if holders != migration.placement.holders(cluster.partitions()) {
        return Some("the transfers lead to another placement".to_owned());
    }
    let map = partition_map(cluster, &migration.order.transfers);
    let plan = plan(
        cluster,
        &migration.order.transfers,
        &migration.placement,
        migration.least_shipped,
    );
    let after = match plan.simulate(map) {
        Ok(after) => after,
        Err(error) => return Some(error.to_string()),
    };
    for (partition, held) in after.partitions.into_iter().zip(holders) {
        let mut replicas = partition.replicas;
        replicas.sort_unstable();
        if replicas != held {
            return Some(format!(
                "the plan leads to {replicas:?} instead of {held:?}"
            ));
        }
    }
    if plan.lower_bound > plan.price.total {
        return Some(format!(
            "price {} is below the bound {}",
            plan.price.total, plan.lower_bound
        ));
    }
    None
}

/// Returns the slots that a node needs beyond its own while the transfers are carried out.
fn overflow(cluster: &PlacementProblem, migration: &Migration) -> usize {
    let current = cluster.current.as_ref().expect("a current placement");
    let mut held: Vec<usize> = (0..cluster.nodes.len())
        .map(|node| current.distinct(node).count())
        .collect();
    let mut most = 0;
    for transfer in &migration.order.transfers {
        match *transfer {
            Transfer::Copy { to, .. } => {
                held[to as usize] += 1;
                let above = held[to as usize].saturating_sub(cluster.max_partitions(to as usize));
                most = most.max(above);
            }
            Transfer::Drop { node, .. } => held[node as usize] -= 1,
        }
    }
    most
}

fn from_base(cluster: &mut PlacementProblem) {
    cluster.current = Some(place(cluster, Scheme::Base, MINMAX).expect("a placement"));
}

#[test]
fn twenty_copies_are_enough_from_base() {
    for (name, distribution) in PAPER {
        for seed in 1..=6 {
            let mut cluster = paper_cluster(distribution, seed);
            from_base(&mut cluster);
            let migration = migrate(&cluster, 0.99, MINMAX).expect("a migration");
            assert_eq!(fault(&cluster, &migration), None, "{name}");
            assert_eq!(overflow(&cluster, &migration), 0, "{name}");
            let found = capacity(&cluster, &migration.placement, &cluster.loads);
            assert!(found >= 0.99 && migration.reached, "{name}: {found}");
            let (_, copies) = shipped(&cluster, &migration.placement);
            assert!(copies <= 20, "{name}, seed {seed}: {copies} copies");
            assert_eq!(migration.shipped, copies as u128);
            assert!(migration.least_shipped <= migration.shipped);
            assert!(
                copies as u128 <= migration.least_shipped + 3,
                "{name}: {copies} copies"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(400)
    })]

    #[test]
    fn migrations_are_valid_and_never_ship_more_than_from_nothing(
        nodes in 2usize..9,
        slots in 2usize..10,
        fill in 0.2f64..1.0,
        min in 1usize..3,
        fates in proptest::collection::vec(0u8..8, 9),
        sized in any::<bool>(),
        zoned in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let partitions = ((nodes * slots / min) as f64 * fill * 0.7).floor().max(1.0) as usize;
        let mut random = Random::new(seed);
        let load = super::random_loads(&mut random, partitions);
        let of_fate = |fate: u8| (0..nodes).filter(|&node| fates[node] == fate).collect();
        let mut input = Input {
            nodes,
            slots: Some(PerNode::All(slots)),
            load: load.clone(),
            min: Some(min),
            bytes: sized.then(|| (0..partitions).map(|_| random.below(100) as u64).collect()),
            zones: zoned.then(|| (0..nodes).map(|node| (node % 3).to_string()).collect()),
            ..Input::default()
        };
        let Ok(whole) = input.clone().check() else { return Ok(()) };
        let mut lived = whole;
        lived.loads.rotate_left(partitions / 3);
        let Ok(current) = place(&lived, Scheme::Smooth, MINMAX) else { return Ok(()) };
        input.current = Some(current.nodes().to_vec());
        input.drain = of_fate(0);
        input.lost = of_fate(1);
        let Ok(cluster) = input.check() else { return Ok(()) };
        let migration = match migrate(&cluster, 0.95, MINMAX) {
            Ok(migration) => migration,
            // Too few nodes are left, or slots are so tight that nothing can be moved.
            Err(error) => {
                prop_assert!(["slots", "total", "min", "node_bytes"].contains(&error.path.as_str()), "{}", error);
                return Ok(());
            }
        };
        prop_assert_eq!(fault(&cluster, &migration), None);
        for (node, held) in migration.placement.nodes().iter().enumerate() {
            prop_assert!(held.len() <= cluster.max_partitions(node));
            prop_assert_eq!(migration.placement.distinct(node).count(), held.len());
        }
        prop_assert!(migration.least_shipped <= migration.shipped);
        let wanted = 0.95 * migration.best - 1e-6;
        prop_assert!(migration.capacity >= wanted, "{:?}", migration);
        for scheme in [Scheme::Balanced, Scheme::Smooth] {
            let fresh = place(&cluster, scheme, MINMAX);
            let Ok(fresh) = fresh else { continue };
            let now = cluster.current.as_ref().expect("given");
            let fresh = relabel(&cluster, now, fresh);
            if capacity(&cluster, &fresh, &cluster.loads) >= wanted {
                prop_assert!(migration.shipped <= shipped(&cluster, &fresh).0);
            }
        }
    }
}

/// Returns the fewest copies that reach `share` of the best capacity, by trying all placements.
fn fewest_copies(cluster: &PlacementProblem, share: f64) -> usize {
    let (nodes, partitions) = (cluster.nodes.len(), cluster.partitions());
    let mut best_capacity = 0.0f64;
    let mut tried = Vec::new();
    for code in 0..1u32 << (nodes * partitions) {
        let holds = |node: usize, id: usize| code >> (node * partitions + id) & 1 == 1;
        let held: Vec<Vec<u32>> = (0..nodes)
            .map(|node| {
                (0..partitions as u32)
                    .filter(|&id| holds(node, id as usize))
                    .collect()
            })
            .collect();
        let fits = held
            .iter()
            .enumerate()
            .all(|(node, held)| held.len() <= cluster.max_partitions(node));
        let all_held = (0..partitions).all(|id| (0..nodes).any(|node| holds(node, id)));
        if fits && all_held {
            let placement = Placement::new(held);
            let carries = capacity(cluster, &placement, &cluster.loads);
            best_capacity = best_capacity.max(carries);
            tried.push((shipped(cluster, &placement).1, carries));
        }
    }
    let enough = tried
        .into_iter()
        .filter(|(_, carries)| *carries >= share * best_capacity - 1e-9);
    enough
        .map(|(copies, _)| copies)
        .min()
        .expect("the best one")
}

#[test]
fn small_migrations_are_near_the_least_of_all() {
    let mut random = Random::new(41);
    let (mut exact, mut more) = (0, 0);
    for case in 0..40 {
        let slots = 3 + random.below(2);
        let load: Vec<f64> = (0..4).map(|_| (random.unit() * 4.0).exp()).collect();
        let mut cluster = cluster(3, slots, load);
        from_base(&mut cluster);
        let migration = migrate(&cluster, 0.95, MINMAX).expect("a migration");
        assert_eq!(fault(&cluster, &migration), None, "case {case}");
        let least = fewest_copies(&cluster, 0.95);
        let ours = migration.shipped as usize;
        if migration.reached {
            assert!(
                migration.least_shipped as usize <= least,
                "case {case}: the bound is above {least}"
            );
        }
        assert!(
            ours <= least + 2,
            "case {case}: {ours} copies, {least} are enough"
        );
        exact += usize::from(ours <= least);
        more += ours.saturating_sub(least);
    }
    assert!(
        exact >= 36,
        "{exact} of 40 are the least, {more} copies too many"
    );
}

#[test]
fn the_bound_of_the_price_leaves_out_partitions_restored_without_a_source() {
    let input = Input {
        nodes: 3,
        slots: Some(PerNode::All(6)),
        load: vec![1.0; 6],
        current: Some(vec![vec![0], vec![1], vec![2, 3, 4, 5]]),
        lost: vec![2],
        max: Some(1),
        ..Input::default()
    };
    let cluster = input.check().expect("a valid input");
    let migration = migrate(&cluster, 0.99, MINMAX).expect("a migration");
    assert_eq!(fault(&cluster, &migration), None);
}

#[test]
fn the_same_planner_adds_and_removes_nodes() {
    let mut input = Input {
        nodes: 9,
        slots: Some(PerNode::All(32)),
        load: super::drawn(PAPER[4].1, 128, 1),
        min: Some(2),
        ..Input::default()
    };
    let eight = Input {
        nodes: 8,
        ..input.clone()
    }
    .check()
    .expect("a valid input");
    let current = place(&eight, Scheme::Smooth, MINMAX).expect("a placement");
    input.current = Some(current.nodes().to_vec());

    // A ninth node: it takes its part, and only that is shipped.
    let added = input.clone().check().expect("a valid input");
    let migration = migrate(&added, 0.99, MINMAX).expect("a migration");
    assert_eq!(fault(&added, &migration), None);
    assert!(migration.capacity >= 0.99, "{migration:?}");
    assert!(
        migration.shipped <= 16,
        "{} copies for a ninth of the load",
        migration.shipped
    );

    // Draining one of nine: the partitions with no other copy are copied, and nothing is left on
    // it.
    input.current = Some(migration.placement.nodes().to_vec());
    let drained = Input {
        drain: vec![2],
        ..input.clone()
    }
    .check()
    .expect("a valid input");
    let migration = migrate(&drained, 0.99, MINMAX).expect("a migration");
    assert_eq!(fault(&drained, &migration), None);
    assert!(migration.placement.on(2).is_empty());
    assert!(
        migration.capacity >= 0.99 && migration.shipped <= 32,
        "{}",
        migration.shipped
    );

    // Losing it: the same, but no copy comes from it.
    let lost = Input {
        lost: vec![2],
        ..input
    }
    .check()
    .expect("a valid input");
    let migration = migrate(&lost, 0.99, MINMAX).expect("a migration");
    assert_eq!(fault(&lost, &migration), None);
    let from_lost = |transfer: &Transfer| matches!(transfer, Transfer::Copy { from: Some(2), .. });
    assert!(!migration.order.transfers.iter().any(from_lost));
    assert!(
        migration.capacity >= 0.99 && migration.shipped <= 32,
        "{}",
        migration.shipped
    );
}

#[test]
fn small_partitions_are_shipped_rather_than_large_ones() {
    // Both hot partitions would do; one is a hundred times as large.
    let input = Input {
        nodes: 2,
        slots: Some(PerNode::All(4)),
        load: vec![10.0, 10.0, 0.0, 0.0],
        bytes: Some(vec![100, 1, 1, 1]),
        current: Some(vec![vec![0, 1], vec![2, 3]]),
        ..Input::default()
    };
    let cluster = input.check().expect("a valid input");
    let migration = migrate(&cluster, 1.0, MINMAX).expect("a migration");
    assert_eq!(migration.shipped, 1);
    assert_eq!(migration.least_shipped, 1);
    assert!(migration.placement.holds(1, 1));
    assert_eq!(migration.capacity, 1.0);
}
