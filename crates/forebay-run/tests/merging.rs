//! Merging many runs has the same result as a plain map with the algebra.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use crate::common::{ORDERS, PREFIX, sim_disk, sort_hash};
use forebay_io::sim::Rng;
use forebay_run::content::ContentSum;
use forebay_run::merge::{Merge, Resolve};
use forebay_run::operation::{CowOperation, DeltaKind, Operation};
use forebay_run::scan::{Cursor, Direction, ScanRange};
use forebay_run::settle::SettledCursor;
use forebay_run::times::Times;
use forebay_run::{Compression, Order, Run, RunOptions, RunScan, RunWriter};

type Runs = Vec<BTreeMap<(u64, Vec<u8>), CowOperation<'static>>>;

fn random_runs(rng: &mut Rng, order: Order, runs: usize, keys: u64) -> Runs {
    let operand = |rng: &mut Rng| (rng.below(1000) as i64).to_le_bytes();
    let operation = |rng: &mut Rng| {
        let (a, b) = (operand(rng), operand(rng));
        match rng.below(5) {
            0 => Operation::Update(&a),
            1 => Operation::Insert(&a),
            2 => Operation::Delete,
            3 => Operation::Delta(&a),
            _ => Operation::InsertDelta {
                value: &a,
                delta: &b,
            },
        }
        .with_times(match rng.below(4) {
            0 => Times::until(rng.below(20)),
            1 => Times {
                written_ms: rng.below(20),
                expires_ms: rng.below(20),
            },
            _ => Times::NONE,
        })
        .to_owned()
    };
    let mut out = Vec::new();
    for _ in 0..runs {
        let mut run = BTreeMap::new();
        for _ in 0..rng.below(keys) {
            // Some agree in their first eight bytes, some are shorter.
            let start = ["k", "long keys agree "][rng.below(2) as usize];
            let key = format!("{start}{}", rng.below(keys)).into_bytes();
            run.insert((sort_hash(order, &key), key), operation(rng));
        }
        out.push(run);
    }
    out
}

fn open(runs: &Runs, order: Order, direction: Direction) -> Vec<RunScan> {
    let (_, disk) = sim_disk();
    let scan = |(i, records): (usize, &BTreeMap<(u64, Vec<u8>), CowOperation<'static>>)| {
        let path = format!("/d/{i}.run");
        let options = RunOptions::new(order, Compression::None, PREFIX);
        let mut writer = RunWriter::create(&disk, Path::new(&path), options).unwrap();
        for ((hash, key), operation) in records {
            writer.push(*hash, key, operation.borrow()).unwrap();
        }
        writer.finish().unwrap();
        let run = Arc::new(Run::open(&*disk, Path::new(&path)).unwrap());
        run.scan(ScanRange::all(), direction)
    };
    runs.iter().enumerate().map(scan).collect()
}

fn collect(merge: &mut impl Cursor) -> Vec<((u64, Vec<u8>), CowOperation<'static>)> {
    let mut out = Vec::new();
    while merge.advance().unwrap() {
        out.push((
            (merge.hash(), merge.key().to_vec()),
            merge.operation().to_owned(),
        ));
    }
    out
}

#[test]
fn merges_agree_with_the_algebra_and_with_first_and_last() {
    let kind = DeltaKind::AddI64;
    for seed in 0..60 {
        let mut rng = Rng(seed);
        let order = ORDERS[(seed % 2) as usize];
        let count = 1 + rng.below(9) as usize;
        let runs = random_runs(&mut rng, order, count, 60);
        let mut composed: BTreeMap<_, CowOperation<'static>> = BTreeMap::new();
        let (mut first, mut last) = (BTreeMap::new(), BTreeMap::new());
        for (place, operation) in runs.iter().flatten() {
            let after = match composed.get(place) {
                Some(older) => operation.borrow().after(&older.borrow(), kind).unwrap(),
                None => operation.clone(),
            };
            composed.insert(place.clone(), after);
            first.entry(place.clone()).or_insert(operation.clone());
            last.insert(place.clone(), operation.clone());
        }
        for direction in [Direction::Forward, Direction::Backward] {
            for (resolve, expected) in [
                (Resolve::Compose(kind), &composed),
                (Resolve::First, &first),
                (Resolve::Last, &last),
            ] {
                let mut expected: Vec<_> = expected.clone().into_iter().collect();
                if direction == Direction::Backward {
                    expected.reverse();
                }
                let mut merge = Merge::new(open(&runs, order, direction), resolve, direction);
                assert_eq!(
                    collect(&mut merge),
                    expected,
                    "seed {seed} {direction:?} {resolve:?}"
                );
                let total = runs.iter().map(BTreeMap::len).sum::<usize>() - expected.len();
                if !matches!(resolve, Resolve::Compose(_)) {
                    assert_eq!(merge.dropped.records, total as u64);
                }
            }
        }
    }
}

#[test]
fn dropped_records_are_accounted_for_and_duplicates_can_be_refused() {
    let update = |value: &[u8]| Operation::Update(value).to_owned();
    let place = (0, b"same".to_vec());
    let runs: Runs = vec![
        BTreeMap::from([(place.clone(), update(b"old"))]),
        BTreeMap::from([(place, update(b"newer"))]),
    ];
    let scans = || open(&runs, Order::Ordered, Direction::Forward);
    let mut merge = Merge::new(scans(), Resolve::Last, Direction::Forward);
    assert_eq!(collect(&mut merge).len(), 1);
    assert_eq!(merge.dropped.content, ContentSum::of(b"same", b"old"));
    assert_eq!((merge.dropped.key_bytes, merge.dropped.value_bytes), (4, 3));
    let mut merge = Merge::new(scans(), Resolve::Refuse, Direction::Forward);
    let error = merge.advance().unwrap_err().to_string();
    assert!(error.contains("key same occurs more than once"), "{error}");
}

#[test]
fn a_settled_merge_holds_the_values_that_have_not_expired_and_nothing_else() {
    let seed = 70;
    println!("seed {seed}");
    let mut rng = Rng(seed);
    let kind = DeltaKind::AddI64;
    for order in ORDERS {
        let runs = random_runs(&mut rng, order, 5, 60);
        let mut stored: BTreeMap<(u64, Vec<u8>), Option<(Vec<u8>, u64)>> = BTreeMap::new();
        for (place, operation) in runs.iter().flatten() {
            let before = stored.remove(place).flatten();
            let before = before.as_ref().map(|(value, until)| (&value[..], *until));
            let after = operation.borrow().apply(before, kind).unwrap();
            stored.insert(place.clone(), after);
        }
        let now_ms = 10;
        let alive = stored.into_iter().filter_map(|(place, value)| {
            let (value, until) = value.filter(|(_, until)| *until > now_ms)?;
            let update = Operation::Update(&value).with_times(Times::until(until));
            Some((place, update.to_owned()))
        });
        let direction = Direction::Forward;
        let merge = Merge::new(
            open(&runs, order, direction),
            Resolve::Compose(kind),
            direction,
        );
        let alive: Vec<_> = alive.collect();
        assert!(alive.len() > 20, "too little to compare");
        assert_eq!(collect(&mut SettledCursor::new(merge, now_ms)), alive);
    }
}
