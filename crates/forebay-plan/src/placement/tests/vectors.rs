//! Tests of replication vectors against all possible vectors.

use super::super::replicas::{Bounds, Objective, objective_value, replication_vector};
use super::random_loads;
use crate::Random;

/// Returns all vectors within bounds.
fn all(partitions: usize, bounds: Bounds) -> Vec<Vec<usize>> {
    if partitions == 0 {
        return if bounds.total == 0 {
            vec![vec![]]
        } else {
            vec![]
        };
    }
    let mut found = Vec::new();
    for count in bounds.min..=bounds.max.min(bounds.total) {
        let rest = Bounds {
            total: bounds.total - count,
            ..bounds
        };
        for mut vector in all(partitions - 1, rest) {
            vector.push(count);
            found.push(vector);
        }
    }
    found
}

#[test]
fn both_objectives_are_exact() {
    let mut random = Random::new(3);
    let mut hottest_mattered = 0;
    for case in 0..400 {
        let partitions = 1 + random.below(5);
        let min = 1 + random.below(2);
        let max = min + random.below(5);
        let total = partitions * min + random.below(partitions * (max - min) + 1);
        let bounds = Bounds { min, max, total };
        let mut loads = random_loads(&mut random, partitions);
        if case % 2 == 0 {
            // Two hot ones that are both below their fair share: the ties that matter.
            loads[0] = 10_000.0;
            loads[partitions / 2] = 4_000.0 + random.below(6_000) as f64;
        }
        let vectors = all(partitions, bounds);
        let value = |vector: &Vec<usize>, objective| objective_value(&loads, vector, objective);
        for objective in [Objective::MinMax, Objective::L1] {
            let ours = replication_vector(&loads, bounds, objective).expect("within bounds");
            let best = vectors
                .iter()
                .map(|v| value(v, objective))
                .fold(f64::INFINITY, f64::min);
            let case = format!("case {case}, {objective:?}, {loads:?}, {bounds:?}: {ours:?}");
            assert!(vectors.contains(&ours), "{case}");
            assert!(
                value(&ours, objective) <= best * (1.0 + 1e-12) + 1e-12,
                "{case}: {best}"
            );
            if objective == Objective::L1 {
                let ties = vectors
                    .iter()
                    .filter(|v| value(v, Objective::L1) <= best + 1e-9);
                let heats: Vec<f64> = ties.map(|v| value(v, Objective::MinMax)).collect();
                let coolest = heats.iter().copied().fold(f64::INFINITY, f64::min);
                hottest_mattered += usize::from(heats.iter().any(|&heat| heat > coolest * 1.01));
                assert!(
                    value(&ours, Objective::MinMax) <= coolest * (1.0 + 1e-9),
                    "{case}: {coolest}"
                );
            }
        }
    }
    assert!(
        hottest_mattered > 10,
        "only {hottest_mattered} cases had ties that differ"
    );
}

#[test]
fn the_papers_example_of_a_normal_load() {
    // The paper prints [2, 6, 6, 2]; its own objective prefers this one.
    let loads = [142.0, 14_882.0, 14_827.0, 149.0];
    let bounds = Bounds {
        min: 1,
        max: 16,
        total: 16,
    };
    let vector = replication_vector(&loads, bounds, Objective::L1).expect("within bounds");
    assert_eq!(vector, [1, 7, 7, 1]);
    let value = |vector: &[usize]| objective_value(&loads, vector, Objective::L1);
    assert!(value(&vector) < value(&[2, 6, 6, 2]) - 0.1);
}

#[test]
fn impossible_bounds_are_refused_by_name() {
    for (min, max, total, path) in [(2, 1, 8, "min"), (2, 4, 7, "total"), (1, 2, 9, "total")] {
        let bounds = Bounds { min, max, total };
        let error =
            replication_vector(&[1.0; 4], bounds, Objective::MinMax).expect_err("impossible");
        assert_eq!(error.path, path, "{error}");
    }
}

#[test]
fn load_that_is_all_zero_is_spread_evenly() {
    let bounds = Bounds {
        min: 1,
        max: 4,
        total: 8,
    };
    for objective in [Objective::MinMax, Objective::L1] {
        let vector = replication_vector(&[0.0; 4], bounds, objective).expect("within bounds");
        assert_eq!(vector, [2; 4]);
    }
}
