use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use forebay_engine::Bound;
use forebay_io::Disk;
use forebay_io::sim::{Fault, Rng, SimDisk};
use forebay_run::format::MAX_KEY_BYTES;
use forebay_run::operation::Operation;
use forebay_run::scan::{Cursor, Direction, ScanRange};
use forebay_run::{Compression, Order, Run, RunOptions};

use super::*;
use crate::progress::Silent;

type Record = (Vec<u8>, Vec<u8>);

/// Units of records; keys repeat at times, within one unit and across several.
fn units(rng: &mut Rng, units: usize, each: usize, repeat: bool) -> Vec<Vec<Record>> {
    let mut number = 0;
    let mut unit = |rng: &mut Rng| {
        let mut record = |rng: &mut Rng| {
            number += 1;
            let id = if repeat { rng.below(2000) } else { number };
            let value = vec![b'v'; rng.below(400) as usize];
            let mut key = format!("a/common/prefix/of/keys/{}/{id}", id % 3);
            if id % 97 == 0 {
                // Keys of the maximum length, and others.
                let padded = key.len() + (id as usize * 37) % (MAX_KEY_BYTES - key.len() + 1);
                key = format!("{key:p<padded$}");
            }
            (
                key.into_bytes(),
                [value, format!("#{number}").into_bytes()].concat(),
            )
        };
        let mut records: Vec<Record> = (0..each).map(|_| record(rng)).collect();
        for place in (1..records.len()).rev() {
            records.swap(place, rng.below(place as u64 + 1) as usize);
        }
        records
    };
    (0..units).map(|_| unit(rng)).collect()
}

fn plan(disk: &SimDisk, order: Order, duplicates: Duplicates, memory_bytes: usize) -> SortPlan {
    disk.create_dir_all(Path::new("/scratch")).unwrap();
    let space = SortSpace {
        disk: Arc::new(disk.clone()),
        scratch: PathBuf::from("/scratch"),
        memory_bytes: memory_bytes as u64,
        threads: 3,
    };
    let run = RunOptions::new(order, Compression::None, b"t:");
    let mut plan = SortPlan::new(space, run, None, duplicates, false);
    plan.memory_bytes = memory_bytes;
    plan
}

/// Reads the units by several threads, as a push does.
fn collect(plan: &SortPlan, units: &[Vec<Record>]) -> Result<Vec<CollectedRecords>, SortError> {
    let next = AtomicU32::new(0);
    let work = || {
        let mut collector = Collector::new(plan);
        loop {
            let unit = next.fetch_add(1, Relaxed);
            let Some(records) = units.get(unit as usize) else {
                return collector.finish();
            };
            collector.start_unit(unit);
            for (key, value) in records {
                collector.push(key, value)?;
            }
            std::thread::yield_now();
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..plan.threads).map(|_| scope.spawn(work)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    })
}

fn boundaries(plan: &SortPlan, collected: &[CollectedRecords], partitions: u32) -> Boundaries {
    match plan.order() {
        Order::Hashed => Boundaries::slots(partitions),
        Order::Ordered => Boundaries::keys(partitions, collected),
    }
}

fn build(
    plan: &SortPlan,
    units: &[Vec<Record>],
) -> Result<(Vec<SortedPartition>, Tally), SortError> {
    let collected = collect(plan, units)?;
    let boundaries = boundaries(plan, &collected, 5);
    let path_of = |partition| PathBuf::from(format!("/scratch/part-{partition}.run"));
    let built = write_partitions(
        plan,
        &boundaries,
        &collected,
        &AsTheyAre { filters: false },
        &path_of,
        &|_| (),
        &Silent,
    )?;
    let mut kept = Tally::default();
    collected
        .iter()
        .for_each(|part| kept.merge(&part.seen.without(&part.dropped)));
    for part in &built {
        kept = kept.without(&part.dropped);
    }
    Ok((built, kept))
}

fn read(disk: &SimDisk, built: &[SortedPartition]) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut all = BTreeMap::new();
    for part in built {
        let run = Arc::new(Run::open(disk, &part.path).unwrap());
        let mut scan = run.scan(ScanRange::all(), Direction::Forward);
        while scan.advance().unwrap() {
            let Operation::Update(value) = scan.operation() else {
                panic!("not an update")
            };
            let before = all.insert(scan.key().to_vec(), value.to_vec());
            assert_eq!(before, None, "a key in two partitions");
        }
    }
    all
}

#[test]
fn a_collector_leaves_room_for_copies_of_its_largest_record() {
    for (value_bytes, count, spills) in [(1 << 10, 30_000, 0), (8 << 20, 8, 2)] {
        let disk = SimDisk::new();
        let mut plan = plan(&disk, Order::Ordered, Duplicates::Last, 48 << 20);
        plan.threads = 1;
        let mut collector = Collector::new(&plan);
        collector.start_unit(0);
        let value = vec![7; value_bytes];
        for key in 0..count {
            collector.push(&u32::to_be_bytes(key), &value).unwrap();
        }
        let collected = collector.finish().unwrap();
        // Five copies of 8 MiB take 16 MiB more than the plan reserves: 32 MiB are left.
        assert_eq!(collected.spills.len(), spills, "{value_bytes}");
    }
}

#[test]
fn all_records_are_sorted_with_any_amount_of_memory() {
    for (seed, memory_bytes) in [(1, 64 << 20), (2, 3 << 20), (3, 3 << 20)] {
        for order in [Order::Hashed, Order::Ordered] {
            for duplicates in [Duplicates::First, Duplicates::Last] {
                println!("seed {seed}, {memory_bytes} bytes, {order:?}, {duplicates:?}");
                let mut rng = Rng(seed);
                let units = units(&mut rng, 40, 900, seed != 3);
                let disk = SimDisk::new();
                let plan = plan(&disk, order, duplicates, memory_bytes);
                let (built, kept) = build(&plan, &units).unwrap();
                let mut expected = BTreeMap::new();
                for (key, value) in units.iter().flatten().cloned() {
                    match duplicates {
                        Duplicates::Last => drop(expected.insert(key, value)),
                        _ => drop(expected.entry(key).or_insert(value)),
                    }
                }
                assert!(built.len() > 3, "{} partitions", built.len());
                assert!(read(&disk, &built) == expected, "not the records expected");
                let written: Tally = built.iter().fold(Tally::default(), |mut sum, part| {
                    let summary = &part.summary;
                    sum.merge(&Tally {
                        records: summary.records,
                        bytes: summary.key_bytes + summary.value_bytes,
                        content: summary.content,
                    });
                    sum
                });
                assert_eq!(written, kept);
                let spilled = disk
                    .files()
                    .iter()
                    .any(|file| file.to_string_lossy().contains("spill"));
                assert_eq!(spilled, memory_bytes < 10 << 20);
            }
        }
    }
}

#[test]
fn a_duplicate_is_refused_by_name_in_memory_and_over_spills() {
    for memory_bytes in [64 << 20, 3 << 20] {
        let disk = SimDisk::new();
        let plan = plan(&disk, Order::Hashed, Duplicates::Fail, memory_bytes);
        let mut units = units(&mut Rng(5), 40, 900, false);
        assert!(build(&plan, &units).is_ok());
        let twice = units[0][7].clone();
        units[39].push((twice.0.clone(), b"again".to_vec()));
        let disk = SimDisk::new();
        let mut plan = plan;
        plan.disk = Arc::new(disk.clone());
        disk.create_dir_all(Path::new("/scratch")).unwrap();
        let error = build(&plan, &units).unwrap_err();
        let key = String::from_utf8(twice.0).unwrap();
        assert!(
            matches!(&error, SortError::Duplicate { key: named } if *named == key),
            "{error}"
        );
    }
}

#[test]
fn a_full_disk_stops_the_sort_with_the_file_named() {
    let units = units(&mut Rng(6), 40, 900, false);
    let disk = SimDisk::new();
    let all = plan(&disk, Order::Ordered, Duplicates::Fail, 3 << 20);
    let before = disk.calls();
    build(&all, &units).unwrap();
    let calls = disk.calls() - before;
    for nth in (1..calls).step_by(calls as usize / 23) {
        let disk = SimDisk::new();
        let plan = plan(&disk, Order::Ordered, Duplicates::Fail, 3 << 20);
        disk.plan(nth, Fault::Full);
        match build(&plan, &units) {
            Ok(_) => {}
            Err(error) => assert!(error.to_string().contains("/scratch/"), "{error}"),
        }
    }
}

#[test]
fn ordered_partitions_are_even() {
    let units = units(&mut Rng(7), 40, 900, false);
    for memory_bytes in [64 << 20, 3 << 20] {
        let disk = SimDisk::new();
        let plan = plan(&disk, Order::Ordered, Duplicates::Fail, memory_bytes);
        let (built, _) = build(&plan, &units).unwrap();
        let bytes: Vec<u64> = built.iter().map(|part| part.summary.value_bytes).collect();
        let mean = bytes.iter().sum::<u64>() / 5;
        assert!(
            bytes.iter().all(|&part| part > mean / 2 && part < mean * 2),
            "{bytes:?}"
        );
    }
}

/// Returns the records of a walk over all pieces.
fn walked(plan: &SortPlan, units: &[Vec<Record>], begins: Vec<Bound>) -> Vec<Record> {
    let collected = collect(plan, units).unwrap();
    assert!(collected.iter().any(|part| !part.spills.is_empty()));
    let pieces = Boundaries::at(begins);
    let mut rows = Vec::new();
    for piece in 0..pieces.len() {
        let walked: Result<u64, SortError> =
            walk_partition(plan, &pieces, &collected, piece, |key, operation| {
                let value = operation.value().map_or(&[][..], |(value, _)| value);
                rows.push((key.to_vec(), value.to_vec()));
                Ok(())
            });
        walked.unwrap();
    }
    rows
}

#[test]
fn other_arrangements_give_all_records_and_keys_for_planning() {
    let mut rng = Rng(8);
    let mut record = || {
        let value = vec![b'v'; rng.below(300) as usize];
        (format!("k{}", rng.below(5000)).into_bytes(), value)
    };
    let mut unit = || -> Vec<Record> { (0..4000).map(|_| record()).collect() };
    let units: Vec<Vec<Record>> = (0..6).map(|_| unit()).collect();
    let all: Vec<Record> = units.concat();
    let memory_bytes = 3 << 20;
    let start = Bound::Key(Vec::new());
    let disk = SimDisk::new();
    let unordered = plan(&disk, Order::Hashed, Duplicates::Last, memory_bytes);

    let came = unordered.clone().arranged(Arrangement::AsTheyCame);
    assert_eq!(walked(&came, &units, vec![start.clone()]), all);

    let half = Bound::Key((u64::MAX / 2).to_be_bytes().to_vec());
    let shuffled = |seed| {
        let plan = unordered.clone().arranged(Arrangement::Shuffled(seed));
        walked(&plan, &units, vec![start.clone(), half.clone()])
    };
    let first = shuffled(1);
    let newest: BTreeMap<Vec<u8>, Vec<u8>> = all.into_iter().collect();
    assert_eq!(first.iter().cloned().collect::<BTreeMap<_, _>>(), newest);
    assert_eq!(first.len(), newest.len());
    assert_eq!(shuffled(1), first);
    assert_ne!(shuffled(2), first);

    let collected = collect(&came, &units).unwrap();
    let samples = key_samples(&collected);
    assert!(samples.len() > 1000);
    assert!(samples.iter().all(|(key, _)| newest.contains_key(key)));
}
