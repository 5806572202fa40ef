//! Logs of earlier programs: `images/replica-log-format-2` is the output of [`write_log`] when that
//! format was new; `images/live-format-2` has logs of format 1.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_engine::TableName;
use forebay_engine::live::Durability;
use forebay_engine::replica_log::{
    EntryDraft, EntryPlace, GroupRecords, LoggedGroup, OpenedLog, ReplicaLog, ReplicaLogError,
    ReplicaLogOptions,
};
use forebay_io::sim::{HandClock, SimDisk};
use forebay_io::{Disk, OsDisk, replace_file};

use crate::common::root;

fn image(name: &str) -> PathBuf {
    let images = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/images");
    Path::new(images).join(name)
}

fn dir() -> PathBuf {
    root().join("replicas")
}

fn open(
    disk: &SimDisk,
    table: &str,
    table_id: u64,
) -> Result<(ReplicaLog, OpenedLog), ReplicaLogError> {
    let options = ReplicaLogOptions {
        table: TableName::new(table).unwrap(),
        table_id,
        durability: Durability::Sync,
        boot_id: 0x0B00_7001,
        segment_bytes: 400,
    };
    let disk = Arc::new(disk.clone()) as Arc<dyn Disk>;
    ReplicaLog::open(disk, Arc::<HandClock>::default(), &dir(), options)
}

fn place(term: u64, index: u64) -> EntryPlace {
    EntryPlace { term, index }
}

fn entry(term: u64, index: u64, bytes: &[u8]) -> EntryDraft<'_> {
    let place = place(term, index);
    EntryDraft { place, bytes }
}

/// Records of all kinds in several segments, of which the first was removed.
fn write_log(disk: &SimDisk) {
    disk.create_dir_all(root()).unwrap();
    let (log, opened) = open(disk, "notes", 77).unwrap();
    assert_eq!(opened.boot_then, None);
    let founded = |group, entries| GroupRecords {
        group,
        begins: Some(place(1, 1)),
        entries,
        promise: Some(b"term 1"),
        ..GroupRecords::default()
    };
    let busy = founded(300, vec![entry(1, 2, b"replaced"), entry(1, 3, b"too")]);
    let idle = founded(5, vec![entry(1, 2, b""), entry(2, 3, b"idle")]);
    log.append(&[busy, idle, founded(6, Vec::new())]).unwrap();
    for index in 2..20 {
        let bytes = [index as u8; 40];
        let busy = GroupRecords {
            group: 300,
            entries: vec![entry(4, index, &bytes)],
            ..GroupRecords::default()
        };
        let lsn = log.append(&[busy]).unwrap();
        log.wait_durable(lsn).unwrap();
    }
    let gone = GroupRecords {
        group: 6,
        is_gone: true,
        ..GroupRecords::default()
    };
    log.append(&[gone]).unwrap();
    log.trim(300, 12);
    log.trim(5, 2);
    let removed = log.remove_unneeded(800).unwrap();
    assert!(removed.removed_bytes > 0);
    log.close().unwrap();
}

fn files(disk: &dyn Disk, dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for name in disk.list(dir).unwrap() {
        let path = dir.join(&name);
        match disk.list(&path) {
            Ok(_) => {
                let inside = files(disk, &path).into_iter();
                found.extend(inside.map(|(file, bytes)| (Path::new(&name).join(file), bytes)));
            }
            Err(_) => {
                found.insert(PathBuf::from(name), disk.read(&path).unwrap());
            }
        }
    }
    found
}

fn on_disk(files: &BTreeMap<PathBuf, Vec<u8>>) -> SimDisk {
    let disk = SimDisk::new();
    disk.create_dir_all(&dir()).unwrap();
    for (name, bytes) in files {
        replace_file(&disk, &root().join(name), bytes).unwrap();
    }
    disk
}

#[test]
fn a_log_of_format_2_is_read_and_written_as_it_was() {
    let kept = files(&OsDisk::default(), &image("replica-log-format-2"));
    let disk = SimDisk::new();
    write_log(&disk);
    assert_eq!(files(&disk, root()), kept);

    let (log, opened) = open(&on_disk(&kept), "notes", 77).unwrap();
    assert_eq!(opened.boot_then, Some(0x0B00_7001));
    assert!(opened.stopped_clean);
    assert_eq!(opened.groups.keys().collect::<Vec<_>>(), [&5, &300]);
    let idle = LoggedGroup {
        before: place(1, 2),
        last: place(2, 3),
        promise: Some(b"term 1".to_vec()),
    };
    assert_eq!(opened.groups[&5], idle);
    assert_eq!(log.entries(5, 3, 100).unwrap()[0].bytes, b"idle");
    let busy = &opened.groups[&300];
    assert_eq!(busy.last, place(4, 19));
    assert!((2..=12).contains(&busy.before.index), "{}", busy.before);
    let first = busy.before.index + 1;
    let read = log.entries(300, first, u64::MAX).unwrap();
    for (entry, index) in read.iter().zip(first..) {
        assert_eq!(entry.place, place(4, index));
        assert_eq!(entry.bytes, vec![index as u8; 40]);
    }
    assert_eq!(read.last().unwrap().place, busy.last);
}

#[test]
fn a_log_of_format_1_is_refused_by_number() {
    let from = image("live-format-2/tables/counts/log");
    let kept = files(&OsDisk::default(), &from);
    let (name, bytes) = kept.first_key_value().unwrap();
    let table_id = u64::from_le_bytes(bytes[16..24].try_into().unwrap());
    let file = Path::new("replicas").join(name);
    let disk = on_disk(&BTreeMap::from([(file, bytes.clone())]));
    let error = open(&disk, "counts", table_id).unwrap_err().to_string();
    assert!(
        error.contains("of format 1, operations on a table"),
        "{error}"
    );
    assert!(error.contains(name.to_str().unwrap()), "{error}");
}
