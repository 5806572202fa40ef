//! What a log records about the end of the previous process.

use super::model::Change;
use super::*;

fn open_on(disk: &SimDisk, boot_id: u128) -> (ReplicaLog, OpenedLog) {
    let options = ReplicaLogOptions {
        boot_id,
        ..options(Durability::Os, 2000)
    };
    open_with(disk, options).unwrap()
}

fn boot_and_clean(opened: &OpenedLog) -> (Option<u128>, bool) {
    (opened.boot_then, opened.stopped_clean)
}

#[test]
fn only_a_close_leaves_a_log_that_was_stopped_cleanly() {
    let disk = SimDisk::new();
    let (log, _) = open_on(&disk, 1);
    append(&log, &[entries(1, &[(1, 1)])]).unwrap();
    drop(log);
    let (log, opened) = open_on(&disk, 2);
    assert_eq!(boot_and_clean(&opened), (Some(1), false));
    // Boot 2 wrote nothing: a process that must remove the log may die before that is done.
    log.close().unwrap();
    let (log, opened) = open_on(&disk, 2);
    assert_eq!(boot_and_clean(&opened), (Some(1), false));
    append(&log, &[entries(1, &[(1, 2)])]).unwrap();
    log.close().unwrap();
    let (log, opened) = open_on(&disk, 3);
    assert_eq!(boot_and_clean(&opened), (Some(2), true));
    drop(log);
    let (log, opened) = open_on(&disk, 4);
    assert_eq!(boot_and_clean(&opened), (Some(2), true));
    append(&log, &[entries(1, &[(1, 3)])]).unwrap();
    // The marker is gone before the first record may be.
    for seed in 0..30 {
        let (_log, opened) = open_on(&disk.after_power_cut(seed), 5);
        assert_eq!(boot_and_clean(&opened), (Some(4), false));
    }
    drop(log);
}

#[test]
fn a_close_covers_writes_of_a_killed_process_of_its_boot() {
    let disk = SimDisk::new();
    let (log, _) = open_on(&disk, 1);
    append(&log, &[entries(1, &[(1, 1)])]).unwrap();
    let disk = disk.after_kill();
    let (log, opened) = open_on(&disk, 1);
    assert_eq!(boot_and_clean(&opened), (Some(1), false));
    log.close().unwrap();
    for seed in 0..30 {
        let (log, opened) = open_on(&disk.after_power_cut(seed), 2);
        assert_eq!(boot_and_clean(&opened), (Some(1), true));
        assert_eq!(opened.groups[&1].last, place(1, 1));
        drop(log);
    }
    // A log that was never written to has no state.
    let disk = SimDisk::new();
    open_on(&disk, 1).0.close().unwrap();
    assert_eq!(boot_and_clean(&open_on(&disk, 1).1), (None, false));
}

#[test]
fn a_damaged_or_missing_state_is_reported() {
    let base = SimDisk::new();
    let (log, _) = open_on(&base, 1);
    append(&log, &[entries(1, &[(1, 1)])]).unwrap();
    drop(log);
    let state = state_path(dir());
    for at in 0..64 {
        let disk = base.after_kill();
        disk.tamper(&state, |bytes| bytes[512 + at] ^= 1);
        let error = open(&disk).unwrap_err();
        assert!(error.is_damage(), "{at}: {error}");
    }
    let (log, _) = open_on(&base, 1);
    append(&log, &[entries(1, &[(1, 2)])]).unwrap();
    log.close().unwrap();
    for at in 0..1024 {
        let disk = base.after_kill();
        disk.tamper(&state, |bytes| bytes[at] ^= 1);
        let (_log, opened) = open_on(&disk, 2);
        // Where nothing is written nothing is damaged.
        let is_padding = (64..512).contains(&at) || at >= 576;
        assert_eq!(opened.stopped_clean, is_padding, "{at}");
    }
    let disk = base.after_kill();
    disk.remove(&state).unwrap();
    let error = open(&disk).unwrap_err();
    assert!(
        error.is_damage() && error.to_string().contains("replicas.state"),
        "{error}"
    );
    let mut other = options(Durability::Os, 2000);
    other.table_id += 1;
    let disk = base.after_kill();
    disk.remove_dir_all(dir()).unwrap();
    disk.remove(&note_path(dir())).unwrap();
    let error = open_with(&disk, other).unwrap_err().to_string();
    assert!(error.contains("another table"), "{error}");
}

#[test]
fn a_removed_log_starts_empty() {
    let disk = SimDisk::new();
    let (log, _) = open_on(&disk, 1);
    let founded = Change {
        begins: Some(place(1, 1)),
        ..entries(1, &[(1, 2)])
    };
    append(&log, &[founded]).unwrap();
    log.sync().unwrap();
    drop(log);
    // After a crash during the removal, the rest is reported as damaged, or as of the earlier boot.
    for seed in 0..40 {
        for nth in 0..6 {
            let disk = disk.after_kill();
            disk.plan(nth, forebay_io::sim::Fault::Dead);
            let removed = ReplicaLog::remove(&disk, dir());
            let disk = disk.after_power_cut(seed);
            let options = options(Durability::Os, 2000);
            match open_with(&disk, options) {
                Ok((_log, opened)) if opened.groups.is_empty() => {
                    let forgot = opened.boot_then == Some(1) && !opened.stopped_clean;
                    assert!(forgot || opened.boot_then.is_none());
                }
                Ok((_log, opened)) => {
                    assert_eq!((removed.is_err(), opened.boot_then), (true, Some(1)));
                }
                Err(error) => assert!(error.is_damage(), "{error}"),
            }
        }
    }
    ReplicaLog::remove(&disk, dir()).unwrap();
    assert!(disk.files().is_empty());
    ReplicaLog::remove(&disk, dir()).unwrap();
    let (_log, opened) = open_on(&disk, 2);
    assert_eq!(boot_and_clean(&opened), (None, false));
}
