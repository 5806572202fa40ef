//! When records are acknowledged, which thread syncs them, and the effects of a failed sync.

use std::sync::mpsc;

use forebay_io::sim::Fault;

use super::*;

/// The records that every power cut leaves: those of all of many outcomes.
fn durable_records(disk: &SimDisk) -> usize {
    let counts = (0..40).map(|seed| {
        let (_log, found) = open(&disk.after_power_cut(seed), Durability::Os).unwrap();
        found.len()
    });
    counts.min().unwrap()
}

#[test]
fn one_sync_is_for_all_that_was_written() {
    let disk = SimDisk::new();
    let (log, _) = open(&disk, Durability::Sync).unwrap();
    let lsns: Vec<Lsn> = (0..50).map(|n| log.append(&payload(n)).unwrap()).collect();
    assert!(lsns.iter().all(|lsn| !log.durable(*lsn)));
    log.wait_durable(lsns[20]).unwrap();
    let calls = disk.calls();
    for lsn in lsns {
        assert!(log.durable(lsn));
        log.wait_durable(lsn).unwrap();
    }
    assert_eq!(disk.calls(), calls);
    assert_eq!(durable_records(&disk), 50);
}

#[test]
fn a_roll_keeps_the_older_segment_in_the_next_sync() {
    let disk = SimDisk::new();
    let (log, _) = open(&disk, Durability::Sync).unwrap();
    log.append(b"one").unwrap();
    log.roll();
    let lsn = log.append(b"two").unwrap();
    log.wait_durable(lsn).unwrap();
    assert_eq!(durable_records(&disk), 2);
    log.append(b"three").unwrap();
    log.roll();
    log.sync().unwrap();
    assert_eq!(durable_records(&disk), 3);
}

#[test]
fn records_that_many_threads_saw_acknowledged_are_durable() {
    let disk = SimDisk::new();
    let (log, _) = open(&disk, Durability::Sync).unwrap();
    let (sender, called) = mpsc::channel();
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            let (log, sender, disk) = (&log, sender.clone(), &disk);
            scope.spawn(move || {
                for number in 0..40u8 {
                    let lsn = log.append(&[thread, number]).unwrap();
                    if number % 4 == 3 {
                        let sender = sender.clone();
                        let then = move |outcome: Result<(), LogError>| {
                            outcome.unwrap();
                            sender.send(()).unwrap();
                        };
                        log.on_durable(lsn, Box::new(then));
                        continue;
                    }
                    log.wait_durable(lsn).unwrap();
                    assert!(log.durable(lsn));
                    if number % 13 == 0 {
                        let (_log, found) =
                            open(&disk.after_power_cut(u64::from(number)), Durability::Os).unwrap();
                        assert!(found.contains(&vec![thread, number]));
                    }
                    if number == 20 {
                        log.roll();
                    }
                }
            });
        }
    });
    drop((log, sender));
    // The log's thread may still be calling. Each call drops a sender: after the last one nothing
    // is received.
    assert_eq!(called.iter().count(), 40);
    let (_log, found) = open(&disk, Durability::Sync).unwrap();
    for thread in 0..4 {
        let of_thread: Vec<u8> = found
            .iter()
            .filter(|r| r[0] == thread)
            .map(|r| r[1])
            .collect();
        assert_eq!(of_thread, (0..40).collect::<Vec<u8>>());
    }
}

#[test]
fn callbacks_come_from_the_logs_thread() {
    let disk = SimDisk::new();
    let (log, _) = open(&disk, Durability::Sync).unwrap();
    let (sender, receiver) = mpsc::channel();
    for number in 0..10 {
        let lsn = log.append(&payload(number)).unwrap();
        let sender = sender.clone();
        log.on_durable(
            lsn,
            Box::new(move |outcome| sender.send((number, outcome.is_ok())).unwrap()),
        );
    }
    let mut reported: Vec<(usize, bool)> = (0..10).map(|_| receiver.recv().unwrap()).collect();
    reported.sort_unstable();
    assert_eq!(reported, (0..10).map(|n| (n, true)).collect::<Vec<_>>());
    assert_eq!(durable_records(&disk), 10);
}

#[test]
fn a_log_is_synced_at_intervals_of_the_clock() {
    let disk = SimDisk::new();
    let clock = Arc::new(HandClock::waiting());
    let open = |durability| {
        let (disk, clock) = (Arc::new(disk.clone()), Arc::clone(&clock));
        Log::open(disk, clock, dir(), options(durability), 1, &mut |_, _| {
            Ok(())
        })
        .unwrap()
    };
    let log = open(Durability::EveryMs(10));
    for round in 1..=3 {
        let lsn = log.append(&payload(round)).unwrap();
        // Acknowledged at once.
        assert!(log.durable(lsn));
        log.wait_durable(lsn).unwrap();
        clock.advance(Duration::from_millis(9));
        assert!(!log.shared.commits.is_synced(lsn));
        while !log.shared.commits.is_synced(lsn) {
            // The thread may begin its wait only now.
            clock.advance(Duration::from_millis(1));
            std::thread::yield_now();
        }
        assert_eq!(durable_records(&disk), round);
    }
    log.append(b"at the end").unwrap();
    drop(log);
    assert_eq!(durable_records(&disk), 4);
}

#[test]
#[cfg_attr(miri, ignore = "maps a real file")]
fn a_log_that_is_dropped_has_closed_its_files() {
    let found = tempfile::tempdir().unwrap();
    let dir = found.path().join("log");
    let (disk, clock) = (
        Arc::new(forebay_io::OsDisk::default()),
        Arc::new(HandClock::waiting()),
    );
    let options = options(Durability::EveryMs(10));
    let log = Log::open(disk, clock, &dir, options, 1, &mut |_, _| Ok(())).unwrap();
    log.append(&payload(1)).unwrap();
    let end = log.shared.writer.lock().current_end();
    log.shared.commits.await_pause();
    drop(log);
    let bytes = forebay_io::OsDisk::default()
        .read(&dir.join("1.log"))
        .unwrap();
    assert_eq!(bytes.len() as u64, end, "room is left for more");
}

#[test]
fn without_syncs_nothing_is_synced() {
    let disk = SimDisk::new();
    let (log, _) = open(&disk, Durability::Os).unwrap();
    let lsn = log.append(b"one").unwrap();
    assert!(log.durable(lsn));
    log.wait_durable(lsn).unwrap();
    let calls = disk.calls();
    drop(log);
    assert_eq!(disk.calls(), calls);
    assert_eq!(durable_records(&disk), 0);
}

#[test]
fn a_failed_sync_closes_the_log_for_good() {
    for call in 0..2 {
        let disk = SimDisk::new();
        let (log, _) = open(&disk, Durability::Sync).unwrap();
        let kept = log.append(b"kept").unwrap();
        log.wait_durable(kept).unwrap();
        log.roll();
        log.append(b"in doubt").unwrap();
        log.roll();
        let lsn = log.append(b"in doubt, too").unwrap();
        disk.plan(call, Fault::Error);
        let error = log.wait_durable(lsn).unwrap_err();
        assert!(matches!(error, LogError::Closed { .. }), "{error}");
        assert!(error.to_string().contains(".log"), "{error}");
        let calls = disk.calls();
        assert!(!log.durable(lsn));
        assert!(log.durable(kept));
        log.wait_durable(kept).unwrap();
        assert!(log.wait_durable(lsn).is_err());
        assert!(log.append(b"refused").is_err());
        let (sender, receiver) = mpsc::channel();
        log.on_durable(
            lsn,
            Box::new(move |outcome| sender.send(outcome.is_err()).unwrap()),
        );
        assert!(receiver.recv().unwrap());
        assert!(log.failure().is_some());
        drop(log);
        assert_eq!(disk.calls(), calls, "a failed sync was tried again");
        let (_log, found) = open(&disk, Durability::Sync).unwrap();
        assert_eq!(found[0], b"kept");
        assert!(!found.contains(&b"refused".to_vec()));
    }
}

#[test]
fn callbacks_receive_a_failed_sync() {
    let disk = SimDisk::new();
    let (log, _) = open(&disk, Durability::Sync).unwrap();
    log.append(b"begin").unwrap();
    log.sync().unwrap();
    let lsn = log.append(b"x").unwrap();
    disk.plan(0, Fault::Error);
    let (sender, receiver) = mpsc::channel();
    log.on_durable(lsn, Box::new(move |outcome| sender.send(outcome).unwrap()));
    assert!(matches!(
        receiver.recv().unwrap(),
        Err(LogError::Closed { .. })
    ));
}
