//! Plans for partitions with replicas: no two of one piece on one machine, at no step.

use crate::common::{cost, exact, replicated};
use forebay_plan::input::read;
use forebay_plan::insert::{
    Holders, InsertPlan, Machine, MachineSpec, Mode, Problem, Request, Solution, TableSpec, plan,
    solve,
};
use forebay_plan::{Action, InputError, Key, PartitionMap, Plan, Random};
use serde_json::{Value, json};

fn planned(request: &Value) -> Result<InsertPlan, InputError> {
    let request: Request = read(request.to_string().as_bytes())?;
    polished(&request)
}

fn polished(request: &Request) -> Result<InsertPlan, InputError> {
    let mut asked = 0;
    plan(request, Mode::Polish, &mut || {
        asked += 1;
        asked > 100
    })
}

/// Returns this many distinct machines, in random order.
fn homes(random: &mut Random, replicas: usize, machines: usize) -> Vec<u32> {
    let mut all: Vec<u32> = (0..machines as u32).collect();
    random.shuffle(&mut all);
    all.truncate(replicas);
    all
}

fn instance(random: &mut Random, machines: usize, pieces: usize) -> Problem {
    let skewed = random.below(3);
    let pieces = (0..pieces).map(|index| {
        let replicas = [1, 2, 3, 3, 3, 5][random.below(6)].min(machines);
        let insert = match skewed {
            0 => random.below(1000) as f64,
            1 => (2000.0 / (index + 1) as f64).floor(),
            _ => [0.0, 100.0][random.below(2)],
        };
        let light = [1.0, 0.05][random.below(2)];
        let moving = light * random.below(1000) as f64;
        // Half of the time the first machines have more.
        let among = match random.below(2) {
            0 => machines,
            _ => machines.min(replicas + 1),
        };
        (insert, moving, homes(random, replicas, among))
    });
    let pieces: Vec<(f64, f64, Vec<u32>)> = pieces.collect();
    let machine = |_| Machine {
        takes: random.below(10) > 0,
        insert_speed: [1.0, 1.0, 1.0, 2.0][random.below(4)],
        ..Machine::default()
    };
    replicated((0..machines).map(machine).collect(), &pieces)
}

fn check(problem: &Problem, solution: &Solution, name: &str) {
    assert!(solution.unmet.is_none(), "{name}");
    for (item, &to) in (0u32..).zip(&solution.dest) {
        let it = &problem.items[item as usize];
        let takes = problem.machines[to as usize].takes;
        assert!(to == it.home || takes, "{name}: item {item}");
        for other in problem.siblings(item) {
            let there = solution.dest[other as usize];
            assert!(there != to, "{name}: items {item} and {other} on {to}");
            let from = problem.items[other as usize].home;
            assert!(
                to != from,
                "{name}: item {item} waits for {other} to leave {to}"
            );
        }
    }
    let again = cost(problem, &solution.dest);
    assert!((again - solution.cost).abs() <= 1e-9 * again, "{name}");
    let stays = cost(problem, &problem.homes());
    assert!(solution.cost <= stays * (1.0 + 1e-12), "{name}");
    assert!(solution.lower_bound <= solution.cost, "{name}");
}

#[test]
fn replicas_in_different_zones_stay_so() {
    let mut moved = 0;
    for seed in 0..60 {
        let random = &mut Random::new(seed);
        let (machines, pieces) = (4 + random.below(6), 1 + random.below(25));
        let mut problem = instance(random, machines, pieces);
        let count = 2 + random.below(3) as u32;
        for (number, machine) in (0..).zip(&mut problem.machines) {
            machine.zone = (random.below(8) > 0).then_some(number % count);
        }
        let solution = solve(&problem, Mode::Fast, seed, &mut || false);
        check(&problem, &solution, &format!("seed {seed}"));
        let shares = |at: &dyn Fn(u32) -> u32, item: u32, other: u32| {
            let zone = |machine: u32| problem.machines[machine as usize].zone;
            zone(at(item)).is_some() && zone(at(item)) == zone(at(other))
        };
        for item in 0..problem.items.len() as u32 {
            moved += usize::from(solution.dest[item as usize] != problem.items[item as usize].home);
            for other in problem.siblings(item) {
                let before = shares(&|item| problem.items[item as usize].home, item, other);
                let after = shares(&|item| solution.dest[item as usize], item, other);
                assert!(before || !after, "seed {seed}: items {item} and {other}");
            }
        }
    }
    assert!(moved > 100, "{moved}");
}

#[test]
fn siblings_are_apart_and_plans_no_worse_than_none() {
    for seed in 0..60 {
        let random = &mut Random::new(seed);
        let (machines, pieces) = (1 + random.below(7), random.below(25));
        let problem = instance(random, machines, pieces);
        for mode in [Mode::Fast, Mode::Polish] {
            let mut asked = 0;
            let solution = solve(&problem, mode, seed, &mut || {
                asked += 1;
                asked > 100
            });
            check(&problem, &solution, &format!("seed {seed}"));
        }
    }
}

/// Measured with 1200 seeds: moves help in 723, 1198 plans are at the optimum and all within 1.012
/// of it; with these 120 all are at the optimum. The optimum may take the home of a sibling that
/// goes elsewhere, which the planner never does.
#[test]
fn few_pieces_with_replicas_are_planned_near_the_optimum() {
    let (mut ratios, mut better, cases) = (Vec::new(), 0, 120);
    for seed in 0..cases {
        let random = &mut Random::new(1000 + seed);
        let machines = 4 + random.below(2);
        let pieces = 3 + random.below(4);
        let problem = instance(random, machines, pieces);
        let solution = solve(&problem, Mode::Fast, seed, &mut || false);
        check(&problem, &solution, &format!("seed {seed}"));
        let optimum = exact(&problem);
        assert!(
            solution.lower_bound <= optimum * (1.0 + 1e-9),
            "seed {seed}: bound {} of {optimum}",
            solution.lower_bound
        );
        assert!(solution.cost >= optimum * (1.0 - 1e-9), "seed {seed}");
        better += usize::from(optimum < 0.99 * cost(&problem, &problem.homes()));
        ratios.push(solution.cost / optimum.max(1e-9));
    }
    let within = |part: f64| ratios.iter().filter(|ratio| **ratio <= part).count();
    let worst = ratios.iter().copied().fold(0.0, f64::max);
    println!(
        "of {cases}, {better} better with moves: {} at the optimum, {} within 1.01, {} within 1.05, worst {worst}",
        within(1.0 + 1e-9),
        within(1.01),
        within(1.05)
    );
    assert!(within(1.01) * 100 >= ratios.len() * 95, "{ratios:?}");
    assert!(worst <= 1.05, "{ratios:?}");
}

/// Measured: 1.001 of the bound where inserts are alike, 1.012 by Zipf, 1.009 for a hot range.
#[test]
fn many_pieces_with_replicas_come_near_the_bound() {
    let (machines, count) = (9, 500);
    for family in ["uniform", "zipf", "hot"] {
        let random = &mut Random::new(9);
        let pieces = (0..count).map(|index| {
            let homes = homes(random, 3, machines);
            let insert = match family {
                "zipf" => (20_000.0 / (index + 1) as f64).floor(),
                "hot" if index * 10 >= count => 10.0,
                "hot" => 1000.0 + random.below(1000) as f64,
                _ => random.below(1000) as f64,
            };
            (insert, random.below(300) as f64, homes)
        });
        let pieces: Vec<(f64, f64, Vec<u32>)> = pieces.collect();
        let problem = replicated(vec![Machine::default(); machines], &pieces);
        let solution = solve(&problem, Mode::Fast, 7, &mut || false);
        check(&problem, &solution, family);
        let ratio = solution.cost / solution.lower_bound;
        assert!(ratio <= 1.03, "{family}: {ratio}");
    }
}

/// Does the steps in a random order that `after` allows, several at once. A machine has a piece
/// from the beginning of its copy to the end of the move away.
fn walk(map: &PartitionMap, plan: &Plan, room: f64, random: &mut Random, name: &str) {
    let mut holders: Vec<Vec<u32>> = map.partitions.iter().map(|p| p.replicas.clone()).collect();
    let mut held = vec![0.0; map.nodes.len()];
    for partition in &map.partitions {
        for &node in &partition.replicas {
            held[node as usize] += partition.bytes;
        }
    }
    let most: Vec<f64> = held.iter().map(|held: &f64| held.max(room)).collect();
    let (mut begun, mut done) = (vec![false; plan.steps.len()], vec![false; plan.steps.len()]);
    while done.contains(&false) {
        let number = random.below(plan.steps.len());
        let step = &plan.steps[number];
        let may_begin = step.after.iter().all(|&before| done[before as usize]);
        if !begun[number] && may_begin {
            begun[number] = true;
            match step.action {
                Action::Split {
                    partition, right, ..
                } => {
                    // Pieces are numbered in the order of the splits.
                    let of = holders[partition as usize].clone();
                    let right = right as usize;
                    if holders.len() <= right {
                        holders.resize(right + 1, Vec::new());
                    }
                    holders[right] = of;
                }
                Action::Move { partition, to, .. } => {
                    let at = &mut holders[partition as usize];
                    assert!(!at.contains(&to), "{name}: step {number}, {to} in {at:?}");
                    at.push(to);
                    held[to as usize] += step.bytes;
                    assert!(
                        held[to as usize] <= most[to as usize] * (1.0 + 1e-9),
                        "{name}: machine {to} at step {number}"
                    );
                }
                _ => panic!("{name}: {:?}", step.action),
            }
        } else if begun[number] && !done[number] {
            done[number] = true;
            if let Action::Move {
                partition, from, ..
            } = step.action
            {
                let at = &mut holders[partition as usize];
                let place = at.iter().position(|node| *node == from);
                at.remove(place.expect("a replica that moves"));
                held[from as usize] -= step.bytes;
            }
        }
    }
}

/// A request for a replicated table and one without replicas, with some of the limits.
fn request(random: &mut Random) -> Value {
    let machines = 3 + random.below(5);
    let replicas = [2, 3, 5][random.below(3)].min(machines);
    let mut total = 0.0;
    let mut table = |replicas: usize| {
        let partitions = 2 + random.below(6);
        let home = (0..partitions).map(|_| homes(random, replicas, machines));
        let home: Vec<Vec<u32>> = home.collect();
        let existing: Vec<usize> = (0..partitions).map(|_| random.below(300)).collect();
        let samples: Vec<usize> = (0..50 + random.below(50))
            .map(|_| random.below(partitions * 100))
            .collect();
        let new = random.below(3000);
        total += (existing.iter().sum::<usize>() + new) as f64 * replicas as f64;
        let boundaries: Vec<usize> = (1..partitions).map(|at| at * 100).collect();
        json!({"boundaries": boundaries, "home": home, "existing": existing,
            "new_samples": samples, "new_records": new})
    };
    let tables = [table(replicas), table(1)];
    let move_price = [0.1, 1.0][random.below(2)];
    let drained = (random.below(3) == 0).then(|| random.below(machines));
    let kept = machines - usize::from(drained.is_some());
    let machine = |index: usize| json!({"drain": drained == Some(index)});
    let mut request = json!({
        "machines": (0..machines).map(machine).collect::<Vec<_>>(),
        "tables": tables, "move_price": move_price,
    });
    if random.below(2) == 0 {
        request["storage_bytes"] = json!(total / kept as f64 * (1.2 + random.unit()) + 200.0);
    }
    if random.below(4) == 0 {
        request["max_moved_bytes"] = json!(random.below(3000));
    }
    if random.below(2) == 0 {
        request["pi"] = json!(200 + random.below(400));
    }
    request
}

#[test]
fn every_step_of_random_plans_keeps_siblings_apart() {
    let (mut plans, mut moves, cases) = (0, 0, 60);
    for seed in 0..cases {
        let random = &mut Random::new(seed);
        let request = request(random);
        let name = format!("seed {seed}");
        let planned = match planned(&request) {
            Ok(planned) => planned,
            Err(error) => {
                let known = ["max_moved_bytes", "storage_bytes", "drain"];
                assert!(
                    known.iter().any(|field| error.path.ends_with(field)),
                    "{name}: {error}"
                );
                continue;
            }
        };
        let own = &planned.own;
        (plans, moves) = (plans + 1, moves + own.moves.len());
        let room = request["storage_bytes"].as_f64().unwrap_or(f64::INFINITY);
        for _ in 0..8 {
            walk(&own.map, &own.plan, room, random, &name);
        }
        let end = own.plan.simulate(own.map.clone()).expect("a plan");
        for (partition, to) in end.partitions.iter().zip(&own.dest) {
            assert_eq!(partition.replicas, to.machines(), "{name}");
            let mut distinct = partition.replicas.clone();
            distinct.sort_unstable();
            distinct.dedup();
            assert_eq!(distinct.len(), partition.replicas.len(), "{name}");
            for (machine, spec) in request["machines"]
                .as_array()
                .into_iter()
                .flatten()
                .enumerate()
            {
                let drained = spec["drain"] == json!(true);
                assert!(!drained || !distinct.contains(&(machine as u32)), "{name}");
            }
        }
        let expanded = own.plan.expanded(own.map.clone()).expect("its parts");
        let parts = expanded.simulate(own.map.clone()).expect("its parts");
        let sets = |map: &PartitionMap| -> Vec<(u32, Vec<u32>)> {
            let sorted = map.partitions.iter().map(|partition| {
                let mut all = partition.replicas.clone();
                all.sort_unstable();
                (partition.replicas[0], all)
            });
            sorted.collect()
        };
        assert_eq!(sets(&parts), sets(&end), "{name}");
        let price: f64 = own.plan.price.nodes.iter().map(|node| node.moved_in).sum();
        let carried: f64 = own.plan.steps.iter().map(|step| step.bytes_carried()).sum();
        assert!((price - carried).abs() <= 1e-6, "{name}: {price} {carried}");
        assert!(own.lower_bound <= own.cost, "{name}");
    }
    println!("{plans} plans of {cases} requests, {moves} moves");
    assert!(
        plans > cases / 2 && moves > 100,
        "{plans} plans, {moves} moves"
    );
}

#[test]
fn a_replica_that_moves_takes_the_place_of_the_one_it_replaces() {
    let homes = json!([[1, 0, 2], [2, 1, 0], [0, 1, 2], [2, 0, 1]]);
    let request = json!({"machines": 4, "move_price": 0.1, "tables": [
        {"name": "t", "boundaries": [10, 20, 30], "home": homes, "existing": [10, 10, 10, 10],
         "new_samples": [1, 11, 21, 31], "new_records": 400},
        {"name": "one", "boundaries": [], "home": [3]},
    ]});
    let out = serde_json::to_value(planned(&request).expect("a plan")).expect("JSON");
    let dest = out["dest"].as_array().expect("a list");
    assert_eq!(dest[4], json!(3));
    assert_eq!(out["cost_no_moves"], json!(400.0));
    // Machine 3 takes one from each of the others, all of different partitions.
    let moves = out["moves"].as_array().expect("moves");
    assert_eq!(moves.len(), 3, "{moves:?}");
    assert_eq!(
        (&out["s_max"], &out["o_max"]),
        (&json!(300.0), &json!(30.0))
    );
    for at in moves {
        let partition = at["partition"].as_u64().expect("a number") as usize;
        let home = homes[partition].as_array().expect("a list");
        let place = home.iter().position(|machine| *machine == at["from"]);
        let mut expected = home.clone();
        expected[place.expect("a home")] = at["to"].clone();
        assert_eq!(dest[partition], json!(expected));
    }
}

#[test]
fn a_list_of_one_stays_a_list_and_pieces_name_all_homes() {
    let request = json!({"machines": 3, "pi": 60, "tables": [
        {"boundaries": [], "home": [[2]], "new_samples": [1, 2, 3, 4, 5, 6], "new_records": 90},
        {"boundaries": [], "home": [[0, 1]], "new_samples": [1, 2, 3, 4, 5, 6], "new_records": 90},
    ]});
    let out = planned(&request).expect("a plan");
    let homes = |of: u32| out.partitions.iter().filter(move |piece| piece.of == of);
    assert!(homes(0).all(|piece| piece.h == Holders::Each(vec![2])));
    assert!(homes(1).all(|piece| piece.h == Holders::Each(vec![0, 1])));
    assert!(homes(0).count() > 1 && homes(1).count() > 1);
    let lists = out.own.dest.iter().all(|to| matches!(to, Holders::Each(_)));
    assert!(lists);
    let inserted: f64 = out
        .own
        .plan
        .price
        .nodes
        .iter()
        .map(|n| n.insert_after)
        .sum();
    assert!((inserted - 270.0).abs() < 1e-9, "{inserted}");
}

#[test]
fn replicas_that_fit_nowhere_are_refused_and_those_everywhere_stay() {
    let table = json!({"boundaries": [], "home": [[0, 1, 2]], "existing": [10],
        "new_samples": [5], "new_records": 100});
    let request = |machines: Value| json!({"machines": machines, "tables": [table]});
    let error = planned(&request(json!([{"drain": true}, {}, {}]))).expect_err("nowhere to go");
    assert_eq!(error.path, "machines[0].drain");
    assert!(error.problem.contains("no replica of it"), "{error}");
    let all = planned(&request(json!(3))).expect("a plan");
    assert!(all.own.moves.is_empty());
    assert!(all.own.lower_bound >= all.own.cost * (1.0 - 1e-6));
    let drained = planned(&request(json!([{"drain": true}, {}, {}, {}]))).expect("a plan");
    assert_eq!(drained.own.dest, [Holders::Each(vec![3, 1, 2])]);
    let full = json!([{"drain": true}, {}, {}, {"storage_bytes": 100}]);
    let error = planned(&request(full)).expect_err("no room");
    assert_eq!(error.path, "machines[3].storage_bytes");
    let read: Request = read(request(json!(4)).to_string().as_bytes()).expect("a request");
    let error = plan(&read, Mode::Paper, &mut || false).expect_err("no replicas in the paper");
    assert_eq!(error.path, "input");
    assert!(error.problem.contains("replicas"), "{error}");
}

#[test]
fn further_regions_have_replicas_of_their_own() {
    let request = json!({"machines": 4, "move_price": 0.01, "tables": [
        {"boundaries": [10], "home": [[0, 1], [0, 1]], "existing": [10, 10],
         "new_samples": [1, 11], "new_records": 200}],
        "regions": [{"name": "west", "machines": 6, "homes": [[[0, 1, 2], [0, 1, 2]]]}]});
    let out = planned(&request).expect("a plan");
    let west = &out.regions[0];
    assert!(out.own.dest.iter().all(|to| to.machines().len() == 2));
    assert!(west.dest.iter().all(|to| to.machines().len() == 3));
    for region in [&out.own, west] {
        assert_eq!(region.s_max, 100.0);
        region.plan.validate(&region.map).expect("a plan");
    }
}

#[test]
fn requests_are_made_by_code() {
    let table = TableSpec {
        name: Some("t".to_owned()),
        boundaries: vec![Key::from_bytes(vec![0xff])],
        home: vec![Holders::from(vec![0, 1, 2]), vec![0, 1, 2].into()],
        existing: Some(vec![5.0, 5.0]),
        new_samples: vec![Key::Text("a".to_owned()), Key::Bytes(vec![0xff, 0])],
        new_records: Some(100.0),
        ..TableSpec::default()
    };
    let request = Request {
        move_price: 0.5,
        ..Request::of_tables(vec![MachineSpec::default(); 6], vec![table])
    };
    let out = polished(&request).expect("a plan");
    assert_eq!(out.own.dest.len(), 2);
    assert!(out.own.cost < out.own.cost_no_moves);
    // Homes made by code are checked, too.
    let mut wrong = request.clone();
    wrong.tables.as_mut().expect("tables")[0].home[1] = Holders::Each(vec![]);
    assert_eq!(
        polished(&wrong).expect_err("nowhere").path,
        "tables[0].home[1]"
    );
    let without = Request::of_tables(vec![], request.tables.clone().expect("tables"));
    assert_eq!(
        polished(&without).expect_err("no machines").path,
        "machines"
    );
}
