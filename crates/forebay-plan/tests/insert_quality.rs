//! Tests of the quality of plans: against the optimum for few partitions, against the bound for
//! many.

use crate::common::{cost, exact};
use forebay_plan::Random;
use forebay_plan::insert::{InsertItem, Machine, Mode, Problem, solve};

const FAMILIES: [&str; 10] = [
    "uniform",
    "zipf",
    "clustered",
    "hot-range",
    "append",
    "few-new",
    "zeros",
    "ties",
    "one-home",
    "fractions",
];

fn instance(family: &str, machines: usize, partitions: usize, seed: u64) -> Problem {
    let mut random = Random::new(seed.wrapping_mul(31) ^ family.len() as u64);
    let item = |index: usize| {
        let mut moving = random.below(1000) as f64;
        let mut insert = random.below(1000) as f64;
        let mut home = random.below(machines);
        let clustered = index * machines / partitions;
        match family {
            "zipf" => insert = (2000.0 / (1 + random.below(partitions)) as f64).floor(),
            "clustered" => home = clustered,
            "hot-range" => (home, insert) = (clustered, if clustered == 0 { insert } else { 0.0 }),
            "append" if index * 4 < partitions * 3 => insert = 0.0,
            "append" => (moving, home) = (0.0, machines - 1),
            "few-new" => moving *= 20.0,
            "zeros" if random.below(2) == 0 => insert = 0.0,
            "zeros" if random.below(2) == 0 => moving = 0.0,
            "ties" => (moving, insert) = (100.0, if insert < 500.0 { 100.0 } else { 200.0 }),
            "one-home" => home = 0,
            "fractions" => (moving, insert) = (moving / 7.0, insert / 3.0),
            _ => {}
        }
        InsertItem {
            insert,
            moving,
            home: home as u32,
            pinned: false,
        }
    };
    Problem {
        items: (0..partitions).map(item).collect(),
        machines: vec![Machine::default(); machines],
        limits: None,
    }
}

fn fast(problem: &Problem) -> (f64, f64) {
    let solution = solve(problem, Mode::Fast, 7, &mut || false);
    let again = cost(problem, &solution.dest);
    assert!(
        (solution.cost - again).abs() <= 1e-9 * again,
        "{} or {again}",
        solution.cost
    );
    (again, solution.lower_bound)
}

#[test]
fn few_partitions_are_planned_at_the_optimum_nearly_always() {
    let mut ratios = Vec::new();
    for family in FAMILIES {
        for (machines, partitions) in [(3, 11), (4, 9), (5, 8)] {
            let problem = instance(family, machines, partitions, 5);
            let (optimum, (cost, bound)) = (exact(&problem), fast(&problem));
            assert!(
                bound <= optimum * (1.0 + 1e-9),
                "{family}: bound {bound} of {optimum}"
            );
            assert!(
                cost >= optimum * (1.0 - 1e-9),
                "{family}: {cost} below {optimum}"
            );
            ratios.push(cost / optimum.max(1e-9));
        }
    }
    let worst = ratios.iter().copied().fold(0.0, f64::max);
    let good = ratios.iter().filter(|ratio| **ratio <= 1.01).count();
    assert!(worst <= 1.04, "{ratios:?}");
    assert!(good * 100 >= ratios.len() * 95, "{ratios:?}");
}

/// Excludes the families with heavy tails or ties: no plan may reach the bound for them. `make
/// bench-plan` measures all of them.
#[test]
fn ten_machines_and_500_partitions_without_heavy_tails_come_near_the_bound() {
    let mut ratios = Vec::new();
    for family in [
        "uniform",
        "clustered",
        "hot-range",
        "append",
        "few-new",
        "zeros",
        "one-home",
    ] {
        let (cost, bound) = fast(&instance(family, 10, 500, 3));
        ratios.push(cost / bound);
    }
    let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
    assert!(mean <= 1.012, "{ratios:?}");
    assert!(ratios.iter().all(|ratio| *ratio <= 1.05), "{ratios:?}");
}

#[test]
fn a_polish_is_no_worse_and_ends_when_stopped() {
    let problem = instance("zipf", 6, 60, 1);
    let (fast, _) = fast(&problem);
    let mut asked = 0;
    let polished = solve(&problem, Mode::Polish, 7, &mut || {
        asked += 1;
        asked > 8000
    });
    assert!(polished.cost <= fast, "{} after {fast}", polished.cost);
    assert!(asked > 0);
    let stopped = solve(&problem, Mode::Polish, 7, &mut || true);
    assert!(stopped.cost <= cost(&problem, &problem.homes()));
}

#[test]
fn the_papers_algorithm_stays_near_the_bound() {
    let mut ratios = Vec::new();
    for family in ["uniform", "clustered", "append", "one-home"] {
        let problem = instance(family, 10, 500, 3);
        let paper = solve(&problem, Mode::Paper, 0, &mut || false);
        ratios.push(paper.cost / paper.lower_bound);
    }
    let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
    assert!(mean > 1.0 && mean <= 1.05, "{ratios:?}");
}

#[test]
fn faster_machines_get_more_and_the_bound_still_holds() {
    for (insert_speed, takes) in [(3.0, true), (1.0, false)] {
        let mut problem = instance("one-home", 3, 10, 2);
        problem.machines[1] = Machine {
            insert_speed,
            takes,
            ..Machine::default()
        };
        problem.machines[2].insert_load = 500.0;
        let optimum = exact(&problem);
        let (cost, bound) = fast(&problem);
        assert!(
            bound <= optimum * (1.0 + 1e-9) && cost <= optimum * 1.04,
            "{cost} {optimum}"
        );
    }
}

#[test]
fn costs_of_the_smallest_numbers_end_the_search() {
    let least = f64::from_bits(1);
    let item = InsertItem {
        insert: least,
        moving: 100.0,
        home: 0,
        pinned: false,
    };
    let fast = Machine {
        insert_speed: 7.5,
        ..Machine::default()
    };
    let problem = Problem {
        items: vec![item],
        machines: vec![Machine::default(), fast],
        limits: None,
    };
    for mode in [Mode::Fast, Mode::Polish] {
        let mut asked = 0;
        let solution = solve(&problem, mode, 1, &mut || {
            asked += 1;
            asked > 1000
        });
        assert!(solution.cost <= least, "{}", solution.cost);
    }
}
