//! Logs on simulated disks: recovery after every damage, truncation, failure and loss of power.

mod commits;
mod damage;
mod ends;
mod faults;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use forebay_io::Disk;
use forebay_io::sim::{HandClock, SimDisk};

use super::{Durability, Log, LogError, LogOptions, Lsn};
use crate::name::TableName;

const TABLE_ID: u64 = 0x5EED_0F7A_B1E5;

fn dir() -> &'static Path {
    Path::new("/store/tables/t/log")
}

fn file(segment: u64) -> PathBuf {
    super::segment_path(dir(), segment)
}

fn note() -> PathBuf {
    super::note::note_path(dir())
}

fn options(durability: Durability) -> LogOptions {
    LogOptions {
        table: TableName::new("t").unwrap(),
        table_id: TABLE_ID,
        durability,
    }
}

/// The records that a log replayed, by segment.
type Records = Vec<(u64, Vec<u8>)>;

fn open_from(
    disk: &SimDisk,
    durability: Durability,
    from_segment: u64,
) -> Result<(Log, Records), LogError> {
    open_at(disk, durability, from_segment, &Arc::default())
}

fn open_at(
    disk: &SimDisk,
    durability: Durability,
    from_segment: u64,
    clock: &Arc<HandClock>,
) -> Result<(Log, Records), LogError> {
    let clock = Arc::clone(clock);
    let mut records = Records::new();
    let log = Log::open(
        Arc::new(disk.clone()) as Arc<dyn Disk>,
        clock,
        dir(),
        options(durability),
        from_segment,
        &mut |segment, payload| {
            records.push((segment, payload.to_vec()));
            Ok(())
        },
    )?;
    Ok((log, records))
}

fn open(disk: &SimDisk, durability: Durability) -> Result<(Log, Vec<Vec<u8>>), LogError> {
    let (log, records) = open_from(disk, durability, 1)?;
    Ok((
        log,
        records.into_iter().map(|(_, payload)| payload).collect(),
    ))
}

/// Payloads that differ in length and content; some have many zeros, as values have, but never so
/// many in a row that they look unwritten.
fn payload(number: usize) -> Vec<u8> {
    let length = 1 + number * 37 % 90;
    let byte = |at: usize| match number.is_multiple_of(3) && !at.is_multiple_of(15) {
        true => 0,
        false => number as u8 + 1,
    };
    (0..length).map(byte).collect()
}

fn payloads(count: usize) -> Vec<Vec<u8>> {
    (0..count).map(payload).collect()
}

#[test]
fn records_are_read_back_in_order_with_their_segments() {
    let disk = SimDisk::new();
    let (log, found) = open(&disk, Durability::Os).unwrap();
    assert!(found.is_empty());
    let mut lsns: Vec<Lsn> = Vec::new();
    let mut expected = Records::new();
    for number in 0..30 {
        lsns.push(log.append(&payload(number)).unwrap());
        expected.push((1 + number as u64 / 10, payload(number)));
        if number % 10 == 9 {
            assert_eq!(log.roll(), 2 + number as u64 / 10);
        }
    }
    assert!(lsns.is_sorted());
    drop(log);
    let (log, found) = open_from(&disk, Durability::Os, 1).unwrap();
    assert_eq!(found, expected);
    // A new process continues in a segment of its own.
    log.append(b"more").unwrap();
    expected.push((4, b"more".to_vec()));
    drop(log);
    let (_log, found) = open_from(&disk, Durability::Os, 1).unwrap();
    assert_eq!(found, expected);
    assert_eq!(disk.files(), [file(1), file(2), file(3), file(4), note()]);
}

#[test]
fn segments_that_are_in_runs_are_removed_and_never_read_again() {
    let disk = SimDisk::new();
    let (log, _) = open(&disk, Durability::Os).unwrap();
    log.append(b"one").unwrap();
    let second = log.roll();
    log.append(b"two").unwrap();
    let bytes: usize = [1, 2]
        .map(|n| disk.read(&file(n)).unwrap().len())
        .iter()
        .sum();
    assert_eq!(log.size_bytes(), bytes as u64);
    log.remove_before(second).unwrap();
    assert_eq!(disk.files(), [file(2)]);
    assert_eq!(log.size_bytes(), disk.read(&file(2)).unwrap().len() as u64);
    let third = log.roll();
    log.append(b"three").unwrap();
    drop(log);
    // The process died between moving on and removing.
    let (_log, found) = open_from(&disk, Durability::Os, third).unwrap();
    assert_eq!(found, [(3, b"three".to_vec())]);
    assert_eq!(disk.files(), [file(3), note()]);
}

#[test]
fn opening_and_closing_without_a_write_leaves_no_files() {
    let disk = SimDisk::new();
    for durability in [Durability::Os, Durability::Sync, Durability::EveryMs(5)] {
        let (log, found) = open(&disk, durability).unwrap();
        assert!(found.is_empty());
        assert_eq!(log.roll(), 1);
    }
    assert!(disk.files().is_empty());
}

#[test]
fn records_of_no_or_too_many_bytes_are_refused() {
    let (log, _) = open(&SimDisk::new(), Durability::Os).unwrap();
    let error = log.append(b"").unwrap_err();
    assert!(
        matches!(error, LogError::RecordBytes { bytes: 0, .. }),
        "{error}"
    );
    log.append(&vec![7; 3 << 20]).unwrap();
}

#[test]
fn a_record_that_its_reader_refuses_is_named() {
    let disk = SimDisk::new();
    let (log, _) = open(&disk, Durability::Os).unwrap();
    log.append(b"good").unwrap();
    log.append(b"bad").unwrap();
    drop(log);
    let error = Log::open(
        Arc::new(disk) as Arc<dyn Disk>,
        Arc::new(HandClock::waiting()),
        dir(),
        options(Durability::Os),
        1,
        &mut |_, payload| match payload {
            b"bad" => Err("it has no key".to_owned()),
            _ => Ok(()),
        },
    )
    .unwrap_err();
    let LogError::Damaged {
        path,
        offset,
        problem,
        ..
    } = &error
    else {
        panic!("{error}");
    };
    assert_eq!((&**path, &**problem), (&*file(1), "it has no key"));
    // The header of a table named with one letter has 59 bytes, the first record 12 + 4.
    assert_eq!(*offset, 75);
}

#[test]
fn durabilities_have_one_spelling() {
    for (text, durability) in [
        ("sync", Durability::Sync),
        ("os", Durability::Os),
        ("100ms", Durability::EveryMs(100)),
    ] {
        assert_eq!(text.parse(), Ok(durability));
        assert_eq!(durability.to_string(), text);
    }
    for wrong in [
        "",
        "ms",
        "0ms",
        "-5ms",
        "5",
        "5s",
        "Sync",
        "99999999999999999999ms",
    ] {
        assert!(wrong.parse::<Durability>().is_err(), "{wrong}");
    }
}
