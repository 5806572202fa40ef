//! Loads that are decided entries: applied at their place, once, even if the device fails.

use std::path::Path;
use std::sync::Arc;

use forebay_io::Disk;
use forebay_io::sim::{Fault, SimDisk};
use forebay_run::RunWriter;
use forebay_run::operation::{DeltaKind, Operation};

use super::replicas::entry;
use super::{create, open};
use crate::keys::partition::PartitionId;
use crate::live::{LiveDraft, LiveTable, Replication};
use crate::name::RunId;

const FIRST: PartitionId = PartitionId(0);
const LOAD: u64 = 7;

fn table() -> (SimDisk, LiveTable) {
    let draft = LiveDraft::ordered(Vec::new()).delta(DeltaKind::Append);
    create(draft.replicated(Replication::Leader))
}

/// A run that appends to a key.
fn run(disk: &SimDisk, table: &LiveTable) -> RunId {
    let new = table.new_run();
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let mut writer = RunWriter::create(&disk, &new.path, table.run_options(1, 10)).unwrap();
    writer.push(0, b"a", Operation::Delta(b"L")).unwrap();
    writer.finish().unwrap();
    new.id
}

fn append(table: &LiveTable, index: u64, value: &[u8]) {
    let write = table.entry(FIRST, &entry(index, 1, index), 0).unwrap();
    write.delta(b"a", value).unwrap().wait().unwrap();
    write.finish().unwrap();
}

fn value(table: &LiveTable) -> Vec<u8> {
    table.get(b"a").unwrap().unwrap()
}

#[test]
fn a_load_is_added_once_between_earlier_and_later_entries() {
    let (disk, table) = table();
    append(&table, 1, b"1");
    let new = run(&disk, &table);
    let second = entry(2, 1, 2);
    table.apply_load(FIRST, &second, 0, LOAD, &[new]).unwrap();
    let place = table.applied(FIRST).unwrap();
    assert_eq!((place.index, place.loaded), (2, LOAD));
    assert_eq!(table.applied_in_runs(FIRST).unwrap(), place);
    append(&table, 3, b"3");
    assert_eq!(value(&table), b"1L3");
    // The same load again, and an earlier one.
    for (index, load) in [(4, LOAD), (5, LOAD - 1)] {
        let again = run(&disk, &table);
        let entry = entry(index, 1, index);
        table.apply_load(FIRST, &entry, 0, load, &[again]).unwrap();
        assert_eq!(value(&table), b"1L3");
    }
    table.flush().unwrap();
    drop(table);
    let table = open(&disk.after_kill()).unwrap();
    assert_eq!(value(&table), b"1L3");
    let place = table.applied(FIRST).unwrap();
    assert_eq!((place.index, place.loaded), (5, LOAD));
}

#[test]
fn a_crash_leaves_a_load_added_with_its_place_or_not_at_all() {
    let mut ends = [0, 0];
    for calls in 0.. {
        let (disk, table) = table();
        append(&table, 1, b"1");
        table.flush().unwrap();
        let new = run(&disk, &table);
        disk.plan(calls, Fault::Dead);
        let applied = table.apply_load(FIRST, &entry(2, 1, 2), 0, LOAD, &[new]);
        let is_through = disk.exists(Path::new("/")).is_ok();
        let left = disk.after_kill();
        drop(table);
        let table = open(&left).unwrap();
        let place = table.applied(FIRST).unwrap();
        let is_in = place.index == 2;
        assert_eq!(place.loaded, if is_in { LOAD } else { 0 }, "call {calls}");
        assert!(is_in || applied.is_err(), "call {calls}");
        ends[usize::from(is_in)] += 1;
        if !is_in {
            let new = run(&left, &table);
            let again = table.apply_load(FIRST, &entry(2, 1, 2), 0, LOAD, &[new]);
            again.unwrap();
        }
        assert_eq!(value(&table), b"1L", "call {calls}");
        if is_through {
            break;
        }
    }
    assert!(ends[0] > 2 && ends[1] > 1, "{ends:?}");
}
