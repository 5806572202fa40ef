//! Tables without threads: the same order of events each time.

use std::path::Path;
use std::sync::Arc;

use forebay_io::sim::{Fault, HandClock, Rng, SeededRandom, SimDisk};
use forebay_run::operation::DeltaKind;

use super::replicas::entry;
use super::{collect, name};
use crate::keys::partition::PartitionId;
use crate::live::{Budget, LiveDraft, LiveError, LiveTable, Replication};
use crate::tables::store::Store;

const FIRST: PartitionId = PartitionId(0);

fn table_on(disk: &SimDisk, seed: u64) -> LiveTable {
    let (clock, random) = (
        Arc::new(HandClock::at(5)),
        Arc::new(SeededRandom::new(seed)),
    );
    let disk = Arc::new(disk.clone());
    let store = Store::open_or_create(disk, clock, random, Path::new("/s")).unwrap();
    let draft = LiveDraft::ordered(vec![b"m".to_vec()])
        .delta(DeltaKind::Append)
        .factor(2)
        .replicated(Replication::Leader);
    store
        .create_live(&name(), draft, &Budget::by_hand(1 << 20))
        .unwrap()
}

fn apply(table: &LiveTable, index: u64, key: &[u8], value: &[u8]) -> Result<(), LiveError> {
    let write = table.entry(FIRST, &entry(index, 1, index), 0)?;
    write.update(key, value)?.wait()?;
    write.finish()
}

/// The content of the disk, and the calls that led to it.
fn course_of(seed: u64) -> (u64, Vec<(String, Vec<u8>)>) {
    use forebay_io::Disk;
    let (disk, rng) = (SimDisk::new(), &mut Rng(seed));
    let table = table_on(&disk, seed);
    let mut stepped = 0;
    for index in 1..=3000 {
        let key = format!("a{}", rng.below(500));
        apply(&table, index, key.as_bytes(), &[b'v'; 200]).unwrap();
        match rng.below(100) {
            0 => table.flush().unwrap(),
            1 => drop(table.snapshot()),
            2..=10 => stepped += u64::from(table.step().unwrap()),
            _ => {}
        }
    }
    while table.step().unwrap() {
        stepped += 1;
    }
    assert!(stepped > 10, "{stepped} steps");
    assert!(table.stats().merges > 3 && !table.stats().is_merge_due);
    let files = disk.files().into_iter();
    let of = |path: std::path::PathBuf| {
        let bytes = disk.read(&path).unwrap_or_default();
        (path.display().to_string(), bytes)
    };
    let files = files.map(of).collect();
    (disk.calls(), files)
}

#[test]
fn the_same_seed_writes_the_same_files() {
    for seed in [1, 2] {
        assert!(course_of(seed) == course_of(seed), "seed {seed}");
    }
    assert!(course_of(1) != course_of(2));
}

#[test]
fn a_writer_without_memory_flushes_for_itself() {
    let disk = SimDisk::new();
    let table = table_on(&disk, 1);
    for index in 1..=20_000u64 {
        apply(&table, index, &index.to_be_bytes(), &[b'v'; 200]).unwrap();
    }
    assert!(table.stats().flushed_bytes > 1 << 20);
    assert_eq!(collect(table.entries()).len(), 20_000);
    table.compact().unwrap();
    assert!(!table.step().unwrap());
}

#[test]
fn a_failed_step_is_reported_and_repeated() {
    let disk = SimDisk::new();
    let table = table_on(&disk, 1);
    apply(&table, 1, b"a", b"1").unwrap();
    table.shared().freeze();
    disk.fill_up();
    assert!(table.step().is_err() && table.step().is_err());
    assert!(matches!(table.flush(), Err(LiveError::Full { .. })));
    assert!(table.stats().flush_problem.is_some());
    disk.make_room();
    assert!(table.step().unwrap() && !table.step().unwrap());
    assert_eq!(table.stats().flush_problem, None);
    apply(&table, 2, b"a", b"2").unwrap();
    table.shared().freeze();
    disk.plan(1, Fault::Error);
    assert!(table.step().is_err());
    assert!(table.stats().failed.is_some());
    assert!(!table.step().unwrap());
    assert!(matches!(table.flush(), Err(LiveError::Failed { .. })));
    assert_eq!(table.get(b"a").unwrap().as_deref(), Some(&b"2"[..]));
}
