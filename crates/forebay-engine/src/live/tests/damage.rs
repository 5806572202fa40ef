//! Pages of runs that are no longer what was written.

use forebay_io::sim::{Dice, SimDisk};
use forebay_io::{Disk, replace_file};

use super::{create, open};
use crate::live::{LiveDraft, LiveTable};

/// Keys of which some lie in the middle of the run.
const KEYS: u64 = 2000;

/// A table with one run, of which a byte in the middle is another.
fn damaged() -> (SimDisk, LiveTable) {
    let (disk, table) = create(LiveDraft::hashed().partitions(1));
    let mut dice = Dice(7);
    for number in 0..KEYS {
        let key = number.to_be_bytes();
        let value: Vec<u8> = (0..100).map(|_| dice.below(256) as u8).collect();
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
fn a_read_that_meets_damage_tells_of_its_partition() {
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
    // What is not here any more is not damaged.
    table.release(id).unwrap();
    assert_eq!(table.damaged(), []);
}

#[test]
fn who_is_told_of_damage_finds_it_without_a_read() {
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
