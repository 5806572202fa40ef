//! Following pointers: swaps under readers, rollbacks, drops, and files that are damaged or vanish.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::{self, name, push, random, read_all, root, rows};
use forebay_engine::{Change, Serving, Store, TableState, Version};
use forebay_io::sim::{HandClock, SimDisk, TestOver};
use forebay_io::{Clock, Disk, OsDisk, SystemClock, SystemRandom};
use forebay_run::Order;

struct FollowedTable {
    disk: SimDisk,
    clock: Arc<HandClock>,
    store: Store,
    serving: Serving,
}

/// A table "t" with versions 1 and 2, of which 1 serves, and a follower of it.
fn followed() -> FollowedTable {
    let disk = SimDisk::new();
    let clock = common::clock();
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let store = Store::open_or_create(shared, clock.clone(), random(1), root()).unwrap();
    for version in 1..=2 {
        push(&store, "t", Order::Hashed, &rows(version, 50), 2).unwrap();
    }
    store.table(&name("t")).unwrap().swap(1).unwrap();
    let serving = Serving::manual(store.clone());
    FollowedTable {
        disk,
        clock,
        store,
        serving,
    }
}

impl FollowedTable {
    fn look(&self) -> Option<u64> {
        self.serving.refresh();
        self.serving.table(b"t").map(|version| version.version())
    }

    fn state(&self) -> TableState {
        self.serving.states().tables[0].1.clone()
    }

    fn swap(&self, version: u64) {
        self.store.table(&name("t")).unwrap().swap(version).unwrap();
    }
}

#[test]
fn swaps_rollbacks_new_tables_and_drops_are_followed() {
    let followed = followed();
    assert_eq!(followed.look(), Some(1));
    let changes = Arc::new(Mutex::new(Vec::new()));
    let reported = Arc::clone(&changes);
    followed
        .serving
        .on_change(move |change: &Change| reported.lock().unwrap().push(change.clone()));
    followed.swap(2);
    assert_eq!(followed.look(), Some(2));
    let state = followed.state();
    assert_eq!(
        (state.serving, state.previous, state.rows),
        (Some(2), Some(1), 50)
    );
    followed
        .store
        .table(&name("t"))
        .unwrap()
        .rollback()
        .unwrap();
    assert_eq!(followed.look(), Some(1));

    push(&followed.store, "another", Order::Ordered, &rows(1, 9), 1).unwrap();
    followed.look();
    assert!(
        followed.serving.table(b"another").is_none(),
        "pushed, but not swapped to"
    );
    followed
        .store
        .table(&name("another"))
        .unwrap()
        .swap(1)
        .unwrap();
    followed.look();
    assert_eq!(
        read_all(&followed.serving.table(b"another").unwrap()),
        rows(1, 9)
    );
    assert!(followed.serving.table(b"nobody").is_none());

    let held = followed.serving.table(b"t").unwrap();
    followed.store.drop_table(&name("t")).unwrap();
    assert_eq!(followed.look(), None);
    assert_eq!(read_all(&held), rows(1, 50), "an open handle still reads");
    assert_eq!(followed.serving.states().retired, 1);
    drop(held);
    followed.look();
    assert_eq!(followed.serving.states().retired, 0);

    let changes: Vec<_> = changes
        .lock()
        .unwrap()
        .iter()
        .map(|c| (c.from, c.to))
        .collect();
    let expected = [
        (Some(1), Some(2)),
        (Some(2), Some(1)),
        (None, Some(1)),
        (Some(1), None),
    ];
    assert_eq!(changes, expected);
}

#[test]
fn a_table_dropped_and_pushed_again_between_two_looks_serves_the_new_content() {
    let followed = followed();
    followed.store.drop_table(&name("t")).unwrap();
    push(&followed.store, "t", Order::Hashed, &rows(77, 20), 1).unwrap();
    followed.swap(1);
    assert_eq!(followed.look(), Some(1));
    assert_eq!(
        read_all(&followed.serving.table(b"t").unwrap()),
        rows(77, 20)
    );
}

#[test]
fn a_rollback_opens_nothing() {
    let followed = followed();
    followed.swap(2);
    followed.look();
    let runs = root().join("tables/t/runs");
    for run in followed.disk.list(&runs).unwrap() {
        if run.starts_with("1-") {
            followed.disk.tamper(&runs.join(run), |bytes| bytes[0] ^= 1);
        }
    }
    // The pointer moves because all lengths are right; the open version is whole.
    followed
        .store
        .table(&name("t"))
        .unwrap()
        .rollback()
        .unwrap();
    assert_eq!(followed.look(), Some(1));
    assert_eq!(
        read_all(&followed.serving.table(b"t").unwrap()),
        rows(1, 50)
    );
}

#[test]
fn damage_never_stops_the_serving_version() {
    let pointer = root().join("tables/t/current");
    type Damage = fn(&FollowedTable, &std::path::Path);
    let damages: [(&str, Damage); 4] = [
        ("damaged pointer", |f, pointer| {
            f.disk.tamper(pointer, |bytes| bytes[30] ^= 1)
        }),
        ("pointer gone", |f, pointer| f.disk.remove(pointer).unwrap()),
        ("manifest damaged", |f, _| {
            f.swap(2);
            let manifest = root().join("tables/t/versions/2.manifest");
            f.disk.tamper(&manifest, |bytes| bytes.truncate(50));
        }),
        ("store gone", |f, _| {
            f.disk.remove_dir_all(&root().join("tables")).unwrap()
        }),
    ];
    for (what, damage) in damages {
        let followed = followed();
        damage(&followed, &pointer);
        for _ in 0..30 {
            assert_eq!(followed.look(), Some(1), "{what}");
            followed.clock.sleep(Duration::from_millis(100));
        }
        let state = followed.serving.states();
        let table = &state.tables[0].1;
        let problem = table.problem.as_ref().or(state.problem.as_ref());
        assert!(problem.is_some(), "{what}");
        assert!(
            table.load_errors <= 4,
            "{what}: tried without pause, {}",
            table.load_errors
        );
        assert_eq!(
            read_all(&followed.serving.table(b"t").unwrap()),
            rows(1, 50),
            "{what}"
        );
    }
}

#[test]
fn a_repaired_version_serves() {
    let followed = followed();
    followed.swap(2);
    let manifest = root().join("tables/t/versions/2.manifest");
    followed.disk.tamper(&manifest, |bytes| bytes[40] ^= 1);
    assert_eq!(followed.look(), Some(1));
    let state = followed.state();
    assert_eq!(
        (state.wanted, state.serving, state.load_errors),
        (Some(2), Some(1), 1)
    );
    followed.disk.tamper(&manifest, |bytes| bytes[40] ^= 1);
    followed.clock.sleep(Duration::from_secs(2));
    assert_eq!(followed.look(), Some(2));
    assert_eq!(followed.state().problem, None);
}

/// Returns the version in the value of a row.
fn reported_by(value: &[u8]) -> u64 {
    std::str::from_utf8(value)
        .unwrap()
        .split(':')
        .next()
        .unwrap()
        .parse()
        .unwrap()
}

#[test]
fn readers_see_whole_versions_during_a_hundred_swaps() {
    let directory = tempfile::tempdir().unwrap();
    let disk: Arc<dyn Disk> = Arc::new(OsDisk::default());
    let (clock, random) = (Arc::new(SystemClock), Arc::new(SystemRandom));
    let store = Store::open_or_create(disk, clock, random, directory.path()).unwrap();
    for version in 1..=3 {
        push(&store, "t", Order::Hashed, &rows(version, 400), 4).unwrap();
    }
    let table = store.table(&name("t")).unwrap();
    table.swap(1).unwrap();
    let serving = Serving::open(store.clone(), Duration::from_millis(1)).unwrap();
    let (over, reads) = (TestOver::default(), AtomicU64::new(0));
    let seen = Mutex::new(BTreeSet::new());
    std::thread::scope(|scope| {
        for reader in 0..3 {
            let (serving, over, reads, seen) = (&serving, &over, &reads, &seen);
            scope.spawn(move || {
                let _at_end = over.at_end();
                let keys: Vec<Vec<u8>> = rows(1, 400).into_keys().skip(reader).step_by(7).collect();
                while !over.is() {
                    let tables = serving.load();
                    let version = tables.get(b"t").unwrap();
                    assert_one_version(version, &keys);
                    seen.lock().unwrap().insert(version.version());
                    reads.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let _at_end = over.at_end();
        for swap in 0..100u64 {
            table.swap(swap % 3 + 1).unwrap();
            serving.refresh();
            let before = reads.load(Ordering::Relaxed);
            while reads.load(Ordering::Relaxed) < before + 3 && !over.is() {
                std::thread::yield_now();
            }
        }
    });
    assert_eq!(seen.into_inner().unwrap(), BTreeSet::from([1, 2, 3]));
    let state = serving.states().tables[0].1.clone();
    assert_eq!(
        (state.serving, state.swaps, state.load_errors),
        (Some(1), 100, 0)
    );
}

fn assert_one_version(version: &Arc<Version>, keys: &[Vec<u8>]) {
    let mut answers = 0;
    version
        .get_many(keys, |_, value| {
            assert_eq!(reported_by(&value.unwrap()), version.version());
            answers += 1;
        })
        .unwrap();
    assert_eq!(answers, keys.len());
    for key in keys {
        assert_eq!(
            reported_by(&version.get(key).unwrap().unwrap()),
            version.version()
        );
    }
}

#[test]
fn the_thread_follows_by_itself_and_ends_when_dropped() {
    let directory = tempfile::tempdir().unwrap();
    let disk: Arc<dyn Disk> = Arc::new(OsDisk::default());
    let (clock, random) = (Arc::new(SystemClock), Arc::new(SystemRandom));
    let store = Store::open_or_create(disk, clock.clone(), random, directory.path()).unwrap();
    let serving = Serving::open(store.clone(), Duration::from_millis(5)).unwrap();
    push(&store, "t", Order::Ordered, &rows(1, 10), 1).unwrap();
    store.table(&name("t")).unwrap().swap(1).unwrap();
    while serving.table(b"t").is_none() {
        clock.sleep(Duration::from_millis(1));
    }
    drop(serving);
}

#[test]
fn swaps_between_two_looks_take_effect_at_one_moment() {
    let followed = followed();
    push(&followed.store, "u", Order::Hashed, &rows(1, 10), 1).unwrap();
    followed.store.table(&name("u")).unwrap().swap(1).unwrap();
    followed.serving.refresh();
    push(&followed.store, "u", Order::Hashed, &rows(2, 10), 1).unwrap();
    followed.store.table(&name("u")).unwrap().swap(2).unwrap();
    followed.swap(2);
    let serving = Arc::new(followed.serving);
    let (seen, weak) = (Arc::new(Mutex::new(Vec::new())), Arc::downgrade(&serving));
    let reported = Arc::clone(&seen);
    serving.on_change(move |_| {
        let serving = weak.upgrade().unwrap();
        let version = |table: &[u8]| serving.table(table).map(|version| version.version());
        reported
            .lock()
            .unwrap()
            .push((version(b"t"), version(b"u")));
    });
    serving.refresh();
    assert_eq!(*seen.lock().unwrap(), [(Some(2), Some(2)); 2]);
}

#[test]
fn reopening_a_table_reopens_its_previous_version() {
    let followed = followed();
    followed.swap(2);
    followed.look();
    let table = followed.store.table(&name("t")).unwrap();
    let runs = root().join("tables/t/runs");
    for run in followed.disk.list(&runs).unwrap() {
        if run.starts_with("1-") {
            followed.disk.tamper(&runs.join(run), |bytes| bytes[0] ^= 1);
        }
    }
    followed.serving.reopen(&name("t"));
    assert_eq!(followed.state().previous, Some(1));
    table.rollback().unwrap();
    assert_eq!(followed.look(), Some(1));
    let version = followed.serving.table(b"t").unwrap();
    let keys = rows(1, 50).into_keys();
    let failed = keys.filter(|key| version.get(key).is_err()).count();
    assert!(failed > 0, "the old files are still open");
}
