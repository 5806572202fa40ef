//! Failures of each disk call in each way, during everything that a table does. The tests check the
//! table, its next opening and the state after a power cut.

use std::collections::BTreeMap;
use std::ops::Bound as RangeBound;

use forebay_engine::live::{Durability, LiveError, PartitionContent};
use forebay_engine::{Bound, PartitionId, Store, StoreError};
use forebay_io::sim::{Fault, Rng, SimDisk};
use forebay_run::Order;
use forebay_run::operation::DeltaKind;

use crate::common::{name, store_on};
use crate::live::history::{History, Op};
use crate::live::life::{Life, budget, collect, is_full, keys, op, open_on, options, value};
use crate::live::{for_seeds, one_of};

pub const FAULTS: [Fault; 4] = [Fault::Error, Fault::Full, Fault::NoFiles, Fault::Dead];

/// Does some of everything. Failures are noted and skipped.
fn do_everything(life: &mut Life, rng: &mut Rng) {
    let kind = life.options.delta;
    let keys = keys();
    for _ in 0..3 {
        for number in 0..5 {
            let _ = life.write(op(rng, kind), number % 2 == 0);
        }
        let key = &keys[rng.below(40) as usize];
        let absent = value(rng, kind);
        let _ = life.modify(key, &absent);
        let partition = life.table.partition_of(key);
        let mut unit = vec![Op::Delete(key.clone())];
        unit.extend((0..12).map(|_| op(rng, kind)));
        unit.retain(|op| life.table.partition_of(op.key()) == partition);
        let _ = life.write_batch(unit, true);
        let _ = life.flush();
    }
    let ops = (0..20).map(|_| op(rng, kind)).collect();
    let _ = life.ingest(ops);
    let _ = life.split(rng);
    if life.options.order == Order::Ordered {
        let (from, to) = (
            RangeBound::Included(&b"k3"[..]),
            RangeBound::Excluded(&b"k31"[..]),
        );
        let _ = life.delete_range((from, to), false);
    }
    let _ = life.write(op(rng, kind), true);
    let _ = life.flush();
    let _ = life.delete_all();
    let _ = life.write(op(rng, kind), true);
    let _ = life.compact();
    let _ = life.write(op(rng, kind), true);
}

/// Checks the states that an opening may find on `disk`.
fn check_found(disk: &SimDisk, history: &History, may_lose: bool, words: &str) {
    let table = open_on(disk).unwrap_or_else(|error| panic!("{words}: {error}"));
    history
        .clone()
        .found(collect(table.entries()), may_lose, words);
    // It accepts writes again in all cases.
    let commit = table
        .delete(b"k1")
        .unwrap_or_else(|error| panic!("{words}: {error}"));
    commit.wait().unwrap();
    assert_eq!(table.get(b"k1").unwrap(), None);
}

/// Makes call `nth` fail. Returns whether that call was reached.
fn fail_at(
    nth: u64,
    fault: Fault,
    seed: u64,
    durability: Option<Durability>,
    order: Order,
) -> bool {
    let kind = [None, Some(DeltaKind::AddI64), Some(DeltaKind::Append)][(seed % 3) as usize];
    let words = format!("seed {seed}, {order:?}, {durability:?}, call {nth}, {fault:?}");
    let mut life = Life::new(options(order, kind, durability));
    let before = life.disk.calls();
    life.disk.plan(nth, fault);
    do_everything(&mut life, &mut Rng(seed));
    let reached = life.disk.calls() - before > nth;
    // Later calls should succeed, if they can.
    life.disk.plan(u64::MAX / 2, fault);
    let logged = durability.is_some();
    check_found(
        &life.disk.after_kill(),
        &life.history,
        !logged,
        &format!("{words}, killed"),
    );
    for cut in 0..3 {
        let disk = life.disk.after_power_cut(seed + cut);
        check_found(
            &disk,
            &life.history,
            true,
            &format!("{words}, power cut {cut}"),
        );
    }
    match fault {
        Fault::Dead => return reached,
        Fault::Error => life.check(&words),
        Fault::Full | Fault::NoFiles => {
            life.check(&words);
            life.disk.make_room();
            let key = b"k5".to_vec();
            let resumed = life.write(Op::Delete(key), true);
            resumed.unwrap_or_else(|error| panic!("{words}: {error}"));
            // An attempt that began earlier is not the last one.
            let flushed = (0..3).map(|_| life.flush()).find(Result::is_ok);
            assert!(flushed.is_some(), "{words}: {:?}", life.table.stats());
            life.check(&words);
            assert_eq!(life.table.stats().failed, None, "{words}");
        }
    }
    // Closed normally.
    let Life {
        table,
        disk,
        history,
        ..
    } = life;
    drop(table);
    check_found(&disk, &history, !logged, &format!("{words}, closed"));
    reached
}

fn fail_everywhere(seed: u64) {
    let rng = &mut Rng(seed);
    let durabilities = [
        Some(Durability::Sync),
        Some(Durability::Os),
        Some(Durability::EveryMs(5)),
        None,
    ];
    let durability = one_of(rng, &durabilities);
    let order = one_of(rng, &[Order::Hashed, Order::Ordered]);
    let fault = one_of(rng, &FAULTS);
    const STRIDE: u64 = 9;
    let mut nth = rng.below(STRIDE);
    while fail_at(nth, fault, seed, durability, order) {
        nth += STRIDE;
    }
}

#[test]
fn no_failed_call_loses_or_invents_a_write() {
    for_seeds(12, fail_everywhere);
}

fn words_of<T>(result: Result<T, LiveError>) -> String {
    result
        .err()
        .map_or_else(|| "done".to_owned(), |error| error.to_string())
}

#[test]
fn opening_may_fail_at_every_call_and_is_done_by_the_next() {
    for durability in [Durability::Sync, Durability::Os] {
        let mut life = Life::new(options(Order::Ordered, None, Some(durability)));
        let mut rng = Rng(11);
        do_everything(&mut life, &mut rng);
        for _ in 0..5 {
            life.write(op(&mut rng, None), true).unwrap();
        }
        // With a run that no manifest names, as an interrupted flush leaves it.
        let leftovers = life.table.new_run().path;
        use forebay_io::Disk;
        life.disk.create(&leftovers).unwrap();
        let base = life.disk.after_kill();
        let whole = base.after_kill();
        drop(open_on(&whole).unwrap());
        let calls = whole.calls();
        assert!(calls > 10, "{calls} calls");
        for nth in 0..calls {
            for fault in FAULTS {
                let disk = base.after_kill();
                let store = store_on(&disk, 5);
                disk.plan(nth, fault);
                let opened = store.live_table(&name("t"), &budget());
                let words = format!("{durability}, call {nth}, {fault:?}: {}", words_of(opened));
                check_found(&disk.after_kill(), &life.history, false, &words);
                for seed in 0..2 {
                    check_found(&disk.after_power_cut(seed), &life.history, true, &words);
                }
            }
        }
    }
}

/// Fails `change` at each of its calls; `found` sees each disk that may be found afterwards.
pub fn at_every_call(
    base: &SimDisk,
    change: impl Fn(&Store) -> Result<(), String>,
    found: impl Fn(&Store, bool, &str),
) {
    let whole = base.after_kill();
    let store = store_on(&whole, 2);
    let before = whole.calls();
    change(&store).unwrap();
    let calls = whole.calls() - before;
    assert!(calls > 3, "{calls} calls");
    for nth in 0..calls {
        for fault in FAULTS {
            let disk = base.after_kill();
            let store = store_on(&disk, 2);
            disk.plan(nth, fault);
            let done = change(&store).is_ok();
            let cuts = (0..3).map(|seed| disk.after_power_cut(seed));
            for (place, disk) in std::iter::once(disk.after_kill()).chain(cuts).enumerate() {
                let words = format!("call {nth} of {calls}, {fault:?}, outcome {place}");
                found(&store_on(&disk, 3), done, &words);
            }
        }
    }
}

#[test]
fn a_table_is_created_or_absent() {
    let base = SimDisk::new();
    store_on(&base, 1);
    let make = |store: &Store| {
        let options = options(Order::Hashed, None, Some(Durability::Sync));
        let made = store.create_live(&name("t"), options, &budget());
        made.map(|_| ()).map_err(|error| error.to_string())
    };
    at_every_call(&base, make, |store, done, words| {
        let there = store.is_live(&name("t")).unwrap();
        assert!(there || !done, "{words}: the call had succeeded");
        if !there {
            make(store).unwrap_or_else(|error| panic!("{words}: {error}"));
        }
        let table = store.live_table(&name("t"), &budget()).unwrap();
        table.update(b"k", b"v").unwrap().wait().unwrap();
        assert!(table.get(b"k").unwrap().is_some(), "{words}");
    });
}

#[test]
fn a_table_is_dropped_or_unchanged() {
    for again in [true, false] {
        fail_drop_everywhere(again);
    }
}

/// `again`: another drop is tried before the table is created again.
fn fail_drop_everywhere(again: bool) {
    let mut life = Life::new(options(Order::Ordered, None, Some(Durability::Sync)));
    do_everything(&mut life, &mut Rng(5));
    life.write(Op::Delete(b"k1".to_vec()), true).unwrap();
    let base = life.disk.after_kill();
    let drop_it = |store: &Store| {
        let dropped = store.drop_table(&name("t"));
        dropped.map_err(|error| error.to_string())
    };
    at_every_call(&base, drop_it, |store, done, words| {
        if store.is_live(&name("t")).unwrap() {
            assert!(!done, "{words}: the call had succeeded");
            let table = store.live_table(&name("t"), &budget());
            let table = table.unwrap_or_else(|error| panic!("{words}: {error}"));
            life.history
                .clone()
                .found(collect(table.entries()), false, words);
        } else {
            // Another drop removes the rest of it, or finds nothing.
            match again.then(|| store.drop_table(&name("t"))) {
                None | Some(Ok(()) | Err(StoreError::NoTable { .. })) => {}
                Some(Err(error)) => panic!("{words}: {error}"),
            }
            let options = options(Order::Ordered, None, Some(Durability::Sync));
            let table = store.create_live(&name("t"), options, &budget());
            let table = table.unwrap_or_else(|error| panic!("{words}: {error}"));
            assert!(collect(table.entries()).is_empty(), "{words}");
        }
    });
}

#[test]
fn a_failed_drop_that_took_effect_says_so() {
    let mut life = Life::new(options(Order::Hashed, None, Some(Durability::Sync)));
    do_everything(&mut life, &mut Rng(7));
    let base = life.disk.after_kill();
    let whole = base.after_kill();
    store_on(&whole, 2).drop_table(&name("t")).unwrap();
    let (mut reported, calls) = (0, whole.calls());
    for nth in 0..calls {
        let disk = base.after_kill();
        let store = store_on(&disk, 2);
        disk.plan(nth, Fault::Error);
        let Err(error) = store.drop_table(&name("t")) else {
            continue;
        };
        let (words, gone) = (error.to_string(), !store.is_live(&name("t")).unwrap());
        let notifies = words.contains("table t is dropped, but") && words.contains("drop it again");
        assert_eq!(notifies, gone, "call {nth}: {words}");
        if gone {
            reported += 1;
            store
                .drop_table(&name("t"))
                .unwrap_or_else(|error| panic!("call {nth}: {error}"));
            assert_eq!(
                disk.files()
                    .iter()
                    .filter(|path| path.starts_with("/s/tables"))
                    .count(),
                0
            );
        }
    }
    assert!(reported > 3, "{reported} of {calls} calls");
}

#[test]
fn a_failed_sync_of_the_log_refuses_writes_and_leaves_reads() {
    let mut life = Life::new(options(Order::Hashed, None, Some(Durability::Sync)));
    let update = |value: &str| Op::Update(b"k1".to_vec(), value.as_bytes().to_vec());
    life.write(update("kept"), true).unwrap();
    // The second call: the record is written, its sync fails.
    life.disk.plan(1, Fault::Error);
    let error = life.write(update("in doubt"), true).unwrap_err();
    assert!(
        error.to_string().contains("takes no more writes"),
        "{error}"
    );
    let error = life.write(update("refused"), true).unwrap_err();
    assert!(
        error.to_string().contains("takes no more writes"),
        "{error}"
    );
    assert!(!is_full(&error) && error.is_final(), "{error}");
    assert_eq!(life.table.get(b"k1").unwrap().unwrap(), b"in doubt");
    life.check("after the sync failed");
}

#[test]
fn a_table_is_synced_at_intervals() {
    let mut life = Life::new(options(Order::Hashed, None, Some(Durability::EveryMs(1))));
    life.write(Op::Update(b"k1".to_vec(), b"v".to_vec()), true)
        .unwrap();
    let durable = || {
        (0..20).all(|seed| {
            let table = open_on(&life.disk.after_power_cut(seed)).unwrap();
            table.get(b"k1").unwrap().is_some()
        })
    };
    while !durable() {
        std::thread::yield_now();
    }
}

#[test]
fn a_partition_is_released_and_adopted_or_unchanged() {
    let mut life = Life::new(options(Order::Ordered, None, Some(Durability::Sync)));
    let mut rng = Rng(11);
    do_everything(&mut life, &mut rng);
    for _ in 0..30 {
        life.write(op(&mut rng, None), true).unwrap();
    }
    let all = collect(life.table.entries());
    let last = life.table.partition_of(all.keys().next_back().unwrap());
    let partitions = life.table.partitions();
    let range = partitions.into_iter().find(|range| Some(range.id) == last);
    let range = range.unwrap();
    let is_inside = |key: &Vec<u8>| life.table.partition_of(key) == Some(range.id);
    let (inside, outside): (BTreeMap<_, _>, BTreeMap<_, _>) =
        all.into_iter().partition(|(key, _)| is_inside(key));
    assert!(!inside.is_empty() && !outside.is_empty());
    let base = life.disk.after_kill();
    let open = |store: &Store, words: &str| {
        let table = store.live_table(&name("t"), &budget());
        table.unwrap_or_else(|error| panic!("{words}: {error}"))
    };
    let release = |store: &Store| {
        let table = store.live_table(&name("t"), &budget());
        let released = table.and_then(|table| table.release(range.id));
        released.map_err(|error| error.to_string())
    };
    at_every_call(&base, release, |store, done, words| {
        let table = open(store, words);
        let mut found = collect(table.entries());
        if table.partitions().contains(&range) {
            assert!(!done, "{words}: the call had succeeded");
            let (was_inside, rest) = found
                .into_iter()
                .partition(|(key, _)| inside.contains_key(key));
            assert_eq!(inside, was_inside, "{words}");
            found = rest;
        }
        assert_eq!(found, outside, "{words}");
    });

    open(&store_on(&base, 4), "released")
        .release(range.id)
        .unwrap();
    let base = base.after_kill();
    let adopt = |store: &Store| {
        let table = store.live_table(&name("t"), &budget());
        let taken = PartitionContent::empty(range.clone());
        let adopted = table.and_then(|table| table.adopt(taken));
        adopted.map_err(|error| error.to_string())
    };
    at_every_call(&base, adopt, |store, done, words| {
        let table = open(store, words);
        assert_eq!(collect(table.entries()), outside, "{words}");
        let is_here = table.partitions().contains(&range);
        assert!(is_here || !done, "{words}: the call had succeeded");
        if !is_here {
            table.adopt(PartitionContent::empty(range.clone())).unwrap();
        }
        let key = inside.keys().next().unwrap();
        table.update(key, b"again").unwrap().wait().unwrap();
        assert_eq!(table.get(key).unwrap().as_deref(), Some(&b"again"[..]));
    });
}

#[test]
fn a_partition_is_split_or_unchanged() {
    for (order, at) in [
        (Order::Ordered, Bound::Key(b"k25".to_vec())),
        (Order::Hashed, Bound::Slot(8000)),
    ] {
        let mut life = Life::new(options(
            order,
            Some(DeltaKind::Append),
            Some(Durability::Sync),
        ));
        let mut rng = Rng(11);
        do_everything(&mut life, &mut rng);
        for _ in 0..30 {
            life.write(op(&mut rng, Some(DeltaKind::Append)), true)
                .unwrap();
        }
        let all = life.history.now().clone();
        let before = life.table.partitions();
        let id = before
            .iter()
            .find(|range| range.bounds.holds(&at))
            .unwrap()
            .id;
        let base = life.disk.after_kill();
        let split = |store: &Store| {
            let table = store.live_table(&name("t"), &budget());
            let split = table.and_then(|table| table.split(id, &at, PartitionId(77)));
            split.map_err(|error| error.to_string())
        };
        at_every_call(&base, split, |store, done, words| {
            let table = store.live_table(&name("t"), &budget());
            let table = table.unwrap_or_else(|error| panic!("{words}: {error}"));
            assert_eq!(collect(table.entries()), all, "{words}");
            let is_split = table.partitions().len() > before.len();
            assert!(is_split || !done, "{words}: the call had succeeded");
            let right = table.content(PartitionId(77));
            assert_eq!(right.is_some(), is_split, "{words}");
            let key = all.keys().next().unwrap();
            table.delta(key, b"more").unwrap().wait().unwrap();
            assert!(table.get(key).unwrap().unwrap().ends_with(b"more"));
            table.compact().unwrap();
            assert_eq!(table.stats().split_runs, 0);
            assert_eq!(collect(table.entries()).len(), all.len(), "{words}");
            assert!(table.verify(&mut |_| ()).unwrap().1.is_empty(), "{words}");
        });
    }
}
