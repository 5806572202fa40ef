//! Tests of the schemes: the rules of every placement, and the results that the notes expect.

use proptest::prelude::*;

use super::super::cluster::{Input, PerNode, PlacementProblem};
use super::super::layout::Placement;
use super::super::measure::{capacity, measure};
use super::super::replicas::Objective;
use super::super::schemes::{Scheme, place};
use super::{PAPER, cluster, drawn, paper_cluster};
use crate::Random;

const ALL: [Scheme; 6] = [
    Scheme::Base,
    Scheme::Coarse,
    Scheme::Compact,
    Scheme::Balanced,
    Scheme::Smooth,
    Scheme::Complete,
];

/// Returns the fault of a placement, if it has one.
fn fault(cluster: &PlacementProblem, scheme: Scheme, placement: &Placement) -> Option<String> {
    let stacked = matches!(scheme, Scheme::Compact | Scheme::Coarse);
    for (node, held) in placement.nodes().iter().enumerate() {
        if held.len() > cluster.max_partitions(node) && scheme != Scheme::Complete {
            return Some(format!("node {node} holds {} partitions", held.len()));
        }
        if !stacked && placement.distinct(node).count() != held.len() {
            return Some(format!("node {node} holds a partition twice"));
        }
    }
    let holders = placement.holders(cluster.partitions());
    if let Some(id) = holders
        .iter()
        .position(|holders| holders.len() < cluster.min)
    {
        return Some(format!("partition {id} is on {} nodes", holders[id].len()));
    }
    let replicas = placement.replicas(cluster.partitions());
    let above = replicas.iter().position(|&count| count > cluster.max);
    if let Some(id) = above.filter(|_| scheme != Scheme::Complete) {
        return Some(format!("partition {id} has {} replicas", replicas[id]));
    }
    let total: usize = replicas.iter().sum();
    let wanted = cluster.bounds().expect("bounds").total;
    if matches!(scheme, Scheme::Balanced | Scheme::Smooth) && total != wanted {
        return Some(format!("{total} replicas instead of {wanted}"));
    }
    None
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(300)
    })]

    #[test]
    fn every_placement_is_valid(
        nodes in 1usize..12,
        slots in 1usize..12,
        fill in 0.2f64..1.0,
        min in 1usize..3,
        max in 2usize..6,
        seed in any::<u64>(),
    ) {
        let min = min.min(nodes);
        let partitions = ((nodes * slots / min) as f64 * fill).floor().max(1.0) as usize;
        let mut random = Random::new(seed);
        let load = super::random_loads(&mut random, partitions);
        let input = Input {
            nodes,
            slots: Some(PerNode::All(slots)),
            load,
            min: Some(min),
            max: Some(max),
            ..Input::default()
        };
        let Ok(cluster) = input.check() else { return Ok(()) };
        prop_assert!(cluster.check_room().is_ok());
        for scheme in ALL {
            for objective in [Objective::MinMax, Objective::L1] {
                match place(&cluster, scheme, objective) {
                    Ok(placement) => prop_assert_eq!(fault(&cluster, scheme, &placement), None, "{:?}", scheme),
                    // Groups of partitions need more room than partitions.
                    Err(error) => prop_assert!(
                        min > 1 && matches!(scheme, Scheme::Base | Scheme::Coarse | Scheme::Compact)
                            || matches!(scheme, Scheme::Base | Scheme::Coarse),
                        "{:?}: {}", scheme, error
                    ),
                }
            }
        }
    }
}

#[test]
fn the_notes_table_is_reached() {
    // Capacity of base and coarse as measured by the notes' oracle, which drew other requests.
    let expected = [
        (0.99, 0.99),
        (0.72, 0.79),
        (0.50, 0.75),
        (0.43, 0.84),
        (0.32, 0.60),
    ];
    for ((name, distribution), (base, coarse)) in PAPER.into_iter().zip(expected) {
        for seed in 1..=8 {
            let cluster = paper_cluster(distribution, seed);
            let of = |scheme, objective| {
                let placement = place(&cluster, scheme, objective).expect("a placement");
                assert_eq!(
                    fault(&cluster, scheme, &placement),
                    None,
                    "{name} {scheme:?}"
                );
                capacity(&cluster, &placement, &cluster.loads)
            };
            let near = |found: f64, noted: f64| {
                assert!((found - noted).abs() < 0.025, "{name}: {found}, {noted}")
            };
            near(of(Scheme::Base, Objective::L1), base);
            near(of(Scheme::Coarse, Objective::L1), coarse);
            for objective in [Objective::MinMax, Objective::L1] {
                assert!(
                    of(Scheme::Compact, objective) >= 0.99,
                    "{name} compact, seed {seed}"
                );
                assert!(
                    of(Scheme::Balanced, objective) >= 0.999,
                    "{name} balanced, seed {seed}"
                );
                assert!(
                    of(Scheme::Smooth, objective) >= 0.999,
                    "{name} smooth, seed {seed}"
                );
            }
            assert_eq!(of(Scheme::Complete, Objective::MinMax), 1.0);
        }
    }
}

#[test]
fn compact_needs_little_memory_and_balanced_is_even() {
    for (name, distribution) in PAPER {
        let cluster = paper_cluster(distribution, 1);
        let of = |scheme| {
            let placement = place(&cluster, scheme, Objective::MinMax).expect("a placement");
            measure(&cluster, &placement, &cluster.loads)
        };
        let (compact, balanced) = (of(Scheme::Compact), of(Scheme::Balanced));
        let footprint = compact.footprint.mean_partitions;
        assert!(
            footprint <= 18.0,
            "{name}: {footprint} partitions a node of 128 / 8 and two cuts"
        );
        assert_eq!(balanced.footprint.max_partitions, 32, "{name}");
        assert!(
            balanced.even_split_max_to_mean < 1.002,
            "{name}: {balanced:?}"
        );
    }
}

#[test]
fn smooth_bears_noise_a_moved_hot_range_and_a_failed_node() {
    let mut random = Random::new(9);
    for (name, distribution) in PAPER {
        let cluster = paper_cluster(distribution, 2);
        let placement = place(&cluster, Scheme::Smooth, Objective::MinMax).expect("a placement");
        let under = |loads: &[f64]| capacity(&cluster, &placement, loads);
        let mut moved = cluster.loads.clone();
        moved.rotate_right(32);
        assert!(
            under(&moved) >= 0.99,
            "{name}, hot range moved by a quarter: {}",
            under(&moved)
        );
        let mut noisy: Vec<f64> = (0..40)
            .map(|_| under(&with_noise(&cluster.loads, &mut random)))
            .collect();
        noisy.sort_by(f64::total_cmp);
        assert!(noisy[4] >= 0.99, "{name}, noise: {noisy:?}");
        let failure = measure(&cluster, &placement, &cluster.loads).node_failure;
        assert!(
            failure.lost_load <= 0.006 && failure.capacity >= 0.99,
            "{name}: {failure:?}"
        );
    }
}

/// Each load times a log-normal factor of sigma 1.
fn with_noise(loads: &[f64], random: &mut Random) -> Vec<f64> {
    let mut normal = || {
        let radius = (-2.0 * (1.0 - random.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * random.unit()).cos()
    };
    loads.iter().map(|load| load * normal().exp()).collect()
}

#[test]
fn copies_are_in_different_zones() {
    for (_, distribution) in PAPER {
        let input = Input {
            nodes: 9,
            slots: Some(PerNode::All(32)),
            load: drawn(distribution, 128, 5),
            zones: Some((0..9).map(|node| format!("zone-{}", node % 3)).collect()),
            min: Some(2),
            ..Input::default()
        };
        let cluster = input.check().expect("a valid input");
        for scheme in [Scheme::Balanced, Scheme::Smooth] {
            let placement = place(&cluster, scheme, Objective::MinMax).expect("a placement");
            let measures = measure(&cluster, &placement, &cluster.loads);
            assert_eq!(measures.short_of_zones, 0, "{scheme:?}");
            assert!(
                measures.capacity >= 0.999,
                "{scheme:?}: {}",
                measures.capacity
            );
            let failure = measures.zone_failure.expect("zones were given");
            assert_eq!(failure.lost_load, 0.0, "{scheme:?}: {failure:?}");
        }
    }
}

#[test]
fn bytes_limit_a_node_as_slots_do() {
    let mut random = Random::new(31);
    let sizes: Vec<u64> = (0..200)
        .map(|_| 1 + random.below(1_000_000) as u64)
        .collect();
    let node_bytes = sizes.iter().sum::<u64>() * 2 / 10;
    let input = Input {
        nodes: 10,
        node_bytes: Some(PerNode::All(node_bytes)),
        load: drawn(super::Distribution::Zipf { exponent: 0.8 }, 200, 4),
        bytes: Some(sizes.clone()),
        ..Input::default()
    };
    let cluster = input.check().expect("a valid input");
    for scheme in [Scheme::Balanced, Scheme::Smooth] {
        let placement = place(&cluster, scheme, Objective::MinMax).expect("a placement");
        let mut used = 0;
        for node in 0..10 {
            let bytes: u64 = placement.distinct(node).map(|id| sizes[id as usize]).sum();
            assert!(bytes <= node_bytes, "{scheme:?}: {bytes} on node {node}");
            used += bytes;
        }
        assert!(
            used > node_bytes * 9,
            "{scheme:?}: only {used} of {node_bytes} x 10 are used"
        );
        let capacity = capacity(&cluster, &placement, &cluster.loads);
        assert!(capacity >= 0.999, "{scheme:?}: {capacity}");
    }
}

#[test]
fn the_same_input_gives_the_same_placement() {
    let cluster = paper_cluster(super::Distribution::Gamma { shape: 5.0 }, 3);
    for scheme in ALL {
        let once = place(&cluster, scheme, Objective::MinMax).expect("a placement");
        assert_eq!(
            once,
            place(&cluster, scheme, Objective::MinMax).expect("a placement")
        );
    }
}

#[test]
fn inputs_that_cannot_be_placed_are_refused() {
    let full = cluster(2, 2, vec![1.0; 4]);
    assert!(place(&full, Scheme::Smooth, Objective::MinMax).is_ok());
    let error = |input: Input| {
        input
            .check()
            .and_then(|c| c.check_room())
            .expect_err("refused")
            .path
    };
    let right = || Input {
        nodes: 2,
        slots: Some(PerNode::All(2)),
        load: vec![1.0; 4],
        ..Input::default()
    };
    assert_eq!(
        error(Input {
            load: vec![1.0; 5],
            ..right()
        }),
        "slots"
    );
    assert_eq!(
        error(Input {
            load: vec![1.0, -1.0],
            ..right()
        }),
        "load[1]"
    );
    assert_eq!(
        error(Input {
            load: vec![f64::NAN],
            ..right()
        }),
        "load[0]"
    );
    assert_eq!(
        error(Input {
            load: vec![],
            ..right()
        }),
        "load"
    );
    assert_eq!(
        error(Input {
            nodes: 0,
            ..right()
        }),
        "nodes"
    );
    assert_eq!(
        error(Input {
            slots: None,
            ..right()
        }),
        "slots"
    );
    assert_eq!(
        error(Input {
            slots: Some(PerNode::Each(vec![4])),
            ..right()
        }),
        "slots"
    );
    assert_eq!(
        error(Input {
            min: Some(3),
            ..right()
        }),
        "min"
    );
    assert_eq!(
        error(Input {
            total: Some(9),
            ..right()
        }),
        "total"
    );
    assert_eq!(
        error(Input {
            lost: vec![2],
            ..right()
        }),
        "lost[0]"
    );
    assert_eq!(
        error(Input {
            lost: vec![1],
            drain: vec![1],
            ..right()
        }),
        "lost[0]"
    );
    assert_eq!(
        error(Input {
            slots: Some(PerNode::All(usize::MAX)),
            ..right()
        }),
        "slots"
    );
    assert_eq!(
        error(Input {
            nodes: usize::MAX,
            ..right()
        }),
        "nodes"
    );
    assert_eq!(
        error(Input {
            zones: Some(vec![]),
            ..right()
        }),
        "zones"
    );
    assert_eq!(
        error(Input {
            current: Some(vec![vec![0], vec![4]]),
            ..right()
        }),
        "current[1][0]"
    );
    assert_eq!(
        error(Input {
            node_bytes: Some(PerNode::All(1)),
            ..right()
        }),
        "bytes"
    );
    let small = Input {
        node_bytes: Some(PerNode::All(5)),
        bytes: Some(vec![3; 4]),
        ..right()
    };
    assert_eq!(error(small), "node_bytes");
}
