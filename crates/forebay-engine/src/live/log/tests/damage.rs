//! Logs whose bytes changed: either the valid records are read, or the log is refused.

use super::*;

const COUNT: usize = 24;

/// A log of three segments, with where the last record begins. Synced every few records or never.
fn base(durability: Durability) -> (SimDisk, u64) {
    let disk = SimDisk::new();
    let (log, _) = open(&disk, durability).unwrap();
    let mut last_start = 0;
    for number in 0..COUNT {
        last_start = log.shared.writer.lock().current_end();
        let lsn = log.append(&payload(number)).unwrap();
        if number % 4 == 0 {
            log.wait_durable(lsn).unwrap();
        }
        if number % 9 == 8 {
            log.roll();
        }
    }
    drop(log);
    (disk, last_start)
}

/// Opens a log that was tampered with. If it opens, it must work.
fn reopened(disk: &SimDisk, words: &str) -> Result<Vec<Vec<u8>>, LogError> {
    let before = disk.files();
    let (log, mut found) = match open(disk, Durability::Os) {
        Ok(opened) => opened,
        Err(error) => {
            assert_eq!(disk.files(), before, "{words}: refused, but changed");
            return Err(error);
        }
    };
    log.append(b"and on").unwrap();
    drop(log);
    let (_log, again) = open(disk, Durability::Os).unwrap();
    let expected = [&found[..], &[b"and on".to_vec()]].concat();
    assert_eq!(again, expected, "{words}");
    found.truncate(COUNT);
    Ok(found)
}

fn every_flip(durability: Durability) {
    let (base, last_start) = base(durability);
    let all = payloads(COUNT);
    let mut refused = 0;
    for segment in 1..=3 {
        let length = base.read(&file(segment)).unwrap().len();
        for at in 0..length {
            for bit in 0..8 {
                let disk = base.after_kill();
                disk.tamper(&file(segment), |bytes| bytes[at] ^= 1 << bit);
                let words = format!("{durability}: segment {segment}, byte {at}, bit {bit}");
                match reopened(&disk, &words) {
                    Ok(found) if found == all => {
                        let padding = base.read(&file(segment)).unwrap()[at] == 0;
                        let place = at as u64 % 512;
                        assert!(padding && place > 500, "{words}: not detected");
                    }
                    Ok(found) => {
                        assert!(segment == 3 && at as u64 >= last_start, "{words}");
                        assert_eq!(durability, Durability::Os, "{words}: it was durable");
                        assert_eq!(found, all[..COUNT - 1], "{words}");
                    }
                    Err(error) => {
                        let text = error.to_string();
                        let name = file(segment).display().to_string();
                        assert!(text.contains(&name), "{words}: {text}");
                        refused += 1;
                    }
                }
            }
        }
    }
    assert!(refused > 8000, "{refused}");
}

#[test]
fn every_flipped_bit_of_an_unsynced_log_is_detected() {
    every_flip(Durability::Os);
}

#[test]
fn every_flipped_bit_of_a_synced_log_is_detected() {
    every_flip(Durability::Sync);
}

#[test]
fn a_log_truncated_anywhere_is_read_up_to_there_or_refused() {
    for durability in [Durability::Os, Durability::Sync] {
        let (base, _) = base(durability);
        let all = payloads(COUNT);
        for segment in 1..=3 {
            let length = base.read(&file(segment)).unwrap().len();
            let mut most = 0;
            for kept in 0..length {
                let disk = base.after_kill();
                disk.tamper(&file(segment), |bytes| bytes.truncate(kept));
                let words = format!("{durability}: segment {segment} cut at {kept}");
                match reopened(&disk, &words) {
                    Ok(found) => {
                        let count = found.len();
                        assert!(count >= most && count < COUNT, "{words}: {count} records");
                        assert_eq!(found, all[..count], "{words}");
                        most = count;
                    }
                    Err(error) => assert_eq!(durability, Durability::Sync, "{words}: {error}"),
                }
            }
            let refused = durability == Durability::Sync;
            assert_eq!(most == 0, refused, "segment {segment}, {most}");
        }
    }
}

#[test]
fn durable_records_that_look_unwritten_are_not_dropped() {
    for durability in [Durability::Os, Durability::Sync] {
        let disk = SimDisk::new();
        let (log, _) = open(&disk, durability).unwrap();
        for number in 0..100 {
            let lsn = log.append(&[number + 1; 60]).unwrap();
            log.wait_durable(lsn).unwrap();
        }
        drop(log);
        disk.tamper(&file(1), |bytes| bytes[1024..1536].fill(0));
        match (durability, open(&disk, Durability::Os)) {
            (Durability::Os, Ok((_, found))) => assert!(found.len() < 21 && found.len() > 10),
            (Durability::Sync, Err(error)) => {
                assert!(error.to_string().contains("this was durable"), "{error}");
            }
            (_, other) => panic!("{durability}: {other:?}"),
        }
    }
}

#[test]
fn the_remedy_for_damage_works() {
    let (disk, _) = base(Durability::Sync);
    disk.tamper(&file(2), |bytes| bytes[300] ^= 4);
    let error = open(&disk, Durability::Os).unwrap_err();
    assert!(error.to_string().contains("log.durable"), "{error}");
    let LogError::Damaged { path, offset, .. } = error else {
        panic!("not reported as damage");
    };
    assert_eq!(path, file(2));
    disk.tamper(&file(2), |bytes| bytes.truncate(offset as usize));
    disk.remove(&file(3)).unwrap();
    disk.remove(&note()).unwrap();
    let (_log, found) = open(&disk, Durability::Os).unwrap();
    assert!(found.len() > 9 && found.len() < 18);
    assert_eq!(found, payloads(found.len()));
}

#[test]
fn a_missing_segment_is_named() {
    let (disk, _) = base(Durability::Os);
    disk.remove(&file(2)).unwrap();
    let error = open(&disk, Durability::Os).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, LogError::Missing { .. }), "{text}");
    assert!(
        text.contains("2.log is missing") && text.contains("3.log"),
        "{text}"
    );
    // The remedy in the error's text works.
    disk.remove(&file(3)).unwrap();
    let (_log, found) = open(&disk, Durability::Os).unwrap();
    assert_eq!(found, payloads(9));
}

#[test]
fn files_of_other_logs_are_refused() {
    let (disk, _) = base(Durability::Os);
    let third = disk.read(&file(3)).unwrap();
    disk.tamper(&file(2), |bytes| *bytes = third);
    let error = open(&disk, Durability::Os).unwrap_err().to_string();
    assert!(
        error.contains("2.log") && error.contains("segment 3 of table t"),
        "{error}"
    );

    let (disk, _) = base(Durability::Os);
    let mut other = options(Durability::Os);
    other.table_id += 1;
    let clock = Arc::new(HandClock::waiting());
    let disk = Arc::new(disk) as Arc<dyn Disk>;
    let error = Log::open(disk, clock, dir(), other, 1, &mut |_, _| Ok(()));
    let error = error.unwrap_err().to_string();
    assert!(error.contains("an earlier table t"), "{error}");

    let (disk, _) = base(Durability::Os);
    disk.tamper(&file(1), |bytes| bytes[8] = 9);
    let error = open(&disk, Durability::Os).unwrap_err().to_string();
    assert!(error.contains("format 9"), "{error}");
}

#[test]
fn frames_pass_only_where_they_were_written() {
    // The same records at other offsets, or of another segment.
    let (disk, _) = base(Durability::Os);
    let second = disk.read(&file(2)).unwrap();
    let first = disk.read(&file(1)).unwrap();
    assert_eq!(first[..8], second[..8]);
    disk.tamper(&file(3), |bytes| {
        bytes.truncate(59);
        bytes.extend_from_slice(&second[59..]);
    });
    let (_log, found) = open(&disk, Durability::Os).unwrap();
    assert_eq!(found, payloads(18));

    let disk = SimDisk::new();
    let (log, _) = open(&disk, Durability::Os).unwrap();
    for number in 0..4 {
        log.append(&payload(number)).unwrap();
    }
    drop(log);
    disk.tamper(&file(1), |bytes| {
        let frames = bytes[59..].to_vec();
        bytes.extend_from_slice(&frames);
    });
    let (_log, found) = open(&disk, Durability::Os).unwrap();
    assert_eq!(found, payloads(4));
}

#[test]
fn zeros_after_the_last_record_are_not_damage() {
    for durability in [Durability::Os, Durability::Sync] {
        let (disk, _) = base(durability);
        disk.tamper(&file(3), |bytes| bytes.resize(bytes.len() + 600_000, 0));
        assert_eq!(reopened(&disk, "zeros").unwrap(), payloads(COUNT));
    }
}
