//! Logs whose bytes changed.

use super::model::Model;
use super::*;

/// A synced log of several segments, and what is in it.
fn base() -> (SimDisk, Model) {
    let disk = SimDisk::new();
    let (log, _) = open_with(&disk, options(Durability::Sync, 600)).unwrap();
    let mut model = Model::default();
    for index in 1..=9 {
        let changes = [entries(1, &[(1, index)]), entries(2, &[(2, index)])];
        let lsn = append(&log, &changes).unwrap();
        log.wait_durable(lsn).unwrap();
        model.take(&changes);
    }
    log.close().unwrap();
    (disk, model)
}

#[test]
fn every_flipped_byte_is_reported_with_file_and_offset_or_has_no_effect() {
    let (base, model) = base();
    let mut reported = 0;
    for path in base
        .files()
        .into_iter()
        .filter(|path| path.starts_with(dir()))
    {
        let length = base.read(&path).unwrap().len();
        for at in 0..length {
            let disk = base.after_kill();
            disk.tamper(&path, |bytes| bytes[at] ^= 4);
            let words = format!("{} at {at}", path.display());
            let before = disk.files();
            match open(&disk) {
                Ok((log, opened)) => {
                    assert_eq!(model.differs(&opened.groups, &log), None, "{words}");
                }
                Err(error) => {
                    assert_eq!(disk.files(), before, "{words}: refused, but changed");
                    // A header may be that of another log or program.
                    let in_header = at < 60;
                    assert!(error.is_damage() || in_header, "{words}: {error}");
                    assert!(error.to_string().contains(".log"), "{words}: {error}");
                    reported += 1;
                }
            }
        }
    }
    assert!(reported > 2000, "{reported}");
}

#[test]
fn a_missing_segment_is_reported() {
    let (base, _) = base();
    for segment in 1..=3 {
        let disk = base.after_kill();
        disk.remove(&file(segment)).unwrap();
        let error = open(&disk).unwrap_err();
        assert!(error.is_damage(), "{segment}: {error}");
        let name = file(segment).display().to_string();
        assert!(error.to_string().contains(&name), "{error}");
    }
}

#[test]
fn damage_found_while_the_log_is_open_is_reported() {
    let disk = SimDisk::new();
    let (log, _) = open_with(&disk, options(Durability::Os, 20_000)).unwrap();
    for index in 1..=9 {
        append(&log, &[entries(1, &[(1, index)])]).unwrap();
    }
    disk.tamper(&file(1), |bytes| bytes[500] ^= 1);
    let error = log.entries(1, 1, u64::MAX).unwrap_err();
    let ReplicaLogError::Damaged { path, offset, .. } = &error else {
        panic!("{error}");
    };
    assert!(*path == file(1) && (400..=500).contains(offset), "{error}");
    assert_eq!(log.entries(1, 1, 100).unwrap().len(), 1);
    assert_eq!(log.entries(1, 9, 100).unwrap().len(), 1);
}

#[test]
fn a_torn_last_record_that_was_not_durable_is_cut_off() {
    let disk = SimDisk::new();
    let (log, _) = open_with(&disk, options(Durability::Os, 20_000)).unwrap();
    for index in 1..=3 {
        append(
            &log,
            &[entries(1, &[(1, index)]), entries(2, &[(1, index)])],
        )
        .unwrap();
    }
    let killed = disk.after_kill();
    killed.tamper(&file(1), |bytes| bytes.truncate(bytes.len() - 1));
    let (log, opened) = open(&killed).unwrap();
    // All records of one call are gone.
    for group in [1, 2] {
        assert_eq!(opened.groups[&group].last, place(1, 2));
        append(&log, &[entries(group, &[(1, 3)])]).unwrap();
    }
    drop(log);
    assert_eq!(open(&killed).unwrap().1.groups[&2].last, place(1, 3));
}
