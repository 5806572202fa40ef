//! Corrupt pages of runs.

use std::path::Path;

use forebay_io::sim::{Rng, SimDisk};
use forebay_io::{Disk, replace_file};

use super::{create, open};
use crate::live::{Budget, LiveDraft, LiveTable};

/// Keys of which some lie in the middle of the run.
const KEYS: u64 = 2000;

/// A table with one run, with a changed byte in the middle.
fn damaged() -> (SimDisk, LiveTable) {
    let (disk, table) = create(LiveDraft::hashed().partitions(1));
    let mut rng = Rng(7);
    for number in 0..KEYS {
        let key = number.to_be_bytes();
        let value: Vec<u8> = (0..100).map(|_| rng.below(256) as u8).collect();
        table.update(&key, &value).unwrap().wait().unwrap();
    }
    table.flush().unwrap();
    let dir = table.shared().files.runs();
    drop(table);
    let path = dir.join(disk.list(&dir).unwrap().remove(0));
    let mut bytes = disk.read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    replace_file(&disk, &path, &bytes).unwrap();
    let table = open(&disk).unwrap();
    (disk, table)
}

#[test]
fn a_read_of_damage_reports_its_partition() {
    let (_disk, table) = damaged();
    assert_eq!(table.damaged(), []);
    let errors = (0..KEYS).filter_map(|key| table.get(&key.to_be_bytes()).err());
    let errors: Vec<_> = errors.collect();
    assert!(!errors.is_empty() && errors.len() < KEYS as usize);
    assert!(
        errors
            .iter()
            .all(|error| error.is_damage() && !error.may_pass())
    );
    let id = table.partitions()[0].id;
    let met = table.damaged();
    assert_eq!((met.len(), met[0].0), (1, id));
    assert!(met[0].1.contains(".run"), "{met:?}");
    // A released partition is not damaged.
    table.release(id).unwrap();
    assert_eq!(table.damaged(), []);
}

#[test]
fn a_check_of_a_run_finds_damage_without_a_read() {
    let (disk, table) = damaged();
    let copy = table.content(table.partitions()[0].id).unwrap();
    let id = &copy.runs[0].id;
    assert!(table.check_run(id).unwrap_err().is_damage());
    assert_eq!(table.damaged().len(), 1);
    let again = open_after(disk, table);
    assert_eq!(again.damaged(), []);
    let path = again.shared().files.run(id);
    again.shared().disk().remove(&path).unwrap();
    assert!(again.check_run(id).is_err());
    assert_eq!(again.damaged().len(), 1, "the file is gone");
}

fn open_after(disk: SimDisk, table: LiveTable) -> LiveTable {
    drop(table);
    open(&disk).unwrap()
}

/// Changes a byte of a value in a run's file, where all that have it mapped see it at once.
#[allow(clippy::disallowed_methods)]
fn flip_in_place(path: &Path, value: &[u8]) {
    let bytes = std::fs::read(path).unwrap();
    let found = bytes.windows(value.len()).position(|some| some == value);
    let at = found.unwrap() + 1;
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[bytes[at] ^ 1], at as u64).unwrap();
}

#[test]
fn a_merge_detects_a_page_that_changed_after_a_read() {
    let dir = tempfile::tempdir().unwrap();
    let store = crate::open(dir.path()).unwrap();
    let draft = LiveDraft::ordered(Vec::new());
    let table = store
        .create_live(&super::name(), draft, &Budget::new(64 << 20))
        .unwrap();
    let value = |number: u64| format!("the value of key {number:06}").into_bytes();
    for number in 0..KEYS {
        let key = number.to_be_bytes();
        table.update(&key, &value(number)).unwrap().wait().unwrap();
    }
    table.flush().unwrap();
    let id = table.partitions()[0].id;
    let first = table.content(id).unwrap().runs[0].id.clone();
    let get = |number: u64| table.get(&number.to_be_bytes());
    // Its checksum is verified, and that is remembered.
    assert_eq!(get(1000).unwrap(), Some(value(1000)));
    flip_in_place(&table.shared().files.run(&first), &value(1000));
    assert!(get(1000).unwrap().is_some_and(|read| read != value(1000)));
    table.update(b"z", b"1").unwrap().wait().unwrap();
    let error = table.compact().unwrap_err();
    assert!(error.is_damage(), "{error}");
    // The damage is reported, like damage that readers find, and nothing reads the run from now on.
    let met = table.damaged();
    assert_eq!((met.len(), met[0].0), (1, id));
    assert!(get(1000).unwrap_err().is_damage());
    assert_eq!(get(5).unwrap(), Some(value(5)));
    assert!(
        table
            .content(id)
            .unwrap()
            .runs
            .iter()
            .any(|run| run.id == first)
    );
    table.update(b"z", b"2").unwrap().wait().unwrap();
}
