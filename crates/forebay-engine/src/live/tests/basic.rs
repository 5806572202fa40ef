//! Operations, batches, scans, snapshots.

use std::ops::Bound;

use forebay_io::sim::Rng;
use forebay_run::format::MAX_KEY_BYTES;
use forebay_run::operation::{CowOperation, DeltaKind};
use forebay_run::scan::Direction;

use super::{Model, both_orders, check, collect, create, write_some};
use crate::live::{Batch, LiveDraft, LiveError};

#[test]
fn writes_are_read_from_memory_and_from_runs() {
    for options in both_orders() {
        let (_disk, table) = create(options.delta(DeltaKind::Append));
        let mut model = Model::new();
        let mut rng = Rng(7);
        for round in 0..6 {
            write_some(&table, &mut model, &mut rng, 700);
            check(&table, &model);
            if round % 2 == 1 {
                table.flush().unwrap();
                check(&table, &model);
            }
        }
        table.compact().unwrap();
        check(&table, &model);
        assert!(
            table.stats().runs.iter().all(|runs| *runs <= 1),
            "{:?}",
            table.stats()
        );
        assert_eq!(table.stats().run_records, model.len() as u64);
        write_some(&table, &mut model, &mut rng, 700);
        check(&table, &model);
    }
}

#[test]
fn a_snapshot_stays_as_it_was() {
    for options in both_orders() {
        let (_disk, table) = create(options);
        let mut rng = Rng(3);
        let mut model = Model::new();
        write_some(&table, &mut model, &mut rng, 300);
        table.flush().unwrap();
        write_some(&table, &mut model, &mut rng, 300);
        let snapshot = table.snapshot();
        let before = model.clone();
        write_some(&table, &mut model, &mut rng, 300);
        table.compact().unwrap();
        let found: Model = collect(snapshot.scan(Direction::Forward))
            .into_iter()
            .collect();
        assert_eq!(found, before);
        assert_ne!(before, model);
        check(&table, &model);
    }
}

#[test]
fn ranges_are_walked_both_ways_with_limits() {
    let (_disk, table) = create(LiveDraft::ordered(vec![b"c".to_vec(), b"e".to_vec()]));
    for key in ["a", "b", "c", "d", "e", "f"] {
        table.update(key.as_bytes(), b"v").unwrap().wait().unwrap();
        if key == "c" {
            table.flush().unwrap();
        }
    }
    table.delete(b"d").unwrap().wait().unwrap();
    let keys = |from: Bound<&[u8]>, to: Bound<&[u8]>, direction, limit| -> String {
        let scan = table.scan(from, to, direction).unwrap().limit(limit);
        let keys = collect(scan).into_iter().map(|(key, _)| key);
        String::from_utf8(keys.flatten().collect()).unwrap()
    };
    let (included, excluded) = (|key| Bound::Included(key), |key| Bound::Excluded(key));
    let (a, b, e): (&[u8], &[u8], &[u8]) = (b"a", b"b", b"e");
    assert_eq!(
        keys(Bound::Unbounded, Bound::Unbounded, Direction::Forward, 9),
        "abcef"
    );
    assert_eq!(keys(included(b), excluded(e), Direction::Forward, 9), "bc");
    assert_eq!(
        keys(excluded(a), included(e), Direction::Backward, 9),
        "ecb"
    );
    assert_eq!(
        keys(Bound::Unbounded, Bound::Unbounded, Direction::Backward, 2),
        "fe"
    );
    assert_eq!(keys(included(e), excluded(b), Direction::Forward, 9), "");
    let (deleted, commit) = table
        .delete_range_counted(included(b), excluded(e))
        .unwrap();
    commit.wait().unwrap();
    assert_eq!(deleted, 2);
    assert_eq!(
        keys(Bound::Unbounded, Bound::Unbounded, Direction::Forward, 9),
        "aef"
    );
}

#[test]
fn hashed_tables_have_no_ranges_of_keys() {
    let (_disk, table) = create(LiveDraft::hashed());
    let scan = table.scan(Bound::Unbounded, Bound::Unbounded, Direction::Forward);
    assert!(matches!(scan, Err(LiveError::NoKeyOrder { .. })));
}

#[test]
fn a_batch_of_one_partition_is_written_and_others_are_refused() {
    let (_disk, table) = create(LiveDraft::ordered(vec![b"m".to_vec()]));
    let mut batch = Batch::new();
    batch.update(b"a", b"1");
    batch.insert(b"a", b"2");
    batch.update(b"b", b"3");
    batch.delete(b"b");
    table.write(&batch).unwrap().wait().unwrap();
    assert_eq!(table.get(b"a").unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(table.get(b"b").unwrap(), None);
    batch.update(b"z", b"4");
    let error = table.write(&batch).unwrap_err();
    assert!(
        matches!(&error, LiveError::AcrossPartitions { .. }),
        "{error}"
    );
    assert_eq!(table.get(b"z").unwrap(), None);
    let empty = table.write(&Batch::new()).unwrap();
    assert!(empty.is_durable());
}

#[test]
fn read_modify_write_steps_lose_no_count() {
    let (_disk, table) = create(LiveDraft::hashed());
    let add = |value: Option<&[u8]>| {
        let count: u64 = value.map_or(0, |value| String::from_utf8_lossy(value).parse().unwrap());
        let next = (count + 1).to_string().into_bytes();
        (Some(CowOperation::Update(next.into())), count + 1)
    };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for step in 0..100 {
                    table.modify(b"counter", add).unwrap().0.wait().unwrap();
                    if step == 50 {
                        table.flush().unwrap();
                    }
                }
            });
        }
    });
    assert_eq!(table.get(b"counter").unwrap().as_deref(), Some(&b"400"[..]));
    let (commit, seen) = table
        .modify(b"counter", |value| (None, value.map(<[u8]>::to_vec)))
        .unwrap();
    assert!(commit.is_durable());
    assert_eq!(seen.as_deref(), Some(&b"400"[..]));
}

#[test]
fn unsupported_records_are_refused_on_write() {
    let (_disk, table) = create(LiveDraft::hashed());
    assert!(matches!(
        table.update(b"", b"v"),
        Err(LiveError::Key { .. })
    ));
    assert!(matches!(
        table.delete(&[7; MAX_KEY_BYTES + 1]),
        Err(LiveError::Key { .. })
    ));
    assert!(matches!(
        table.delta(b"k", b"v"),
        Err(LiveError::NoDelta { .. })
    ));
    let (_disk, counters) = create(LiveDraft::hashed().delta(DeltaKind::AddI64));
    assert!(matches!(
        counters.delta(b"k", b"1"),
        Err(LiveError::Operand { .. })
    ));
    assert!(matches!(
        counters.update(b"k", b"1"),
        Err(LiveError::Operand { .. })
    ));
    counters
        .update(b"k", &5i64.to_le_bytes())
        .unwrap()
        .wait()
        .unwrap();
    counters
        .delta(b"k", &(-7i64).to_le_bytes())
        .unwrap()
        .wait()
        .unwrap();
    assert_eq!(
        counters.get(b"k").unwrap(),
        Some((-2i64).to_le_bytes().to_vec())
    );
}

#[test]
fn values_larger_than_every_buffer_are_kept() {
    for options in both_orders() {
        let (disk, table) = create(options);
        let large = vec![b'x'; 700 << 10];
        for key in ["key-1", "key-4", "key-9"] {
            table
                .update(key.as_bytes(), &large)
                .unwrap()
                .wait()
                .unwrap();
        }
        assert_eq!(table.get(b"key-4").unwrap().as_ref(), Some(&large));
        drop(table);
        let table = super::open(&disk).unwrap();
        table.flush().unwrap();
        assert_eq!(table.get(b"key-9").unwrap().as_ref(), Some(&large));
        assert_eq!(collect(table.entries()).len(), 3);
    }
}

#[test]
fn many_snapshots_leave_few_runs_in_memory() {
    let (_, table) = create(LiveDraft::hashed().partitions(2));
    for number in 0..3000u64 {
        table
            .update(&super::key(number), b"v")
            .unwrap()
            .wait()
            .unwrap();
        let mut scan = table.entries();
        assert!(scan.advance().unwrap());
    }
    for part in table.shared().parts.iter() {
        let minis = part.lock().view.minis.len();
        assert!(minis < 100, "{minis} runs in memory");
    }
}
