//! Keys that are read together, and watched.

use forebay_io::sim::TestOver;

use super::create;
use crate::live::{Batch, LiveDraft, LiveError, LiveTable};

/// The first three lie in one partition, the others in two more.
const KEYS: [&[u8]; 5] = [b"key-30", b"key-31", b"key-32", b"key-10", b"key-70"];

fn table() -> LiveTable {
    let bounds = vec![b"key-3".to_vec(), b"key-6".to_vec()];
    create(LiveDraft::ordered(bounds)).1
}

fn set_all(table: &LiveTable, keys: &[&[u8]], value: u64) {
    let mut batch = Batch::new();
    keys.iter()
        .for_each(|key| batch.update(key, &value.to_le_bytes()));
    table.write(&batch).unwrap().wait().unwrap();
}

#[test]
fn keys_of_one_partition_are_of_one_moment() {
    let table = table();
    let together = &KEYS[..3];
    set_all(&table, together, 0);
    let over = TestOver::default();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _at_end = over.at_end();
            for number in 1..20_000 {
                set_all(&table, together, number);
                if number % 5000 == 0 {
                    table.flush().unwrap();
                }
            }
        });
        while !over.is() {
            let values = table.get_many(&KEYS).unwrap();
            assert!(values[0].is_some() && values[3].is_none() && values[4].is_none());
            assert!(
                values[..3].iter().all(|value| *value == values[0]),
                "{values:?}"
            );
            let Some(snapshot) = table.try_snapshot_keys(&KEYS).unwrap() else {
                continue;
            };
            let value = |index| snapshot.stored(index, true).unwrap().flatten();
            let values = [value(2), value(0), value(1)].map(|stored| stored.map(|s| s.value));
            assert!(values.iter().all(|value| *value == values[0]), "{values:?}");
        }
    });
}

#[test]
fn read_values_do_not_change() {
    let table = table();
    set_all(&table, &KEYS[..3], 1);
    let snapshot = table.snapshot_keys(&KEYS).unwrap();
    set_all(&table, &KEYS[..3], 2);
    table.compact().unwrap();
    let held = |index| {
        snapshot
            .stored(index, true)
            .unwrap()
            .map(|s| s.map(|s| s.value))
    };
    assert_eq!(held(0), Some(Some(1u64.to_le_bytes().to_vec())));
    assert_eq!(held(4), Some(None));
}

#[test]
fn a_watch_reports_every_write_to_its_key() {
    let table = table();
    let watch = |key: &[u8]| table.watch(key).unwrap();
    let (first, second, other) = (watch(KEYS[0]), watch(KEYS[1]), watch(KEYS[4]));
    table.update(KEYS[0], b"x").unwrap().wait().unwrap();
    assert!(first.is_written() && !second.is_written());
    set_all(&table, &[KEYS[1]], 7);
    assert!(second.is_written());
    let again = watch(KEYS[1]);
    table.flush().unwrap();
    table.compact().unwrap();
    assert!(!again.is_written() && !other.is_written());
    let id = table.partition_of(KEYS[1]).unwrap();
    table.release(id).unwrap();
    assert!(again.is_written() && !other.is_written());
    assert!(matches!(
        table.watch(KEYS[1]),
        Err(LiveError::NotHere { .. })
    ));
}

#[test]
fn a_watch_of_a_closed_table_counts_as_written() {
    let table = table();
    let watch = table.watch(KEYS[0]).unwrap();
    drop(table);
    assert!(watch.is_written());
}

/// Increments by watching, reading and writing: none is lost.
#[test]
fn no_write_lies_between_a_watch_and_its_transaction() {
    let table = table();
    let add_one = |_| {
        loop {
            let watch = table.watch(KEYS[0]).unwrap();
            let before = table.get(KEYS[0]).unwrap().map_or(0, |value| {
                u64::from_le_bytes(value.try_into().expect("eight bytes"))
            });
            let decide = |_| {
                let mut batch = Batch::new();
                if !watch.is_written() {
                    batch.update(KEYS[0], &(before + 1).to_le_bytes());
                }
                let wrote = !batch.is_empty();
                (batch, wrote)
            };
            if table.transact(&[KEYS[0]], decide).unwrap().1 {
                return;
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..500).for_each(add_one));
        }
    });
    let value = table.get(KEYS[0]).unwrap();
    assert_eq!(value, Some(2000u64.to_le_bytes().to_vec()));
}
