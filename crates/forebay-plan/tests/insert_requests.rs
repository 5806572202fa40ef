//! Tests of requests as people write them: refusals with their paths, and results.

use forebay_plan::input::read;
use forebay_plan::insert::{InsertPlan, Mode, Request, plan};
use forebay_plan::{InputError, Key};
use serde_json::{Value, json};

fn planned(request: &Value) -> Result<InsertPlan, InputError> {
    let request: Request = read(request.to_string().as_bytes())?;
    plan(&request, Mode::Fast, &mut || false)
}

fn good(request: &Value) -> InsertPlan {
    planned(request).unwrap_or_else(|error| panic!("{request}: {error}"))
}

#[test]
fn the_smallest_request_gives_the_fields_that_others_rely_on() {
    let request = json!({"machines": 2, "partitions": [
        {"e": 10, "n": 100, "h": 0}, {"e": 5, "n": 100, "h": 0}, {"e": 1000, "n": 0, "h": 1},
    ]});
    let out = serde_json::to_value(good(&request)).expect("JSON");
    assert_eq!(out["dest"], json!([0, 1, 1]));
    assert_eq!(out["moves"], json!([{"partition": 1, "from": 0, "to": 1}]));
    for (field, value) in [
        ("cost", 105.0),
        ("cost_no_moves", 200.0),
        ("s_max", 100.0),
        ("o_max", 5.0),
    ] {
        assert_eq!(out[field], json!(value), "{field}");
    }
    let bound = out["lower_bound"].as_f64().expect("a bound");
    assert!(bound > 100.0 && bound <= 105.0, "{bound}");
    let step =
        json!({"do": "move", "partition": 1, "from": 0, "to": 1, "records": 5.0, "bytes": 5.0});
    assert_eq!(out["plan"]["steps"], json!([step]));
}

#[test]
fn wrong_requests_are_refused_at_the_field() {
    let part = json!({"e": 1, "n": 1, "h": 0});
    let table = json!({"boundaries": [5], "home": [0, 1], "new_samples": [1, 7]});
    let tables = |field: &str, value: Value| {
        let mut table = table.clone();
        table[field] = value;
        json!({"machines": 2, "tables": [table]})
    };
    let with = |fields: Value| {
        let mut table = table.clone();
        for (field, value) in fields.as_object().expect("fields") {
            table[field] = value.clone();
        }
        json!({"machines": 2, "tables": [table]})
    };
    for (request, path) in [
        (
            json!({"machines": 2, "partitions": [part, [1, 1, 0]]}),
            "partitions[1]",
        ),
        (
            json!({"machines": [{}, []], "partitions": [part]}),
            "machines[1]",
        ),
        (
            json!({"machines": [{"insert_load": 1e308}, {"insert_load": 1e308}], "partitions": [part]}),
            "input",
        ),
        (
            json!({"machines": 2, "pi": 1, "partitions": vec![json!({"e": 4e7, "n": 1, "h": 0}); 9]}),
            "pi",
        ),
        (
            json!({"machines": 2, "pi": 1, "partitions": vec![json!({"e": 4e6, "n": 1, "h": 0}); 2]}),
            "pi",
        ),
        (
            json!({"machines": 2, "partitions": [part, {"e": -1, "n": 1, "h": 0}]}),
            "partitions[1].e",
        ),
        (
            json!({"machines": 2, "partitions": [{"e": 1, "n": -0.5, "h": 0}]}),
            "partitions[0].n",
        ),
        (
            json!({"machines": 2, "partitions": [{"e": 1, "n": 1, "h": 2}]}),
            "partitions[0].h",
        ),
        (
            json!({"machines": 2, "partitions": [{"e": 1, "n": 1, "h": -1}]}),
            "partitions[0].h",
        ),
        (
            json!({"machines": 2, "partitions": [{"e": 1, "n": 1, "h": 0.5}]}),
            "partitions[0].h",
        ),
        (
            json!({"machines": 2, "partitions": [{"e": 1, "n": 1, "h": 0, "x": 1}]}),
            "partitions[0].x",
        ),
        (json!({"machines": 0, "partitions": [part]}), "machines"),
        (json!({"machines": -3, "partitions": [part]}), "machines"),
        (json!({"machines": 1.5, "partitions": [part]}), "machines"),
        (json!({"machines": [], "partitions": [part]}), "machines"),
        (
            json!({"machines": [{"capacity": 0}], "partitions": [part]}),
            "machines[0].capacity",
        ),
        (
            json!({"machines": [{"speed": 1}], "partitions": [part]}),
            "machines[0].speed",
        ),
        (json!({"machines": 1, "partitions": [part], "pi": 0}), "pi"),
        (
            json!({"machines": 1, "partitions": [part], "pi": 5, "pi_bytes": 5}),
            "pi_bytes",
        ),
        (
            json!({"machines": 1, "partitions": [part], "fill": 1.5}),
            "fill",
        ),
        (
            json!({"machines": 1, "partitions": [part], "move_price": -1}),
            "move_price",
        ),
        (
            json!({"machines": 1, "partitions": [part], "max_transfers": 0}),
            "max_transfers",
        ),
        (
            json!({"machines": 1, "partitions": [part], "operation": "upsert"}),
            "operation",
        ),
        (
            json!({"machines": 1, "partitions": [part], "colour": 1}),
            "colour",
        ),
        (json!({"machines": 1}), "input"),
        (json!({"partitions": [part]}), "input"),
        (
            json!({"machines": 1, "partitions": [part], "tables": []}),
            "input",
        ),
        (
            json!({"machines": 1, "partitions": [{"e": 1, "n": 1e308, "h": 0}], "record_price": 9}),
            "input",
        ),
        (
            json!({"machines": 1, "partitions": [{"e": 1, "n": 2, "h": 0}], "operation": "delete"}),
            "partitions[0].n",
        ),
        (tables("home", json!([0, 2])), "tables[0].home[1]"),
        (tables("home", json!([])), "tables[0].home"),
        (
            tables("boundaries", json!([5, 6, 7, 8])),
            "tables[0].boundaries",
        ),
        (
            tables("boundaries", json!([5, 5])),
            "tables[0].boundaries[1]",
        ),
        (
            tables("new_samples", json!([1, "b"])),
            "tables[0].new_samples[1]",
        ),
        (
            tables("new_samples", json!([1, null])),
            "tables[0].new_samples[1]",
        ),
        (
            tables("sample_fraction", json!(0)),
            "tables[0].sample_fraction",
        ),
        (tables("new_fraction", json!(1.5)), "tables[0].new_fraction"),
        (tables("record_bytes", json!(0)), "tables[0].record_bytes"),
        (
            tables("home", json!([[0, 1], [0, 2]])),
            "tables[0].home[1][1]",
        ),
        (tables("home", json!([[0], [1, 1]])), "tables[0].home[1][1]"),
        (tables("home", json!([[0, 1], [1]])), "tables[0].home[1]"),
        (tables("home", json!([[0, 1], 1])), "tables[0].home[1]"),
        (tables("home", json!([[], [1]])), "tables[0].home[0]"),
        (tables("home", json!([0, "a"])), "tables[0].home[1]"),
        (
            tables("home", json!([[0, -1], [1, 0]])),
            "tables[0].home[0][1]",
        ),
        (
            tables("home", json!([[0, 1.5], [1, 0]])),
            "tables[0].home[0][1]",
        ),
        (
            tables("home", json!([5_000_000_000u64, 1])),
            "tables[0].home[0]",
        ),
        (
            json!({"machines": 40, "partitions": [
                {"e": 1, "n": 1, "h": (0..33).collect::<Vec<_>>()}]}),
            "partitions[0].h",
        ),
        (
            json!({"machines": 2, "partitions": [{"e": 1, "n": 1, "h": [0, 2]}]}),
            "partitions[0].h[1]",
        ),
        (
            json!({"machines": 2, "partitions": [{"e": 1, "n": 1, "h": []}]}),
            "partitions[0].h",
        ),
        (tables("existing", json!([5])), "tables[0].existing"),
        (tables("existing", json!([5, -1])), "tables[0].existing[1]"),
        (tables("existing", json!([5, "a"])), "tables[0].existing[1]"),
        (tables("new_records", json!(-1)), "tables[0].new_records"),
        (
            json!({"machines": 1, "tables": [{"boundaries": [], "home": [0], "new_records": 5}]}),
            "tables[0].new_records",
        ),
        (
            with(json!({"existing": [1, 1], "existing_fraction": 0.5})),
            "tables[0].existing_fraction",
        ),
        (
            with(json!({"new_records": 10, "new_fraction": 0.5})),
            "tables[0].new_fraction",
        ),
        (
            with(json!({"new_records": 10, "existing": [1, 1], "sample_fraction": 0.5})),
            "tables[0].sample_fraction",
        ),
        (
            tables("boundaries", json!([{"key_hex": "0"}])),
            "tables[0].boundaries[0].key_hex",
        ),
        (
            tables("boundaries", json!([{"hex": "00"}])),
            "tables[0].boundaries[0].hex",
        ),
        (
            tables("new_samples", json!([1, {"key_hex": "ff"}])),
            "tables[0].new_samples[1]",
        ),
    ] {
        let error = planned(&request).expect_err(&request.to_string());
        assert_eq!(error.path, path, "{request}: {error}");
    }
    let region = json!({"machines": 2, "partitions": [part],
        "regions": [{"name": "w", "machines": 1, "homes": [[1]]}]});
    assert_eq!(
        planned(&region).expect_err("no machine 1").path,
        "regions[0].homes[0][0]"
    );
    let region = json!({"machines": 2, "partitions": [part],
        "regions": [{"name": "w", "machines": 1, "homes": [[0, 0]]}]});
    assert_eq!(
        planned(&region).expect_err("two homes").path,
        "regions[0].homes"
    );
    let region = json!({"machines": 2, "partitions": [part],
        "regions": [{"name": "w", "machines": 2, "homes": [[[0, 0]]]}]});
    assert_eq!(
        planned(&region).expect_err("twice on a machine").path,
        "regions[0].homes[0][0][1]"
    );
}

#[test]
fn an_empty_table_is_split_for_all_machines() {
    let samples: Vec<u32> = (0..2000).map(|k| k * 7).collect();
    let out = good(&json!({"machines": 4, "pi": 30_000, "tables": [
        {"name": "t", "boundaries": [], "home": [2], "new_samples": samples, "sample_fraction": 0.01},
    ]}));
    assert!(out.partitions.len().is_multiple_of(4) && out.partitions.len() >= 8);
    assert_eq!(out.splits.len() + 1, out.partitions.len());
    assert!(
        out.partitions
            .iter()
            .all(|piece| piece.e == 0.0 && piece.n <= 30_000.0)
    );
    assert!(out.oversize.is_empty());
    assert_eq!(out.own.o_max, 0.0);
    assert!(out.own.s_max <= 51_000.0, "{}", out.own.s_max);
    out.own
        .plan
        .validate(&out.own.map)
        .expect("a plan that can be carried out");
}

#[test]
fn appended_ranges_move_without_existing_records() {
    let existing: Vec<String> = (0..500).map(|k| format!("2026-01-{k:04}")).collect();
    let new: Vec<String> = (0..500).map(|k| format!("2026-02-{k:04}")).collect();
    let out = good(&json!({"machines": 5, "pi": 200, "tables": [
        {"boundaries": ["2026-01-0250"], "home": [0, 1],
         "existing_samples": existing, "new_samples": new},
    ]}));
    let moved: f64 = out
        .own
        .plan
        .price
        .nodes
        .iter()
        .map(|node| node.moved_in)
        .sum();
    assert!(out.own.s_max <= 150.0, "{}", out.own.s_max);
    assert!(moved <= 100.0, "{moved}");
    let lows = out.partitions.iter().filter_map(|piece| piece.low.as_ref());
    assert!(lows.clone().count() > 5 && lows.clone().all(Key::is_text));
}

#[test]
fn boundaries_are_read_in_three_ways() {
    let of = |boundaries: Value| {
        let out = good(&json!({"machines": 2, "pi": 3, "tables": [
            {"boundaries": boundaries, "home": [0, 1], "new_samples": [1, 2, 3, 4, 11, 12, 13, 14]},
        ]}));
        serde_json::to_value(out.partitions).expect("JSON")
    };
    let inner = of(json!([10]));
    assert_eq!(of(json!([0, 10])), inner);
    assert_eq!(of(json!([0, 10, 20])), inner);
}

#[test]
fn one_hot_key_is_named_as_oversize() {
    let out = good(&json!({"machines": 2, "pi": 10, "tables": [
        {"boundaries": [], "home": [0], "new_samples": vec![5; 100]},
    ]}));
    assert_eq!(out.oversize, [0]);
    assert!(out.splits.is_empty());
}

#[test]
fn tables_and_their_indexes_are_one_pool() {
    let out = good(&json!({"machines": 2, "tables": [
        {"name": "t", "boundaries": [50], "home": [0, 0], "new_samples": [10, 20]},
        {"name": "t by city", "boundaries": ["m"], "home": [0, 0], "new_samples": ["a", "z"]},
    ]}));
    assert_eq!(out.own.dest.len(), 4);
    assert_eq!(out.own.s_max, 2.0);
}

#[test]
fn a_limit_in_bytes_is_of_each_tables_own_records() {
    let keys: Vec<u32> = (0..1000).collect();
    let table = |bytes: u32| {
        json!({"boundaries": [], "home": [0], "existing": [0], "new_samples": keys,
               "new_records": 1000, "record_bytes": bytes})
    };
    let plan = |record_bytes, tables: Value| {
        good(
            &json!({"machines": 1, "tables": tables, "pi_bytes": 50_000, "record_bytes": record_bytes}),
        )
    };
    let of = |plan: &InsertPlan, table: &str| {
        let pieces = plan.partitions.iter();
        pieces
            .filter(|piece| piece.table.as_deref() == Some(table))
            .count()
    };
    // 10 kB and 190 kB; of mean records both would have 100 kB.
    let pool = plan(100, json!([table(10), table(190)]));
    assert_eq!(of(&pool, "table 0"), 1);
    assert!((4..=8).contains(&of(&pool, "table 1")));
    let alone = plan(1, json!([table(190)]));
    assert_eq!(of(&alone, "table 0"), of(&pool, "table 1"));
}

#[test]
fn updates_and_deletes_do_not_split_and_have_their_prices() {
    let request = |operation: &str| {
        json!({"machines": 2, "operation": operation, "pi": 10, "partitions": [
            {"e": 100, "n": 40, "h": 0}, {"e": 100, "n": 40, "h": 0},
        ]})
    };
    assert!(!good(&request("insert")).splits.is_empty());
    let update = good(&request("update"));
    assert!(update.splits.is_empty());
    assert_eq!(update.own.cost_no_moves, 80.0);
    assert_eq!(good(&request("delete")).own.cost_no_moves, 20.0);
}

#[test]
fn drained_machines_take_nothing_and_fixed_ones_give_nothing() {
    let parts = json!([
        {"e": 1, "n": 90, "h": 0}, {"e": 1, "n": 90, "h": 0}, {"e": 1, "n": 90, "h": 1},
    ]);
    let out = good(&json!({"machines": [{}, {}, {"takes": false}, {}], "partitions": parts}));
    let dest = &out.own.dest;
    assert!(!dest.contains(&2.into()) && dest.contains(&3.into()));
    let out = good(&json!({"machines": [{"gives": false}, {}, {}, {}], "partitions": parts}));
    assert_eq!(out.own.dest[..2], [0.into(), 0.into()]);
}

#[test]
fn faster_machines_and_running_inserts_count() {
    let part = json!({"e": 0, "n": 100, "h": 0});
    let parts = vec![part; 8];
    let out = good(&json!({"machines": [{"capacity": 3}, {"capacity": 1}], "partitions": parts}));
    assert_eq!(out.own.s_max, 200.0);
    let out = good(&json!({"machines": [{}, {"insert_load": 600}], "partitions": parts}));
    assert_eq!(out.own.s_max, 700.0);
    let running = json!({"e": 0, "n": 100, "h": 0, "running": 200});
    let out = good(&json!({"machines": 1, "partitions": [running]}));
    assert_eq!(out.own.s_max, 300.0);
}

/// HBase hands a region over and copies nothing: moves cost the same for any content.
#[test]
fn a_move_can_cost_its_hand_over() {
    let request = json!({"machines": 2, "move_price": 0, "handover_price": 10, "partitions": [
        {"e": 1e9, "n": 100, "h": 0}, {"e": 1e9, "n": 100, "h": 0}, {"e": 5, "n": 5, "h": 0},
    ]});
    let out = good(&request);
    assert_eq!(out.own.moves.len(), 1);
    assert_eq!(out.own.cost, 115.0);
}

#[test]
fn durations_come_from_the_bandwidths() {
    let request = json!({"machines": 2, "bytes_per_second": 100, "records_per_second": 10,
        "record_bytes": 50, "partitions": [{"e": 10, "n": 100, "h": 0}, {"e": 10, "n": 100, "h": 0}]});
    let out = good(&request);
    assert_eq!(out.own.plan.duration_seconds, Some(5.0 + 10.0));
}

#[test]
fn hot_ranges_are_split_until_the_plan_is_near_its_bound() {
    // A month's range receives nearly everything, and the machines are of unlike load.
    let machines = 5;
    let loads: Vec<Value> = (0..machines)
        .map(|machine| json!({"insert_load": 3_000 * machine}))
        .collect();
    let request = json!({"machines": loads, "pi": 60_000, "partitions": [
        {"e": 1_000, "n": 100_000, "h": 0}, {"e": 40_000, "n": 500, "h": machines - 1},
    ]});
    let out = good(&request);
    let gap = out.own.cost / out.own.lower_bound;
    assert!(gap <= 1.02, "{gap}");
    let pieces = out.partitions.iter().filter(|piece| piece.of == 0).count();
    assert_eq!(pieces % machines, 0, "{pieces} pieces");
    assert!(pieces <= 32 * machines, "{pieces} pieces");
    // Even machines need no more pieces than one each.
    let even = json!({"machines": 4, "pi": 60_000, "partitions": [{"e": 0, "n": 100_000, "h": 0}]});
    assert_eq!(good(&even).partitions.len(), 4);
}
