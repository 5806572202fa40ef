//! Which records are kept, rewritten and removed.

use super::model::Change;
use super::*;

const LIMIT: u64 = 4000;

fn segments(disk: &SimDisk) -> usize {
    let is_segment = |path: &PathBuf| path.starts_with(dir());
    disk.files().into_iter().filter(is_segment).count()
}

/// A log in which group 1 is busy, and others have written once.
fn busy(disk: &SimDisk, durability: Durability, others: &[Change]) -> (ReplicaLog, u64) {
    let (log, _) = open_with(disk, options(durability, LIMIT)).unwrap();
    append(&log, others).unwrap();
    for index in 1..=400 {
        append(&log, &[entries(1, &[(1, index)])]).unwrap();
    }
    (log, 400)
}

fn idle(group: u64) -> Change {
    Change {
        promise: Some(group.to_le_bytes().to_vec()),
        ..entries(group, &[(1, 1), (2, 2)])
    }
}

#[test]
fn idle_groups_do_not_hold_the_log_back() {
    for durability in MODES {
        let disk = SimDisk::new();
        let idlers: Vec<Change> = (2..12).map(idle).collect();
        let (log, last) = busy(&disk, durability, &idlers);
        log.trim(1, last - 1);
        log.trim(3, 2);
        log.trim(4, 1);
        let before = segments(&disk);
        let removed = log.remove_unneeded(2 * LIMIT).unwrap();
        assert_eq!(removed.held_by, None);
        assert!(removed.removed_bytes > 20_000, "{removed:?}");
        assert!(segments(&disk) <= 5 && before > 10, "{before}");
        assert!(log.size_bytes() < 5 * LIMIT);
        // It was made durable at every durability setting.
        for seed in 0..20 {
            let (log, opened) = open(&disk.after_power_cut(seed)).unwrap();
            assert_eq!(opened.groups.len(), 11);
            for change in &idlers {
                let group = &opened.groups[&change.group];
                assert_eq!(group.promise, change.promise);
                assert_eq!(group.last, place(2, 2));
                let first = group.before.index + 1;
                let expected = match change.group {
                    3 => 3,
                    4 => 2,
                    _ => 1,
                };
                assert_eq!(first, expected);
                let found = log.entries(change.group, first, u64::MAX).unwrap();
                assert_eq!(found, change.entries[first as usize - 1..]);
            }
            assert_eq!(opened.groups[&1].last, place(1, last));
        }
    }
}

#[test]
fn trimmed_entries_are_kept_for_peers_while_there_is_room_for_them() {
    let disk = SimDisk::new();
    let (log, last) = busy(&disk, Durability::Os, &[idle(2)]);
    log.trim(1, last);
    let removed = log.remove_unneeded(u64::MAX).unwrap();
    assert_eq!(removed, RemovedSegments::default());
    assert_eq!(log.entries(1, 1, u64::MAX).unwrap().len() as u64, last);
    log.remove_unneeded(3 * LIMIT).unwrap();
    let error = log.entries(1, 1, u64::MAX).unwrap_err();
    let ReplicaLogError::Trimmed { first, .. } = error else {
        panic!("{error}");
    };
    let kept = log.entries(1, first, u64::MAX).unwrap();
    assert_eq!(kept.last().unwrap().place, place(1, last));
    assert!(kept.len() > 60, "{}", kept.len());
}

#[test]
fn a_group_with_much_that_is_not_trimmed_holds_the_log_and_is_named() {
    let disk = SimDisk::new();
    let (log, last) = busy(&disk, Durability::Os, &[idle(2)]);
    let before = disk.files();
    let removed = log.remove_unneeded(10_000).unwrap();
    assert_eq!(
        (removed.removed_bytes, removed.held_by),
        (0, None),
        "all is needed"
    );
    append(&log, &[entries(1, &[(2, 300)])]).unwrap();
    let removed = log.remove_unneeded(10_000).unwrap();
    assert_eq!((removed.removed_bytes, removed.held_by), (0, Some(1)));
    assert_eq!(disk.files(), before);
    log.trim(1, last);
    let removed = log.remove_unneeded(0).unwrap();
    assert_eq!(removed.held_by, None);
    assert!(segments(&disk) <= 2);
}

#[test]
fn many_idle_groups_are_written_again_each_time_and_nothing_is_lost() {
    let disk = SimDisk::new();
    let limit = 40_000;
    let (log, _) = open_with(&disk, options(Durability::Os, limit)).unwrap();
    let promise = |group: u64| Change {
        promise: Some(group.to_le_bytes().to_vec()),
        begins: Some(place(1, 1)),
        ..entries(group, &[])
    };
    let all: Vec<Change> = (1..=1000).map(promise).collect();
    append(&log, &all).unwrap();
    for round in 0..5 {
        for index in 2..400 {
            let index = round * 398 + index;
            append(&log, &[entries(1, &[(1, index)])]).unwrap();
        }
        log.trim(1, u64::MAX);
        log.remove_unneeded(limit).unwrap();
        assert!(log.size_bytes() < 4 * limit, "{}", log.size_bytes());
    }
    log.close().unwrap();
    let (_log, opened) = open(&disk).unwrap();
    for change in &all[1..] {
        let group = &opened.groups[&change.group];
        assert_eq!(
            (group.before, &group.promise),
            (place(1, 1), &change.promise)
        );
    }
}

#[test]
fn removed_groups_need_no_records() {
    let disk = SimDisk::new();
    let (log, last) = busy(&disk, Durability::Os, &[idle(2)]);
    log.trim(1, last);
    let gone = Change {
        is_gone: true,
        ..entries(2, &[])
    };
    append(&log, &[gone]).unwrap();
    assert!(log.entries(2, 1, 10).is_err());
    log.remove_unneeded(0).unwrap();
    append(&log, &[entries(1, &[(1, last + 1)])]).unwrap();
    log.remove_unneeded(0).unwrap();
    drop(log);
    let (_log, opened) = open(&disk).unwrap();
    assert_eq!(opened.groups.keys().collect::<Vec<_>>(), [&1]);
}

#[test]
fn writers_and_readers_continue_while_segments_are_removed() {
    let disk = SimDisk::new();
    let (log, _) = open_with(&disk, options(Durability::Os, LIMIT)).unwrap();
    let writing = std::sync::atomic::AtomicUsize::new(3);
    std::thread::scope(|scope| {
        for group in 1..=3 {
            let (log, writing) = (&log, &writing);
            scope.spawn(move || {
                for index in 1..=300 {
                    append(log, &[entries(group, &[(1, index)])]).unwrap();
                    log.trim(group, index.saturating_sub(5));
                }
                writing.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
            });
        }
        let (log, writing) = (&log, &writing);
        scope.spawn(move || {
            let mut from = 1;
            while writing.load(std::sync::atomic::Ordering::SeqCst) > 0 {
                match log.entries(1, from, 3000) {
                    Ok(read) => {
                        for (entry, index) in read.iter().zip(from..) {
                            assert_eq!(entry.place, place(1, index));
                            assert_eq!(entry.bytes, vec![index as u8; 100]);
                        }
                    }
                    Err(ReplicaLogError::Trimmed { first, .. }) => from = first,
                    Err(ReplicaLogError::NoGroup { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        });
        while writing.load(std::sync::atomic::Ordering::SeqCst) > 0 {
            log.remove_unneeded(0).unwrap();
        }
    });
    drop(log);
    let (log, opened) = open(&disk).unwrap();
    for group in 1..=3 {
        assert_eq!(opened.groups[&group].last, place(1, 300));
        assert_eq!(log.entries(group, 296, u64::MAX).unwrap().len(), 5);
    }
}

#[test]
fn spare_room_is_released_on_a_full_disk_and_with_the_log() {
    let disk = SimDisk::new();
    // What they promised takes more than a block.
    let idlers: Vec<Change> = (2..200).map(idle).collect();
    let (log, last) = busy(&disk, Durability::Os, &idlers);
    log.trim(1, last);
    (2..200).for_each(|group| log.trim(group, 2));
    let spare = dir().with_extension("spare");
    let is_there = |disk: &SimDisk| disk.exists(&spare).unwrap();
    log.keep_spare();
    log.keep_spare();
    assert!(is_there(&disk));
    // On the simulated disk this frees no space.
    disk.fill_up();
    assert!(log.remove_unneeded(0).is_err());
    assert!(!is_there(&disk));
    assert!(log.remove_unneeded(0).is_err());
    disk.make_room();
    let before = segments(&disk);
    log.remove_unneeded(0).unwrap();
    assert!(segments(&disk) < before);
    log.keep_spare();
    drop(log);
    let (log, opened) = open(&disk).unwrap();
    assert_eq!(opened.groups[&1].last, place(1, last));
    drop(log);
    ReplicaLog::remove(&disk, dir()).unwrap();
    assert!(disk.files().is_empty(), "{:?}", disk.files());
}

#[test]
fn segments_become_shorter_on_request() {
    let disk = SimDisk::new();
    let (log, _) = open_with(&disk, options(Durability::Os, 100_000)).unwrap();
    let write = |from: u64, to: u64| {
        for index in from..to {
            append(&log, &[entries(1, &[(1, index)])]).unwrap();
        }
    };
    write(1, 100);
    assert_eq!(segments(&disk), 1);
    // The one that is written to is long already.
    log.set_segment_bytes(2000);
    write(100, 101);
    assert_eq!(segments(&disk), 2);
    write(101, 201);
    assert!(segments(&disk) > 5, "{}", segments(&disk));
    log.trim(1, 200);
    log.remove_unneeded(0).unwrap();
    assert!(log.size_bytes() < 4000, "{}", log.size_bytes());
    // No longer than the options say.
    log.set_segment_bytes(u64::MAX);
    write(201, 301);
    assert!(segments(&disk) <= 2);
}
