//! Versions that reuse the runs of others: reads, merges, expiry, removal.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::{self, Rows, draft, name, read_all, root, rows, store_on, write_run};
use forebay_engine::{
    Lookup, MAX_RUNS, Manifest, ManifestDraft, PushOptions, Serving, Store, Table, Version,
    compare_sampled, diff, due,
};
use forebay_io::Clock;
use forebay_io::sim::{Fault, Rng, SimDisk};
use forebay_run::Order;
use forebay_run::operation::{CowOperation, DeltaKind, Operation};
use forebay_run::times::Times;

const KIND: DeltaKind = DeltaKind::AddI64Saturating;

/// A value and its expiry, by key.
type Stored = BTreeMap<Vec<u8>, (Vec<u8>, u64)>;
type Operations = BTreeMap<Vec<u8>, CowOperation<'static>>;

fn clock(store: &Store) -> &dyn Clock {
    &**store.clock()
}

/// Some operations; deltas are written now, and some records expire within ten seconds.
fn random_operations(rng: &mut Rng, now_ms: u64, keys: u64) -> Operations {
    let operation = |rng: &mut Rng| {
        let operand = (rng.below(1000) as i64).to_le_bytes();
        let plain = match rng.below(8) {
            0 => Operation::Delete,
            1..4 => Operation::Delta(&operand),
            _ => Operation::Update(&operand),
        };
        let expires_ms = match rng.below(3) {
            0 => now_ms + 1 + rng.below(10_000),
            _ => u64::MAX,
        };
        let times = Times {
            written_ms: now_ms,
            expires_ms,
        };
        plain.with_times(times).to_owned()
    };
    (0..keys / 3)
        .map(|_| {
            (
                format!("key {:04}", rng.below(keys)).into_bytes(),
                operation(rng),
            )
        })
        .collect()
}

fn apply(stored: &mut Stored, operations: &Operations) {
    for (key, operation) in operations {
        let before = stored.remove(key);
        let before = before.as_ref().map(|(value, until)| (&value[..], *until));
        if let Some(after) = operation.borrow().apply(before, KIND).unwrap() {
            stored.insert(key.clone(), after);
        }
    }
}

fn alive(stored: &Stored, now_ms: u64) -> Rows {
    stored
        .iter()
        .filter(|(_, (_, until))| now_ms < *until)
        .map(|(key, (value, _))| (key.clone(), value.clone()))
        .collect()
}

/// The first version: plain updates in some partitions.
fn first(store: &Store, order: Order, rows: &Rows, parts: usize) -> u64 {
    let push = store
        .begin_push(&name("t"), PushOptions::default())
        .unwrap();
    let manifest = common::fill(&push, order, rows, parts).unwrap();
    let draft = ManifestDraft {
        delta: Some(KIND),
        ..draft(order, manifest.partitions)
    };
    let manifest = push.manifest(draft).unwrap();
    let version = push.commit(manifest).unwrap();
    store.table(&name("t")).unwrap().swap(version).unwrap();
    version
}

/// Makes a version on top of `base`: a run for each partition that has operations, merged if due.
fn onto(table: &Table, base: u64, operations: &Operations) -> u64 {
    let store = table.store();
    let push = store
        .begin_push(&name("t"), PushOptions::default())
        .unwrap();
    let base = table.manifest(base).unwrap();
    let opened = table.open_version(base.version).unwrap();
    let mut partitions = base.partitions.clone();
    for (index, partition) in partitions.iter_mut().enumerate() {
        let inside = |key: &[u8]| opened.partition_of(key) == Some(index);
        let inside: Vec<(&[u8], Operation<'_>)> = operations
            .iter()
            .filter(|(key, _)| inside(key))
            .map(|(key, operation)| (&key[..], operation.borrow()))
            .collect();
        let mut runs = partition.runs.clone();
        if !inside.is_empty() {
            runs.push(write_run(&push, index, base.order, &inside).unwrap());
        }
        *partition = partition.with_runs(runs);
    }
    let draft = ManifestDraft::like(&base, partitions, "a test".to_owned());
    let mut manifest = push.manifest(draft).unwrap();
    for index in 0..manifest.partitions.len() {
        if let Some(range) = due(&manifest.partitions[index].runs) {
            let runs = push.merge_runs(&manifest, index, range, &|_| ()).unwrap();
            manifest = manifest.with_runs(index, runs);
        }
    }
    push.commit(manifest).unwrap()
}

/// Checks that all ways of reading agree with the model, and that the version is sound.
fn check(table: &Table, version: u64, stored: &Stored) -> Arc<Version> {
    let opened = table.open_version(version).unwrap();
    let now_ms = clock(table.store()).unix_ms();
    let expected = alive(stored, now_ms);
    assert_eq!(read_all(&opened), expected, "version {version}");
    for (key, (value, until)) in stored {
        let value = (now_ms < *until).then_some(&value[..]);
        assert_eq!(opened.get(key).unwrap().as_deref(), value);
        assert_eq!(opened.expires_ms(key).unwrap(), value.map(|_| *until));
        match opened.try_get(key).unwrap() {
            Lookup::Found(found) => assert_eq!(Some(&*found), value),
            Lookup::Absent => assert_eq!(value, None),
            Lookup::NotResident => {}
        }
    }
    for absent in ["", "key", "key 0001x", "z"] {
        assert_eq!(opened.get(absent.as_bytes()).unwrap(), None);
    }
    let report = table.verify(version, &mut |_| ()).unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    let (least, most) = opened.manifest().rows_between();
    assert!((least..=most).contains(&report.totals.rows));
    opened
}

fn deep(table: &Table, version: u64) -> usize {
    let manifest = table.manifest(version).unwrap();
    assert!(manifest.runs_deep() <= MAX_RUNS);
    manifest.runs_deep()
}

#[test]
fn layers_are_read_as_their_history() {
    for (seed, order) in [(1, Order::Hashed), (2, Order::Ordered), (3, Order::Hashed)] {
        println!("seed {seed}, {order:?}");
        let mut rng = Rng(seed);
        let store = store_on(&SimDisk::new(), seed);
        let base: Rows = (0..300)
            .map(|i| {
                (
                    format!("key {i:04}").into_bytes(),
                    i64::to_le_bytes(i).to_vec(),
                )
            })
            .collect();
        let mut version = first(&store, order, &base, 3);
        let table = store.table(&name("t")).unwrap();
        let mut stored: Stored = base
            .into_iter()
            .map(|(key, value)| (key, (value, u64::MAX)))
            .collect();
        let mut past: Vec<(u64, Stored)> = Vec::new();
        for _ in 0..14 {
            clock(&store).sleep(std::time::Duration::from_millis(rng.below(3000)));
            let operations = random_operations(&mut rng, clock(&store).unix_ms(), 400);
            past.push((version, stored.clone()));
            version = onto(&table, version, &operations);
            apply(&mut stored, &operations);
            check(&table, version, &stored);
        }
        assert!(deep(&table, version) > 1, "nothing to merge");
        for (version, stored) in &past {
            check(&table, *version, stored);
        }
        table.swap(version).unwrap();
        let compacted = table.compact(version, 2, &|_| ()).unwrap();
        assert!(compacted.serves && compacted.from == version);
        assert_eq!(table.serving().unwrap(), compacted.to);
        assert_eq!(deep(&table, compacted.to), 1);
        let opened = check(&table, compacted.to, &stored);
        let expected = alive(&stored, clock(&store).unix_ms());
        assert_eq!(
            opened.manifest().rows_between(),
            (expected.len() as u64, expected.len() as u64)
        );
        // A second merge does nothing.
        assert_eq!(
            table.compact(compacted.to, 1, &|_| ()).unwrap().to,
            compacted.to
        );
        // A version pushed onto the unmerged one works too, even after the merge.
        let operations = random_operations(&mut rng, clock(&store).unix_ms(), 400);
        for base in [version, compacted.to] {
            let next = onto(&table, base, &operations);
            let mut stored = stored.clone();
            apply(&mut stored, &operations);
            check(&table, next, &stored);
        }
    }
}

#[test]
fn a_merged_version_takes_the_place_of_the_one_it_was_made_of() {
    let store = store_on(&SimDisk::new(), 9);
    let base = rows(1, 100);
    let one = first(&store, Order::Ordered, &base, 2);
    let table = store.table(&name("t")).unwrap();
    let delete: Operations = base
        .keys()
        .take(1)
        .map(|key| (key.clone(), CowOperation::Delete))
        .collect();
    let two = onto(&table, one, &delete);
    table.swap(two).unwrap();
    let compacted = table.compact(two, 1, &|_| ()).unwrap();
    assert_eq!(
        (compacted.to, compacted.runs, compacted.partitions),
        (3, 2, 1)
    );
    assert_eq!(compacted.rows, 99);
    // A rollback goes to the rows before, not to the same ones unmerged.
    assert_eq!(table.pointer().unwrap().before(), Some(one));
    assert_eq!(table.rollback().unwrap().to, one);
    assert_eq!(read_all(&table.open_version(one).unwrap()), base);
    // A version that does not serve is merged beside the serving one.
    let four = table.compact(two, 1, &|_| ()).unwrap();
    assert!(!four.serves);
    assert_eq!(table.serving().unwrap(), one);
    assert_eq!(read_all(&table.open_version(four.to).unwrap()).len(), 99);
}

#[test]
fn a_run_lives_as_long_as_a_version_that_names_it() {
    let disk = SimDisk::new();
    let store = store_on(&disk, 4);
    let base = rows(1, 200);
    let mut version = first(&store, Order::Hashed, &base, 4);
    let table = store.table(&name("t")).unwrap();
    let run_files = || {
        let dir = root().join("tables/t/runs");
        forebay_io::Disk::list(&disk, &dir).unwrap().len()
    };
    for key in base.keys().take(4) {
        version = onto(
            &table,
            version,
            &Operations::from([(key.clone(), CowOperation::Delete)]),
        );
        table.swap(version).unwrap();
    }
    assert_eq!(run_files(), 4 + 4);
    assert_eq!(table.retain(1).unwrap(), [1, 2, 3]);
    assert_eq!(run_files(), 4 + 4, "the newest version names them all");
    let after: Rows = base
        .iter()
        .skip(4)
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    assert_eq!(read_all(&table.open_version(version).unwrap()), after);
    let merged = table.compact(version, 1, &|_| ()).unwrap().to;
    let names: Vec<String> = table
        .manifest(merged)
        .unwrap()
        .runs()
        .map(|run| run.id.to_string())
        .collect();
    assert_eq!(table.retain(0).unwrap(), [version]);
    // Version 4 is the previous one, and keeps its runs.
    let kept = table.manifest(4).unwrap();
    assert_eq!(table.version_numbers().unwrap(), [4, merged]);
    let all = kept.runs().map(|run| run.id.to_string()).chain(names);
    let all: std::collections::BTreeSet<String> = all.collect();
    assert_eq!(run_files(), all.len());
    check_manifest(&table, 4);
    assert_eq!(read_all(&table.open_version(merged).unwrap()), after);
}

fn check_manifest(table: &Table, version: u64) -> Manifest {
    let report = table.verify(version, &mut |_| ()).unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    table.manifest(version).unwrap()
}

/// Each call of a merge fails, fills the disk or is the last in turn. The rows stay the same, and
/// the merge can be repeated.
#[test]
fn a_failed_merge_leaves_the_rows_unchanged() {
    let disk = SimDisk::new();
    let store = store_on(&disk, 5);
    let base = rows(1, 60);
    let one = first(&store, Order::Ordered, &base, 2);
    let keys = base.keys().step_by(7);
    let delete: Operations = keys
        .map(|key| (key.clone(), CowOperation::Delete))
        .collect();
    let two = onto(&store.table(&name("t")).unwrap(), one, &delete);
    store.table(&name("t")).unwrap().swap(two).unwrap();
    let expected = read_all(&store.table(&name("t")).unwrap().open_version(two).unwrap());
    let whole = disk.after_kill();
    let before = whole.calls();
    let merge = |store: &Store| {
        let table = store.table(&name("t")).map_err(|error| error.to_string())?;
        let serving = table.serving().map_err(|error| error.to_string())?;
        let merged = table.compact(serving, 1, &|_| ());
        merged.map_err(|error| error.to_string())
    };
    merge(&store_on(&whole, 6)).unwrap();
    let calls = whole.calls() - before;
    assert!(calls > 20, "{calls} calls");
    for nth in 0..calls {
        for fault in [Fault::Error, Fault::Full, Fault::Dead] {
            let failing = disk.after_kill();
            let store = store_on(&failing, 6);
            failing.plan(nth, fault);
            let done = merge(&store).is_ok();
            let cuts = (0..2).map(|seed| failing.after_power_cut(seed));
            for found in std::iter::once(failing.after_kill()).chain(cuts) {
                let words = format!("call {nth} of {calls}, {fault:?}");
                let store = store_on(&found, 7);
                let table = store.table(&name("t")).unwrap();
                let serving = table.serving().unwrap();
                assert!(
                    !done || serving != two,
                    "{words}: succeeded, without effect"
                );
                let opened = table.open_version(serving).unwrap();
                assert_eq!(read_all(&opened), expected, "{words}");
                merge(&store).expect(&words);
                check_manifest(&table, table.serving().unwrap());
            }
        }
    }
}

/// A comparison of versions that share runs reads only the others, and is exact for small ones.
#[test]
fn versions_that_share_runs_are_compared_by_their_other_runs() {
    for order in [Order::Hashed, Order::Ordered] {
        let store = store_on(&SimDisk::new(), 8);
        let base: Rows = (0..20_000i64)
            .map(|i| (format!("key {i:05}").into_bytes(), i.to_le_bytes().to_vec()))
            .collect();
        let one = first(&store, order, &base, 3);
        let table = store.table(&name("t")).unwrap();
        let key = |i: i64| format!("key {i:05}").into_bytes();
        let value = |i: i64| i.to_le_bytes().to_vec();
        let update = |i: i64, n: i64| (key(i), Operation::Update(&value(n)).to_owned());
        let mut operations: Operations = (0..30).map(|i| (key(i), CowOperation::Delete)).collect();
        operations.extend((100..150).map(|i| update(i, -1)));
        operations.extend((200..210).map(|i| update(i, i)));
        operations.extend((30_000..30_070).map(|i| update(i, 0)));
        let two = onto(&table, one, &operations);
        let other: Operations = (500..505).map(|i| (key(i), CowOperation::Delete)).collect();
        let three = onto(&table, one, &other);
        let open = |version| table.open_version(version).unwrap();
        let compare = |before, after| {
            let seen = compare_sampled(
                &open(before),
                &open(after),
                1000,
                &**store.random(),
                &|_| (),
            )
            .unwrap();
            let counts = (seen.lost.found, seen.new.found, seen.changed.found);
            (counts, seen.rows_after, seen.rows_are_exact)
        };
        assert_eq!(
            compare(one, two),
            ((30, 70, 50), 20_040, false),
            "{order:?}"
        );
        // In the other direction the older rows are the greatest possible number: 70 and 60 are new
        // or not.
        let (counts, _, exact) = compare(two, one);
        assert_eq!((counts, exact), ((70, 30, 50), false));
        assert_eq!(compare(two, three).0, (75, 30, 50));
        let report = diff(&open(one), &open(two), 3, &mut |_| ()).unwrap();
        assert_eq!((report.removed, report.added, report.changed), (30, 70, 50));
        assert_eq!(report.same, 20_000 - 30 - 50);
        // After a merge, sampling the one run of a partition is enough.
        let merged = table.compact(two, 1, &|_| ()).unwrap().to;
        let seen = compare_sampled(
            &open(one),
            &open(merged),
            1_000_000,
            &**store.random(),
            &|_| (),
        )
        .unwrap();
        assert_eq!(
            (seen.lost.found, seen.new.found, seen.changed.found),
            (30, 70, 50)
        );
        assert_eq!((seen.rows_after, seen.rows_are_exact), (20_040, true));
    }
}

/// A key in several runs is one row: lost keys count as a share of the rows.
#[test]
fn rows_of_several_runs_are_distinguished_from_their_records() {
    for order in [Order::Hashed, Order::Ordered] {
        let store = store_on(&SimDisk::new(), 8);
        let key = |i: i64| format!("key {i:05}").into_bytes();
        let base: Rows = (0..20_000i64)
            .map(|i| (key(i), i.to_le_bytes().to_vec()))
            .collect();
        let one = first(&store, order, &base, 3);
        let table = store.table(&name("t")).unwrap();
        let all: Operations = (0..20_000i64)
            .map(|i| (key(i), Operation::Update(&(-i).to_le_bytes()).to_owned()))
            .collect();
        let two = onto(&table, one, &all);
        assert!(deep(&table, two) > 1, "they are merged");
        let gone: Operations = (0..6_000).map(|i| (key(i), CowOperation::Delete)).collect();
        let three = onto(&table, two, &gone);
        let whole = first(&store, order, &base, 3);
        let open = |version| table.open_version(version).unwrap();
        let compare = |before, after| {
            let (before, after) = (open(before), open(after));
            compare_sampled(&before, &after, 20_000, &**store.random(), &|_| ()).unwrap()
        };
        let near = |seen: u64, wanted: u64| seen.abs_diff(wanted) <= wanted / 10;
        let seen = compare(two, three);
        assert!(near(seen.rows_before, 20_000) && near(seen.rows_after, 14_000));
        assert!((seen.lost.fraction() - 0.3).abs() < 0.05, "{seen:?}");
        let seen = compare(two, whole);
        assert!(near(seen.rows_before, 20_000) && seen.rows_after == 20_000);
        assert!(near(seen.bytes_before, seen.bytes_after) && !seen.bytes_are_exact);
        let seen = compare(three, whole);
        assert!(near(seen.rows_before, 14_000), "{seen:?}");
        assert!((seen.new.fraction() - 0.3).abs() < 0.05, "{seen:?}");
    }
}

/// A server that switches to a version on top of its own opens only the new runs.
#[test]
fn a_follower_shares_the_runs_of_versions() {
    let disk = SimDisk::new();
    let store = store_on(&disk, 12);
    let base = rows(1, 200);
    let one = first(&store, Order::Hashed, &base, 4);
    let table = store.table(&name("t")).unwrap();
    let serving = Serving::manual(store.clone());
    let before = serving.table(b"t").unwrap();
    let key = base.keys().next().unwrap();
    let delete = Operations::from([(key.clone(), CowOperation::Delete)]);
    let two = onto(&table, one, &delete);
    // The older runs cannot be opened any more, and need not be.
    let manifest = table.manifest(one).unwrap();
    for run in manifest.runs() {
        let path = root().join(format!("tables/t/runs/{}.run", run.id));
        disk.tamper(&path, |bytes| {
            let footer = bytes.len() - 100;
            bytes[footer] ^= 1;
        });
    }
    assert!(table.open_version(two).is_err());
    table.swap(two).unwrap();
    serving.refresh();
    let after = serving.table(b"t").unwrap();
    assert_eq!((before.version(), after.version()), (one, two));
    assert_eq!(after.get(key).unwrap(), None);
    assert_eq!(read_all(&after).len(), 199);
}
