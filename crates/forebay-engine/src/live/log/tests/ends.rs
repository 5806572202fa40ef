//! Logs that lost their end: the loss is detected, and the error says how to continue.

use super::*;

/// A log of two segments, of which every record was acknowledged, and its records.
fn synced() -> (SimDisk, Vec<Vec<u8>>) {
    let disk = SimDisk::new();
    let (log, _) = open(&disk, Durability::Sync).unwrap();
    for number in 0..12 {
        let lsn = log.append(&payload(number)).unwrap();
        log.wait_durable(lsn).unwrap();
        if number == 7 {
            log.roll();
        }
    }
    // Its process is killed.
    let killed = disk.after_kill();
    drop(log);
    (killed, payloads(12))
}

/// The log is refused with these words and nothing is changed. Once the note is removed, as the
/// error says, this many records are read.
fn check_lost(disk: &SimDisk, words: &str, left: usize) {
    let before = disk.files();
    for durability in [Durability::Sync, Durability::Os] {
        let error = open(disk, durability).unwrap_err();
        assert!(matches!(error, LogError::Lost { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains(words) && text.contains("remove"), "{text}");
        assert!(text.contains(&note().display().to_string()), "{text}");
        assert_eq!(disk.files(), before);
    }
    disk.remove(&note()).unwrap();
    let (log, found) = open(disk, Durability::Sync).unwrap();
    assert_eq!(found, payloads(left));
    let lsn = log.append(b"and on").unwrap();
    log.wait_durable(lsn).unwrap();
    drop(log);
    let (_log, found) = open(disk, Durability::Sync).unwrap();
    assert_eq!(found.len(), left + 1);
}

#[test]
fn a_missing_newest_segment_is_detected() {
    let (disk, all) = synced();
    let (_log, found) = open(&disk.after_kill(), Durability::Sync).unwrap();
    assert_eq!(found, all);
    disk.remove(&file(2)).unwrap();
    check_lost(&disk, "2.log is missing", 8);
}

#[test]
fn the_loss_of_all_files_of_a_log_is_detected() {
    let (disk, _) = synced();
    disk.remove_dir_all(dir()).unwrap();
    check_lost(&disk, "2.log is missing", 0);
}

#[test]
fn a_truncated_newest_segment_is_detected() {
    let (base, _) = synced();
    let length = base.read(&file(2)).unwrap().len();
    for kept in 0..length {
        let disk = base.after_kill();
        disk.tamper(&file(2), |bytes| bytes.truncate(kept));
        let error = open(&disk, Durability::Os).unwrap_err();
        assert!(matches!(error, LogError::Lost { .. }), "{kept}: {error}");
        // The same length, but only zeros, as after a device that lied.
        disk.tamper(&file(2), |bytes| bytes.resize(length, 0));
        let error = open(&disk, Durability::Os).unwrap_err();
        assert!(error.to_string().contains("2.log"), "{kept}: {error}");
    }
    let disk = base.after_kill();
    disk.tamper(&file(2), |bytes| bytes.truncate(20));
    check_lost(&disk, "2.log is missing or empty", 8);
}

#[test]
fn a_lost_end_before_an_empty_file_is_detected() {
    let (disk, _) = synced();
    disk.tamper(&file(2), |bytes| bytes.truncate(59));
    disk.create(&file(3)).unwrap();
    check_lost(&disk, "2.log is sound up to offset 59 only", 8);
}

#[test]
fn a_missing_segment_is_detected_after_a_power_cut() {
    let disk = SimDisk::new();
    let (log, _) = open(&disk, Durability::Sync).unwrap();
    for number in 0..3 {
        let lsn = log.append(&payload(number)).unwrap();
        log.wait_durable(lsn).unwrap();
        log.roll();
    }
    for seed in 0..40 {
        let disk = disk.after_power_cut(seed);
        disk.remove(&file(3)).unwrap();
        let error = open(&disk, Durability::Sync).unwrap_err();
        assert!(matches!(error, LogError::Lost { .. }), "{seed}: {error}");
    }
}

#[test]
fn removed_segments_that_are_in_runs_are_not_reported_lost() {
    let (disk, _) = synced();
    let (log, _) = open(&disk, Durability::Sync).unwrap();
    let next = log.roll();
    log.remove_before(next).unwrap();
    drop(log);
    let (_log, found) = open_from(&disk, Durability::Sync, next).unwrap();
    assert!(found.is_empty());
}

#[test]
fn a_note_of_another_table_or_a_damaged_one_is_refused() {
    let (base, all) = synced();
    for (at, words) in [(0, "is damaged"), (20, "is damaged"), (39, "is damaged")] {
        let disk = base.after_kill();
        disk.tamper(&note(), |bytes| bytes[at] ^= 1);
        let error = open(&disk, Durability::Sync).unwrap_err().to_string();
        assert!(
            error.contains(words) && error.contains("log.durable"),
            "{error}"
        );
        disk.remove(&note()).unwrap();
        assert_eq!(open(&disk, Durability::Sync).unwrap().1, all);
    }
    // Its second sector may have been torn by a power cut.
    let disk = base.after_kill();
    disk.tamper(&note(), |bytes| bytes[512 + 20] ^= 1);
    assert_eq!(open(&disk, Durability::Sync).unwrap().1, all);

    let disk = base.after_kill();
    let mut other = options(Durability::Os);
    other.table_id += 1;
    disk.remove_dir_all(dir()).unwrap();
    let clock = Arc::new(HandClock::waiting());
    let error = Log::open(Arc::new(disk), clock, dir(), other, 1, &mut |_, _| Ok(()));
    let error = error.unwrap_err().to_string();
    assert!(error.contains("the note of another table"), "{error}");
}

/// A sync only adds one write in place, and no other call that may wait for the device.
#[test]
fn a_commit_syncs_nothing_but_the_log() {
    let disk = SimDisk::new();
    let (log, _) = open(&disk, Durability::Sync).unwrap();
    let mut calls = Vec::new();
    for number in 0..5 {
        let before = disk.calls();
        let lsn = log.append(&payload(number)).unwrap();
        log.wait_durable(lsn).unwrap();
        calls.push(disk.calls() - before);
    }
    // A write, a sync, whether the file has a name, a write of the note.
    assert_eq!(calls[1..], [4; 4]);
}

#[test]
fn truncating_or_removing_a_file_during_writes_ends_acknowledgements() {
    for durability in [Durability::Sync, Durability::EveryMs(5)] {
        for removed in [false, true] {
            let disk = SimDisk::new();
            let (log, _) = open(&disk, durability).unwrap();
            let lsn = log.append(&payload(1)).unwrap();
            log.wait_durable(lsn).unwrap();
            log.sync().unwrap();
            match removed {
                true => disk.remove(&file(1)).unwrap(),
                false => disk.tamper(&file(1), |bytes| bytes.truncate(30)),
            }
            let appended = log.append(&payload(2));
            let error = appended.and_then(|_| log.sync()).unwrap_err();
            assert!(matches!(error, LogError::Closed { .. }), "{error}");
            assert!(error.to_string().contains("1.log"), "{error}");
            assert!(log.append(&payload(3)).is_err());
            drop(log);
            // Acknowledged records are missed, not forgotten.
            let error = open(&disk, durability).unwrap_err();
            assert!(matches!(error, LogError::Lost { .. }), "{error}");
        }
    }
}

#[test]
fn a_segment_that_the_log_itself_removes_may_be_synced_meanwhile() {
    let disk = SimDisk::new();
    let (log, _) = open(&disk, Durability::Os).unwrap();
    log.append(&payload(1)).unwrap();
    let work = log.shared.writer.lock().take_sync_work();
    let next = log.roll();
    log.remove_before(next).unwrap();
    log.shared.do_sync(&work).unwrap();
}
