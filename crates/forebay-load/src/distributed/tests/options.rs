//! Tests of a push's options, by tasks and on one machine; random rows, tasks and retries.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int32Array, StringArray};
use proptest::prelude::*;

use super::super::chunk::pack;
use super::*;
use crate::push::BadRows;
use forebay_engine::Ttl;
use forebay_run::operation::DeltaKind;

#[test]
fn the_first_or_the_last_of_a_key_stays() {
    let rows = birds((0..6000).map(|row| row * 7919 % 2500));
    for (duplicates, order) in [
        (Duplicates::First, Order::Hashed),
        (Duplicates::Last, Order::Hashed),
        (Duplicates::Last, Order::Ordered),
    ] {
        let boundaries = match order {
            Order::Hashed => boundaries("[3000, 9000]"),
            Order::Ordered => boundaries(r#"["bird/001000"]"#),
        };
        let request = PushRequest {
            duplicates,
            order,
            partitions: None,
            boundaries,
            value: ValueChoice::Column("seen".into()),
            bad_rows: BadRows::Skip,
            ..request()
        };
        let report = same_both_ways(request, &rows, 7);
        assert!(report.duplicates > 2900 && report.rejected > 800);
    }
    let cluster = Cluster::begin(request(), &rows);
    let part = of_partition(&cluster.encode_all(&rows, 3), 1);
    let error = cluster.write(&part).unwrap_err().to_string();
    assert!(error.contains("occurs more than once"), "{error}");
}

#[test]
fn records_out_of_order_are_refused_where_age_decides() {
    let rows = birds(0..500);
    let last = PushRequest {
        duplicates: Duplicates::Last,
        ..request()
    };
    let cluster = Cluster::begin(last, &rows);
    let part = of_partition(&cluster.encode_all(&rows, 2), 1);
    let count = part.num_rows();
    let turned = [part.slice(count - 1, 1), part.slice(0, count - 1)];
    let turned = concat_batches(&record_schema(), &turned).unwrap();
    let error = cluster.write(&turned).unwrap_err().to_string();
    assert!(
        error.contains("sort each partition by source and sequence"),
        "{error}"
    );
    assert_eq!(cluster.write(&part).unwrap().len(), 1);
}

#[test]
fn rows_expire_at_the_time_of_the_push() {
    let rows = birds(0..3000);
    let after = PushRequest {
        ttl: Some(Ttl::AfterMs(60_000)),
        ..request()
    };
    same_both_ways(after.clone(), &rows, 3);
    let column = PushRequest {
        ttl: Some(Ttl::Column("seen".into())),
        compression: Compression::Zstd,
        ..request()
    };
    same_both_ways(column, &rows, 3);
    // A record that claims to be something other than a row.
    let cluster = Cluster::begin(after, &rows);
    let part = of_partition(&cluster.encode_all(&rows, 1), 0);
    let count = part.num_rows();
    let mut columns = part.slice(count - 1, 1).columns().to_vec();
    for (bytes, word) in [
        (&b"\x02"[..], "no update"),
        (b"", "empty"),
        (b"\xff\x00", "a record"),
    ] {
        let mut chunk = Vec::new();
        pack(&mut chunk, b"bird/000001", bytes).unwrap();
        columns[1] = Arc::new(arrow_array::BinaryArray::from_vec(vec![&chunk]));
        let altered = RecordBatch::try_new(record_schema(), columns.clone()).unwrap();
        let records = concat_batches(&record_schema(), &[part.slice(0, count - 1), altered]);
        let error = cluster.write(&records.unwrap()).unwrap_err().to_string();
        assert!(error.contains(word), "{word}: {error}");
    }
}

#[test]
fn numbers_of_deltas_and_large_values_are_stored_alike() {
    let rows = birds(0..3000);
    let numbers = PushRequest {
        delta: Some(DeltaKind::AddI64),
        value: ValueChoice::Column("id".into()),
        ..request()
    };
    same_both_ways(numbers, &rows, 3);
    // Values of all sizes: pages of 8 KiB, some values in the second file.
    let text =
        |id: i64| "x".repeat((id * id % 997) as usize + if id % 50 == 0 { 30_000 } else { 0 });
    let texts: StringArray = (0..2000).map(|id| Some(text(id))).collect();
    let columns: [(&str, ArrayRef); 2] = [
        (
            "id",
            Arc::new(arrow_array::Int64Array::from_iter_values(0..2000)),
        ),
        ("text", Arc::new(texts)),
    ];
    let wide = RecordBatch::try_from_iter(columns).unwrap();
    same_both_ways(request(), &wide, 3);
    let given = PushRequest {
        page_bytes: Some(8192),
        compression: Compression::Lz4,
        ..request()
    };
    same_both_ways(given, &wide, 3);
}

#[test]
fn little_memory_spills_and_changes_nothing() {
    let rows = birds(0..40_000);
    let little = PushRequest {
        memory_bytes: 4 << 20,
        partitions: Some(1),
        ..request()
    };
    same_both_ways(little.clone(), &rows, 2);
    let last = PushRequest {
        duplicates: Duplicates::Last,
        ..little
    };
    let twice = birds((0..40_000).map(|row| row % 25_000));
    let report = same_both_ways(last, &twice, 5);
    assert_eq!(report.duplicates, 15_000);
}

#[test]
fn bad_rows_end_the_task_or_are_counted() {
    let rows = birds((0..1000).map(|row| if row == 700 { -1 } else { row }));
    let fails = Cluster::begin(request(), &rows);
    let mut task = RowTask::new(fails.recipe(), 3).unwrap();
    let error = task.encode(&rows).unwrap_err().to_string();
    assert!(
        error.contains("birds, part 3: row 701") && error.contains("--bad-rows"),
        "{error}"
    );
    let skips = PushRequest {
        bad_rows: BadRows::Skip,
        ..request()
    };
    let report = same_both_ways(skips.clone(), &rows, 3);
    assert_eq!((report.rejected, report.rows_between.1), (1, 999));
    // If no rows are left, nothing is published.
    let none = birds((0..10).map(|row| -1 - row));
    let cluster = Cluster::begin(skips, &none);
    let records = cluster.encode_all(&none, 2);
    let reports = cluster.write_all(&records);
    assert!(cluster.refused(&reports).contains("every row"));
}

#[test]
fn no_rows_make_an_empty_version_and_empty_partitions_have_no_runs() {
    let none = birds(0..0);
    let report = same_both_ways(request(), &none, 1);
    assert_eq!(report.rows_between, (0, 0));
    let few = birds(0..2);
    let many = PushRequest {
        partitions: Some(200),
        ..request()
    };
    same_both_ways(many, &few, 5);
}

#[test]
fn batches_of_other_layouts_are_converted_and_others_refused() {
    let rows = birds(0..100);
    let cluster = Cluster::begin(request(), &rows);
    let mut task = RowTask::new(cluster.recipe(), 0).unwrap();
    let narrow: ArrayRef = Arc::new(Int32Array::from_iter_values(0..100));
    let column = |name: &str| rows.column_by_name(name).unwrap().clone();
    // Other places, other types.
    let columns = [
        ("seen", column("seen")),
        ("id", narrow),
        ("name", column("name")),
    ];
    let other = RecordBatch::try_from_iter(columns).unwrap();
    let encoded = |batch: &RecordBatch| {
        let task = RowTask::new(cluster.recipe(), 0).unwrap();
        sent(task, [batch.clone()]).unwrap()
    };
    assert_eq!(encoded(&other), encoded(&rows));
    let lacks = RecordBatch::try_from_iter([("id", column("id"))]).unwrap();
    let error = task.encode(&lacks).unwrap_err().to_string();
    assert!(error.contains("no column 'name'"), "{error}");
    let more = ["id", "name", "seen", "more"].map(|name| match name {
        "more" => (name, column("id")),
        _ => (name, column(name)),
    });
    let more = RecordBatch::try_from_iter(more).unwrap();
    let error = task.encode(&more).unwrap_err().to_string();
    assert!(error.contains("a column 'more'"), "{error}");
    // A table of one column takes it from a source with other columns.
    let names = PushRequest {
        value: ValueChoice::Column("name".into()),
        bad_rows: BadRows::Skip,
        ..request()
    };
    let names = Cluster::begin(names, &rows);
    let encoded = |batch: &RecordBatch| {
        let task = RowTask::new(names.recipe(), 0).unwrap();
        sent(task, [batch.clone()]).unwrap()
    };
    assert_eq!(encoded(&more), encoded(&rows));
    assert!(matches!(
        RowTask::new(cluster.recipe(), -1),
        Err(DistributedError::Source { .. })
    ));
}

#[test]
fn unsupported_options_are_refused_before_tasks_begin() {
    let rows = birds(0..10);
    let refused = |request: PushRequest| {
        let dir = tempfile::tempdir().unwrap();
        let store = store(&dir.path().join("store"));
        let begun = DistributedPush::begin(request, store, rows.schema(), "birds");
        assert!(!dir.path().join("store/tables/birds").exists());
        begun.unwrap_err().to_string()
    };
    let onto = PushRequest {
        onto: Some(crate::push::BaseVersion::Current),
        ..request()
    };
    assert!(refused(onto).contains("--onto"));
    let file = PushRequest {
        bad_rows: BadRows::File("x".into()),
        ..request()
    };
    assert!(refused(file).contains("--bad-rows FILE"));
    let rate = PushRequest {
        rate_bytes: Some(1),
        ..request()
    };
    assert!(refused(rate).contains("--rate"));
    let key = PushRequest {
        key: Some("{absent}".parse().unwrap()),
        ..request()
    };
    assert!(refused(key).contains("'absent'"));
    let other = PushRequest {
        boundaries: boundaries(r#"["a"]"#),
        ..request()
    };
    assert!(refused(other).contains("hashed"));
}

/// Makes random choices from numbers.
#[derive(Debug, Clone)]
struct Choice {
    rows: Vec<i64>,
    parts: usize,
    /// Returns which partitions one task writes, and how often.
    tasks: Vec<(usize, u8)>,
    partitions: u32,
    order: Order,
    duplicates: Duplicates,
}

fn choices() -> impl Strategy<Value = Choice> {
    let duplicates = prop_oneof![Just(Duplicates::First), Just(Duplicates::Last)];
    let order = prop_oneof![Just(Order::Hashed), Just(Order::Ordered)];
    let rows = prop::collection::vec(0..400i64, 0..600);
    let tasks = prop::collection::vec((1..4usize, 1..3u8), 9);
    (rows, 1..6usize, tasks, 1..9u32, order, duplicates).prop_map(
        |(rows, parts, tasks, partitions, order, duplicates)| Choice {
            rows,
            parts,
            tasks,
            partitions,
            order,
            duplicates,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// The version equals that of a local push, however the rows are split, distributed and
    /// retried.
    #[test]
    fn any_split_makes_the_same_version(choice in choices()) {
        let rows = birds(choice.rows.iter().copied());
        let places: Vec<String> = (1..choice.partitions)
            .map(|at| match choice.order {
                Order::Hashed => (at * 16384 / choice.partitions).to_string(),
                Order::Ordered => format!("\"bird/{:06}\"", at * 400 / choice.partitions),
            })
            .collect();
        let request = PushRequest {
            order: choice.order,
            partitions: None,
            boundaries: boundaries(&format!("[{}]", places.join(","))),
            duplicates: choice.duplicates,
            ..request()
        };
        let cluster = Cluster::begin(request.clone(), &rows);
        let records = cluster.encode_all(&rows, choice.parts);
        let mut reports = Vec::new();
        let mut next = 0;
        for &(several, times) in choice.tasks.iter().cycle() {
            let end = (next + several).min(choice.partitions as usize);
            let mut found = Vec::new();
            for _ in 0..times {
                found = cluster.write(&of_partitions(&records, next..end)).unwrap();
            }
            reports.extend(found);
            next = end;
            if next == choice.partitions as usize {
                break;
            }
        }
        reports.reverse();
        let Cluster { dir, store, push } = cluster;
        let distributed = push.commit(&reports, &Silent).unwrap();
        let (other, report) = local(&request, dir.path(), &rows);
        prop_assert_eq!(files(&store, 1), files(&other, 1));
        let report = alike(report, &distributed);
        prop_assert_eq!(distributed, report);
    }

    /// One record more, less, or altered: the push refuses it, or it makes no difference.
    #[test]
    fn every_change_of_records_is_detected(
        at in 0..1000usize,
        column in 0..4usize,
        what in 0..3u8,
        bits in any::<u8>(),
    ) {
        let rows = birds(0..300);
        let one = PushRequest {
            partitions: Some(1),
            duplicates: Duplicates::Last,
            ..request()
        };
        let cluster = Cluster::begin(one, &rows);
        let part = of_partition(&cluster.encode_all(&rows, 2), 0);
        let at = at % part.num_rows();
        let (before, after) = (part.slice(0, at), part.slice(at + 1, part.num_rows() - at - 1));
        let this = part.slice(at, 1);
        let middle = match what {
            0 => vec![],
            1 => vec![this.clone(), this.clone()],
            _ => vec![altered(&this, column, bits)],
        };
        let changed = [vec![before], middle, vec![after]].concat();
        let changed = concat_batches(&record_schema(), &changed).unwrap();
        if let Ok(reports) = cluster.write(&changed) {
            // The position of a chunk only decides which of two records of a key stays. No two
            // records share a key in this test.
            prop_assert!(what == 2 && (column >= 2 || changed == part), "{what} {column} {bits}");
            cluster.push.commit(&reports, &Silent).unwrap();
        }
    }

    /// No input from outside causes a panic.
    #[test]
    fn altered_input_is_refused(junk in prop::collection::vec(any::<u8>(), 0..60), at in any::<prop::sample::Index>(), text in ".*") {
        let cluster = Cluster::begin(request(), &birds(0..10));
        prop_assert!(Recipe::parse(&junk).is_err());
        let recipe = cluster.push.recipe("here").unwrap().to_bytes().unwrap();
        let body = &recipe[..recipe.len() - 22];
        // It is sealed again, so only its content can be wrong.
        let mut changed = body.to_vec();
        let place = at.index(changed.len());
        changed.splice(place..place + 1, junk.iter().copied());
        if let Ok(recipe) = Recipe::parse(&forebay_engine::seal_text(changed)) {
            let scratch = cluster.dir.path().join("scratch");
            if let Ok(mut task) = RowTask::new(recipe.clone(), 0) {
                _ = task.encode(&birds(0..10));
                _ = task.finish();
            }
            _ = PartTask::new(recipe, cluster.store.clone(), &scratch).and_then(PartTask::finish);
        }
        prop_assert!(Report::parse(&text).is_err());
        prop_assert!(cluster.push.commit(&[text], &Silent).is_err());
    }
}

/// Changes one of its values, of any type.
fn altered(record: &RecordBatch, column: usize, bits: u8) -> RecordBatch {
    use arrow_array::cast::AsArray;
    use arrow_array::types::{Int32Type, Int64Type};
    let array = record.column(column);
    let bits = bits.max(1);
    let changed: ArrayRef = match column {
        0 => Arc::new(Int32Array::from(vec![
            array.as_primitive::<Int32Type>().value(0) ^ i32::from(bits),
        ])),
        1 => {
            let array = array.as_binary::<i32>();
            let mut bytes = array.value(0).to_vec();
            match bytes.first_mut() {
                Some(first) => *first ^= bits,
                None => bytes.push(bits),
            }
            Arc::new(arrow_array::BinaryArray::from_vec(vec![&bytes]))
        }
        _ => Arc::new(arrow_array::Int64Array::from(vec![
            array.as_primitive::<Int64Type>().value(0) ^ i64::from(bits),
        ])),
    };
    let mut columns = record.columns().to_vec();
    columns[column] = changed;
    RecordBatch::try_new(record_schema(), columns).unwrap()
}
