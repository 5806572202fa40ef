//! Differences between versions: counts, columns, schemas, and the sampled estimate.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::{self, Rows, fill, name, push, random, store_on};
use forebay_engine::{
    ColumnStats, Difference, ExpectedVersion, KeyOutcome, Push, PushOptions, Store, ValueKind,
    Version, compare_expected, compare_sampled, diff,
};
use forebay_io::sim::SimDisk;
use forebay_run::Order;
use forebay_run::row::{Column, Kind, RowWriter, Schema};
use proptest::prelude::*;

fn version(store: &Store, number: u64) -> Arc<Version> {
    store
        .table(&name("t"))
        .unwrap()
        .open_version(number)
        .unwrap()
}

fn any_rows() -> impl Strategy<Value = Rows> {
    let key = proptest::collection::vec(97u8..100, 1..5);
    let value = proptest::collection::vec(0u8..3, 0..2);
    proptest::collection::btree_map(key, value, 1..60)
}

fn any_order() -> impl Strategy<Value = Order> {
    prop_oneof![Just(Order::Hashed), Just(Order::Ordered)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn counts_are_those_of_two_maps(
        old in any_rows(), new in any_rows(),
        orders in (any_order(), any_order()), parts in (1usize..5, 1usize..5),
    ) {
        let store = store_on(&SimDisk::new(), 1);
        push(&store, "t", orders.0, &old, parts.0).unwrap();
        push(&store, "t", orders.1, &new, parts.1).unwrap();
        let (a, b) = (version(&store, 1), version(&store, 2));
        let mut passed = 0;
        let report = diff(&a, &b, 1000, &mut |rows| passed += rows).unwrap();
        let count = |keep: &dyn Fn(&Vec<u8>) -> bool| {
            let all: BTreeMap<_, _> = old.iter().chain(&new).collect();
            all.keys().filter(|key| keep(key)).count() as u64
        };
        let added = count(&|key| !old.contains_key(key));
        let removed = count(&|key| !new.contains_key(key));
        let same = count(&|key| old.get(key) == new.get(key));
        prop_assert_eq!((report.added, report.removed, report.same), (added, removed, same));
        prop_assert_eq!(report.changed, count(&|_| true) - added - removed - same);
        prop_assert_eq!(report.samples.len() as u64, report.added + report.removed + report.changed);
        prop_assert_eq!(passed, (old.len() + new.len()) as u64);
        for sample in &report.samples {
            let found = match (old.get(&sample.key), new.get(&sample.key)) {
                (None, Some(_)) => Difference::Added,
                (Some(_), None) => Difference::Removed,
                _ => Difference::Changed,
            };
            prop_assert_eq!(sample.difference, found);
        }

        // A sample as large as the tables finds the same differences as the diff.
        let sampled = compare_sampled(&a, &b, 1000, &*random(7), &|_| ()).unwrap();
        prop_assert_eq!((sampled.lost.found, sampled.lost.looked_at), (removed, old.len() as u64));
        prop_assert_eq!((sampled.new.found, sampled.new.looked_at), (added, new.len() as u64));
        prop_assert_eq!(sampled.changed.found, report.changed);
    }
}

/// Pushes rows of a schema, each written by `write`.
fn push_rows(
    store: &Store,
    schema: Schema,
    nulls: u64,
    write: impl Fn(&mut RowWriter, usize),
) -> u64 {
    let push: Push = store
        .begin_push(&name("t"), PushOptions::default())
        .unwrap();
    let mut writer = RowWriter::new(&schema);
    let row = |i: usize| {
        let mut bytes = Vec::new();
        writer.begin();
        write(&mut writer, i);
        writer.finish(&mut bytes).unwrap();
        (format!("k{i:03}").into_bytes(), bytes)
    };
    let rows: Rows = (0..100).map(row).collect();
    let mut manifest = fill(&push, Order::Hashed, &rows, 3).unwrap();
    manifest.value = ValueKind::Row;
    manifest.schema = schema;
    manifest.stats = vec![ColumnStats {
        column: "price".to_owned(),
        nulls,
        values: None,
    }];
    push.commit(manifest).unwrap()
}

#[test]
fn rows_are_compared_by_the_columns_that_both_schemas_have() {
    let store = store_on(&SimDisk::new(), 1);
    let column = |name: &str, kind| Column::new(name, kind, true);
    let old = vec![
        column("gone", Kind::Text),
        column("price", Kind::Int32),
        column("city", Kind::Text),
    ];
    let new = vec![
        column("city", Kind::Text),
        column("price", Kind::Int64),
        column("fresh", Kind::Bool),
    ];
    push_rows(&store, Schema::new(old), 0, |row, i| {
        row.bytes(0, b"whatever");
        row.fixed(1, &(i as i32 - 50).to_le_bytes());
        row.bytes(2, b"Lima");
    });
    push_rows(&store, Schema::new(new), 5, |row, i| {
        row.bytes(0, if i % 10 == 3 { b"Oslo" } else { b"Lima" });
        if i % 20 != 7 {
            row.signed(1, i as i64 - 50);
        }
        row.bit(2, true);
    });
    let (a, b) = (version(&store, 1), version(&store, 2));
    let report = diff(&a, &b, 3, &mut |_| {}).unwrap();
    assert_eq!(
        (report.added, report.removed, report.changed, report.same),
        (0, 0, 15, 85)
    );
    assert_eq!(
        report.columns,
        [("city".to_owned(), 10), ("price".to_owned(), 5)]
    );
    let words: Vec<String> = (report.schema.alterations.iter())
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        words,
        [
            "column gone is gone (text)",
            "column price has a wider type: int32 to int64",
            "column fresh is new (bool)"
        ]
    );
    assert_eq!(report.samples.len(), 3);
    for change in report.samples.iter().flat_map(|sample| &sample.columns) {
        match &*change.column {
            "city" => assert_eq!(change.after.as_deref(), Some(&b"Oslo"[..])),
            _ => assert_eq!(change.after, None, "a null"),
        }
        assert!(change.before.is_some());
    }

    let sampled = compare_sampled(&a, &b, 1000, &*random(7), &|_| ()).unwrap();
    assert_eq!(sampled.schema, report.schema);
    assert_eq!(
        (sampled.changed.found, sampled.changed.looked_at),
        (15, 100)
    );
    assert_eq!(
        (sampled.nulls[0].before, sampled.nulls[0].after),
        (Some(0.0), Some(0.05))
    );
    assert!(diff(&b, &b, 3, &mut |_| {}).unwrap().changed == 0);
}

#[test]
fn expected_counts_of_known_rows_equal_those_of_their_version() {
    let store = store_on(&SimDisk::new(), 1);
    let old = common::rows(1, 3_000);
    let mut new: Rows = old
        .iter()
        .skip(400)
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect();
    new.values_mut()
        .step_by(3)
        .for_each(|value| value.push(b'!'));
    new.insert(b"one more".to_vec(), b"value".to_vec());
    let before = push(&store, "t", Order::Hashed, &old, 4).unwrap();
    let after = push(&store, "t", Order::Hashed, &new, 2).unwrap();
    let (before, after) = (version(&store, before), version(&store, after));
    let becomes = |value: &Vec<u8>| KeyOutcome::Value(value.clone());
    let sample: Vec<_> = new
        .iter()
        .map(|(key, value)| (key.clone(), becomes(value)))
        .collect();
    let has = |key: &[u8]| new.contains_key(key);
    let expected = ExpectedVersion {
        manifest: after.manifest(),
        rows: new.len() as u64,
        bytes: after.manifest().bytes(),
        is_exact: true,
        nulls: Vec::new(),
        stats: &[],
        sample: &sample,
        has: Some(&has),
        goes_on: false,
    };
    let all = u64::MAX >> 8;
    let seen = compare_sampled(&before, &after, all, &*random(1), &|_| ()).unwrap();
    let reported = compare_expected(&before, &expected, all, &*random(2), &|_| ()).unwrap();
    assert_eq!(reported, seen);
    assert_eq!(
        (seen.lost.found, seen.new.found, seen.changed.found),
        (400, 1, 867)
    );
    // If not all keys are known, keys that the sample does not contain count as lost.
    let part: Vec<_> = sample.iter().step_by(7).cloned().collect();
    let expected = ExpectedVersion {
        sample: &part,
        has: None,
        is_exact: false,
        ..expected
    };
    let reported = compare_expected(&before, &expected, all, &*random(2), &|_| ()).unwrap();
    assert!(!reported.rows_are_exact && !reported.bytes_are_exact);
    assert!(
        (reported.lost.fraction() - 400.0 / 3000.0).abs() < 0.01,
        "{reported:?}"
    );
    assert_eq!(reported.lost.looked_at, part.len() as u64);
}

#[test]
fn sampled_changes_to_the_serving_version_are_scaled_to_all_rows() {
    let store = store_on(&SimDisk::new(), 1);
    let old = common::rows(1, 1_000);
    let number = push(&store, "t", Order::Hashed, &old, 2).unwrap();
    let before = version(&store, number);
    let keys: Vec<Vec<u8>> = old.keys().take(40).cloned().collect();
    let mut sample = Vec::new();
    for (at, key) in keys.into_iter().enumerate() {
        let becomes = match at % 4 {
            0 => KeyOutcome::Removed,
            1 => KeyOutcome::More,
            2 => KeyOutcome::ValueIfNew(b"not taken".to_vec()),
            _ => KeyOutcome::Value(b"another".to_vec()),
        };
        sample.push((key, becomes));
    }
    for fresh in ["a new one", "another one"] {
        sample.push((
            fresh.as_bytes().to_vec(),
            KeyOutcome::ValueIfNew(b"taken".to_vec()),
        ));
        let gone = [fresh, "gone"].concat().into_bytes();
        sample.push((gone, KeyOutcome::Removed));
    }
    let expected = ExpectedVersion {
        manifest: before.manifest(),
        rows: 2 * sample.len() as u64,
        bytes: 7,
        is_exact: true,
        nulls: Vec::new(),
        stats: &[],
        sample: &sample,
        has: None,
        goes_on: true,
    };
    let reported = compare_expected(&before, &expected, 100, &*random(2), &|_| ()).unwrap();
    assert_eq!(
        (
            reported.lost.found,
            reported.new.found,
            reported.changed.found
        ),
        (20, 4, 40)
    );
    assert_eq!((reported.lost.looked_at, reported.rows_after), (1_000, 984));
    assert!(!reported.rows_are_exact && reported.bytes_are_exact && reported.schema.is_none());
}

#[test]
fn a_small_sample_estimates_the_counts_of_a_whole_comparison() {
    let store = store_on(&SimDisk::new(), 1);
    let all = common::rows(1, 40_000);
    // A tenth is lost, all in one stretch of keys; a fifth changes.
    let mut new: Rows = all
        .iter()
        .skip(4_000)
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect();
    for (i, value) in new.values_mut().enumerate() {
        if i % 5 == 0 {
            value.push(b'!');
        }
    }
    for order in [Order::Hashed, Order::Ordered] {
        let before = push(&store, "t", order, &all, 4).unwrap();
        let after = push(&store, "t", order, &new, 3).unwrap();
        let (before, after) = (version(&store, before), version(&store, after));
        let sampled = compare_sampled(&before, &after, 4_000, &*random(3), &|_| ()).unwrap();
        let near = |found: f64, expected: f64| (found - expected).abs() < 0.04;
        let (lost, changed) = (sampled.lost.fraction(), sampled.changed.fraction());
        assert!(
            near(lost, 0.1) && near(changed, 0.2),
            "{order:?}: {lost} {changed}"
        );
        assert_eq!(sampled.new.found, 0);
        assert!(
            sampled.lost.looked_at < 10_000,
            "{}",
            sampled.lost.looked_at
        );
    }
}
