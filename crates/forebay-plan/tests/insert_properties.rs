//! Tests of the rules for every plan, on any instance.

use crate::common::{cost, exact, replicated};
use forebay_plan::Action;
use forebay_plan::insert::{Holders, InsertItem, Machine, Mode, Problem, Request, plan, solve};
use proptest::prelude::*;
use serde_json::{Value, json};

fn size() -> impl Strategy<Value = f64> {
    prop_oneof![
        3 => (0u32..1000).prop_map(f64::from),
        2 => Just(0.0),
        1 => Just(100.0),
        1 => 0.0..10.0f64,
        1 => (0u32..1000).prop_map(|n| f64::from(n) * 1e9),
        1 => prop_oneof![Just(5e-324), Just(1e-200), Just(1e200), Just(1e300)],
    ]
}

fn machine() -> impl Strategy<Value = Machine> {
    let speed = || prop_oneof![4 => Just(1.0), 1 => 0.1..10.0f64];
    let load = || prop_oneof![4 => Just(0.0), 1 => size()];
    let yes = || prop::bool::weighted(0.9);
    (speed(), speed(), load(), load(), yes(), yes()).prop_map(
        |(insert_speed, move_speed, insert_load, move_load, takes, gives)| Machine {
            insert_speed,
            move_speed,
            insert_load,
            move_load,
            takes,
            gives,
            zone: None,
        },
    )
}

fn problem(partitions: usize) -> impl Strategy<Value = Problem> {
    prop::collection::vec(machine(), 1..5).prop_flat_map(move |machines| {
        let count = machines.len() as u32;
        let item = (size(), size(), 0..count, prop::bool::weighted(0.1));
        let item = item.prop_map(|(insert, moving, home, pinned)| InsertItem {
            insert,
            moving,
            home,
            pinned,
        });
        (prop::collection::vec(item, 0..partitions), Just(machines)).prop_map(
            |(items, machines)| Problem {
                items,
                machines,
                limits: None,
            },
        )
    })
}

/// Returns pieces with up to three replicas on consecutive machines.
fn replicated_problem(pieces: usize) -> impl Strategy<Value = Problem> {
    prop::collection::vec(machine(), 1..6).prop_flat_map(move |machines| {
        let count = machines.len() as u32;
        let piece = (size(), size(), 0..count, 1..=count.min(3));
        let piece = piece.prop_map(move |(insert, moving, first, replicas)| {
            let homes = (0..replicas).map(|next| (first + next) % count);
            (insert, moving, homes.collect())
        });
        (prop::collection::vec(piece, 0..pieces), Just(machines))
            .prop_map(|(pieces, machines)| replicated(machines, &pieces))
    })
}

fn modes() -> [Mode; 3] {
    [Mode::Paper, Mode::Fast, Mode::Polish]
}

fn solved(problem: &Problem, mode: Mode) -> forebay_plan::insert::Solution {
    let mut asked = 0;
    solve(problem, mode, 3, &mut || {
        asked += 1;
        asked > 100
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn every_assignment_is_allowed_and_priced_right(problem in problem(40)) {
        for mode in modes() {
            let solution = solved(&problem, mode);
            prop_assert_eq!(solution.dest.len(), problem.items.len());
            for (item, &to) in problem.items.iter().zip(&solution.dest) {
                let moved = to != item.home;
                prop_assert!((to as usize) < problem.machines.len());
                prop_assert!(!moved || !item.pinned);
                prop_assert!(!moved || problem.machines[to as usize].takes);
                prop_assert!(!moved || problem.machines[item.home as usize].gives);
            }
            let again = cost(&problem, &solution.dest);
            prop_assert!((again - solution.cost).abs() <= 1e-9 * again);
            prop_assert!(solution.cost <= cost(&problem, &problem.homes()) * (1.0 + 1e-12));
            prop_assert!(solution.lower_bound <= solution.cost);
        }
    }

    #[test]
    fn replicas_of_a_piece_are_apart_and_priced_right(problem in replicated_problem(15)) {
        for mode in [Mode::Fast, Mode::Polish] {
            let solution = solved(&problem, mode);
            for (item, to) in (0u32..).zip(&solution.dest) {
                let mut others = problem.siblings(item);
                prop_assert!(others.all(|other| solution.dest[other as usize] != *to));
            }
            let again = cost(&problem, &solution.dest);
            prop_assert!((again - solution.cost).abs() <= 1e-9 * again);
            prop_assert!(solution.cost <= cost(&problem, &problem.homes()) * (1.0 + 1e-12));
            prop_assert!(solution.lower_bound <= solution.cost);
        }
    }

    #[test]
    fn no_plan_of_replicas_comes_below_the_bound(problem in replicated_problem(4)) {
        let optimum = exact(&problem);
        let fast = solved(&problem, Mode::Fast);
        prop_assert!(fast.lower_bound <= optimum * (1.0 + 1e-9), "{} of {optimum}", fast.lower_bound);
        prop_assert!(fast.cost >= optimum * (1.0 - 1e-9), "{} of {optimum}", fast.cost);
        prop_assert!(fast.cost <= optimum * 1.05 + 1e-9, "{} of {optimum}", fast.cost);
    }

    #[test]
    fn no_plan_comes_below_the_bound(problem in problem(8)) {
        let optimum = exact(&problem);
        let fast = solved(&problem, Mode::Fast);
        prop_assert!(fast.lower_bound <= optimum * (1.0 + 1e-9), "{} of {optimum}", fast.lower_bound);
        prop_assert!(fast.cost <= optimum * 1.04 + 1e-9, "{} of {optimum}", fast.cost);
    }

    #[test]
    fn the_same_seed_gives_the_same_plan(problem in problem(30)) {
        prop_assert_eq!(solved(&problem, Mode::Fast).dest, solved(&problem, Mode::Fast).dest);
    }

    #[test]
    fn plans_are_carried_out_to_their_destinations(request in request()) {
        let request: Request = serde_json::from_value(request).expect("a request");
        let planned = plan(&request, Mode::Fast, &mut || false).expect("a plan");
        for region in std::iter::once(&planned.own).chain(&planned.regions) {
            let end = region.plan.simulate(region.map.clone());
            let end = end.map_err(|error| TestCaseError::fail(error.to_string()))?;
            let there = end.partitions.iter().map(|p| p.replicas.as_slice());
            prop_assert!(there.eq(region.dest.iter().map(|to| to.machines())));
            let numbers = |to: &Holders| matches!(to, Holders::One(_));
            prop_assert!(region.dest.iter().all(numbers));
            let moves = region.plan.steps.iter();
            let moves = moves.filter(|step| matches!(step.action, Action::Move { .. })).count();
            prop_assert_eq!(moves, region.moves.len());
            check_price(&request, region)?;
            let json = serde_json::to_string(&region.plan).expect("JSON");
            let back: forebay_plan::Plan = serde_json::from_str(&json).expect("the plan again");
            prop_assert_eq!(&back.steps, &region.plan.steps);
        }
    }

    #[test]
    fn pieces_stay_within_the_limit_and_lose_nothing(request in request(), pi in 1.0..400.0f64) {
        let mut request = request;
        request["pi"] = json!(pi);
        let read: Request = serde_json::from_value(request.clone()).expect("a request");
        let planned = plan(&read, Mode::Paper, &mut || false).expect("a plan");
        let parts = request["partitions"].as_array().expect("partitions");
        let total = |field: &str| parts.iter().filter_map(|p| p[field].as_f64()).sum::<f64>();
        if planned.splits.is_empty() {
            prop_assert_eq!(planned.own.dest.len(), parts.len());
            return Ok(());
        }
        let (mut e, mut n) = (0.0, 0.0);
        for piece in &planned.partitions {
            prop_assert!(piece.e + piece.n <= pi * (1.0 + 1e-9));
            (e, n) = (e + piece.e, n + piece.n);
        }
        prop_assert!((e - total("e")).abs() <= 1e-6 && (n - total("n")).abs() <= 1e-6);
    }
}

/// Adds up what the plan's steps carry: the busiest node's moves are the price of moving.
fn check_price(
    request: &Request,
    region: &forebay_plan::insert::RegionPlan,
) -> Result<(), TestCaseError> {
    let mut moved = vec![0.0; region.machines];
    for step in &region.plan.steps {
        if let Action::Move { from, to, .. } = step.action {
            for node in [from, to] {
                moved[node as usize] += step.records * request.move_price + request.handover_price;
            }
        }
    }
    let most = moved.iter().copied().fold(0.0, f64::max);
    let price = &region.plan.price;
    prop_assert!(
        (price.moving - most).abs() <= 1e-9 * most.max(1.0),
        "{} {most}",
        price.moving
    );
    let inserted = price
        .nodes
        .iter()
        .map(|node| node.insert_after)
        .fold(0.0, f64::max);
    prop_assert!((price.insert - inserted).abs() <= 1e-9 * inserted.max(1.0));
    prop_assert!((price.total - price.moving - price.insert).abs() <= 1e-9 * price.total.max(1.0));
    Ok(())
}

fn request() -> impl Strategy<Value = Value> {
    (1u32..5, 1u32..5).prop_flat_map(|(machines, others)| {
        let part = (0u32..300, 0u32..300, 0..machines, 0..others);
        let price = prop_oneof![Just(0.0), Just(1.0), Just(1e6), 0.0..3.0f64];
        let handover = prop_oneof![Just(0.0), 0.0..50.0f64];
        (prop::collection::vec(part, 1..20), price, handover).prop_map(
            move |(parts, price, handover)| {
                let homes: Vec<u32> = parts.iter().map(|part| part.3).collect();
                let parts = parts
                    .iter()
                    .map(|(e, n, h, _)| json!({"e": e, "n": n, "h": h}));
                json!({
                    "machines": machines,
                    "partitions": parts.collect::<Vec<_>>(),
                    "move_price": price,
                    "handover_price": handover,
                    "regions": [{"name": "west", "machines": others, "homes": [homes]}],
                })
            },
        )
    })
}
