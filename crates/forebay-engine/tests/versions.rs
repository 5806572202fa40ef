//! Numbers, swaps, rollbacks, removal, refusals: an operator's actions, and the messages.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::Duration;

use crate::common::{self, fill, name, push, random, read_all, root, rows, store_on};
use forebay_engine::{PushError, PushOptions, Store, StoreError};
use forebay_io::sim::SimDisk;
use forebay_io::{Disk, OsDisk, SystemClock, SystemRandom};
use forebay_run::Order;

fn given(store: &Store, version: u64) -> Result<u64, PushError> {
    let push = store.begin_push(
        &name("t"),
        PushOptions {
            version: Some(version),
            ..PushOptions::default()
        },
    )?;
    let manifest = fill(&push, Order::Hashed, &rows(version, 20), 2)?;
    push.commit(manifest)
}

#[test]
fn versions_rise_as_numbers() {
    let store = store_on(&SimDisk::new(), 1);
    assert_eq!(given(&store, 9).unwrap(), 9);
    assert_eq!(
        push(&store, "t", Order::Hashed, &rows(10, 5), 1).unwrap(),
        10
    );
    for low in [0, 1, 9, 10] {
        let error = given(&store, low).unwrap_err().to_string();
        assert!(error.contains("there is already version 10"), "{error}");
    }
    assert_eq!(given(&store, 20_261_121).unwrap(), 20_261_121);
    assert_eq!(given(&store, 100_000_000).unwrap(), 100_000_000);
    let table = store.table(&name("t")).unwrap();
    assert_eq!(
        table.version_numbers().unwrap(),
        [9, 10, 20_261_121, 100_000_000]
    );

    assert_eq!(table.retain(2).unwrap(), [9, 10], "9 is older than 10");
    assert_eq!(given(&store, u64::MAX).unwrap(), u64::MAX);
    let error = push(&store, "t", Order::Hashed, &rows(1, 5), 1).unwrap_err();
    assert!(matches!(error, PushError::NoNumberLeft { .. }), "{error}");
}

#[test]
fn nothing_serves_before_a_swap_and_rollback_needs_a_past() {
    let store = store_on(&SimDisk::new(), 1);
    push(&store, "t", Order::Hashed, &rows(1, 5), 1).unwrap();
    let table = store.table(&name("t")).unwrap();
    assert!(matches!(
        table.serving(),
        Err(StoreError::NothingServes { .. })
    ));
    assert!(matches!(
        table.rollback(),
        Err(StoreError::NothingServes { .. })
    ));
    table.swap(1).unwrap();
    let error = table.rollback().unwrap_err().to_string();
    assert!(
        error.contains("no version served before version 1"),
        "{error}"
    );
    let error = table.swap(7).unwrap_err().to_string();
    assert!(error.contains("no version 7; it has 1"), "{error}");
    assert!(matches!(
        store.table(&name("other")),
        Err(StoreError::NoTable { .. })
    ));
}

#[test]
fn rollbacks_restore_earlier_versions_one_by_one() {
    let store = store_on(&SimDisk::new(), 1);
    for version in 1..=3 {
        push(&store, "t", Order::Ordered, &rows(version, 30), 2).unwrap();
        store.table(&name("t")).unwrap().swap(version).unwrap();
    }
    let table = store.table(&name("t")).unwrap();
    for expected in [2, 1] {
        let swapped = table.rollback_from(expected + 1).unwrap();
        assert_eq!((swapped.from, swapped.to), (Some(expected + 1), expected));
        let version = table.open_version(table.serving().unwrap()).unwrap();
        assert_eq!(read_all(&version), rows(expected, 30));
    }
    assert!(table.rollback().is_err());
}

#[test]
fn a_rollback_is_exact_or_a_minute_from_the_last() {
    let disk = SimDisk::new();
    let clock = common::clock();
    let open = || {
        let disk: Arc<dyn Disk> = Arc::new(disk.clone());
        Store::open_or_create(disk, clock.clone(), random(1), root()).unwrap()
    };
    let store = open();
    for version in 1..=4 {
        push(&store, "t", Order::Ordered, &rows(version, 3), 1).unwrap();
        store.table(&name("t")).unwrap().swap(version).unwrap();
    }
    let table = store.table(&name("t")).unwrap();
    let error = table.rollback_from(3).unwrap_err();
    assert!(matches!(
        error,
        StoreError::ServesOther {
            from: 3,
            serving: 4,
            ..
        }
    ));
    assert_eq!(table.serving().unwrap(), 4);

    assert_eq!(table.rollback().unwrap().to, 3);
    clock.advance(Duration::from_secs(12));
    // The second caller uses another process.
    let error = open().table(&name("t")).unwrap().rollback().unwrap_err();
    let text = error.to_string();
    for words in [
        "from version 4 to version 3 12 s ago",
        "forebay rollback t --from 3",
    ] {
        assert!(text.contains(words), "{text}");
    }
    assert_eq!(table.serving().unwrap(), 3);
    assert_eq!(table.rollback_from(3).unwrap().to, 2);
    clock.advance(Duration::from_secs(61));
    assert_eq!(table.rollback().unwrap().to, 1);
    // A swap is not a rollback: it can be rolled back at once.
    table.swap(4).unwrap();
    assert_eq!(table.pointer().unwrap().last_rollback, None);
    assert_eq!(table.rollback().unwrap().to, 1);
}

#[test]
fn removal_keeps_the_serving_version_and_the_rollback_target() {
    let store = store_on(&SimDisk::new(), 1);
    for version in 1..=6 {
        push(&store, "t", Order::Hashed, &rows(version, 10), 1).unwrap();
    }
    let table = store.table(&name("t")).unwrap();
    for version in [3, 1, 2] {
        table.swap(version).unwrap();
    }
    let open = table.open_version(4).unwrap();
    assert_eq!(table.retain(1).unwrap(), [3, 4, 5]);
    assert_eq!(table.version_numbers().unwrap(), [1, 2, 6]);
    assert_eq!(
        table.pointer().unwrap().history,
        [1],
        "a removed version leaves the history"
    );
    assert_eq!(
        read_all(&open),
        rows(4, 10),
        "an open handle still reads a removed version"
    );
    assert_eq!(table.retain(0).unwrap(), [6]);
    assert_eq!(table.rollback().unwrap().to, 1);
    let list = table.versions().unwrap();
    assert_eq!(
        list.iter().map(|info| info.serving).collect::<Vec<_>>(),
        [true, false]
    );
}

#[test]
fn a_second_push_at_the_same_time_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let disk: Arc<dyn Disk> = Arc::new(OsDisk::default());
    let open = |disk: &Arc<dyn Disk>| {
        let path = directory.path().join("new/store");
        Store::open_or_create(
            disk.clone(),
            Arc::new(SystemClock),
            Arc::new(SystemRandom),
            &path,
        )
    };
    let (first, second) = (open(&disk), open(&disk).unwrap());
    let push = first
        .unwrap()
        .begin_push(
            &name("t"),
            PushOptions {
                version: Some(5),
                ..PushOptions::default()
            },
        )
        .unwrap();
    let error = second
        .begin_push(&name("t"), PushOptions::default())
        .unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, PushError::Busy { .. }), "{text}");
    for word in [
        "version 5",
        &format!("process {}", std::process::id()),
        "on host",
        "since 20",
    ] {
        assert!(text.contains(word), "{word}: {text}");
    }
    second
        .begin_push(&name("u"), PushOptions::default())
        .unwrap();

    let manifest = fill(&push, Order::Hashed, &rows(5, 10), 1).unwrap();
    push.commit(manifest).unwrap();
    let push = second
        .begin_push(&name("t"), PushOptions::default())
        .unwrap();
    assert_eq!(push.version(), 6);
    let error = second.drop_table(&name("t")).unwrap_err();
    assert!(matches!(error, StoreError::PushRuns { .. }), "{error}");
    drop(push);
    second.drop_table(&name("t")).unwrap();
    assert!(second.tables().unwrap().is_empty());
    let table = directory.path().join("new/store/tables/t");
    assert!(!OsDisk::default().exists(&table).unwrap());
}

#[test]
fn a_push_that_ends_early_leaves_nothing() {
    let disk = SimDisk::new();
    let store = store_on(&disk, 1);
    let files = disk.files();
    let push = store
        .begin_push(&name("t"), PushOptions::default())
        .unwrap();
    fill(&push, Order::Hashed, &rows(1, 50), 4).unwrap();
    let scratch = push.scratch_dir().unwrap();
    disk.create(&scratch.join("spill")).unwrap();
    assert_ne!(disk.files(), files);
    drop(push);
    assert_eq!(disk.files(), files);
    assert!(store.tables().unwrap().is_empty());
}

#[test]
fn a_swap_to_a_version_with_a_missing_or_truncated_file_is_refused() {
    let disk = SimDisk::new();
    let store = store_on(&disk, 1);
    for version in 1..=3 {
        push(&store, "t", Order::Hashed, &rows(version, 50), 2).unwrap();
    }
    let table = store.table(&name("t")).unwrap();
    table.swap(1).unwrap();
    let run = |version: u64| {
        let id = table
            .manifest(version)
            .unwrap()
            .runs()
            .next()
            .unwrap()
            .id
            .to_string();
        root().join("tables/t/runs").join(format!("{id}.run"))
    };
    disk.tamper(&run(2), |bytes| bytes.truncate(100));
    disk.remove(&run(3)).unwrap();
    for version in [2, 3] {
        let error = table.swap(version).unwrap_err();
        assert!(matches!(error, StoreError::Incomplete { .. }), "{error}");
        assert!(table.open_version(version).is_err());
        let report = table.verify(version, &mut |_| {}).unwrap();
        assert_eq!(
            (report.runs, report.problems.len()),
            (2, 1),
            "{:?}",
            report.problems
        );
    }
    assert_eq!(table.serving().unwrap(), 1);
}

#[test]
fn damage_is_reported_and_nothing_is_guessed() {
    let disk = SimDisk::new();
    let store = store_on(&disk, 1);
    for version in 1..=2 {
        push(&store, "t", Order::Hashed, &rows(version, 50), 2).unwrap();
    }
    let table = store.table(&name("t")).unwrap();
    table.swap(1).unwrap();
    let inside = root().join("tables/t");
    let flip = |bytes: &mut Vec<u8>| bytes[20] ^= 4;

    disk.tamper(&inside.join("versions/2.manifest"), flip);
    assert!(table.versions().unwrap()[1].problem.is_some());
    assert!(matches!(table.swap(2), Err(StoreError::Damaged { .. })));
    // The runs of a damaged version are unknown, so no run counts as debris.
    let files = disk.files().len();
    drop(
        store
            .begin_push(&name("t"), PushOptions::default())
            .unwrap(),
    );
    assert_eq!(disk.files().len(), files);

    disk.tamper(&inside.join("current"), flip);
    let error = table.swap(1).unwrap_err().to_string();
    assert!(error.contains("remove it and swap"), "{error}");
    assert!(table.rollback().is_err() && table.retain(1).is_err());
    assert!(
        store
            .begin_push(&name("t"), PushOptions::default())
            .is_err()
    );
    disk.remove(&inside.join("current")).unwrap();
    assert_eq!(table.swap(1).unwrap().to, 1);
}

#[test]
fn a_manifest_put_in_another_place_is_refused() {
    let disk = SimDisk::new();
    let store = store_on(&disk, 1);
    push(&store, "t", Order::Hashed, &rows(1, 5), 1).unwrap();
    let versions = root().join("tables/t/versions");
    disk.rename(&versions.join("1.manifest"), &versions.join("2.manifest"))
        .unwrap();
    let error = store
        .table(&name("t"))
        .unwrap()
        .manifest(2)
        .unwrap_err()
        .to_string();
    assert!(error.contains("that of version 1 of table t"), "{error}");
}

#[test]
fn only_a_store_is_opened_and_only_an_empty_place_becomes_one() {
    let sim = SimDisk::new();
    let disk: Arc<dyn Disk> = Arc::new(sim.clone());
    let clock = common::clock();
    let error = Store::open(disk.clone(), clock.clone(), random(1), root()).unwrap_err();
    assert!(matches!(error, StoreError::NoStore { .. }), "{error}");
    disk.create_dir_all(root()).unwrap();
    disk.create(&root().join("thesis.txt")).unwrap();
    let error = Store::open_or_create(disk.clone(), clock.clone(), random(1), root()).unwrap_err();
    assert!(matches!(error, StoreError::NotEmpty { .. }), "{error}");
    disk.remove(&root().join("thesis.txt")).unwrap();
    Store::open_or_create(disk.clone(), clock.clone(), random(1), root()).unwrap();
    sim.tamper(&root().join("forebay.json"), |bytes| {
        *bytes = b"{\"forebay_store\": 2}".to_vec()
    });
    let error = Store::open(disk.clone(), clock.clone(), random(1), root()).unwrap_err();
    assert!(matches!(error, StoreError::InCluster { .. }), "{error}");
    sim.tamper(&root().join("forebay.json"), |bytes| {
        *bytes = b"{\"forebay_store\": 3}".to_vec()
    });
    let error = Store::open(disk, clock, random(1), root())
        .unwrap_err()
        .to_string();
    assert!(error.contains("format 3"), "{error}");
}

#[test]
fn a_table_dropped_and_pushed_again_begins_at_1() {
    let store = store_on(&SimDisk::new(), 1);
    given(&store, 40).unwrap();
    store.table(&name("t")).unwrap().swap(40).unwrap();
    store.drop_table(&name("t")).unwrap();
    assert!(matches!(
        store.drop_table(&name("t")),
        Err(StoreError::NoTable { .. })
    ));
    assert_eq!(push(&store, "t", Order::Hashed, &rows(1, 5), 1).unwrap(), 1);
}

#[test]
fn content_sums_do_not_depend_on_partition_bounds() {
    let store = store_on(&SimDisk::new(), 1);
    let rows = rows(1, 300);
    let mut sums = Vec::new();
    for (order, parts) in [(Order::Hashed, 1), (Order::Hashed, 16), (Order::Ordered, 7)] {
        let version = push(&store, "t", order, &rows, parts).unwrap();
        let manifest = store.table(&name("t")).unwrap().manifest(version).unwrap();
        assert_eq!(manifest.partitions.len(), parts);
        sums.push((manifest.rows(), manifest.bytes(), manifest.content()));
    }
    sums.dedup();
    assert_eq!(sums.len(), 1, "{sums:?}");
}

#[test]
fn large_values_lie_in_a_file_of_their_own_that_is_removed_with_the_run() {
    let disk = SimDisk::new();
    let store = store_on(&disk, 1);
    let large: common::Rows = (0..3).map(|i| (vec![b'k', i], vec![i; 40_000])).collect();
    for _ in 0..3 {
        push(&store, "t", Order::Hashed, &large, 1).unwrap();
    }
    let table = store.table(&name("t")).unwrap();
    table.swap(3).unwrap();
    assert_eq!(read_all(&table.open_version(3).unwrap()), large);
    let extents = || {
        let files = disk.files().into_iter();
        files
            .filter(|file| file.extension().is_some_and(|ext| ext == "ext"))
            .collect::<Vec<_>>()
    };
    assert_eq!(extents().len(), 3);
    assert_eq!(table.retain(2).unwrap(), [1]);
    assert_eq!(extents().len(), 2);

    let second = table
        .manifest(2)
        .unwrap()
        .runs()
        .next()
        .unwrap()
        .id
        .to_string();
    let extent = root().join("tables/t/runs").join(format!("{second}.ext"));
    disk.tamper(&extent, |bytes| bytes.truncate(50_000));
    let error = table.swap(2).unwrap_err().to_string();
    assert!(
        error.contains("has 50000 bytes, 120000 were written"),
        "{error}"
    );
}
