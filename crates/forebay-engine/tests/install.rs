//! Installs versions from another store, and reopens repaired ones.
#![allow(clippy::unwrap_used)]

use std::io::Write;

use crate::common::{name, push, read_all, root, rows, store_on};
use forebay_engine::{PushError, Serving, Store, StoreError, Table, VersionFile};
use forebay_io::Disk;
use forebay_io::sim::SimDisk;
use forebay_run::Order;

fn table(store: &Store) -> Table {
    store.table(&name("t")).unwrap()
}

/// Versions 1 to `versions` of table "t", the last of which serves.
fn source(versions: u64) -> (SimDisk, Store) {
    let disk = SimDisk::new();
    let store = store_on(&disk, 1);
    for version in 1..=versions {
        push(&store, "t", Order::Hashed, &rows(version, 60), 2).unwrap();
        table(&store).swap(version).unwrap();
    }
    (disk, store)
}

fn manifest(disk: &SimDisk, version: u64) -> Vec<u8> {
    let path = root().join(format!("tables/t/versions/{version}.manifest"));
    disk.read(&path).unwrap()
}

/// Returns the file's bytes, with the one at `flip` changed.
fn fetch(from: &SimDisk, to: &SimDisk, file: &VersionFile, flip: Option<usize>) {
    let mut bytes = from.read(&file.path).unwrap();
    if let Some(at) = flip {
        bytes[at] ^= 1;
    }
    let _ = to.remove(&file.path);
    let mut out = to.create(&file.path).unwrap();
    out.write_all(&bytes).unwrap();
    out.sync().unwrap();
}

fn install(from: &SimDisk, to: &SimDisk, store: &Store, version: u64) -> Table {
    let install = store
        .begin_install(&name("t"), &manifest(from, version))
        .unwrap();
    for file in install.files() {
        fetch(from, to, &file, None);
    }
    assert!(install.verify(&mut |_| {}).unwrap().problems.is_empty());
    install.commit().unwrap()
}

#[test]
fn versions_are_installed_in_any_order_and_the_pointer_unchanged() {
    let (there, other) = source(3);
    let here = SimDisk::new();
    let store = store_on(&here, 2);
    for version in [3, 1] {
        install(&there, &here, &store, version);
    }
    let pointer = table(&other).pointer().unwrap();
    assert!(table(&store).point_as(&pointer).unwrap());
    assert!(!table(&store).point_as(&pointer).unwrap(), "nothing to do");
    let now = table(&store).pointer().unwrap();
    assert_eq!((now.serving, now.history), (Some(3), vec![1]));
    let found = read_all(&table(&store).open_version(3).unwrap());
    assert_eq!(found, rows(3, 60));
    let bytes = manifest(&there, 3);
    assert!(table(&store).has_installed(3, &bytes).unwrap());
    assert!(!table(&store).has_installed(2, &bytes).unwrap());
    let missing = table(&other)
        .swap(2)
        .map(|_| table(&other).pointer().unwrap());
    let refused = table(&store).point_as(&missing.unwrap()).unwrap_err();
    assert!(
        matches!(refused, StoreError::NoVersion { version: 2, .. }),
        "{refused}"
    );
}

#[test]
fn incomplete_or_damaged_files_do_not_become_a_version() {
    let (there, _) = source(1);
    let here = SimDisk::new();
    let store = store_on(&here, 2);
    let begin = || {
        store
            .begin_install(&name("t"), &manifest(&there, 1))
            .unwrap()
    };
    let begun = begin();
    let files = begun.files();
    assert!(matches!(
        begun.commit().unwrap_err(),
        PushError::BadManifest { .. }
    ));
    for file in &files {
        fetch(&there, &here, file, None);
    }
    fetch(&there, &here, &files[1], Some(700));
    let begun = begin();
    let busy = store
        .begin_install(&name("t"), &manifest(&there, 1))
        .unwrap_err();
    assert!(matches!(busy, PushError::Busy { .. }), "{busy}");
    let report = begun.verify(&mut |_| {}).unwrap();
    assert_eq!(report.damaged, [files[1].run.clone()]);
    fetch(&there, &here, &files[1], None);
    assert!(begun.verify(&mut |_| {}).unwrap().damaged.is_empty());
    begun.commit().unwrap();
    let mut bytes = manifest(&there, 1);
    bytes[40] ^= 1;
    assert!(store.begin_install(&name("t"), &bytes).is_err());
    assert!(
        store
            .begin_install(&name("other"), &manifest(&there, 1))
            .is_err()
    );
}

#[test]
fn a_repaired_table_is_reopened_on_request() {
    let (there, other) = source(1);
    let here = SimDisk::new();
    let store = store_on(&here, 2);
    let files = table(&other).files_of(&table(&other).manifest(1).unwrap());
    install(&there, &here, &store, 1);
    table(&store).swap(1).unwrap();
    let serving = Serving::manual(store.clone());
    let before = serving.table(b"t").unwrap();
    fetch(&there, &here, &files[0], Some(700));
    assert_eq!(table(&store).verify_warm(1).unwrap().damaged.len(), 1);
    fetch(&there, &here, &files[0], None);
    serving.refresh();
    let same = serving.table(b"t").unwrap();
    assert!(
        std::sync::Arc::ptr_eq(&before, &same),
        "no repair was announced"
    );
    serving.reopen(&name("t"));
    let after = serving.table(b"t").unwrap();
    assert!(!std::sync::Arc::ptr_eq(&before, &after));
    assert_eq!(read_all(&after), rows(1, 60));
}
