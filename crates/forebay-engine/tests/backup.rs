//! Backups of both kinds of tables: making, retention and restore, with every call failing.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::{clock, name, push, random, rows};
use forebay_engine::backup::{Backup, BackupError, BackupPlace, BackupReport};
use forebay_engine::live::{Budget, CheckpointError, LiveDraft, LiveError, LiveTable};
use forebay_engine::{Store, StoreError, Table};
use forebay_io::sim::{Fault, SimDisk};
use forebay_io::{Disk, replace_file};
use forebay_run::Order;

fn budget() -> Arc<Budget> {
    Budget::new(1 << 20)
}

fn store_at(disk: &SimDisk, root: &str) -> Store {
    try_store_at(disk, root).unwrap()
}

fn try_store_at(disk: &SimDisk, root: &str) -> Result<Store, StoreError> {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    // Ids of runs are random, and differ from one process to the next.
    static SEED: AtomicU64 = AtomicU64::new(1);
    let random = random(SEED.fetch_add(1, Ordering::Relaxed));
    Store::open_or_create(disk, clock(), random, Path::new(root))
}

fn place_on(disk: &SimDisk) -> Result<BackupPlace, BackupError> {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    BackupPlace::open_or_create(disk, clock(), Path::new("/b"))
}

fn newest(disk: &SimDisk) -> Backup {
    place_on(disk).unwrap().backup(None).unwrap()
}

/// Pushes the next version of a batch table, and writes so many keys to a live one.
fn fill(disk: &SimDisk, version: u64, keys: u32) {
    let store = store_at(disk, "/s");
    push(&store, "batch", Order::Hashed, &rows(version, 60), 2).unwrap();
    store.table(&name("batch")).unwrap().swap(version).unwrap();
    let live = match store.live_table(&name("live"), &budget()) {
        Err(LiveError::NoTable { .. }) => {
            store.create_live(&name("live"), LiveDraft::hashed(), &budget())
        }
        opened => opened,
    };
    let live = live.unwrap();
    for number in 0..keys {
        let written = live.update(&number.to_be_bytes(), b"value");
        written.unwrap().wait().unwrap();
    }
    live.flush().unwrap();
}

fn back_up(disk: &SimDisk, keep: Option<usize>) -> Result<BackupReport, BackupError> {
    let (store, place) = (try_store_at(disk, "/s")?, place_on(disk)?);
    let mut backup = place.begin("/s")?;
    let table = store.table(&name("batch"))?;
    backup.add_version(&table, table.serving()?, &mut |_| ())?;
    let checkpoint = store.checkpoint(&name("live"), &budget())?;
    backup.add_live(&checkpoint.table()?, &mut |_| ())?;
    backup.finish(keep, None)
}

fn count(table: &LiveTable) -> u32 {
    let mut walk = table.entries();
    let mut found = 0;
    while walk.advance().unwrap() {
        found += 1;
    }
    found
}

fn restore(backup: &Backup, to: &Store) -> Result<(Table, u64), BackupError> {
    let restored = backup.restore_version(&name("batch"), to, &mut |_| ())?;
    backup.live(&name("live"))?.copy_into(to, &mut |_| ())?;
    Ok(restored)
}

#[test]
fn both_kinds_of_tables_are_restored() {
    let disk = SimDisk::new();
    fill(&disk, 1, 30);
    let report = back_up(&disk, None).unwrap();
    assert!(report.copied_bytes > 0 && report.reused_bytes == 0);
    // Unchanged files are copied once.
    let again = back_up(&disk, None).unwrap();
    assert_eq!(
        (again.copied_bytes, again.reused_bytes),
        (0, report.copied_bytes)
    );
    assert_ne!(again.document.name, report.document.name);
    let to = store_at(&disk, "/new");
    let (table, version) = restore(&newest(&disk), &to).unwrap();
    assert_eq!(version, 1);
    table.swap(version).unwrap();
    assert!(table.verify(1, &mut |_| ()).unwrap().problems.is_empty());
    let live = to.live_table(&name("live"), &budget()).unwrap();
    assert_eq!(count(&live), 30);
    drop(live);
    // A second time: the version exists, and the live table is not touched.
    let refused = restore(&newest(&disk), &to).unwrap_err();
    assert!(
        matches!(
            refused,
            BackupError::Checkpoint(CheckpointError::Live(LiveError::Exists { .. }))
        ),
        "{refused}"
    );
}

#[test]
fn the_newest_are_kept_and_files_are_removed_with_the_last_backup_that_names_them() {
    let disk = SimDisk::new();
    for round in 1..=4 {
        fill(&disk, round, 10 * round as u32);
        let report = back_up(&disk, Some(2)).unwrap();
        assert_eq!(report.removed.len(), usize::from(round > 2));
    }
    let place = place_on(&disk).unwrap();
    assert_eq!(place.names().unwrap().len(), 2);
    let runs = |table: &str| {
        let dir = format!("/b/tables/{table}/runs/");
        let files = disk.files().into_iter();
        files
            .filter(|path| path.starts_with(&dir) && path.extension() == Some("run".as_ref()))
            .count()
    };
    // Two versions of so many partitions.
    let store = store_at(&disk, "/s");
    let table = store.table(&name("batch")).unwrap();
    let manifest = table.manifest(4).unwrap();
    let of_version: usize = manifest.partitions.iter().map(|part| part.runs.len()).sum();
    assert_eq!(runs("batch"), 2 * of_version);
    for backup in place.names().unwrap() {
        let backup = place.backup(Some(&backup)).unwrap();
        let to = store_at(&disk, &format!("/of-{}", backup.document().name));
        restore(&backup, &to).unwrap();
    }
}

#[test]
fn files_of_a_dead_backup_are_removed_before_the_next_one_copies() {
    let disk = SimDisk::new();
    fill(&disk, 1, 10);
    let kept = back_up(&disk, None).unwrap().document;
    fill(&disk, 2, 10);
    let copied = || {
        let files = disk.files().into_iter();
        let in_tables = files.filter(|path| path.starts_with("/b/tables"));
        in_tables.collect::<std::collections::BTreeSet<_>>()
    };
    let before = copied();
    let (store, place) = (store_at(&disk, "/s"), place_on(&disk).unwrap());
    let table = store.table(&name("batch")).unwrap();
    let mut died = place.begin("/s").unwrap();
    died.add_version(&table, 2, &mut |_| ()).unwrap();
    assert!(copied().len() > before.len());
    drop(died);
    let _next = place_on(&disk).unwrap().begin("/s").unwrap();
    assert_eq!(copied(), before);
    let to = store_at(&disk, "/new");
    let backup = place.backup(Some(&kept.name)).unwrap();
    assert_eq!(restore(&backup, &to).unwrap().1, 1);
}

#[test]
fn another_version_of_that_number_is_left_alone() {
    let disk = SimDisk::new();
    fill(&disk, 1, 1);
    back_up(&disk, None).unwrap();
    let to = store_at(&disk, "/other");
    push(&to, "batch", Order::Hashed, &rows(9, 3), 1).unwrap();
    let refused = newest(&disk).restore_version(&name("batch"), &to, &mut |_| ());
    let refused = refused.unwrap_err();
    assert!(
        matches!(refused, BackupError::OtherVersion { version: 1, .. }),
        "{refused}"
    );
    let there = to.table(&name("batch")).unwrap();
    let report = there.verify(1, &mut |_| ()).unwrap();
    assert_eq!((report.totals.rows, report.problems.len()), (3, 0));
}

#[test]
fn damage_is_found_and_named() {
    let disk = SimDisk::new();
    fill(&disk, 1, 20);
    back_up(&disk, None).unwrap();
    let run = disk.files().into_iter().find(|path| {
        path.starts_with("/b/tables/live/runs") && path.extension() == Some("run".as_ref())
    });
    disk.tamper(&run.unwrap(), |bytes| bytes[100] ^= 1);
    let backup = newest(&disk);
    backup.check(&name("batch"), &mut |_| ()).unwrap();
    let found = backup.check(&name("live"), &mut |_| ()).unwrap_err();
    assert!(
        found.to_string().contains("/b/tables/live/runs/"),
        "{found}"
    );
    let to = store_at(&disk, "/new");
    let copied = newest(&disk).live(&name("live")).unwrap();
    let copied = copied.copy_into(&to, &mut |_| ());
    assert!(copied.is_err(), "a damaged run was restored");
    assert!(!to.is_live(&name("live")).unwrap());
}

#[test]
fn a_file_that_sorts_after_every_backup_blocks_no_backup() {
    let disk = SimDisk::new();
    fill(&disk, 1, 5);
    let first = back_up(&disk, None).unwrap().document.name;
    for junk in ["junk", "99991231T235959.999Z"] {
        let path = format!("/b/backups/{junk}.json");
        replace_file(&disk, Path::new(&path), b"junk").unwrap();
    }
    let second = back_up(&disk, Some(1)).unwrap();
    assert!(second.document.name > first && second.damaged.len() == 2);
    // The old one stays while some cannot be read.
    let place = place_on(&disk).unwrap();
    assert!(place.backup(Some(&first)).is_ok());
}

/// A sound file in the place of another, of the same length or not.
#[test]
fn a_run_in_the_place_of_another_is_no_part_of_the_backup() {
    for table in ["live", "batch"] {
        let disk = SimDisk::new();
        fill(&disk, 1, 40);
        back_up(&disk, None).unwrap();
        let dir = format!("/b/tables/{table}/runs/");
        let files = disk.files().into_iter();
        let runs =
            files.filter(|path| path.starts_with(&dir) && path.extension() == Some("run".as_ref()));
        let runs: Vec<_> = runs.collect();
        let other = disk.read(&runs[1]).unwrap();
        disk.tamper(&runs[0], |bytes| bytes.clone_from(&other));
        let found = newest(&disk).check(&name(table), &mut |_| ());
        assert!(found.unwrap_err().to_string().contains(&dir), "{table}");
        let to = store_at(&disk, "/new");
        let restored = restore(&newest(&disk), &to);
        assert!(restored.is_err(), "another run was restored: {table}");
        assert!(!to.is_live(&name("live")).unwrap());
    }
}

#[test]
fn each_table_keeps_backups_of_its_own() {
    let disk = SimDisk::new();
    fill(&disk, 1, 20);
    let both = back_up(&disk, None).unwrap().document.name;
    let (store, place) = (store_at(&disk, "/s"), place_on(&disk).unwrap());
    let mut backup = place.begin("/s").unwrap();
    let table = store.table(&name("batch")).unwrap();
    backup.add_version(&table, 1, &mut |_| ()).unwrap();
    // The live table has no other backup.
    let one = backup.finish(Some(1), None).unwrap();
    assert_eq!(one.removed, Vec::<String>::new());
    let next = back_up(&disk, Some(1)).unwrap();
    assert_eq!(next.removed.len(), 2);
    assert!(next.removed.contains(&both));
}

#[test]
fn a_backup_that_cannot_be_read_blocks_no_other() {
    let disk = SimDisk::new();
    fill(&disk, 1, 20);
    let first = back_up(&disk, None).unwrap();
    let damaged = back_up(&disk, None).unwrap().document.name;
    let path = format!("/b/backups/{damaged}.json");
    disk.tamper(Path::new(&path), |bytes| bytes.truncate(5));
    let third = back_up(&disk, Some(1)).unwrap();
    // No file that it may need is removed.
    assert_eq!((third.damaged, third.removed.len()), (vec![damaged], 0));
    let place = place_on(&disk).unwrap();
    let earlier = place.backup(Some(&first.document.name)).unwrap();
    restore(&earlier, &store_at(&disk, "/new")).unwrap();
    let documents = place.documents().unwrap();
    assert_eq!((documents.documents.len(), documents.damaged.len()), (2, 1));
    disk.remove(Path::new(&path)).unwrap();
    assert_eq!(back_up(&disk, Some(1)).unwrap().removed.len(), 2);
}

#[test]
fn a_place_is_outside_of_stores_and_of_other_places() {
    let disk = SimDisk::new();
    fill(&disk, 1, 20);
    back_up(&disk, None).unwrap();
    for root in ["/s/backups", "/s/tables/batch/x", "/b/sub"] {
        let (disk, clock): (Arc<dyn Disk>, _) = (Arc::new(disk.clone()), clock());
        let refused = BackupPlace::open_or_create(disk, clock, Path::new(root)).unwrap_err();
        assert!(
            matches!(refused, BackupError::Inside { .. }),
            "{root}: {refused}"
        );
    }
}

#[test]
fn a_failure_at_any_call_leaves_a_whole_backup_or_none() {
    let disk = SimDisk::new();
    fill(&disk, 1, 20);
    back_up(&disk, None).unwrap();
    fill(&disk, 2, 40);
    for nth in 0.. {
        let disk = disk.after_kill();
        let at = disk.calls() + nth;
        disk.plan(nth, Fault::Error);
        let made = back_up(&disk, Some(1));
        let calls = disk.calls();
        disk.plan(u64::MAX / 2, Fault::Error);
        let backup = newest(&disk);
        let to = store_at(&disk, "/new");
        let (_, version) =
            restore(&backup, &to).unwrap_or_else(|error| panic!("call {nth}: {error}"));
        let live = to.live_table(&name("live"), &budget()).unwrap();
        match version {
            1 => assert_eq!((count(&live), made.is_err()), (20, true), "call {nth}"),
            _ => assert_eq!(count(&live), 40, "call {nth}"),
        }
        // The next one is complete, and leaves no files of this one.
        let next = back_up(&disk, Some(1)).unwrap();
        assert_eq!(
            place_on(&disk).unwrap().names().unwrap(),
            [next.document.name]
        );
        if calls < at {
            made.unwrap();
            return;
        }
    }
}
