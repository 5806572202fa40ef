//! Tables planned from samples: counts of partitions, totals of new records, keys of bytes.

use forebay_plan::insert::{Holders, InsertPlan, MachineSpec, Mode, Request, TableSpec, plan};
use forebay_plan::{Key, Random};

/// A plan for one table on four machines.
fn planned(pi: f64, table: TableSpec) -> InsertPlan {
    let request = Request {
        pi: Some(pi),
        ..Request::of_tables(vec![MachineSpec::default(); 4], vec![table])
    };
    plan(&request, Mode::Fast, &mut || false).expect("a plan")
}

fn numbers(keys: impl IntoIterator<Item = u64>) -> Vec<Key> {
    keys.into_iter()
        .map(|key| Key::Integer(key.into()))
        .collect()
}

fn on(partitions: usize) -> Vec<Holders> {
    (0..partitions)
        .map(|at| Holders::One(at as u32 % 4))
        .collect()
}

#[test]
fn existing_samples_share_their_partitions_records() {
    let out = planned(
        1000.0,
        TableSpec {
            boundaries: numbers([100]),
            home: on(2),
            existing: Some(vec![1500.0, 40.0]),
            existing_samples: numbers([10, 20, 30, 40, 50, 60, 110]),
            new_samples: numbers([150]),
            new_records: Some(60.0),
            ..TableSpec::default()
        },
    );
    // Six samples of 250 records each.
    let of_first = out.partitions.iter().filter(|piece| piece.of == 0);
    let e: Vec<f64> = of_first.map(|piece| piece.e).collect();
    assert_eq!(e.iter().sum::<f64>(), 1500.0);
    assert!(
        e.len() > 1 && e.iter().all(|e| e % 250.0 == 0.0 && *e <= 1000.0),
        "{e:?}"
    );
    let other = &out.partitions[1];
    assert_eq!((other.e, other.n), (40.0, 60.0));
}

#[test]
fn existing_records_without_samples_lie_as_the_new_ones_do() {
    let table = TableSpec {
        boundaries: vec![],
        home: on(1),
        existing: Some(vec![3000.0]),
        new_samples: numbers((0..100).chain(1000..1100)),
        new_records: Some(2000.0),
        ..TableSpec::default()
    };
    let out = planned(2000.0, table.clone());
    assert!(out.partitions.len() > 2 && out.oversize.is_empty());
    for piece in &out.partitions {
        assert!(
            (piece.e - 1.5 * piece.n).abs() < 1e-6,
            "{} {}",
            piece.e,
            piece.n
        );
    }
    let e: f64 = out.partitions.iter().map(|piece| piece.e).sum();
    assert!((e - 3000.0).abs() < 1e-6, "{e}");
    // Without any samples the planner does not know where to split.
    let blind = TableSpec {
        new_samples: vec![],
        new_records: None,
        ..table
    };
    let out = planned(2000.0, blind);
    assert_eq!((out.splits.len(), out.oversize), (0, vec![0]));
    assert_eq!(out.own.plan.price.nodes[0].before, 3000.0);
}

#[test]
fn new_records_are_shared_by_the_new_samples_of_all_partitions() {
    let out = planned(
        1e9,
        TableSpec {
            boundaries: numbers([100]),
            home: on(2),
            sample_fraction: Some(0.5),
            existing_samples: numbers([1, 2, 3]),
            new_samples: numbers([1, 150, 151, 152]),
            new_records: Some(1000.0),
            ..TableSpec::default()
        },
    );
    let nodes = &out.own.plan.price.nodes;
    assert_eq!((nodes[0].before, nodes[0].insert_before), (6.0, 250.0));
    assert_eq!((nodes[1].before, nodes[1].insert_before), (0.0, 750.0));
}

/// A few quantiles of existing records do not make pieces small if there are many new samples.
#[test]
fn quantiles_of_existing_records_leave_pieces_large_and_within_the_limit() {
    let seed = 5;
    let random = &mut Random::new(seed);
    let (existing, new) = (900_000, 300_000);
    let mut old: Vec<u64> = (0..existing).map(|_| random.next_u64() >> 30).collect();
    let mut fresh: Vec<u64> = (0..new).map(|_| random.next_u64() >> 30).collect();
    old.sort_unstable();
    fresh.sort_unstable();
    let quantiles = (0..15).map(|at| old[(2 * at + 1) * existing / 30]);
    // Most new records go elsewhere, so this range is not a hot one.
    let (end, elsewhere) = (1 << 40, 400_000);
    let sampled: Vec<u64> = fresh
        .iter()
        .copied()
        .filter(|_| random.below(100) == 0)
        .collect();
    let out = planned(
        1_000_000.0,
        TableSpec {
            boundaries: numbers([end]),
            home: on(2),
            existing: Some(vec![existing as f64, 0.0]),
            existing_samples: numbers(quantiles),
            new_samples: numbers(sampled.into_iter().chain(end..end + elsewhere / 100)),
            new_records: Some(new as f64 + elsewhere as f64),
            ..TableSpec::default()
        },
    );
    let pieces: Vec<_> = out
        .partitions
        .iter()
        .filter(|piece| piece.of == 0)
        .collect();
    assert_eq!(pieces.len(), 2, "seed {seed}");
    let below = |keys: &[u64], at: &Option<Key>| {
        let is_below = |key: &u64| at.as_ref().is_none_or(|at| numbers([*key])[0] < *at);
        keys.partition_point(is_below)
    };
    let mut start = 0;
    for piece in pieces {
        let end = below(&old, &piece.high) + below(&fresh, &piece.high);
        assert!(end - start <= 1_000_000, "seed {seed}: {}", end - start);
        start = end;
    }
}

/// The records that a plan moves exist: pieces between two marks are not empty.
#[test]
fn pieces_between_marks_have_the_records_that_lie_there() {
    for seed in 0..5 {
        let random = &mut Random::new(seed);
        let (each, marks, width) = (50_000, 16, 1_u64 << 40);
        let mut old: Vec<u64> = (0..4 * each).map(|_| random.next_u64() >> 22).collect();
        old.sort_unstable();
        // The partitions' keys are those up to multiples of the width.
        let of = |partition: u64| {
            let (low, high) = (partition * width, (partition + 1) * width);
            let place = |end: u64| old.partition_point(|key| *key < end);
            &old[place(low)..place(high)]
        };
        let quantiles = (0..4).flat_map(|partition: u64| {
            let keys = of(partition);
            let marks = (1..marks).map(|at| keys[at * keys.len() / marks]);
            std::iter::once(partition * width).chain(marks)
        });
        // All new records lie in a third of the second partition.
        let third = width / 3;
        let new = (0..2000).map(|_| width + third + random.below(third as usize) as u64);
        let out = planned(
            30_000.0,
            TableSpec {
                boundaries: numbers([width, 2 * width, 3 * width]),
                home: on(4),
                existing: Some((0..4).map(|at| of(at).len() as f64).collect()),
                existing_samples: numbers(quantiles),
                new_samples: numbers(new),
                new_records: Some(200_000.0),
                ..TableSpec::default()
            },
        );
        let moved: Vec<u32> = out.own.moves.iter().map(|moved| moved.partition).collect();
        let (mut claimed, mut real) = (0.0, 0.0);
        for piece in out
            .partitions
            .iter()
            .filter(|piece| moved.contains(&piece.id))
        {
            let end = |key: &Option<Key>, open: usize| match key {
                Some(Key::Integer(key)) => old.partition_point(|old| i128::from(*old) < *key),
                _ => open,
            };
            claimed += piece.e;
            real += (end(&piece.high, old.len()) - end(&piece.low, 0)) as f64;
        }
        assert!(
            moved.len() > 1 && real > 1000.0,
            "seed {seed}: {moved:?} {real}"
        );
        let off = (claimed - real).abs() / real;
        assert!(
            off < 0.05,
            "seed {seed}: {claimed} is claimed, and {real} are moved"
        );
    }
}

#[test]
fn bytes_are_keys_beside_strings() {
    let bytes = |byte: u8| Key::from_bytes(vec![byte, 0]);
    let out = planned(
        100.0,
        TableSpec {
            boundaries: vec![Key::Text("m".to_owned())],
            home: on(2),
            new_samples: (0..=255).map(bytes).collect(),
            ..TableSpec::default()
        },
    );
    assert_eq!(out.own.plan.price.nodes.len(), 4);
    assert_eq!(
        out.partitions.iter().map(|piece| piece.n).sum::<f64>(),
        256.0
    );
    let lows = out.partitions.iter().filter_map(|piece| piece.low.as_ref());
    assert!(lows.clone().any(|low| matches!(low, Key::Bytes(_))));
    out.own.plan.validate(&out.own.map).expect("a plan");
    let json = serde_json::to_string(&out).expect("JSON");
    assert!(json.contains(r#"{"key_hex":""#), "{json}");
}

#[test]
fn pieces_with_equal_homes_are_joined_on_request() {
    for (seed, replicas) in [(1, 1), (2, 1), (3, 3)] {
        let mut random = Random::new(seed);
        let home = |at: u32| Holders::Each((0..replicas).map(|place| (at + place) % 5).collect());
        let table = TableSpec {
            boundaries: numbers((1..10).map(|at| at * 1000)),
            home: (0..10).map(home).collect(),
            existing: Some(vec![500.0; 10]),
            existing_samples: numbers((0..150).map(|at| at * 66)),
            // Most new records lie in the fourth partition.
            new_samples: numbers((0..2000).map(|_| 3000 + random.below(1100) as u64)),
            new_records: Some(20_000.0),
            ..TableSpec::default()
        };
        let request = |joins| Request {
            pi: Some(1000.0),
            handover_price: 20.0,
            joins,
            ..Request::of_tables(vec![MachineSpec::default(); 5], vec![table.clone()])
        };
        let made = |joins| plan(&request(joins), Mode::Fast, &mut || false).expect("a plan");
        let (fine, joined) = (made(false), made(true));
        assert!(joined.splits.len() < fine.splits.len(), "seed {seed}");
        assert!(joined.own.cost <= fine.own.cost && joined.oversize.is_empty());
        assert_eq!(joined.partitions.len(), 10 + joined.splits.len());
        joined.own.plan.validate(&joined.own.map).expect("a plan");
        let end = joined
            .own
            .plan
            .simulate(joined.own.map.clone())
            .expect("steps");
        assert!(!joined.own.moves.is_empty() && end.partitions.len() == joined.partitions.len());
        let sum = |made: &InsertPlan| -> (f64, f64) {
            let pieces = made.partitions.iter();
            pieces.fold((0.0, 0.0), |sum, piece| (sum.0 + piece.e, sum.1 + piece.n))
        };
        let ((e, n), (of_fine, new_of_fine)) = (sum(&joined), sum(&fine));
        assert!((e - of_fine).abs() < 1e-6 && (n - new_of_fine).abs() < 1e-6);
        // Neighbours of one partition lie apart.
        let mut pieces: Vec<_> = joined.partitions.iter().collect();
        pieces.sort_by(|a, b| (a.of, &a.low).cmp(&(b.of, &b.low)));
        for pair in pieces.windows(2).filter(|pair| pair[0].of == pair[1].of) {
            let dest = |at: usize| &joined.own.dest[pair[at].id as usize];
            assert!(
                dest(0) != dest(1) && pair[0].high == pair[1].low,
                "seed {seed}"
            );
        }
    }
}
