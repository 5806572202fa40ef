//! Partitions that are split.

use std::sync::atomic::{AtomicU64, Ordering as Memory};

use forebay_io::sim::TestOver;
use forebay_run::Order;
use forebay_run::operation::{CowOperation, DeltaKind, Operation};

use super::*;
use crate::keys::bound::Bound;
use crate::keys::partition::{PartitionId, PartitionRange};
use crate::live::{PartitionContent, PartitionCopy};

fn key_bound(key: &[u8]) -> Bound {
    Bound::Key(key.to_vec())
}

/// A table of one partition with a thousand keys in runs.
fn whole(order: Order) -> (SimDisk, LiveTable, Model) {
    let draft = match order {
        Order::Hashed => LiveDraft::hashed().partitions(1),
        Order::Ordered => LiveDraft::ordered(Vec::new()),
    };
    let (disk, table) = create(draft.delta(DeltaKind::Append));
    let mut model = Model::new();
    for number in 0..1000 {
        let (key, value) = (key(number), format!("{number:050}").into_bytes());
        table.update(&key, &value).unwrap().wait().unwrap();
        model.insert(key, value);
    }
    table.compact().unwrap();
    (disk, table, model)
}

fn middle(order: Order) -> Bound {
    match order {
        Order::Hashed => Bound::Slot(8192),
        Order::Ordered => key_bound(b"key-5"),
    }
}

fn run_files(disk: &SimDisk) -> usize {
    let files = disk.files();
    let of_runs = files
        .iter()
        .filter(|path| path.extension().is_some_and(|e| e == "run"));
    of_runs.count()
}

#[test]
fn both_children_name_the_file_until_they_merge_it() {
    for order in [Order::Hashed, Order::Ordered] {
        let (disk, table, model) = whole(order);
        let before = table.stats();
        table
            .split(PartitionId(0), &middle(order), PartitionId(7))
            .unwrap();
        let stats = table.stats();
        assert_eq!((stats.runs.clone(), stats.split_runs), (vec![1, 1], 1));
        assert_eq!(stats.run_records, before.run_records);
        assert_eq!(stats.file_bytes, before.file_bytes);
        assert_eq!(stats.run_memory_bytes, before.run_memory_bytes);
        assert_eq!(run_files(&disk), 1);
        check(&table, &model);
        assert_eq!(table.verify(&mut |_| ()).unwrap().0, 1);
        drop(table);
        let table = open(&disk).unwrap();
        assert_eq!(table.stats().run_memory_bytes, before.run_memory_bytes);
        let info = store_on(Arc::new(disk.clone()), 3)
            .live_info(&name())
            .unwrap();
        let counted = (info.run_records, info.file_bytes, info.split_runs);
        assert_eq!(counted, (before.run_records, before.file_bytes, 1));
        check(&table, &model);
        table.compact().unwrap();
        let stats = table.stats();
        assert_eq!((stats.split_runs, stats.run_records), (0, 1000));
        assert_eq!(run_files(&disk), 2);
        check(&table, &model);
    }
}

/// Files are fetched whole: for a small part, most of a file would be of other partitions.
#[test]
fn a_copy_of_a_small_part_has_files_of_its_own() {
    for order in [Order::Hashed, Order::Ordered] {
        let (disk, table, model) = whole(order);
        let at = match order {
            Order::Hashed => Bound::Slot(15_000),
            Order::Ordered => key_bound(b"key-9"),
        };
        table.split(PartitionId(0), &at, PartitionId(7)).unwrap();
        let bytes = |copy: &PartitionCopy| {
            let runs = copy.content().runs.iter();
            let files = runs.map(|run| disk.read(&copy.run_file(&run.id)).unwrap().len());
            files.sum::<usize>()
        };
        let large = table.copy_of(PartitionId(0)).unwrap();
        assert!(
            large.content().runs[0].range.is_some(),
            "it has most of the file"
        );
        let small = table.copy_of(PartitionId(7)).unwrap();
        assert!(small.content().runs[0].range.is_none());
        assert!(5 * bytes(&small) < bytes(&large));
        check(&table, &model);
        drop((large, small, table));
        check(&open(&disk).unwrap(), &model);
    }
}

/// If one child alone keeps a file and sees less than half of it, the file is merged away without a
/// request.
#[test]
fn a_child_merges_a_shared_file_after_the_other_child_is_released() {
    for order in [Order::Hashed, Order::Ordered] {
        let (_disk, table, model) = whole(order);
        let third = match order {
            Order::Hashed => Bound::Slot(3000),
            Order::Ordered => key_bound(b"key-2"),
        };
        table.split(PartitionId(0), &third, PartitionId(1)).unwrap();
        let before = table.stats().file_bytes;
        assert!(!table.stats().is_merge_due);
        table.release(PartitionId(1)).unwrap();
        let kept: Model = model
            .into_iter()
            .filter(|(key, _)| table.partition_of(key).is_some())
            .collect();
        while table.stats().split_runs > 0 {
            std::thread::yield_now();
        }
        let stats = table.stats();
        assert_eq!(stats.run_records, kept.len() as u64);
        assert!(stats.file_bytes * 2 < before, "{stats:?}");
        assert_eq!(
            collect(table.entries()).into_iter().collect::<Model>(),
            kept
        );
    }
}

#[test]
fn a_run_within_one_child_is_not_part_of_the_other() {
    let (disk, table) = create(LiveDraft::ordered(Vec::new()).factor(8));
    for key in [b"a", b"x"] {
        table.update(key, b"1").unwrap().wait().unwrap();
        table.flush().unwrap();
    }
    table.update(b"a", b"2").unwrap().wait().unwrap();
    table.update(b"x", b"2").unwrap().wait().unwrap();
    table
        .split(PartitionId(0), &key_bound(b"m"), PartitionId(1))
        .unwrap();
    let runs = |id: u32| table.content(PartitionId(id)).unwrap().runs;
    let cut = |id: u32| runs(id).iter().filter(|run| run.range.is_some()).count();
    assert_eq!((runs(0).len(), runs(1).len()), (2, 2));
    assert_eq!((cut(0), cut(1)), (1, 1));
    // Split once more so that one side has no record of the shared run.
    table
        .split(PartitionId(1), &key_bound(b"n"), PartitionId(2))
        .unwrap();
    assert_eq!((runs(1).len(), runs(2).len(), cut(2)), (0, 2, 1));
    assert_eq!(run_files(&disk), 3);
}

#[test]
fn an_invalid_split_is_refused_and_changes_nothing() {
    let (_disk, table, model) = whole(Order::Ordered);
    let id = PartitionId(0);
    table
        .split(id, &key_bound(b"key-5"), PartitionId(1))
        .unwrap();
    table.release(PartitionId(1)).unwrap();
    let range = PartitionRange {
        id: PartitionId(2),
        bounds: crate::keys::partition::Bounds {
            lower: key_bound(b"key-5"),
            upper: None,
        },
    };
    table.adopt(PartitionContent::empty(range)).unwrap();
    let before = table.partitions();
    for (id, at, right, wanted) in [
        (9, key_bound(b"key-2"), 3, "no partition 9 here"),
        (0, key_bound(b""), 3, "does not lie within it"),
        (0, key_bound(b"key-5"), 3, "does not lie within it"),
        (0, Bound::Slot(5), 3, "does not lie within it"),
        (0, key_bound(b"key-2"), 0, "give a new id"),
        (0, key_bound(b"key-2"), 2, "give a new id"),
        // The table held it before.
        (0, key_bound(b"key-2"), 1, "give a new id"),
    ] {
        let refused = table.split(PartitionId(id), &at, PartitionId(right));
        let reported = refused.unwrap_err().to_string();
        assert!(reported.contains(wanted), "{reported}");
    }
    assert_eq!(table.partitions(), before);
    assert_eq!(
        table.get(b"key-1").unwrap().as_ref(),
        model.get(&b"key-1"[..])
    );
}

/// A checkpoint of such a table is a store like any other, and may be copied.
#[test]
fn checkpoints_have_a_shared_file_once() {
    let (disk, table, model) = whole(Order::Ordered);
    table
        .split(PartitionId(0), &key_bound(b"key-5"), PartitionId(1))
        .unwrap();
    drop(table);
    let store = store_on(Arc::new(disk.clone()), 77);
    let moment = store.checkpoint(&name(), &Budget::new(16 << 20)).unwrap();
    let copied = moment
        .copy_to(std::path::Path::new("/copy"), &mut |_| ())
        .unwrap();
    assert_eq!((copied.runs, copied.records), (1, 1000));
    let random = Arc::new(SeededRandom::new(5));
    let to: Arc<dyn Disk> = Arc::new(disk.clone());
    let copy = Store::open_or_create(to, Arc::new(SystemClock), random, Path::new("/copy"));
    let table = copy
        .unwrap()
        .live_table(&name(), &Budget::new(16 << 20))
        .unwrap();
    check(&table, &model);
    assert!(table.verify(&mut |_| ()).unwrap().1.is_empty());
}

#[test]
fn watched_keys_stay_watched_on_both_sides() {
    let (_disk, table, _) = whole(Order::Ordered);
    let [left, right, both] = [b"key-2", b"key-7", b"key-8"].map(|key| table.watch(key).unwrap());
    table
        .split(PartitionId(0), &key_bound(b"key-5"), PartitionId(1))
        .unwrap();
    assert!(
        ![&left, &right, &both]
            .iter()
            .any(|watch| watch.is_written())
    );
    table.update(b"key-2", b"1").unwrap().wait().unwrap();
    table.update(b"key-7", b"1").unwrap().wait().unwrap();
    assert!(left.is_written() && right.is_written() && !both.is_written());
}

/// Readers and writers continue while a partition is split again and again. Every read finds its
/// key's partition, no write is lost, and no delta is applied twice.
#[test]
fn every_key_has_a_partition_throughout_a_split() {
    let (disk, table) = create(LiveDraft::ordered(Vec::new()).delta(DeltaKind::AddI64));
    let keys: Vec<Vec<u8>> = (0..40).map(|n| format!("k{n:02}").into_bytes()).collect();
    let one = 1i64.to_le_bytes();
    let (over, rounds) = (TestOver::default(), AtomicU64::new(0));
    let written = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..2)
            .map(|writer| {
                let (table, keys, over, rounds) = (&table, &keys, &over, &rounds);
                scope.spawn(move || {
                    let mut written = 0i64;
                    while !over.is() {
                        for (n, key) in keys.iter().enumerate() {
                            match (n + writer) % 3 {
                                0 => table.delta(key, &one).unwrap().wait().unwrap(),
                                1 => {
                                    let add = |value: Option<&[u8]>| {
                                        let sum = sum_of(value) + 1;
                                        let sum = sum.to_le_bytes().to_vec();
                                        (Some(CowOperation::Update(sum.into())), ())
                                    };
                                    table.modify(key, add).unwrap().0.wait().unwrap();
                                }
                                _ => {
                                    let mut batch = crate::live::Batch::new();
                                    batch.push(key, Operation::Delta(&one));
                                    while table.try_write(&batch).unwrap().is_none() {
                                        std::thread::yield_now();
                                    }
                                }
                            }
                        }
                        written += 1;
                        assert!(table.get(&keys[7]).unwrap().is_some());
                        assert!(table.get_many(keys).unwrap().iter().all(Option::is_some));
                        let all = collect(table.entries());
                        assert_eq!(all.len(), keys.len());
                        rounds.fetch_add(1, Memory::Relaxed);
                    }
                    written
                })
            })
            .collect();
        let at_end = over.at_end();
        for (number, key) in keys.iter().enumerate().skip(1) {
            let before = rounds.load(Memory::Relaxed);
            while rounds.load(Memory::Relaxed) < before + 2 {
                assert!(
                    !writers.iter().any(|writer| writer.is_finished()),
                    "a writer failed"
                );
                std::thread::yield_now();
            }
            let id = table.partition_of(key).unwrap();
            let right = PartitionId(100 + number as u32);
            table.split(id, &key_bound(key), right).unwrap();
        }
        drop(at_end);
        writers
            .into_iter()
            .map(|writer| writer.join().unwrap())
            .sum::<i64>()
    });
    assert_eq!(table.partitions().len(), keys.len());
    drop(table);
    let table = open(&disk).unwrap();
    for key in &keys {
        assert_eq!(sum_of(table.get(key).unwrap().as_deref()), written);
    }
}

fn sum_of(value: Option<&[u8]>) -> i64 {
    value.map_or(0, |bytes| i64::from_le_bytes(bytes.try_into().unwrap()))
}
