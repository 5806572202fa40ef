//! Ranges of keys that one record deletes.

use std::ops::Bound;
use std::time::Duration;

use forebay_io::Clock;
use forebay_run::operation::DeltaKind;

use super::*;
use crate::keys::partition::PartitionId;
use crate::live::{Batch, PartitionContent};

fn put(table: &LiveTable, model: &mut Model, keys: std::ops::Range<u32>, value: &[u8]) {
    for number in keys {
        let key = format!("k{number:04}").into_bytes();
        let _ = table.update(&key, value).unwrap();
        model.insert(key, value.to_vec());
    }
}

fn remove(table: &LiveTable, model: &mut Model, from: &str, to: &str) {
    let (from, to) = (from.as_bytes(), to.as_bytes());
    let gone = model.range(from.to_vec()..to.to_vec()).count();
    model.retain(|key, _| !(from..to).contains(&&key[..]));
    let range = (Bound::Included(from), Bound::Excluded(to));
    let (count, commit) = table.delete_range_counted(range.0, range.1).unwrap();
    commit.wait().unwrap();
    assert_eq!(count, gone as u64);
}

/// Compares by scans both ways, single look-ups, batches and prefixes.
fn same(table: &LiveTable, model: &Model) {
    let all: Vec<_> = model.clone().into_iter().collect();
    assert_eq!(collect(table.entries()), all);
    let (no_from, no_to) = (Bound::Unbounded, Bound::Unbounded);
    let mut backward = collect(table.scan(no_from, no_to, Direction::Backward).unwrap());
    backward.reverse();
    assert_eq!(backward, all);
    let keys: Vec<Vec<u8>> = (0..400).map(|n| format!("k{n:04}").into_bytes()).collect();
    let values = table.get_many(&keys).unwrap();
    for (key, value) in keys.iter().zip(values) {
        assert_eq!(value.as_ref(), model.get(key), "{key:?}");
        assert_eq!(table.get(key).unwrap().as_ref(), model.get(key), "{key:?}");
    }
    let within = collect(table.scan_prefix(b"k01", Direction::Forward).unwrap());
    let wanted = all.iter().filter(|(key, _)| key.starts_with(b"k01"));
    assert_eq!(within, wanted.cloned().collect::<Vec<_>>());
}

#[test]
fn a_deleted_range_is_gone_wherever_its_keys_lie() {
    let boundaries = vec![b"k0100".to_vec(), b"k0200".to_vec()];
    let (disk, table) = create(LiveDraft::ordered(boundaries));
    let mut model = Model::new();
    put(&table, &mut model, 0..400, b"in runs");
    table.flush().unwrap();
    put(&table, &mut model, 50..350, b"in more runs");
    table.flush().unwrap();
    put(&table, &mut model, 120..130, b"in memory");
    let before = (table.snapshot(), model.clone());
    remove(&table, &mut model, "k0060", "k0125");
    same(&table, &model);
    // Newer than the range; one of them in the midst of it.
    put(&table, &mut model, 110..112, b"again");
    remove(&table, &mut model, "k0111", "k0210");
    remove(&table, &mut model, "k0300", "k0310");
    same(&table, &model);
    table.flush().unwrap();
    same(&table, &model);
    put(&table, &mut model, 205..206, b"at last");
    drop(table);
    let table = open(&disk).unwrap();
    same(&table, &model);
    let killed = open(&disk.after_kill()).unwrap();
    same(&killed, &model);
    table.compact().unwrap();
    same(&table, &model);
    assert_eq!(table.stats().run_records, model.len() as u64);
    let of_before: Vec<_> = before.1.into_iter().collect();
    assert_eq!(collect(before.0.scan(Direction::Forward)), of_before);
}

#[test]
fn deltas_and_inserts_start_without_values_after_a_range_is_deleted() {
    let draft = LiveDraft::ordered(Vec::new()).delta(DeltaKind::AddI64);
    let (disk, table) = create(draft);
    let number = |n: i64| n.to_le_bytes();
    let written = |table: &LiveTable, key: &[u8]| {
        let value = table.get(key).unwrap()?;
        Some(i64::from_le_bytes(value.try_into().unwrap()))
    };
    for round in 0..3 {
        for key in [b"a", b"b", b"c"] {
            let _ = table.delta(key, &number(5)).unwrap();
        }
        if round == 0 {
            table.flush().unwrap();
        }
        table.delete_all().unwrap().wait().unwrap();
        if round == 1 {
            table.flush().unwrap();
        }
        assert_eq!(written(&table, b"a"), None);
        let _ = table.delta(b"a", &number(2)).unwrap();
        let _ = table.insert(b"b", &number(7)).unwrap();
        assert!(!table.modify(b"c", |c| (None, c.is_some())).unwrap().1);
        let mut batch = Batch::new();
        batch.delta(b"c", &number(1));
        batch.delta(b"c", &number(1));
        table.write(&batch).unwrap().wait().unwrap();
        let killed = open(&disk.after_kill()).unwrap();
        for table in [&table, &killed] {
            let all = [b"a", b"b", b"c"].map(|key| written(table, key));
            assert_eq!(all, [Some(2), Some(7), Some(2)], "round {round}");
        }
    }
    table.compact().unwrap();
    assert_eq!(written(&table, b"a"), Some(2));
}

#[test]
fn a_table_that_is_emptied_frees_its_space() {
    for draft in both_orders() {
        let (disk, table) = create(draft);
        let mut model = Model::new();
        for value in [b"1", b"2"] {
            put(&table, &mut model, 0..20_000, value);
            table.flush().unwrap();
        }
        let full_bytes = table.stats().file_bytes;
        let moment = table.snapshot();
        table.delete_all().unwrap().wait().unwrap();
        // Readers see no keys at once, before any file is removed.
        assert_eq!(table.stats().most_keys(), 0);
        assert_eq!(collect(table.entries()), []);
        let clock = SystemClock;
        let begun = clock.monotonic();
        while table.stats().file_bytes > 0 && clock.monotonic() - begun < Duration::from_secs(60) {
            clock.sleep(Duration::from_millis(10));
        }
        assert_eq!(table.stats().file_bytes, 0, "of {full_bytes}");
        assert_eq!(collect(moment.scan(Direction::Forward)).len(), 20_000);
        drop((moment, table));
        assert_eq!(collect(open(&disk).unwrap().entries()), []);
    }
}

#[test]
fn space_is_freed_once_ranges_cover_half_of_it() {
    let (_disk, table) = create(LiveDraft::ordered(Vec::new()));
    let mut model = Model::new();
    put(&table, &mut model, 0..9000, &[7; 100]);
    table.flush().unwrap();
    let full_bytes = table.stats().file_bytes;
    let clock = SystemClock;
    for (from, to) in [("k0100", "k1000"), ("k2000", "k4000"), ("k4000", "k6900")] {
        remove(&table, &mut model, from, to);
    }
    let begun = clock.monotonic();
    while table.stats().file_bytes * 2 > full_bytes
        && clock.monotonic() - begun < Duration::from_secs(60)
    {
        clock.sleep(Duration::from_millis(10));
    }
    assert!(table.stats().file_bytes * 2 <= full_bytes);
    same(&table, &model);
    assert_eq!(table.stats().run_records, model.len() as u64);
}

#[test]
fn more_ranges_than_a_partition_takes_are_deleted_key_by_key() {
    let (disk, table) = create(LiveDraft::ordered(Vec::new()));
    let mut model = Model::new();
    put(&table, &mut model, 0..3000, b"v");
    table.flush().unwrap();
    for number in (0..2600).step_by(2) {
        let (from, to) = (format!("k{number:04}"), format!("k{:04}", number + 1));
        remove(&table, &mut model, &from, &to);
    }
    assert!(table.shared().parts.at(0).lock().view.removed_ranges() <= 1000);
    same(&table, &model);
    table.compact().unwrap();
    assert_eq!(table.shared().parts.at(0).lock().view.removed_ranges(), 0);
    same(&open(&disk.after_kill()).unwrap(), &model);
}

#[test]
fn a_partition_adopted_later_keeps_its_keys() {
    let (disk, table) = create(LiveDraft::ordered(vec![b"m".to_vec()]));
    let range = table.partitions()[1].clone();
    table.release(range.id).unwrap();
    let _ = table.update(b"a", b"1").unwrap();
    table.delete_all().unwrap().wait().unwrap();
    table.adopt(PartitionContent::empty(range.clone())).unwrap();
    table.update(b"n", b"2").unwrap().wait().unwrap();
    assert_eq!(range.id, PartitionId(1));
    let killed = open(&disk.after_kill()).unwrap();
    assert_eq!(collect(killed.entries()), [(b"n".to_vec(), b"2".to_vec())]);
}
