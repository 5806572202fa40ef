//! Partitions that the table does not hold, and that are released and adopted.

use std::ops::Bound as RangeBound;
use std::sync::atomic::{AtomicU64, Ordering as Memory};
use std::time::Duration;

use forebay_io::Clock;
use forebay_io::sim::{Rng, TestOver};
use forebay_run::RunWriter;
use forebay_run::operation::{DeltaKind, Operation};

use super::divided::{DividedTable, KEYS, is_not_here};
use super::*;
use crate::keys::partition::{OpenPartitions, PartitionId, PartitionRange};
use crate::live::{PartitionContent, PartitionRun};
use crate::name::RunId;

#[test]
fn adopted_released_and_split_partitions_agree_with_a_model() {
    for draft in both_orders() {
        for seed in 0..8 {
            println!("seed {seed}");
            let mut rng = Rng(seed);
            let mut divided = DividedTable::new(draft.clone().factor(3).delta(DeltaKind::Append));
            for step in 0..70 {
                let known = divided.ranges.len() as u64;
                let id = divided.ranges[rng.below(known) as usize].id;
                let mut partitions = divided.table.partitions().into_iter();
                let here = partitions.any(|range| range.id == id);
                match (rng.below(10), here) {
                    (0 | 1, true) => divided.release(id, &mut rng),
                    (0 | 1, false) => divided.adopt(id, &mut rng),
                    (2, true) => divided.split(id, &mut rng),
                    (3, _) => divided.table.flush().unwrap(),
                    (4, _) => divided.table.compact().unwrap(),
                    (5, _) => divided = divided.reopen(),
                    (6, _) => divided.delete_some(&mut rng),
                    _ => {
                        for _ in 0..20 {
                            let value = format!("{step}").into_bytes();
                            let key = key(rng.below(KEYS));
                            divided.write(&key, &value, rng.below(2) == 0);
                        }
                    }
                }
                divided.check();
            }
            divided.check_files();
        }
    }
}

#[test]
fn a_table_is_made_of_some_partitions() {
    for draft in both_orders() {
        let all = draft.partitions.clone();
        let held = OpenPartitions::Only([PartitionId(1)].into());
        let mut divided = DividedTable::new(draft.holding(&held));
        divided.ranges = all;
        for number in 0..KEYS {
            divided.write(&key(number), b"value", false);
        }
        divided.check();
        assert!(!divided.model.is_empty());
        let divided = divided.reopen();
        divided.check();
    }
}

#[test]
fn invalid_adoptions_and_releases_are_refused_and_change_nothing() {
    let mut divided = DividedTable::new(LiveDraft::ordered(vec![b"m".to_vec()]));
    divided.write(b"a", b"1", false);
    let reported = |outcome: Result<(), LiveError>| outcome.unwrap_err().to_string();
    let (table, ranges) = (&divided.table, &divided.ranges);
    assert!(reported(table.release(PartitionId(9))).contains("no partition 9 here"));
    assert!(
        reported(table.adopt(PartitionContent::empty(ranges[0].clone())))
            .contains("cannot be taken in")
    );
    table.release(PartitionId(1)).unwrap();
    assert!(reported(table.release(PartitionId(1))).contains("no partition 1 here"));
    let over = PartitionRange {
        id: PartitionId(7),
        bounds: ranges[0].bounds.clone(),
    };
    assert!(
        reported(table.adopt(PartitionContent::empty(over))).contains("but the one before ends")
    );
    let lost = RunId::new("lost").unwrap();
    let with = |id: RunId| PartitionContent {
        runs: vec![PartitionRun::new(id)],
        ..PartitionContent::empty(ranges[1].clone())
    };
    assert!(table.adopt(with(lost)).is_err());
    // A run of keys outside its partition.
    let new = table.new_run();
    let disk: Arc<dyn Disk> = Arc::new(divided.disk.clone());
    let mut writer = RunWriter::create(&disk, &new.path, table.run_options(1, 10)).unwrap();
    writer.push(0, b"b", Operation::Update(b"2")).unwrap();
    writer.finish().unwrap();
    assert!(table.adopt(with(new.id.clone())).is_err());
    assert!(
        !divided.disk.files().contains(&new.path),
        "the run's file remains"
    );
    assert_eq!(table.partitions(), ranges[..1]);
    let empty = PartitionContent::empty(ranges[1].clone());
    table.adopt(empty).unwrap();
    table.update(b"z", b"3").unwrap().wait().unwrap();
    divided.model.insert(b"z".to_vec(), b"3".to_vec());
    divided.reopen().check();
}

/// Writers continue while a partition is released and adopted. Each write is acknowledged and kept,
/// or refused. A write that was acknowledged before a release is never seen after it.
#[test]
fn writers_continue_while_a_partition_is_released_and_adopted() {
    let (_disk, table) = create(LiveDraft::ordered(vec![b"m".to_vec()]));
    let range = table.partitions()[1].clone();
    let (over, refused) = (TestOver::default(), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for writer in 0..2u64 {
            let (table, over, refused) = (&table, &over, &refused);
            scope.spawn(move || {
                for number in 0.. {
                    if over.is() {
                        break;
                    }
                    let value = u64::to_be_bytes(number);
                    let stays = format!("a{writer}").into_bytes();
                    table.update(&stays, &value).unwrap().wait().unwrap();
                    assert_eq!(table.get(&stays).unwrap(), Some(value.to_vec()));
                    match table.update(format!("z{writer}").as_bytes(), &value) {
                        Ok(commit) => commit.wait().unwrap(),
                        Err(LiveError::NotHere { .. }) => {
                            refused.fetch_add(1, Memory::Relaxed);
                        }
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
        let _at_end = over.at_end();
        for _ in 0..40 {
            table.release(range.id).unwrap();
            assert!(is_not_here(table.get(b"z0")));
            table.adopt(PartitionContent::empty(range.clone())).unwrap();
        }
        // Released long enough for a writer to try.
        for _ in 0..500 {
            if refused.load(Memory::Relaxed) > 0 {
                break;
            }
            table.release(range.id).unwrap();
            SystemClock.sleep(Duration::from_millis(10));
            table.adopt(PartitionContent::empty(range.clone())).unwrap();
        }
    });
    assert!(refused.load(Memory::Relaxed) > 0);
}

#[test]
fn records_outside_of_their_partition_are_found_by_verify() {
    let (disk, table) = create(LiveDraft::ordered(vec![b"m".to_vec()]));
    for key in [b"a", b"n"] {
        table.update(key, b"1").unwrap().wait().unwrap();
    }
    table.flush().unwrap();
    assert!(table.verify(&mut |_| ()).unwrap().1.is_empty());
    let mut moved = table.shared().structure.lock().clone();
    let path = table.shared().files.live_manifest();
    drop(table);
    let border = crate::keys::bound::Bound::Key(b"p".to_vec());
    moved.partitions[0].bounds.upper = Some(border.clone());
    moved.partitions[1].bounds.lower = border;
    disk.tamper(&path, |bytes| *bytes = moved.to_bytes().unwrap());
    let (runs, problems) = open(&disk).unwrap().verify(&mut |_| ()).unwrap();
    assert_eq!((runs, problems.len()), (2, 1), "{problems:?}");
    assert!(
        problems[0]
            .to_string()
            .contains("does not lie in the partition")
    );
}

/// Every partition counts the generations that wait to be flushed, even one that is adopted
/// meanwhile. Otherwise its records of a later generation would be flushed with an earlier one, and
/// recovery would apply them once more.
#[test]
fn a_partition_adopted_while_generations_wait_counts_them() {
    let (disk, budget) = (SimDisk::new(), Budget::new(64 << 20));
    let draft = LiveDraft::ordered(vec![b"m".to_vec()]).delta(DeltaKind::Append);
    let table = create_on(&disk, draft, &budget);
    let range = table.partitions()[1].clone();
    table.release(range.id).unwrap();
    // No thread flushes while all turns are taken.
    let turns: Vec<_> = std::iter::from_fn(|| budget.flush_turns().take(|| false)).collect();
    table.delta(b"a", b"1").unwrap().wait().unwrap();
    table.shared().freeze();
    table.adopt(PartitionContent::empty(range)).unwrap();
    table.delta(b"z", b"1").unwrap().wait().unwrap();
    table.shared().freeze();
    table.delta(b"z", b"2").unwrap().wait().unwrap();
    table.shared().freeze();
    for flushed in 0..4 {
        for found in [&table, &open(&disk.after_kill()).unwrap()] {
            let words = format!("after {flushed} flushes");
            assert_eq!(
                found.get(b"a").unwrap().as_deref(),
                Some(&b"1"[..]),
                "{words}"
            );
            assert_eq!(
                found.get(b"z").unwrap().as_deref(),
                Some(&b"12"[..]),
                "{words}"
            );
        }
        assert_eq!(
            table.shared().flush_oldest().unwrap().is_some(),
            flushed < 3
        );
    }
    drop(turns);
}

#[test]
fn a_partition_is_adopted_again_only_in_its_latest_state() {
    for draft in both_orders() {
        let (disk, table) = create(draft);
        let range = table.partitions()[1].clone();
        let decided = PartitionContent {
            epoch: 7,
            ..PartitionContent::empty(range.clone())
        };
        table.release(range.id).unwrap();
        table.adopt(decided.clone()).unwrap();
        assert_eq!(table.content(range.id), Some(decided.clone()));
        table.release(range.id).unwrap();
        drop(table);
        let table = open(&disk).unwrap();
        assert_eq!(table.content(range.id), None);
        let older = PartitionContent {
            epoch: 6,
            ..decided.clone()
        };
        let refused = table.adopt(older).unwrap_err().to_string();
        assert!(refused.contains("given up here in epoch 7"), "{refused}");
        table.adopt(decided.clone()).unwrap();
        drop(table);
        assert_eq!(open(&disk).unwrap().content(range.id), Some(decided));
    }
}

/// The content in a checkpoint is enough to adopt a partition in another table: its files under
/// other names, and the deleted ranges of keys.
#[test]
fn a_partition_moves_from_one_table_to_another() {
    let draft = LiveDraft::ordered(vec![b"m".to_vec()])
        .delta(DeltaKind::Append)
        .factor(8);
    let (disk, table) = create(draft.clone());
    for (key, value) in [(b"n", b"1"), (b"o", b"1"), (b"p", b"1")] {
        table.update(key, value).unwrap().wait().unwrap();
    }
    table.flush().unwrap();
    let ends = (
        RangeBound::Included(&b"o"[..]),
        RangeBound::Excluded(&b"p"[..]),
    );
    table.delete_range(ends.0, ends.1).unwrap().wait().unwrap();
    table.delta(b"n", b"2").unwrap().wait().unwrap();
    table.flush().unwrap();
    let id = PartitionId(1);
    let mut content = table.content(id).unwrap();
    let (there, other) = create(draft);
    other.release(id).unwrap();
    for run in &mut content.runs {
        let new = other.new_run();
        let bytes = disk.read(&table.shared().files.run(&run.id)).unwrap();
        forebay_io::replace_file(&there, &new.path, &bytes).unwrap();
        run.id = new.id;
    }
    other.adopt(content.clone()).unwrap();
    other.delta(b"p", b"2").unwrap().wait().unwrap();
    drop(other);
    let other = open(&there).unwrap();
    let text = |key: &[u8]| {
        other
            .get(key)
            .unwrap()
            .map(|v| String::from_utf8(v).unwrap())
    };
    let found = [text(b"n"), text(b"o"), text(b"p")];
    assert_eq!(found, [Some("12".into()), None, Some("12".into())]);
    other.release(id).unwrap();
    content.runs[0].removed = vec![content.range.bounds.clone(), content.range.bounds.clone()];
    assert!(other.adopt(content).is_err(), "ranges that overlap");
}

#[test]
fn a_table_may_have_no_partition_for_a_while() {
    let (disk, table) = create(LiveDraft::ordered(Vec::new()));
    let range = table.partitions()[0].clone();
    table.release(range.id).unwrap();
    drop(table);
    let table = open(&disk).unwrap();
    assert!(table.partitions().is_empty() && collect(table.entries()).is_empty());
    assert!(is_not_here(table.update(b"a", b"1")));
    table.delete_all().unwrap().wait().unwrap();
    table.flush().unwrap();
    table.adopt(PartitionContent::empty(range)).unwrap();
    table.update(b"a", b"1").unwrap().wait().unwrap();
    drop(table);
    let table = open(&disk).unwrap();
    assert_eq!(table.get(b"a").unwrap().as_deref(), Some(&b"1"[..]));
}
