//! Records that expire.

use crate::keys::partition::PartitionRange;
use std::path::Path;
use std::sync::Arc;

use forebay_io::sim::{HandClock, SeededRandom, SimDisk};
use forebay_run::operation::{DeltaKind, Operation};
use forebay_run::times::Times;

use super::{collect, name};
use crate::live::{Batch, Budget, Expiry, LiveDraft, LiveError, LiveTable, Stored};
use crate::tables::store::Store;

fn create(expiry: Expiry) -> (LiveTable, Arc<HandClock>) {
    create_with(
        LiveDraft::ordered(Vec::new())
            .delta(DeltaKind::Append)
            .expiry(expiry),
    )
}

fn create_with(options: LiveDraft) -> (LiveTable, Arc<HandClock>) {
    let clock = Arc::new(HandClock::of_dates(0));
    let random = Arc::new(SeededRandom::new(3));
    let disk = Arc::new(SimDisk::new());
    let store = Store::open_or_create(disk, clock.clone(), random, Path::new("/s")).unwrap();
    let table = store
        .create_live(&name(), options, &Budget::new(8 << 20))
        .unwrap();
    (table, clock)
}

fn get(table: &LiveTable, key: &[u8]) -> Option<String> {
    let value = table.get(key).unwrap();
    assert_eq!(table.snapshot().get(key).unwrap(), value);
    assert_eq!(
        table.get_many(&[key]).unwrap(),
        std::slice::from_ref(&value)
    );
    let scanned = collect(table.entries())
        .into_iter()
        .find(|(found, _)| found == key);
    assert_eq!(scanned.map(|(_, value)| value), value);
    value.map(|value| String::from_utf8(value).unwrap())
}

#[test]
fn a_record_lasts_for_the_ttl_of_its_table_in_memory_and_runs() {
    for step in 0..3 {
        let (table, clock) = create(Expiry::AfterMs(100));
        let settle = || match step {
            0 => {}
            1 => table.flush().unwrap(),
            _ => table.compact().unwrap(),
        };
        clock.set(1000);
        table.update(b"k", b"a").unwrap().wait().unwrap();
        table.insert(b"new", b"n").unwrap().wait().unwrap();
        settle();
        clock.set(1099);
        assert_eq!(get(&table, b"k").as_deref(), Some("a"));
        table.insert(b"k", b"ignored").unwrap().wait().unwrap();
        table.delta(b"k", b"b").unwrap().wait().unwrap();
        settle();
        clock.set(1198);
        assert_eq!(get(&table, b"k").as_deref(), Some("ab"));
        assert_eq!(get(&table, b"new"), None);
        clock.set(1199);
        assert_eq!(get(&table, b"k"), None);
        table.delta(b"k", b"c").unwrap().wait().unwrap();
        table.insert(b"new", b"m").unwrap().wait().unwrap();
        settle();
        assert_eq!(get(&table, b"k").as_deref(), Some("c"));
        assert_eq!(get(&table, b"new").as_deref(), Some("m"));
    }
}

#[test]
fn a_record_with_its_own_moment_goes_then_and_others_stay() {
    let (table, clock) = create(Expiry::PerRecord);
    let mut batch = Batch::new();
    batch.push(
        b"short",
        Operation::Update(b"s").with_times(Times::until(50)),
    );
    batch.update(b"long", b"l");
    batch.insert(b"long", b"ignored");
    batch.insert(b"other", b"o");
    table.write(&batch).unwrap().wait().unwrap();
    assert_eq!(table.expires_ms(b"short").unwrap(), Some(50));
    assert_eq!(table.expires_ms(b"long").unwrap(), Some(u64::MAX));
    assert_eq!(table.expires_ms(b"absent").unwrap(), None);
    clock.set(50);
    assert_eq!(table.expires_ms(b"short").unwrap(), None);
    assert_eq!(get(&table, b"short"), None);
    assert_eq!(get(&table, b"long").as_deref(), Some("l"));
    assert_eq!(get(&table, b"other").as_deref(), Some("o"));
}

#[test]
fn a_transaction_reads_values_with_their_expiry() {
    for expiry in [Expiry::PerRecord, Expiry::AfterMs(100)] {
        let (table, clock) = create(expiry);
        let until =
            |value: &'static [u8], ms| Operation::Update(value).with_times(Times::until(ms));
        let mut batch = Batch::new();
        batch.push(b"a", until(b"x", 50));
        batch.update(b"b", b"y");
        table.write(&batch).unwrap().wait().unwrap();
        let read = |at_ms| {
            clock.set(at_ms);
            let keys: [&[u8]; 3] = [b"a", b"b", b"c"];
            let reported = |stored: Stored| (stored.value, stored.expires_ms);
            let read = |values: Vec<Option<Stored>>| {
                let values = values.into_iter().map(|stored| stored.map(reported));
                (Batch::new(), values.collect::<Vec<_>>())
            };
            table.transact(&keys, read).unwrap().1
        };
        let last_ms = match expiry {
            Expiry::AfterMs(ms) => ms,
            _ => u64::MAX,
        };
        let b = Some((b"y".to_vec(), last_ms));
        assert_eq!(read(49), [Some((b"x".to_vec(), 50)), b.clone(), None]);
        assert_eq!(table.try_expires_ms(b"a").unwrap(), Some(Some(50)));
        assert_eq!(read(50), [None, b, None]);
        assert_eq!(table.try_expires_ms(b"a").unwrap(), Some(None));
        // A delta with the same expiry time keeps the time of the value that it joins.
        let mut batch = Batch::new();
        batch.push(b"b", Operation::Delta(b"z").with_times(Times::until(70)));
        table.write(&batch).unwrap().wait().unwrap();
        assert_eq!(table.try_expires_ms(b"b").unwrap(), Some(Some(70)));
        assert_eq!(get(&table, b"b").as_deref(), Some("yz"));
    }
}

#[test]
fn a_table_without_expiry_refuses_operations_that_have_one() {
    let (table, _clock) = create(Expiry::Never);
    let mut batch = Batch::new();
    batch.push(b"k", Operation::Update(b"v").with_times(Times::until(50)));
    let error = table.write(&batch).map(|_| ()).unwrap_err();
    assert!(matches!(error, LiveError::NoExpiry { .. }), "{error}");
}

#[test]
fn expired_records_return_their_space() {
    let (table, clock) = create_with(LiveDraft::hashed().expiry(Expiry::AfterMs(100)));
    for number in 0..100u32 {
        table
            .update(&number.to_be_bytes(), b"v")
            .unwrap()
            .wait()
            .unwrap();
    }
    table.flush().unwrap();
    assert_eq!(table.stats().run_records, 100);
    clock.set(100);
    for number in 0..10u32 {
        table
            .update(&number.to_be_bytes(), b"w")
            .unwrap()
            .wait()
            .unwrap();
    }
    for PartitionRange { id, .. } in table.partitions() {
        let key = (0u32..)
            .map(u32::to_be_bytes)
            .find(|key| table.partition_of(key) == Some(id));
        table.delete(&key.unwrap()).unwrap().wait().unwrap();
    }
    table.compact().unwrap();
    assert_eq!(
        table.stats().run_records,
        collect(table.entries()).len() as u64
    );
    assert!(table.stats().run_records < 10);
}

#[test]
fn inserts_see_expired_records_in_batches_and_transactions() {
    let (table, clock) = create(Expiry::PerRecord);
    clock.set(100);
    let mut batch = Batch::new();
    batch.push(
        b"k",
        Operation::Update(b"gone").with_times(Times::until(50)),
    );
    batch.insert(b"k", b"new");
    table.write(&batch).unwrap().wait().unwrap();
    assert_eq!(get(&table, b"k").as_deref(), Some("new"));
    let mut batch = Batch::new();
    for key in [&b"a"[..], b"b"] {
        batch.push(key, Operation::Update(b"old").with_times(Times::until(200)));
    }
    table.write(&batch).unwrap().wait().unwrap();
    clock.set(200);
    let inserts = |_: Vec<Option<Stored>>| {
        let mut batch = Batch::new();
        for key in [&b"a"[..], b"b", b"k"] {
            batch.insert(key, b"inserted");
        }
        (batch, ())
    };
    // One key is read, the others are not.
    let (commit, ()) = table.transact(&[&b"a"[..]], inserts).unwrap();
    commit.wait().unwrap();
    assert_eq!(get(&table, b"a").as_deref(), Some("inserted"));
    assert_eq!(get(&table, b"b").as_deref(), Some("inserted"));
    assert_eq!(get(&table, b"k").as_deref(), Some("new"));
}

#[test]
fn expired_values_are_dropped_unless_a_delta_may_need_them() {
    let (table, clock) = create_with(
        LiveDraft::ordered(Vec::new())
            .delta(DeltaKind::Append)
            .factor(2)
            .expiry(Expiry::AfterMs(100)),
    );
    let update = |key: &[u8]| table.update(key, b"x").unwrap().wait().unwrap();
    let merged = || {
        table.flush().unwrap();
        while table.stats().is_merge_due {
            std::thread::yield_now();
        }
    };
    clock.set(1000);
    update(b"needed");
    update(b"not");
    merged();
    clock.set(1050);
    update(b"other");
    merged();
    // Written while the value lasted, and not merged with it yet.
    clock.set(1090);
    table.delta(b"needed", b"y").unwrap().wait().unwrap();
    clock.set(1120);
    table.compact().unwrap();
    assert_eq!(get(&table, b"needed").as_deref(), Some("xy"));
    // By now all of it is in one run: nothing waits.
    assert_eq!(table.stats().run_records, 2);
    clock.set(1195);
    update(b"last");
    table.compact().unwrap();
    assert_eq!(table.stats().run_records, 1);
    assert_eq!(get(&table, b"needed"), None);
}

/// Merges of the oldest runs while deltas wait in newer ones, in memory, in the buffer.
#[test]
fn a_merge_keeps_the_expired_value_that_a_waiting_delta_met() {
    for flushes in [false, true] {
        let (table, clock) = create_with(
            LiveDraft::ordered(Vec::new())
                .delta(DeltaKind::Append)
                .factor(2)
                .expiry(Expiry::AfterMs(100)),
        );
        let update = |key: &[u8]| table.update(key, b"x").unwrap().wait().unwrap();
        clock.set(1000);
        update(b"k");
        table.flush().unwrap();
        clock.set(1090);
        let compacting = table.shared().compacting.lock();
        update(b"other");
        table.flush().unwrap();
        table.delta(b"k", b"y").unwrap().wait().unwrap();
        if flushes {
            table.flush().unwrap();
        }
        clock.set(1150);
        drop(compacting);
        table.shared().notify(|_| ());
        // A merge counts when its inputs are gone.
        while table.stats().is_merge_due || table.stats().merges == 0 {
            std::thread::yield_now();
        }
        assert_eq!(get(&table, b"k").as_deref(), Some("xy"));
        let other = get(&table, b"other");
        assert_eq!(other.as_deref(), Some("x"));
    }
}
