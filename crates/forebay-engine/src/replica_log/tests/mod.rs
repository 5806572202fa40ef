//! Logs of replicas on simulated disks.

mod damage;
mod faults;
mod lives;
mod model;
mod records;
mod removals;
mod stops;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_io::Disk;
use forebay_io::sim::{HandClock, SimDisk};

use super::*;
use crate::live::log::Durability;

const TABLE_ID: u64 = 0x5EED_0F7A_B1E5;
const MODES: [Durability; 3] = [Durability::Sync, Durability::Os, Durability::EveryMs(10)];

fn dir() -> &'static Path {
    Path::new("/store/tables/t/replicas")
}

fn file(segment: u64) -> PathBuf {
    dir().join(format!("{segment}.log"))
}

fn options(durability: Durability, segment_bytes: u64) -> ReplicaLogOptions {
    ReplicaLogOptions {
        table: TableName::new("t").unwrap(),
        table_id: TABLE_ID,
        durability,
        boot_id: 1,
        segment_bytes,
    }
}

fn open_with(
    disk: &SimDisk,
    options: ReplicaLogOptions,
) -> Result<(ReplicaLog, OpenedLog), ReplicaLogError> {
    let disk = Arc::new(disk.clone()) as Arc<dyn Disk>;
    ReplicaLog::open(disk, Arc::<HandClock>::default(), dir(), options)
}

fn open(disk: &SimDisk) -> Result<(ReplicaLog, OpenedLog), ReplicaLogError> {
    open_with(disk, options(Durability::Sync, 2000))
}

fn place(term: u64, index: u64) -> EntryPlace {
    EntryPlace { term, index }
}

/// Entries of `group` at these places, each with its index for bytes.
fn entries(group: u64, places: &[(u64, u64)]) -> model::Change {
    let entry = |(term, index): &(u64, u64)| LoggedEntry {
        place: place(*term, *index),
        bytes: vec![*index as u8; 100],
    };
    model::Change {
        group,
        entries: places.iter().map(entry).collect(),
        ..model::Change::default()
    }
}

fn append(log: &ReplicaLog, changes: &[model::Change]) -> Result<Lsn, ReplicaLogError> {
    let records: Vec<GroupRecords<'_>> = changes.iter().map(model::Change::records).collect();
    log.append(&records)
}

#[test]
fn groups_are_read_back_with_their_entries_and_promises() {
    let disk = SimDisk::new();
    let (log, opened) = open(&disk).unwrap();
    assert_eq!((opened.boot_then, opened.stopped_clean), (None, false));
    assert!(opened.groups.is_empty());
    let founded = model::Change {
        group: u64::MAX,
        begins: Some(place(1, 1)),
        promise: Some(b"first".to_vec()),
        ..entries(u64::MAX, &[(1, 2), (3, 3)])
    };
    append(&log, &[entries(4, &[(1, 1), (1, 2), (2, 3)]), founded]).unwrap();
    let lsn = append(&log, &[entries(4, &[(5, 3), (5, 4)])]).unwrap();
    log.wait_durable(lsn).unwrap();
    assert!(log.durable(lsn));
    let read = log.entries(4, 2, u64::MAX).unwrap();
    let places: Vec<EntryPlace> = read.iter().map(|entry| entry.place).collect();
    assert_eq!(places, [place(1, 2), place(5, 3), place(5, 4)]);
    assert_eq!(read[2].bytes, [4; 100]);
    // One at least, more as they fit.
    for (most, count) in [(0, 1), (199, 1), (200, 2), (1000, 3)] {
        assert_eq!(log.entries(4, 2, most).unwrap().len(), count);
    }
    assert!(log.entries(4, 5, 1000).unwrap().is_empty());
    let error = log.entries(u64::MAX, 1, 1000).unwrap_err();
    assert!(
        matches!(error, ReplicaLogError::Trimmed { first: 2, .. }),
        "{error}"
    );
    let error = log.entries(5, 1, 1000).unwrap_err();
    assert!(matches!(error, ReplicaLogError::NoGroup { .. }), "{error}");
    drop(log);
    let (log, opened) = open(&disk).unwrap();
    assert_eq!(opened.boot_then, Some(1));
    let group = &opened.groups[&u64::MAX];
    assert_eq!((group.before, group.last), (place(1, 1), place(3, 3)));
    assert_eq!(group.promise.as_deref(), Some(&b"first"[..]));
    assert_eq!(opened.groups[&4].last, place(5, 4));
    assert_eq!(log.entries(4, 2, u64::MAX).unwrap(), read);
}

#[test]
fn entries_out_of_order_are_refused_and_change_nothing() {
    let disk = SimDisk::new();
    let (log, _) = open(&disk).unwrap();
    let begun = model::Change {
        begins: Some(place(3, 7)),
        ..entries(1, &[(3, 8), (4, 9)])
    };
    append(&log, &[begun]).unwrap();
    for wrong in [
        entries(1, &[(4, 11)]),
        entries(1, &[(3, 7)]),
        entries(1, &[(3, 10)]),
        entries(1, &[(4, 10), (4, 12)]),
        entries(1, &[(4, 10), (3, 11)]),
        entries(1, &[(4, 0)]),
        entries(2, &[(1, 2)]),
        entries(2, &[(1, u64::MAX)]),
    ] {
        let error = append(&log, &[entries(3, &[(1, 1)]), wrong]).unwrap_err();
        assert!(matches!(error, ReplicaLogError::Order { .. }), "{error}");
    }
    let error = append(&log, &[entries(3, &[(1, 1)]), entries(3, &[(1, 1)])]).unwrap_err();
    assert!(matches!(error, ReplicaLogError::Twice { .. }), "{error}");
    let long = model::Change {
        promise: Some(vec![1; MAX_PROMISE_BYTES + 1]),
        ..entries(3, &[])
    };
    let error = append(&log, &[long]).unwrap_err();
    assert!(
        matches!(error, ReplicaLogError::PromiseBytes { .. }),
        "{error}"
    );
    assert!(append(&log, &[]).is_err());
    log.close().unwrap();
    let (log, opened) = open(&disk).unwrap();
    assert_eq!(opened.groups.len(), 1);
    assert_eq!(opened.groups[&1].last, place(4, 9));
    append(&log, &[entries(1, &[(4, 10)])]).unwrap();
}

#[test]
fn logs_of_one_kind_are_not_read_as_the_other() {
    let disk = SimDisk::new();
    let (log, _) = open(&disk).unwrap();
    append(&log, &[entries(1, &[(1, 1)])]).unwrap();
    log.close().unwrap();
    let open_operations = |disk: &SimDisk| {
        Log::open(
            Arc::new(disk.clone()) as Arc<dyn Disk>,
            Arc::new(HandClock::waiting()),
            dir(),
            LogOptions {
                table: TableName::new("t").unwrap(),
                table_id: TABLE_ID,
                durability: Durability::Os,
            },
            1,
            &mut |_, _| Ok(()),
        )
    };
    let error = open_operations(&disk).unwrap_err().to_string();
    assert!(error.contains("format 2, records of groups"), "{error}");
    assert!(error.contains("1.log"), "{error}");

    let disk = SimDisk::new();
    let log = open_operations(&disk).unwrap();
    log.append(b"an operation").unwrap();
    drop(log);
    let error = open(&disk).unwrap_err().to_string();
    assert!(error.contains("format 1, operations on a table"), "{error}");
}
