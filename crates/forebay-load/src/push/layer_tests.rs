//! Tests of pushes onto other versions, against a plain map, with a clock that the tests move.

#![allow(clippy::disallowed_methods, reason = "the tests write their sources")]

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use forebay_engine::{Store, Table, Version};
use forebay_io::sim::HandClock;
use forebay_io::sim::Rng;
use forebay_io::{OsDisk, SystemRandom};
use forebay_run::number::Number;
use forebay_run::operation::DeltaKind;
use forebay_run::scan::Direction;

use super::tests::request;
use forebay_engine::{Ttl, ValueKind};
use forebay_run::Order;

use super::*;
use crate::encode::ValueChoice;
use crate::progress::{Silent, Unit};

const START_MS: u64 = 1_795_000_000_000;

fn store(dir: &Path) -> Store {
    Store::open_or_create(
        Arc::new(OsDisk::default()),
        Arc::new(HandClock::at(START_MS)),
        Arc::new(SystemRandom),
        &dir.join("store"),
    )
    .unwrap()
}

fn pass(store: &Store, seconds: u64) {
    store.clock().sleep(Duration::from_secs(seconds));
}

fn write(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
}

fn changes(path: &Path) -> PushRequest {
    PushRequest {
        key: None,
        onto: Some(BaseVersion::Current),
        operation_column: Some("op".to_owned()),
        force: true,
        ..request(path, "{id}")
    }
}

fn counters(path: &Path, delta: DeltaKind) -> PushRequest {
    PushRequest {
        value: ValueChoice::Column("n".to_owned()),
        delta: Some(delta),
        force: true,
        ..request(path, "{id}")
    }
}

fn open(store: &Store, report: &PushReport) -> Arc<Version> {
    let table = store.table(&report.table).unwrap();
    let verified = table.verify(report.version, &mut |_| ()).unwrap();
    assert!(verified.problems.is_empty(), "{:?}", verified.problems);
    table.open_version(report.version).unwrap()
}

fn numbers(version: &Arc<Version>) -> BTreeMap<String, i64> {
    let mut scan = version.scan(Direction::Forward);
    let mut all = BTreeMap::new();
    while scan.advance().unwrap() {
        let key = String::from_utf8(scan.key().to_vec()).unwrap();
        all.insert(key, i64::from_le_bytes(scan.value().try_into().unwrap()));
    }
    all
}

/// Random operations in random order, many on one key, day after day.
#[test]
fn days_of_changes_equal_their_rows_applied_in_turn() {
    let seed = 11;
    println!("seed {seed}");
    let mut rng = Rng(seed);
    for order in [Order::Hashed, Order::Ordered] {
        let dir = tempfile::tempdir().unwrap();
        let store = store(dir.path());
        let csv = dir.path().join("days.csv");
        let mut text = "id,n\n".to_owned();
        let mut model = BTreeMap::new();
        for id in 0..3000i64 {
            text += &format!("{id},{}\n", id * 10);
            model.insert(id.to_string(), id * 10);
        }
        write(&csv, &text);
        let whole = PushRequest {
            order,
            partitions: Some(4),
            ..counters(&csv, DeltaKind::AddI64Saturating)
        };
        push(&whole, &store, &Silent).unwrap();
        for day in 0..10 {
            let mut text = "op,n,id\n".to_owned();
            let rows = match day % 4 {
                1 => 60_000,
                _ => 200 + rng.below(4000),
            };
            for _ in 0..rows {
                let id = rng.below(4000).to_string();
                let n = match rng.below(4) {
                    0 => i64::MAX - rng.below(100) as i64,
                    _ => rng.below(100) as i64 - 50,
                };
                let op = ["update", "insert", "delete", "delta"][rng.below(4) as usize];
                match op {
                    "update" => drop(model.insert(id.clone(), n)),
                    "insert" => drop(model.entry(id.clone()).or_insert(n)),
                    "delete" => drop(model.remove(&id)),
                    _ => {
                        let sum = model.entry(id.clone()).or_insert(0);
                        *sum = sum.saturating_add(n);
                    }
                }
                text += &match op {
                    "delete" => format!("{op},,{id}\n"),
                    _ => format!("{op},{n},{id}\n"),
                };
            }
            write(&csv, &text);
            // Little memory, so that some days are spilled.
            let request = PushRequest {
                memory_bytes: 1 << 20,
                ..changes(&csv)
            };
            let report = push(&request, &store, &Silent).unwrap();
            assert_eq!(report.onto, Some(report.version - 1));
            let applied = report.applied.unwrap();
            let keys = applied.updates + applied.inserts + applied.deletes + applied.deltas;
            assert!(keys + report.duplicates <= rows && report.duplicates > 0);
            let version = open(&store, &report);
            assert_eq!(numbers(&version), model, "day {day}, {order:?}");
            let (least, most) = report.rows_between;
            assert!((least..=most).contains(&(model.len() as u64)));
            for _ in 0..100 {
                let key = rng.below(4000).to_string();
                let found = version.get(key.as_bytes()).unwrap();
                let found = found.map(|value| i64::from_le_bytes((*value).try_into().unwrap()));
                assert_eq!(found, model.get(&key).copied(), "{key}");
            }
        }
    }
}

#[test]
fn rows_are_changed_by_name_and_bad_ones_are_reported_with_their_line() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path());
    let csv = dir.path().join("birds.csv");
    write(&csv, "id,name,wings:int\n1,heron,2\n2,crane,2\n3,kiwi,2\n");
    push(&request(&csv, "{id}"), &store, &Silent).unwrap();
    // Other order of columns; a delete needs nothing but its key.
    write(
        &csv,
        "wings:int,op,id,name\n0,update,3,penguin\n,DELETE,1,\n2,insert,2,stork\n2,insert,4,swift\n",
    );
    let report = push(&changes(&csv), &store, &Silent).unwrap();
    let version = open(&store, &report);
    let schema = &version.manifest().schema;
    let name = |key: &[u8]| {
        let value = version.get(key).unwrap()?;
        let row = forebay_run::row::RowView::new(schema, &value).unwrap();
        let mut text = Vec::new();
        row.text(schema.column_index("name").unwrap(), &mut text)
            .unwrap();
        Some(String::from_utf8(text).unwrap())
    };
    assert_eq!(name(b"1"), None);
    assert_eq!(name(b"2").as_deref(), Some("crane"));
    assert_eq!(name(b"3").as_deref(), Some("penguin"));
    assert_eq!(name(b"4").as_deref(), Some("swift"));
    for (row, words) in [
        ("2,upsert,5,owl", "says 'upsert'"),
        ("2,,5,owl", "says ''"),
        ("2,delta,5,owl", "without --delta"),
        (
            "two,update,5,owl",
            "\"two\" (text), which does not read as int64",
        ),
        ("2,update,,owl", "'id' is null"),
    ] {
        write(
            &csv,
            &format!("wings:int,op,id,name\n2,update,9,ok\n{row}\n"),
        );
        let error = push(&changes(&csv), &store, &Silent)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("line 3") && error.contains(words),
            "{row}: {error}"
        );
        let skips = PushRequest {
            bad_rows: BadRows::Skip,
            swap: false,
            ..changes(&csv)
        };
        assert_eq!(push(&skips, &store, &Silent).unwrap().rejected, 1, "{row}");
    }
}

#[test]
fn requests_that_contradict_the_table_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path());
    let csv = dir.path().join("birds.csv");
    write(&csv, "id,n,op\n1,5,update\n");
    let refused = |request: &PushRequest, words: &str| {
        let error = push(request, &store, &Silent).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    };
    refused(&changes(&csv), "no table");
    assert!(store.tables().unwrap().is_empty());
    push(&counters(&csv, DeltaKind::AddI64), &store, &Silent).unwrap();
    let other = |change: fn(&mut PushRequest)| {
        let mut request = changes(&csv);
        change(&mut request);
        request
    };
    refused(
        &other(|r| r.key = Some("x{id}".parse().unwrap())),
        "the key there is '{id}'",
    );
    refused(&other(|r| r.delta = Some(DeltaKind::AddF64)), "AddI64");
    refused(&other(|r| r.ttl = Some(Ttl::AfterMs(1))), "never");
    refused(
        &other(|r| r.onto = Some(BaseVersion::Version(7))),
        "no version 7",
    );
    refused(&other(|r| r.operation_column = Some("what".into())), "what");
    let rows = PushRequest {
        value: ValueChoice::Row,
        ..counters(&csv, DeltaKind::AddI64)
    };
    refused(&rows, "--value");
    write(&csv, "id,n\n1,five\n");
    refused(&counters(&csv, DeltaKind::AddI64), "int64");
    write(&csv, "id,n\n1,9223372036854775807\n");
    let same = PushRequest {
        key: Some("{id}".parse().unwrap()),
        delta: Some(DeltaKind::AddI64),
        operation_column: None,
        ..changes(&csv)
    };
    let report = push(&same, &store, &Silent).unwrap();
    assert_eq!(numbers(&open(&store, &report))["1"], i64::MAX);
    // Onto the first version again: the second one's change is not there.
    write(&csv, "id,n,op\n1,1,delta\n2,1,delta\n");
    let request = PushRequest {
        onto: Some(BaseVersion::Version(1)),
        ..changes(&csv)
    };
    let report = push(&request, &store, &Silent).unwrap();
    let numbers = numbers(&open(&store, &report));
    assert_eq!((numbers["1"], numbers["2"]), (6, 1));
    let manifest = store
        .table(&report.table)
        .unwrap()
        .manifest(report.version)
        .unwrap();
    let kind = ValueKind::Number {
        column: "n".to_owned(),
        number: Number::I64,
    };
    assert_eq!((manifest.onto, &manifest.value), (Some(1), &kind));
}

#[test]
fn floats_and_bytes_have_deltas_too() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path());
    let csv = dir.path().join("birds.csv");
    for (delta, first, second, expected) in [
        (
            DeltaKind::AddF64,
            "1.5",
            "2.25",
            3.75f64.to_le_bytes().to_vec(),
        ),
        (DeltaKind::Min, "7", "-3", (-3i64).to_le_bytes().to_vec()),
        (DeltaKind::Max, "7", "-3", 7i64.to_le_bytes().to_vec()),
        (DeltaKind::Append, "ab", "cd", b"abcd".to_vec()),
    ] {
        write(&csv, &format!("id,n\n1,{first}\n"));
        push(&counters(&csv, delta), &store, &Silent).unwrap();
        write(
            &csv,
            &format!("id,n,op\n1,{second},delta\n2,{second},delta\n"),
        );
        let report = push(&changes(&csv), &store, &Silent).unwrap();
        let version = open(&store, &report);
        assert_eq!(
            version.get(b"1").unwrap().as_deref(),
            Some(&expected[..]),
            "{delta:?}"
        );
        assert!(version.get(b"2").unwrap().is_some());
    }
}

#[test]
fn only_bytes_are_appended_to() {
    let dir = tempfile::tempdir().unwrap();
    let (store, path) = (store(dir.path()), dir.path().join("a.jsonl"));
    write(&path, "{\"id\": 1, \"n\": [1, 2]}\n");
    let lists = push(&counters(&path, DeltaKind::Append), &store, &Silent);
    let lists = lists.unwrap_err().to_string();
    assert!(lists.contains("the values are lists"), "{lists}");
    let rows = PushRequest {
        value: ValueChoice::Row,
        ..counters(&path, DeltaKind::Append)
    };
    let rows = push(&rows, &store, &Silent).unwrap_err().to_string();
    assert!(
        rows.contains("bytes at the end of bytes") && rows.contains("whole rows"),
        "{rows}"
    );
    assert!(store.tables().unwrap().is_empty());
}

#[test]
fn rows_expire_a_ttl_after_their_push() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path());
    let csv = dir.path().join("birds.csv");
    write(&csv, "id,n\n1,10\n2,20\n3,30\n4,40\n");
    let ttl = Some(Ttl::AfterMs(100_000));
    let whole = PushRequest {
        ttl,
        partitions: Some(3),
        ..counters(&csv, DeltaKind::AddI64)
    };
    let first = push(&whole, &store, &Silent).unwrap();
    let version = open(&store, &first);
    assert_eq!(numbers(&version).len(), 4);
    assert_eq!(version.expires_ms(b"1").unwrap(), Some(START_MS + 100_000));
    pass(&store, 60);
    // 1 and 2 are renewed, 3 is not touched.
    write(
        &csv,
        "id,n,op\n1,1,delta\n2,99,insert\n2,5,delta\n4,0,delete\n",
    );
    let second = push(&changes(&csv), &store, &Silent).unwrap();
    let version = open(&store, &second);
    let expected = BTreeMap::from([("1".into(), 11), ("2".into(), 25), ("3".into(), 30)]);
    assert_eq!(numbers(&version), expected);
    pass(&store, 60);
    let expected = BTreeMap::from([("1".into(), 11), ("2".into(), 25)]);
    assert_eq!(
        numbers(&version),
        expected,
        "an open version expires rows at once"
    );
    assert_eq!(version.get(b"3").unwrap(), None);
    // Expired keys are absent to inserts and deltas; both are renewed from now on.
    write(&csv, "id,n,op\n3,1,insert\n4,7,delta\n1,1,insert\n");
    let third = push(&changes(&csv), &store, &Silent).unwrap();
    let version = open(&store, &third);
    let expected = [("1", 11), ("2", 25), ("3", 1), ("4", 7)];
    let expected: BTreeMap<String, i64> = expected
        .into_iter()
        .map(|(key, n)| (key.to_owned(), n))
        .collect();
    assert_eq!(numbers(&version), expected);
    let merged = store
        .table(&first.table)
        .unwrap()
        .compact(third.version, 1, &|_| ())
        .unwrap();
    let table = store.table(&first.table).unwrap();
    assert_eq!(numbers(&table.open_version(merged.to).unwrap()), expected);
    pass(&store, 1000);
    assert_eq!(numbers(&version), BTreeMap::new());
    assert_eq!(
        numbers(&table.open_version(merged.to).unwrap()),
        BTreeMap::new()
    );
}

#[test]
fn a_column_sets_when_rows_expire() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path());
    let csv = dir.path().join("birds.csv");
    let expiring = |value: ValueChoice| PushRequest {
        ttl: Some(Ttl::Column("until".to_owned())),
        value,
        force: true,
        ..request(&csv, "{id}")
    };
    // 2026-11-18T11:06:40Z is the moment at which the clock starts.
    write(
        &csv,
        "id,n,until\n1,10,2026-11-18T11:07:00Z\n2,20,2026-11-18T12:00:00Z\n3,30,\n",
    );
    for value in [ValueChoice::Row, ValueChoice::Column("n".into())] {
        let report = push(&expiring(value), &store, &Silent).unwrap();
        let version = open(&store, &report);
        assert_eq!(version.expires_ms(b"1").unwrap(), Some(START_MS + 20_000));
        assert_eq!(version.expires_ms(b"3").unwrap(), Some(u64::MAX));
    }
    write(&csv, "op,id,n,until\nupdate,3,31,2026-11-18T11:06:50Z\n");
    let report = push(&changes(&csv), &store, &Silent).unwrap();
    let version = open(&store, &report);
    assert_eq!(version.expires_ms(b"3").unwrap(), Some(START_MS + 10_000));
    pass(&store, 30);
    assert_eq!(version.expires_ms(b"1").unwrap(), None);
    assert!(version.get(b"2").unwrap().is_some() && version.get(b"3").unwrap().is_none());
    write(&csv, "id,n,until\n1,10,5\n2,20,60.5\n");
    let report = push(&expiring(ValueChoice::Row), &store, &Silent).unwrap();
    let version = open(&store, &report);
    let now_ms = store.clock().unix_ms();
    assert_eq!(version.expires_ms(b"2").unwrap(), Some(now_ms + 60_500));
    write(&csv, "id,n,until\n1,10,soon\n");
    let error = push(&expiring(ValueChoice::Row), &store, &Silent)
        .unwrap_err()
        .to_string();
    assert!(error.contains("'until'"), "{error}");
}

/// Rolls the table back during a push.
#[derive(Debug)]
struct RollbackInPush(Table);

impl Progress for RollbackInPush {
    fn stage(&self, name: &str, _total: Option<u64>, _unit: Unit) {
        if name == "building" {
            let serving = self.0.serving().unwrap();
            self.0.rollback_from(serving).unwrap();
        }
    }
    fn advance(&self, _n: u64) {}
    fn message(&self, _text: &str) {}
}

#[test]
fn a_push_does_not_swap_over_a_rollback_that_it_did_not_see() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path());
    let csv = dir.path().join("birds.csv");
    write(&csv, "id,n\n1,10\n");
    let whole = counters(&csv, DeltaKind::AddI64);
    for _ in 0..3 {
        push(&whole, &store, &Silent).unwrap();
    }
    let table = store.table(&whole.table).unwrap();
    let careful = PushRequest {
        force: false,
        ..whole.clone()
    };
    let report = push(&careful, &store, &RollbackInPush(table.clone())).unwrap();
    assert!(report.held() && !report.swapped);
    let finding = report.gate.iter().find(|finding| !finding.passed).unwrap();
    let words = "version 2 serves now, and version 3 did when this push began";
    assert_eq!(finding.seen, words);
    assert_eq!((report.version, table.serving().unwrap()), (4, 2));
    // The version is kept, and an operator may swap to it; --force swaps anyway.
    table.swap(4).unwrap();
    let forced = PushRequest {
        force: true,
        ..whole.clone()
    };
    let report = push(&forced, &store, &RollbackInPush(table.clone())).unwrap();
    assert!(report.swapped && table.serving().unwrap() == 5);
    // A push that does not swap has nothing to hold.
    let kept = PushRequest {
        swap: false,
        ..careful
    };
    let report = push(&kept, &store, &RollbackInPush(table)).unwrap();
    assert!(!report.held());
}

#[test]
fn a_push_does_not_restore_changes_that_were_rolled_back_meanwhile() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path());
    let csv = dir.path().join("birds.csv");
    write(&csv, "id,n\n1,10\n");
    let whole = counters(&csv, DeltaKind::AddI64);
    push(&whole, &store, &Silent).unwrap();
    push(&whole, &store, &Silent).unwrap();
    let table = store.table(&whole.table).unwrap();
    write(&csv, "id,n,op\n1,1,delta\n");
    let request = PushRequest {
        force: false,
        ..changes(&csv)
    };
    let report = push(&request, &store, &RollbackInPush(table.clone())).unwrap();
    assert!(report.held() && !report.swapped);
    let finding = report.gate.iter().find(|finding| !finding.passed).unwrap();
    assert!(finding.seen.contains("version 1 serves now"), "{finding:?}");
    assert_eq!(table.serving().unwrap(), 1);
}
