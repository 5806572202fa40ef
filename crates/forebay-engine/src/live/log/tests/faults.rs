//! Every call failing in every way, and power cuts at any moment.

use forebay_io::sim::{Fault, Rng};

use super::*;

const MODES: [Durability; 3] = [Durability::Sync, Durability::Os, Durability::EveryMs(10)];

/// The results that a round of writing got.
#[derive(Debug, Default)]
struct SyncReport {
    /// Every record whose write was tried, and whether the write succeeded.
    tried: Vec<(Vec<u8>, bool)>,
    /// How many of those are durable.
    durable: usize,
}

impl SyncReport {
    fn written(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.tried
            .iter()
            .filter(|(_, ok)| *ok)
            .map(|(record, _)| record)
    }
}

/// Writes a log of several segments, and continues after every refusal.
fn write(disk: &SimDisk, durability: Durability) -> SyncReport {
    let mut reported = SyncReport::default();
    let Ok((log, found)) = open(disk, durability) else {
        return reported;
    };
    assert!(found.is_empty());
    for number in 0..20 {
        let record = [&[number as u8 + 1; 3][..], &payload(number)].concat();
        let appended = log.append(&record);
        reported.tried.push((record, appended.is_ok()));
        if let Ok(lsn) = appended
            && number % 3 == 0
            && durability == Durability::Sync
            && log.wait_durable(lsn).is_ok()
        {
            reported.durable = reported.tried.len();
        }
        if number % 7 == 6 {
            log.roll();
        }
    }
    if log.sync().is_ok() {
        reported.durable = reported.tried.len();
    }
    reported
}

/// After the death of the process: all records whose write succeeded, in order. Between them there
/// may be records whose refusal left their state unknown.
fn check_kill(reported: &SyncReport, found: &[Vec<u8>], words: &str) {
    let mut tried = reported.tried.iter();
    for record in found {
        loop {
            let Some((tried, ok)) = tried.next() else {
                panic!("{words}: {record:?} was never written, or out of order");
            };
            if tried == record {
                break;
            }
            assert!(!ok, "{words}: {tried:?} is lost");
        }
    }
    assert!(tried.all(|(_, ok)| !ok), "{words}: the end is lost");
}

/// After a power cut: a prefix of the written records, with all that were reported durable.
fn check_power_cut(reported: &SyncReport, found: &[Vec<u8>], words: &str) {
    let durable = reported.tried[..reported.durable]
        .iter()
        .filter(|(_, ok)| *ok)
        .count();
    assert!(
        found.len() >= durable,
        "{words}: {} of {durable}",
        found.len()
    );
    let written: Vec<&Vec<u8>> = reported.written().collect();
    let found: Vec<&Vec<u8>> = found.iter().collect();
    assert!(written.starts_with(&found), "{words}: {found:?}");
}

#[test]
fn every_call_may_fail() {
    for durability in MODES {
        let whole = SimDisk::new();
        let reported = write(&whole, durability);
        assert_eq!((reported.durable, reported.written().count()), (20, 20));
        let calls = whole.calls();
        for nth in 0..calls {
            for fault in [Fault::Error, Fault::Full, Fault::NoFiles, Fault::Dead] {
                let disk = SimDisk::new();
                disk.plan(nth, fault);
                let reported = write(&disk, durability);
                let words = format!("{durability}, call {nth} of {calls}, {fault:?}");
                let (_log, found) = open(&disk.after_kill(), durability).unwrap();
                check_kill(&reported, &found, &words);
                for seed in 0..6 {
                    let words = format!("{words}, power cut {seed}");
                    let disk = disk.after_power_cut(seed);
                    let (_log, found) = open(&disk, durability).expect(&words);
                    check_power_cut(&reported, &found, &words);
                }
            }
        }
    }
}

#[test]
fn without_room_or_files_only_that_write_is_refused() {
    for (durability, fault) in MODES
        .into_iter()
        .flat_map(|durability| [(durability, Fault::Full), (durability, Fault::NoFiles)])
    {
        let whole = SimDisk::new();
        write(&whole, durability);
        for nth in 0..whole.calls() {
            let disk = SimDisk::new();
            let Ok((log, _)) = open(&disk, durability) else {
                panic!("a new disk");
            };
            disk.plan(nth, fault);
            let mut expected = Vec::new();
            for number in 0..20 {
                match log.append(&payload(number)) {
                    Ok(_) => expected.push(payload(number)),
                    Err(error) => {
                        assert!(matches!(error, LogError::Full { .. }), "{error}");
                        let remedy = match fault {
                            Fault::NoFiles => "let more files be open",
                            _ => "make room",
                        };
                        assert!(error.to_string().contains(remedy), "{error}");
                        disk.make_room();
                    }
                }
                if number % 7 == 6 {
                    log.roll();
                }
            }
            assert!(expected.len() >= 19, "call {nth}");
            disk.make_room();
            log.sync().unwrap();
            drop(log);
            let (_log, found) = open(&disk, durability).unwrap();
            assert_eq!(found, expected, "call {nth}");
        }
    }
}

#[test]
fn writes_that_are_refused_use_up_no_numbers_and_leave_no_files() {
    let disk = SimDisk::new();
    let (log, _) = open(&disk, Durability::Sync).unwrap();
    let lsn = log.append(&payload(1)).unwrap();
    log.wait_durable(lsn).unwrap();
    log.roll();
    let before = disk.files();
    // A segment is made, gets its header, and a record.
    for (nth, fault) in [
        (0, Fault::Full),
        (1, Fault::Full),
        (2, Fault::Full),
        (0, Fault::NoFiles),
    ] {
        for _ in 0..20 {
            disk.plan(nth, fault);
            let error = log.append(&[2; 6000]).unwrap_err();
            assert!(matches!(error, LogError::Full { .. }), "{error}");
            assert_eq!(disk.files(), before, "{fault:?} at {nth}");
            disk.make_room();
        }
    }
    log.append(&payload(3)).unwrap();
    assert!(disk.files().contains(&file(2)));
    drop(log);
    let (_log, found) = open(&disk, Durability::Sync).unwrap();
    assert_eq!(found, [payload(1), payload(3)]);
}

#[test]
fn recovery_may_fail_at_every_call_and_be_tried_again() {
    let base = SimDisk::new();
    let mut reported = write(&base, Durability::Os);
    reported.durable = 0;
    base.tamper(&file(2), |bytes| bytes.truncate(bytes.len() - 3));
    // Without the note it is unknown that it was durable.
    base.remove(&note()).unwrap();
    base.sync_dir(note().parent().unwrap()).unwrap();
    let (_log, expected) = open(&base.after_kill(), Durability::Os).unwrap();
    assert_eq!(expected.len(), 13);
    for durability in MODES {
        let whole = base.after_kill();
        let before = whole.calls();
        drop(open(&whole, durability).unwrap());
        for nth in 0..whole.calls() - before {
            for fault in [Fault::Error, Fault::Dead] {
                let disk = base.after_kill();
                disk.plan(nth, fault);
                assert!(open(&disk, durability).is_err(), "call {nth}");
                let words = format!("{durability}, call {nth}, {fault:?}");
                let (_log, found) = open(&disk.after_kill(), durability).expect(&words);
                assert_eq!(found, expected, "{words}");
                for seed in 0..4 {
                    let (_log, found) =
                        open(&disk.after_power_cut(seed), durability).expect(&words);
                    check_power_cut(&reported, &found, &words);
                }
            }
        }
    }
}

/// A life of a log in several processes: writes, syncs, rolls, removals, kills and power cuts.
fn live(seed: u64) {
    let mut rng = Rng(seed);
    let clock = Arc::new(HandClock::waiting());
    let mut disk = SimDisk::new();
    let mut from_segment = 1;
    // The records that may be read back: by segment, and how many of them are durable.
    let mut records = Records::new();
    let mut durable = 0;
    for process in 0..4 {
        let durability = MODES[rng.below(3) as usize];
        let words = format!("seed {seed}, process {process}, {durability}");
        let opened = open_at(&disk, durability, from_segment, &clock);
        let (log, found) = opened.unwrap_or_else(|error| panic!("{words}: {error}"));
        assert!(
            found.len() >= durable,
            "{words}: {} of {durable}",
            found.len()
        );
        assert!(records.starts_with(&found), "{words}");
        records = found;
        if durability != Durability::Os {
            durable = records.len();
        }
        let room_comes_and_goes = rng.below(3) == 0;
        for _ in 0..rng.below(40) {
            let length = [10, 100, 2000][rng.below(3) as usize];
            let bytes = vec![rng.below(4) as u8; 1 + rng.below(length) as usize];
            if room_comes_and_goes && rng.below(4) == 0 {
                disk.plan(rng.below(2), Fault::Full);
            }
            let segment = log.shared.writer.lock().segment_of_next();
            let lsn = log.append(&bytes);
            disk.make_room();
            let Ok(lsn) = lsn else { continue };
            records.push((segment, bytes));
            match rng.below(8) {
                0 if durability == Durability::Sync => {
                    log.wait_durable(lsn).unwrap();
                    durable = records.len();
                }
                1 => {
                    log.sync().unwrap();
                    durable = records.len();
                }
                2 => {
                    let next = log.roll();
                    if rng.below(3) == 0 {
                        log.remove_before(next).unwrap();
                        from_segment = next;
                        records.clear();
                        durable = 0;
                    }
                }
                _ => {}
            }
        }
        disk = match rng.below(3) {
            0 => disk.after_kill(),
            _ => disk.after_power_cut(rng.next_u64()),
        };
        drop(log);
    }
    clock.end();
}

#[test]
fn any_life_of_a_log_keeps_its_promises() {
    let first: u64 = match std::env::var("FOREBAY_TEST_SEED") {
        Ok(seed) => seed.parse().unwrap(),
        Err(_) => 0,
    };
    let count = std::env::var("FOREBAY_TEST_SEEDS").map_or(600, |count| count.parse().unwrap());
    for seed in first..first + count {
        live(seed);
    }
}
