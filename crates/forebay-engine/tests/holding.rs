//! Stores that hold a part of their tables' partitions, which changes while a version serves.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::common::partial::{PARTITIONS, install, manifest, partial, source, table};
use crate::common::{Rows, name, read_all, rows, store_on};
use forebay_engine::{ReadError, ReleaseReport, Serving, StoreError, Version};
use forebay_io::sim::{Fault, Rng, SimDisk};
use forebay_run::Order;

/// Checks that every key is read as in the whole version if its partition is one of `ids`, and
/// returns `NotHere` otherwise.
fn check(version: &Arc<Version>, whole: &Version, rows: &Rows, ids: &BTreeSet<u32>) {
    let mut all = Rows::new();
    for key in rows.keys().cloned().chain([b"other".to_vec()]) {
        let place = whole.partition_of(&key).unwrap();
        let id = whole.manifest().partitions[place].id.0;
        let value = whole.get(&key).unwrap();
        match version.get(&key) {
            Ok(found) => {
                assert!(ids.contains(&id));
                assert_eq!(found, value);
                all.extend(found.map(|value| (key, value.to_vec())));
            }
            Err(ReadError::NotHere { .. }) => assert!(!ids.contains(&id)),
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(read_all(version), all);
    let open: BTreeSet<u32> = version.partitions().iter().map(|part| part.id.0).collect();
    assert_eq!(open, *ids);
}

#[test]
fn a_node_without_partitions_of_a_table_knows_its_bounds_and_order() {
    let (there, other) = source(Order::Ordered, 1);
    let here = SimDisk::new();
    let (store, ids) = partial(&here);
    assert_eq!(install(&there, &here, &store, 1), 0);
    table(&store).swap(1).unwrap();
    let serving = Serving::manual(store.clone());
    let version = serving.table(b"t").unwrap();
    let whole = table(&other).open_version(1).unwrap();
    check(&version, &whole, &rows(1, 120), &ids.get());
    assert_eq!(version.order(), Order::Ordered);
    assert_eq!(version.manifest(), whole.manifest());
    assert_eq!(serving.states().tables[0].1.file_bytes, 0);
    let bytes = manifest(&there, 1);
    assert!(table(&store).has_installed(1, &bytes).unwrap());
    assert!(
        !here
            .files()
            .iter()
            .any(|path| path.extension().is_some_and(|e| e == "run"))
    );
    // A handle without a holding expects all files.
    assert!(table(&store_on(&here, 3)).open_version(1).is_err());
}

#[test]
fn held_partitions_change_while_versions_serve() {
    for seed in 0..8 {
        let order = [Order::Hashed, Order::Ordered][seed as usize % 2];
        let mut rng = Rng(seed);
        let (there, other) = source(order, 2);
        let here = SimDisk::new();
        let (store, ids) = partial(&here);
        ids.set([0, 3]);
        for version in [1, 2] {
            install(&there, &here, &store, version);
            table(&store).swap(version).unwrap();
        }
        let serving = Serving::manual(store.clone());
        let whole = [1, 2].map(|version| table(&other).open_version(version).unwrap());
        let mut now = 2;
        for _ in 0..60 {
            let (before, held) = (serving.table(b"t").unwrap(), ids.get());
            if rng.below(4) == 0 {
                table(&store).swap(3 - now).unwrap();
                now = 3 - now;
                serving.refresh();
            } else {
                ids.set((0..PARTITIONS).filter(|_| rng.below(2) == 0));
                let gained = ids.get().difference(&held).count();
                // Both versions have a run in each partition.
                let came = [1, 2].map(|version| install(&there, &here, &store, version));
                assert!(came.iter().all(|came| *came <= gained));
                let calls = here.calls();
                serving.rehold(&[name("t")]).unwrap();
                if gained == 0 {
                    assert_eq!(here.calls(), calls, "every held run is open");
                }
                if rng.below(3) == 0 {
                    table(&store).release().unwrap();
                }
            }
            let version = serving.table(b"t").unwrap();
            assert_eq!(version.version(), now);
            check(
                &version,
                &whole[now as usize - 1],
                &rows(now, 120),
                &ids.get(),
            );
            let then = before.version();
            check(&before, &whole[then as usize - 1], &rows(then, 120), &held);
        }
        assert!(serving.states().tables[0].1.problem.is_none());
    }
}

#[test]
fn partitions_without_files_cannot_be_held() {
    let (there, _) = source(Order::Hashed, 1);
    let here = SimDisk::new();
    let (store, ids) = partial(&here);
    ids.set([1]);
    install(&there, &here, &store, 1);
    table(&store).swap(1).unwrap();
    let serving = Serving::manual(store.clone());
    let before = serving.table(b"t").unwrap();
    ids.set([1, 2]);
    let bytes = manifest(&there, 1);
    assert!(!table(&store).has_installed(1, &bytes).unwrap());
    assert!(matches!(
        table(&store).swap(1),
        Err(StoreError::Incomplete { .. })
    ));
    assert!(serving.rehold(&[name("t")]).is_err());
    assert!(Arc::ptr_eq(&before, &serving.table(b"t").unwrap()));
    serving.refresh();
    assert!(Arc::ptr_eq(&before, &serving.table(b"t").unwrap()));
    assert_eq!(install(&there, &here, &store, 1), 1);
    serving.rehold(&[name("t"), name("unknown")]).unwrap();
    assert_eq!(serving.table(b"t").unwrap().partitions().len(), 2);
}

#[test]
fn files_are_released_but_never_those_that_are_held() {
    let (there, _) = source(Order::Hashed, 2);
    let base = SimDisk::new();
    let (store, ids) = partial(&base);
    ids.set(0..PARTITIONS);
    for version in [1, 2] {
        install(&there, &base, &store, version);
        table(&store).swap(version).unwrap();
    }
    let runs = |disk: &SimDisk| {
        let runs = disk.files().into_iter();
        runs.filter(|path| path.extension().is_some_and(|e| e == "run"))
            .count()
    };
    assert_eq!(runs(&base), 2 * PARTITIONS as usize);
    let opened = |disk: &SimDisk| {
        let (store, ids) = partial(disk);
        ids.set([1, 4]);
        table(&store)
    };
    let whole = base.after_kill();
    let table = opened(&whole);
    let calls = whole.calls();
    let released = table.release().unwrap();
    let calls = whole.calls() - calls;
    assert_eq!(released.files, 2 * (PARTITIONS as usize - 2));
    assert!(released.bytes > 0);
    assert_eq!(runs(&whole), 4);
    assert_eq!(table.release().unwrap(), ReleaseReport::default());
    for nth in 0..calls {
        for fault in [Fault::Error, Fault::Full, Fault::Dead] {
            let disk = base.after_kill();
            let table = opened(&disk);
            disk.plan(nth, fault);
            let _ = table.release();
            for found in [
                disk.after_kill(),
                disk.after_power_cut(1),
                disk.after_power_cut(2),
            ] {
                let table = opened(&found);
                for version in [1, 2] {
                    let report = table.verify(version, &mut |_| {}).unwrap();
                    assert!(report.problems.is_empty(), "call {nth}, {fault:?}");
                    assert_eq!(report.runs, 2);
                }
                table.release().unwrap();
                assert_eq!(runs(&found), 4);
            }
        }
    }
}

#[test]
fn nothing_is_released_during_an_install() {
    let (there, _) = source(Order::Hashed, 2);
    let here = SimDisk::new();
    let (store, ids) = partial(&here);
    ids.set([0]);
    install(&there, &here, &store, 1);
    let install = store
        .begin_install(&name("t"), &manifest(&there, 2))
        .unwrap();
    let refused = table(&store).release().unwrap_err();
    assert!(matches!(refused, StoreError::PushRuns { .. }), "{refused}");
    drop(install);
    assert_eq!(table(&store).release().unwrap().files, 0);
}
