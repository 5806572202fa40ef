//! Limits of insert plans: storage at every step, bytes moved, drained machines.

use forebay_plan::input::read;
use forebay_plan::insert::{InsertPlan, Mode, Request, plan};
use forebay_plan::{Action, InputError, Random};
use serde_json::{Value, json};

fn planned(request: &Value) -> Result<InsertPlan, InputError> {
    let request: Request = read(request.to_string().as_bytes())?;
    let mut asked = 0;
    plan(&request, Mode::Polish, &mut || {
        asked += 1;
        asked > 40
    })
}

/// A request with some of the limits, near to what can be kept.
fn request(random: &mut Random) -> Value {
    let machines = 2 + random.below(4);
    let mut total = 0;
    let parts: Vec<Value> = (0..5 + random.below(25))
        .map(|_| {
            let (e, n) = (random.below(300), random.below(300));
            total += e + n;
            json!({"e": e, "n": n, "h": random.below(machines)})
        })
        .collect();
    let drained = (random.below(2) == 0).then(|| random.below(machines));
    let kept = machines - usize::from(drained.is_some());
    let storage = total as f64 / kept as f64 * (1.1 + random.unit()) + 100.0;
    let machine = |index: usize| json!({"drain": drained == Some(index)});
    let mut request = json!({
        "machines": (0..machines).map(machine).collect::<Vec<_>>(),
        "partitions": parts, "record_bytes": 2,
    });
    if random.below(3) > 0 {
        request["storage_bytes"] = json!(2.0 * storage);
    }
    if random.below(3) == 0 {
        request["max_moved_bytes"] = json!(random.below(4_000));
    }
    if random.below(3) == 0 {
        request["pi"] = json!(200);
    }
    request
}

/// Does the steps in a random order that `after` allows, several at once, and checks the bytes on
/// every machine whenever one changes.
fn walk(request: &Value, planned: &InsertPlan, random: &mut Random, name: &str) {
    let region = &planned.own;
    let mut held = vec![0.0; region.machines];
    for partition in &region.map.partitions {
        held[partition.replicas[0] as usize] += partition.bytes;
    }
    let room = request["storage_bytes"].as_f64().unwrap_or(f64::INFINITY);
    let most: Vec<f64> = held.iter().map(|held: &f64| held.max(room)).collect();
    let steps = &region.plan.steps;
    let (mut begun, mut done) = (vec![false; steps.len()], vec![false; steps.len()]);
    let mut moved = 0.0;
    while done.contains(&false) {
        let step = random.below(steps.len());
        let may_begin = steps[step]
            .after
            .iter()
            .all(|&before| done[before as usize]);
        let ends = match steps[step].action {
            Action::Move { from, to, .. } => Some((from as usize, to as usize)),
            _ => None,
        };
        if !begun[step] && may_begin {
            begun[step] = true;
            if let Some((_, to)) = ends {
                held[to] += steps[step].bytes;
                moved += steps[step].bytes;
                assert!(
                    held[to] <= most[to] * (1.0 + 1e-9),
                    "{name}: machine {to} at step {step}: {held:?}"
                );
            }
        } else if begun[step] && !done[step] {
            done[step] = true;
            if let Some((from, _)) = ends {
                held[from] -= steps[step].bytes;
            }
        }
    }
    let limit = request["max_moved_bytes"].as_f64().unwrap_or(f64::INFINITY);
    assert!(
        moved <= limit * (1.0 + 1e-9),
        "{name}: {moved} bytes moved of {limit}"
    );
    for (machine, node) in region.plan.price.nodes.iter().enumerate() {
        let bytes = 2.0 * (node.after + node.insert_after);
        assert!(
            bytes <= room * (1.0 + 1e-9),
            "{name}: machine {machine} ends with {bytes} of {room}"
        );
        if request["machines"][machine]["drain"] == json!(true) {
            assert_eq!(bytes, 0.0, "{name}: machine {machine} is drained");
            let mut dest = region.dest.iter().flat_map(|to| to.machines());
            assert!(dest.all(|to| *to != machine as u32), "{name}");
        }
    }
}

#[test]
fn every_step_of_random_plans_keeps_every_limit() {
    let (mut plans, cases) = (0, 60);
    for seed in 0..cases {
        let random = &mut Random::new(seed);
        let request = request(random);
        match planned(&request) {
            Ok(planned) => {
                plans += 1;
                for _ in 0..8 {
                    walk(&request, &planned, random, &format!("seed {seed}"));
                }
                let own = &planned.own;
                assert!(own.lower_bound <= own.cost, "seed {seed}");
            }
            Err(error) => {
                let known = ["max_moved_bytes", "storage_bytes"];
                assert!(
                    known.iter().any(|field| error.path.ends_with(field)),
                    "seed {seed}: {error}"
                );
            }
        }
    }
    println!("{plans} plans of {cases} requests");
    assert!(plans > cases / 2, "{plans} plans of {cases} requests");
}

#[test]
fn full_machines_wait_for_room() {
    // Machine 0 has room for one copy only after its own partition has left.
    let request = json!({"machines": [{"storage_bytes": 120}, {"storage_bytes": 120}, {"storage_bytes": 300}],
        "partitions": [
            {"e": 100, "n": 0, "h": 0}, {"e": 90, "n": 25, "h": 1}, {"e": 20, "n": 90, "h": 1},
            {"e": 0, "n": 10, "h": 0}, {"e": 0, "n": 10, "h": 2},
    ]});
    let planned = planned(&request).expect("a plan");
    let nodes = &planned.own.plan.price.nodes;
    let ends: Vec<f64> = nodes
        .iter()
        .map(|node| node.after + node.insert_after)
        .collect();
    assert!(
        ends[0] <= 120.0 && ends[1] <= 120.0 && ends[2] <= 300.0,
        "{ends:?}"
    );
}

#[test]
fn a_cap_on_moved_bytes_keeps_the_most_useful_moves() {
    let part = |e: u32| json!({"e": e, "n": 100, "h": 0});
    let request = json!({"machines": 2, "max_moved_bytes": 30, "move_price": 0.1,
        "partitions": [part(40), part(10), part(20), part(35)]});
    let planned = planned(&request).expect("a plan");
    let moved: Vec<u32> = planned.own.moves.iter().map(|at| at.partition).collect();
    assert_eq!(moved, [1, 2]);
}

#[test]
fn limits_that_cannot_be_kept_are_refused_with_numbers() {
    let parts = json!([{"e": 50, "n": 70, "h": 0}, {"e": 50, "n": 0, "h": 1}]);
    let drain = json!([{"drain": true}, {}]);
    for (fields, path, words) in [
        (
            json!({"storage_bytes": 100}),
            "storage_bytes",
            "would hold 120 bytes of 100",
        ),
        (
            json!({"machines": drain, "max_moved_bytes": 20}),
            "max_moved_bytes",
            "moves 50 bytes of 20",
        ),
        (
            json!({"machines": [{"drain": true}, {"takes": false}]}),
            "machines[0].drain",
            "no other machine",
        ),
        (
            json!({"machines": [{"drain": true, "gives": false}, {}]}),
            "machines[0].drain",
            "gives nothing",
        ),
        (json!({"storage_bytes": 0}), "storage_bytes", "above 0"),
        (
            json!({"max_moved_bytes": -1}),
            "max_moved_bytes",
            "at least 0",
        ),
        (
            json!({"machines": [{}, {"storage_bytes": 45}]}),
            "machines[1].storage_bytes",
            "of 45",
        ),
    ] {
        let mut request = json!({"machines": 2, "partitions": parts});
        for (field, value) in fields.as_object().expect("fields") {
            request[field] = value.clone();
        }
        if path == "machines[1].storage_bytes" {
            request["partitions"][0]["pinned"] = json!(true);
            request["machines"][0]["storage_bytes"] = json!(140);
        }
        let error = planned(&request).expect_err(&request.to_string());
        assert_eq!(error.path, path, "{error}");
        assert!(error.problem.contains(words), "{error}");
    }
}
