//! Errors, a full disk, crashes and power cuts at every I/O call of each change of a table.
//! Afterwards the table is as before or as intended, and the next push cleans up.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use crate::common::{self, View, fill, fill_at, name, push, rows, store_on, view};
use forebay_engine::{PushOptions, Store, StoreError};
use forebay_io::sim::{Fault, SimDisk};
use forebay_run::Order;

const TABLE: &str = "t";

/// Versions 1 to 4, of which 1, 2 and 3 served. After a rollback 2 serves, and 1 is the previous
/// one.
fn base() -> SimDisk {
    let disk = SimDisk::new();
    let store = store_on(&disk, 1);
    for version in 1..=4 {
        push(&store, TABLE, Order::Hashed, &rows(version, 60), 3).unwrap();
        if version < 4 {
            store.table(&name(TABLE)).unwrap().swap(version).unwrap();
        }
    }
    store.table(&name(TABLE)).unwrap().rollback().unwrap();
    disk
}

/// Fails `change` at each of its calls in each way. Passes every disk that may be found afterwards
/// to `check`, with whether `change` returned success.
fn at_every_call(
    change: impl Fn(&Store) -> Result<(), String>,
    check: impl Fn(&Option<View>, bool, &str),
) {
    let base = base();
    let whole = base.after_kill();
    let store = store_on(&whole, 2);
    let before = whole.calls();
    change(&store).unwrap();
    let calls = whole.calls() - before;
    assert!(calls > 3, "{calls} calls");
    for nth in 0..calls {
        for fault in [Fault::Error, Fault::Full, Fault::Dead] {
            let disk = base.after_kill();
            let store = store_on(&disk, 2);
            disk.plan(nth, fault);
            let done = change(&store).is_ok();
            let cuts = (0..3).map(|seed| disk.after_power_cut(seed));
            for (place, found) in std::iter::once(disk.after_kill()).chain(cuts).enumerate() {
                let words = format!("call {nth} of {calls}, {fault:?}, outcome {place}");
                check(&view(&store_on(&found, 3), TABLE), done, &words);
                assert_next_push_cleans(&found, &words);
            }
        }
    }
}

fn assert_next_push_cleans(disk: &SimDisk, words: &str) {
    let store = store_on(disk, 4);
    let version = push(&store, TABLE, Order::Hashed, &rows(9, 10), 1).unwrap();
    let table = store.table(&name(TABLE)).unwrap();
    table.swap(version).unwrap();
    let mut named = BTreeSet::new();
    for version in table.version_numbers().unwrap() {
        let manifest = table.manifest(version).unwrap();
        named.extend(manifest.runs().map(|run| format!("{}.run", run.id)));
        named.insert(format!("{version}.manifest"));
    }
    let inside = common::root().join("tables").join(TABLE);
    let files = disk
        .files()
        .into_iter()
        .filter(|path| path.starts_with(&inside));
    let files: BTreeSet<String> = files
        .map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
        .filter(|file| !["current", "current.reserve"].contains(&&**file))
        .collect();
    assert_eq!(files, named, "{words}");
}

fn rollback(store: &Store) -> Result<(), StoreError> {
    let table = store.table(&name(TABLE))?;
    table.rollback_from(table.serving()?).map(drop)
}

fn text<T, E: std::fmt::Display>(result: Result<T, E>) -> Result<(), String> {
    result.map(|_| ()).map_err(|error| error.to_string())
}

/// Checks a change that happens in one step.
fn old_or_new(change: impl Fn(&Store) -> Result<(), String>) {
    let old = view(&store_on(&base(), 2), TABLE);
    let disk = base();
    change(&store_on(&disk, 2)).unwrap();
    let new = view(&store_on(&disk, 3), TABLE);
    assert_ne!(old, new);
    at_every_call(change, |found, done, words| {
        assert!(*found == old || *found == new, "{words}: {found:?}");
        assert!(!done || *found == new, "{words}: the call had succeeded");
    });
}

#[test]
fn a_push_is_visible_whole_or_not_at_all() {
    old_or_new(|store| {
        let push = store.begin_push(&name(TABLE), PushOptions::default());
        let push = push.map_err(|error| error.to_string())?;
        let manifest = fill(&push, Order::Hashed, &rows(5, 40), 2);
        text(push.commit(manifest.map_err(|error| error.to_string())?))
    });
}

/// Tasks write the runs, one of them twice.
fn push_by_tasks(store: &Store) -> Result<(), String> {
    let options = PushOptions {
        shared: true,
        ..PushOptions::default()
    };
    let push = store.begin_push(&name(TABLE), options);
    let push = push.map_err(|error| error.to_string())?;
    let ticket = push.ticket().clone();
    let rows = rows(5, 40);
    let new_run = |partition| ticket.new_run(store, partition);
    let fill = || fill_at(&push, Order::Hashed, &rows, 2, &new_run);
    fill().map_err(|error| error.to_string())?;
    let manifest = fill().map_err(|error| error.to_string())?;
    let runs = || manifest.runs().enumerate();
    assert!(runs().all(|(at, run)| ticket.is_of(&run.id, at) && !ticket.is_of(&run.id, at + 1)));
    text(ticket.sync(store))?;
    text(push.commit(manifest))
}

#[test]
fn a_push_by_tasks_is_visible_whole_or_not_at_all() {
    old_or_new(push_by_tasks);
    // Without a fault, no file stays that the version does not name.
    let disk = base();
    push_by_tasks(&store_on(&disk, 2)).unwrap();
    let store = store_on(&disk, 3);
    let table = store.table(&name(TABLE)).unwrap();
    let versions = table.version_numbers().unwrap().into_iter();
    let named = versions.map(|version| table.manifest(version).unwrap().runs().count());
    let files = disk.files().into_iter();
    let runs = files.filter(|path| path.extension().is_some_and(|ending| ending == "run"));
    assert_eq!(runs.count(), named.sum::<usize>());
}

#[test]
fn a_swap_happens_or_does_not() {
    old_or_new(|store| text(store.table(&name(TABLE)).and_then(|table| table.swap(4))));
}

#[test]
fn a_rollback_happens_or_does_not() {
    old_or_new(|store| text(rollback(store)));
}

#[test]
fn a_drop_happens_or_does_not() {
    old_or_new(|store| text(store.drop_table(&name(TABLE))));
}

/// Fails `change` at each of its calls. If it took effect and returns an error, the error text has
/// to say so, and `again` makes it durable. Returns those texts, each once.
fn errors_after_effect(
    change: impl Fn(&Store) -> Result<(), StoreError>,
    again: impl Fn(&Store) -> Result<(), StoreError>,
) -> BTreeSet<String> {
    let disk = base();
    let store = store_on(&disk, 2);
    let old = view(&store, TABLE);
    let before = disk.calls();
    change(&store).unwrap();
    let calls = disk.calls() - before;
    let new = view(&store, TABLE);
    let mut said = BTreeSet::new();
    for nth in 0..calls {
        let disk = base();
        let store = store_on(&disk, 2);
        disk.plan(nth, Fault::Error);
        let Err(error) = change(&store) else { continue };
        let seen = view(&store, TABLE);
        let notifies = matches!(
            error,
            StoreError::NotSynced { .. } | StoreError::Remains { .. }
        );
        assert_eq!(seen == new, notifies, "call {nth}: {error}");
        if seen == old {
            continue;
        }
        said.insert(error.to_string());
        again(&store).unwrap_or_else(|error| panic!("call {nth}: {error}"));
        for seed in 0..6 {
            let found = view(&store_on(&disk.after_power_cut(seed), 3), TABLE);
            assert_eq!(found, new, "call {nth}, {seed}");
        }
    }
    said
}

#[test]
fn an_error_after_a_change_took_effect_says_so_and_a_retry_makes_it_durable() {
    let swap = |version| {
        move |store: &Store| {
            let table = store.table(&name(TABLE))?;
            table.swap(version).map(drop)
        }
    };
    let moved = |version: u64| {
        format!(
            "table t serves version {version} now, but /store/tables/t cannot be synced: simulated \
             input/output error; a power cut may undo it. Check the disk, then make sure of it by \
             forebay swap t {version}"
        )
    };
    assert_eq!(
        errors_after_effect(swap(4), swap(4)),
        BTreeSet::from([moved(4)])
    );
    assert_eq!(
        errors_after_effect(rollback, swap(1)),
        BTreeSet::from([moved(1)])
    );
    let drop_it = |store: &Store| store.drop_table(&name(TABLE));
    let said = errors_after_effect(drop_it, drop_it);
    let with = |words: &str| said.iter().filter(|text| text.contains(words)).count();
    assert_eq!(with("is dropped, but /store/tables/t cannot be synced"), 1);
    assert_eq!(
        with("not all of its files are removed"),
        said.len() - 1,
        "{said:?}"
    );
}

#[test]
fn a_removal_of_old_versions_leaves_only_whole_ones() {
    // The serving version 2 and its rollback target 1 always stay; of 3 and 4 the newest one stays.
    let old = view(&store_on(&base(), 2), TABLE).unwrap();
    let retain = |store: &Store| text(store.table(&name(TABLE)).and_then(|table| table.retain(1)));
    at_every_call(retain, |found, done, words| {
        let mut found = found.clone().unwrap();
        let third = found.versions.remove(&3);
        assert!(!done || third.is_none(), "{words}: the call had succeeded");
        let mut expected = old.clone();
        expected.versions.remove(&3);
        assert_eq!(found, expected, "{words}");
    });
}

/// A commit, a swap and the removal of old versions, under the locks of the push.
fn publish(store: &Store) -> Result<(), String> {
    let push = store.begin_push(&name(TABLE), PushOptions::default());
    let push = push.map_err(|error| error.to_string())?;
    let manifest = fill(&push, Order::Hashed, &rows(5, 40), 2);
    let manifest = manifest.map_err(|error| error.to_string())?;
    let committed = push.commit_held(manifest);
    let mut committed = committed.map_err(|error| error.to_string())?;
    text(committed.swap(2))?;
    text(committed.retain(2))
}

#[test]
fn steps_under_the_locks_of_a_push_happen_in_order() {
    let old = view(&store_on(&base(), 2), TABLE).unwrap();
    let disk = base();
    publish(&store_on(&disk, 2)).unwrap();
    let new = view(&store_on(&disk, 3), TABLE).unwrap();
    // 5 serves, 2 before it; 4 is one of the two newest.
    let versions: Vec<u64> = new.versions.keys().copied().collect();
    assert_eq!((new.serving, new.before), (Some(5), Some(2)));
    assert_eq!(versions, [2, 4, 5]);
    at_every_call(publish, |found, done, words| {
        let found = found.as_ref().unwrap();
        let serves = (found.serving, found.before);
        let (was, is) = ((old.serving, old.before), (new.serving, new.before));
        assert!(serves == was || serves == is, "{words}: {found:?}");
        assert!(!done || *found == new, "{words}: {found:?}");
        // No version is removed before the swap.
        let stays = |version: &u64| found.versions.contains_key(version);
        assert!(
            serves == is || old.versions.keys().all(stays),
            "{words}: {found:?}"
        );
    });
}

#[test]
fn cleanup_after_a_failed_removal_never_outruns_it() {
    // When the next push removes debris, the manifests may be removed, but not durably.
    let base = base();
    let retain = |store: &Store| text(store.table(&name(TABLE)).and_then(|table| table.retain(1)));
    let whole = base.after_kill();
    let store = store_on(&whole, 2);
    let before = whole.calls();
    retain(&store).unwrap();
    for nth in 0..whole.calls() - before {
        let disk = base.after_kill();
        let store = store_on(&disk, 2);
        disk.plan(nth, Fault::Error);
        let _ = retain(&store);
        drop(store.begin_push(&name(TABLE), PushOptions::default()));
        for seed in 0..4 {
            let found = view(&store_on(&disk.after_power_cut(seed), 3), TABLE).unwrap();
            assert_eq!(
                (found.serving, found.before),
                (Some(2), Some(1)),
                "call {nth}"
            );
        }
    }
}

#[test]
fn a_store_is_created_whole_or_by_the_next_call() {
    let disk = SimDisk::new();
    store_on(&disk, 1);
    let calls = disk.calls();
    for nth in 0..calls {
        for fault in [Fault::Error, Fault::Full, Fault::Dead] {
            let disk = SimDisk::new();
            disk.plan(nth, fault);
            let parts = (std::sync::Arc::new(disk.clone()), common::random(1));
            let clock = common::clock();
            let _ = Store::open_or_create(parts.0, clock, parts.1, common::root());
            for found in [
                disk.after_kill(),
                disk.after_power_cut(1),
                disk.after_power_cut(2),
            ] {
                assert_next_push_cleans(&found, &format!("call {nth}, {fault:?}"));
            }
        }
    }
}
