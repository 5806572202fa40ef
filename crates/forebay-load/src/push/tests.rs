//! Pushes of small files, on the real disk and on simulated ones.

#![allow(clippy::disallowed_methods, reason = "the tests write their sources")]

use std::path::Path;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, RecordBatchIterator, StringArray};
use arrow_schema::ArrowError;

use forebay_engine::{Source, Store};
use forebay_io::{OsDisk, SystemClock, SystemRandom};
use forebay_run::number::Number;
use forebay_run::scan::{Direction, ScanRange};
use forebay_run::{Compression, Order};

use super::*;
use crate::encode::ValueChoice;
use crate::export::{ExportValues, ScanBatches, TableColumns, lookup_batches};
use crate::gate::Finding;
use crate::progress::Silent;
use crate::sources::Batches;
use crate::sources::{Input, SourceOptions};

fn store(dir: &Path) -> Store {
    let root = dir.join("store");
    Store::open_or_create(
        Arc::new(OsDisk::default()),
        Arc::new(SystemClock),
        Arc::new(SystemRandom),
        &root,
    )
    .unwrap()
}

pub(super) fn request(source: &Path, key: &str) -> PushRequest {
    PushRequest {
        table: "birds".parse().unwrap(),
        sources: vec![source.to_string_lossy().into_owned()].into(),
        source_options: SourceOptions::default(),
        key: Some(key.parse().unwrap()),
        value: ValueChoice::Row,
        onto: None,
        operation_column: None,
        delta: None,
        ttl: None,
        order: Order::Hashed,
        partitions: None,
        boundaries: None,
        cuts: Vec::new(),
        always_cut: false,
        compression: Compression::None,
        page_bytes: None,
        duplicates: Duplicates::Fail,
        bad_rows: BadRows::Fail,
        memory_bytes: 64 << 20,
        threads: 2,
        rate_bytes: None,
        version: None,
        limits: Vec::new(),
        force: false,
        swap: true,
        keep: 3,
    }
}

fn birds(path: &Path, rows: std::ops::Range<u32>) {
    let mut text = "id,name,seen\n".to_owned();
    for id in rows {
        text += &format!(
            "{id},bird number {id},{}\n",
            if id % 10 == 0 { "" } else { "yes" }
        );
    }
    std::fs::write(path, text).unwrap();
}

#[test]
fn a_push_serves_and_the_next_one_replaces_it() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path());
    let csv = dir.path().join("birds.csv");
    birds(&csv, 0..5000);
    for order in [Order::Hashed, Order::Ordered] {
        let request = PushRequest {
            order,
            partitions: Some(5),
            ..request(&csv, "bird/{id:06}")
        };
        let report = push(&request, &store, &Silent).unwrap();
        assert!(report.swapped && !report.held());
        assert_eq!(
            (report.rows_between.1, report.rejected, report.duplicates),
            (5000, 0, 0)
        );
        let table = store.table(&request.table).unwrap();
        assert_eq!(table.serving().unwrap(), report.version);
        let version = table.open_version(report.version).unwrap();
        assert_eq!(version.manifest().nulls("seen"), Some(500));
        assert!(version.get(b"bird/000042").unwrap().is_some());
        assert!(version.get(b"bird/005000").unwrap().is_none());
        let report = table.verify(report.version, &mut |_| ()).unwrap();
        assert!(report.problems.is_empty());
    }
}

#[test]
fn the_gate_holds_a_version_that_lost_rows_and_force_lets_it_pass() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path());
    let csv = dir.path().join("birds.csv");
    birds(&csv, 0..5000);
    let request = request(&csv, "{id}");
    push(&request, &store, &Silent).unwrap();
    birds(&csv, 0..2000);
    let held = push(&request, &store, &Silent).unwrap();
    assert!(held.held() && !held.swapped);
    let failed: Vec<&Finding> = held.gate.iter().filter(|finding| !finding.passed).collect();
    assert!(
        failed.iter().any(|finding| finding.limit == "rows>-20%"),
        "{failed:?}"
    );
    assert!(
        failed.iter().any(|finding| finding.limit == "lost<20%"),
        "{failed:?}"
    );
    let table = store.table(&request.table).unwrap();
    assert_eq!(table.serving().unwrap(), 1);
    let forced = push(
        &PushRequest {
            force: true,
            ..request.clone()
        },
        &store,
        &Silent,
    )
    .unwrap();
    assert!(forced.swapped);
    assert_eq!(table.serving().unwrap(), 3);
}

#[test]
fn bad_rows_fail_are_skipped_or_written_to_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path());
    let csv = dir.path().join("birds.csv");
    std::fs::write(&csv, "id,name\n1,a\n,nobody\n3,c,too many\n4,d\n").unwrap();
    let fails = request(&csv, "{id}");
    let error = push(&fails, &store, &Silent).unwrap_err().to_string();
    assert!(
        error.contains("birds.csv") && error.contains("line "),
        "{error}"
    );
    assert!(store.tables().unwrap().is_empty(), "a failed push shows");
    let rejects = dir.path().join("rejects.jsonl");
    let skips = PushRequest {
        bad_rows: BadRows::File(rejects.clone()),
        ..fails
    };
    let report = push(&skips, &store, &Silent).unwrap();
    assert_eq!((report.rows_between.1, report.rejected), (2, 2));
    let text = std::fs::read_to_string(&rejects).unwrap();
    let mut lines: Vec<serde_json::Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    lines.sort_by_key(|line| line["line"].as_u64());
    assert_eq!(
        (lines[0]["line"].as_u64(), lines[1]["line"].as_u64()),
        (Some(3), Some(4))
    );
    assert!(
        lines[0]["reason"]
            .as_str()
            .unwrap()
            .contains("'id' is null"),
        "{text}"
    );
    let again = push(&skips, &store, &Silent).unwrap_err().to_string();
    assert!(again.contains("rejects.jsonl"), "{again}");
}

#[test]
fn a_value_that_does_not_fit_its_column_is_one_bad_row() {
    use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path());
    let path = dir.path().join("birds.parquet");
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..5000));
    let bad = [17, 18, 4000];
    let count = |id: u32| match bad.contains(&id) {
        true => "many".to_owned(),
        false => id.to_string(),
    };
    let counts: ArrayRef = Arc::new(StringArray::from_iter_values((0..5000).map(count)));
    let batch = RecordBatch::try_from_iter([("id", ids), ("count", counts)]).unwrap();
    let file = std::fs::File::create(&path).unwrap();
    let mut writer = parquet::arrow::ArrowWriter::try_new(file, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    let mut fails = request(&path, "{id}");
    fails.source_options.columns = vec![crate::convert::GivenType::exact(
        "count",
        arrow_schema::DataType::Int64,
    )];
    let error = push(&fails, &store, &Silent).unwrap_err().to_string();
    for word in ["birds.parquet: row 18: ", "'count'", "many", "--bad-rows"] {
        assert!(error.contains(word), "{error}");
    }
    let rejects = dir.path().join("rejects.jsonl");
    let skips = PushRequest {
        bad_rows: BadRows::File(rejects.clone()),
        ..fails
    };
    let report = push(&skips, &store, &Silent).unwrap();
    assert_eq!((report.rows_between.1, report.rejected), (4997, 3));
    let text = std::fs::read_to_string(&rejects).unwrap();
    for (line, id) in text.lines().zip(bad) {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(line["row"].as_u64(), Some(u64::from(id) + 1));
        assert_eq!(line["record"]["id"].as_u64(), Some(u64::from(id)));
    }
    let version = store.table(&report.table).unwrap().open_version(1).unwrap();
    assert!(version.exists(b"19").unwrap() && !version.exists(b"17").unwrap());
}

#[test]
fn duplicates_are_refused_or_settled_by_order() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path());
    let csv = dir.path().join("birds.csv");
    std::fs::write(&csv, "id,name\n1,first\n2,b\n1,last\n").unwrap();
    let fails = request(&csv, "{id}");
    let error = push(&fails, &store, &Silent).unwrap_err().to_string();
    assert!(
        error.contains("birds.csv: key 1 ") && error.contains("--duplicates"),
        "{error}"
    );
    for (duplicates, name) in [(Duplicates::First, "first"), (Duplicates::Last, "last")] {
        let value = ValueChoice::Column("name".into());
        let request = PushRequest {
            duplicates,
            value,
            ..fails.clone()
        };
        let report = push(
            &PushRequest {
                force: true,
                ..request.clone()
            },
            &store,
            &Silent,
        )
        .unwrap();
        assert_eq!((report.rows_between.1, report.duplicates), (2, 1));
        let version = store
            .table(&request.table)
            .unwrap()
            .open_version(report.version)
            .unwrap();
        assert_eq!(version.get(b"1").unwrap().as_deref(), Some(name.as_bytes()));
    }
}

fn letters(ids: std::ops::Range<i64>, letter: &str) -> RecordBatch {
    let names: Vec<String> = ids.clone().map(|id| format!("{letter}{id}")).collect();
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(ids));
    let names: ArrayRef = Arc::new(StringArray::from(names));
    RecordBatch::try_from_iter([("id", ids), ("name", names)]).unwrap()
}

fn handed_over(batches: Vec<Result<RecordBatch, ArrowError>>) -> Input {
    let schema = letters(0..1, "").schema();
    Input::Batches(Batches::new(
        "the batches",
        None,
        RecordBatchIterator::new(batches, schema),
    ))
}

#[test]
fn batches_are_pushed_like_a_file_and_keep_their_order() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path());
    // The first batch is split into several slices; the last hides rows of both.
    let batches = || {
        let ranges = [
            (0..50_000, "a"),
            (50_000..50_000, "b"),
            (49_000..60_000, "c"),
        ];
        handed_over(ranges.map(|(ids, name)| Ok(letters(ids, name))).into())
    };
    let request = PushRequest {
        sources: batches(),
        duplicates: Duplicates::Last,
        value: ValueChoice::Column("name".into()),
        ..request(Path::new(""), "{id}")
    };
    let report = push(&request, &store, &Silent).unwrap();
    assert_eq!((report.rows_between.1, report.duplicates), (60_000, 1000));
    let table = store.table(&request.table).unwrap();
    let version = table.open_version(1).unwrap();
    assert_eq!(version.manifest().source, "the batches");
    for (key, name) in [
        ("48999", "a48999"),
        ("49000", "c49000"),
        ("59999", "c59999"),
    ] {
        let value = version.get(key.as_bytes()).unwrap();
        assert_eq!(value.as_deref(), Some(name.as_bytes()));
    }
    let again = PushRequest {
        sources: batches(),
        duplicates: Duplicates::Fail,
        ..request
    };
    let error = push(&again, &store, &Silent).unwrap_err().to_string();
    assert!(error.contains("--duplicates"), "{error}");
}

#[test]
fn a_reader_of_batches_that_fails_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path());
    let broken = ArrowError::ExternalError("the query was cancelled".into());
    let request = PushRequest {
        sources: handed_over(vec![Ok(letters(0..20_000, "a")), Err(broken)]),
        ..request(Path::new(""), "{id}")
    };
    let error = push(&request, &store, &Silent).unwrap_err().to_string();
    assert!(
        error.contains("the batches: what makes the rows failed after row 20000")
            && error.contains("the query was cancelled"),
        "{error}"
    );
    assert!(store.tables().unwrap().is_empty());
}

#[test]
fn a_table_is_read_as_batches() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path());
    let rows = letters(0..20_000, "a");
    let request = PushRequest {
        sources: handed_over(vec![Ok(rows.clone())]),
        order: Order::Ordered,
        partitions: Some(3),
        ..request(Path::new(""), "{id:05}")
    };
    push(&request, &store, &Silent).unwrap();
    let version = store
        .table(&request.table)
        .unwrap()
        .open_version(1)
        .unwrap();
    let source = Source::Batch(&version);
    let columns = TableColumns {
        values: ExportValues::new(source.kind(), source.schema(), source.number()),
        key: Some("{id:05}"),
        binary: false,
        only: None,
    };
    let read = |columns: &TableColumns<'_>, limit| -> Vec<RecordBatch> {
        let scan = source.scan(ScanRange::all(), Direction::Forward);
        let batches = ScanBatches::new(scan, columns, limit).unwrap();
        batches.collect::<Result<_, _>>().unwrap()
    };
    let schema = rows.schema();
    let all = arrow_select::concat::concat_batches(&schema, &read(&columns, u64::MAX)).unwrap();
    assert_eq!(all.columns(), rows.columns());
    let first = read(&columns, 9000);
    assert_eq!(first.iter().map(RecordBatch::num_rows).sum::<usize>(), 9000);
    assert!(read(&columns, 0).is_empty());

    let last = schema.field(schema.fields().len() - 1).name().clone();
    let names = [last.clone()];
    let one = TableColumns {
        only: Some(&names),
        ..columns
    };
    let read_one = read(&one, 3);
    assert_eq!(read_one[0].num_columns(), 1);
    assert_eq!(
        read_one[0].column(0),
        &rows.column_by_name(&last).unwrap().slice(0, 3)
    );
    let unknown = ["idd".to_owned()];
    let unknown = TableColumns {
        only: Some(&unknown),
        ..columns
    };
    let scan = source.scan(ScanRange::all(), Direction::Forward);
    let refused = ScanBatches::new(scan, &unknown, 3).err().unwrap();
    let reported = refused.to_string();
    assert!(
        reported.starts_with("there is no column 'idd'; did you mean 'id'?; there are: id, "),
        "{reported}"
    );
}

#[test]
fn looked_up_records_are_batches_with_nulls_for_those_that_are_absent() {
    let values = ExportValues::Numbers(Number::I64);
    let columns = TableColumns {
        values,
        key: None,
        binary: false,
        only: None,
    };
    let value = 7_i64.to_le_bytes();
    let records: Vec<(&[u8], Option<&[u8]>)> = (0..9000)
        .map(|at| (b"k".as_slice(), (at % 2 == 0).then_some(value.as_slice())))
        .collect();
    let (schema, batches) = lookup_batches(&columns, records.into_iter()).unwrap();
    assert!(schema.fields().iter().all(|field| field.is_nullable()));
    assert_eq!(
        batches.iter().map(RecordBatch::num_rows).sum::<usize>(),
        9000
    );
    let nulls = |column: usize| {
        batches
            .iter()
            .map(move |batch| batch.column(column).null_count())
    };
    assert_eq!(
        (nulls(0).sum::<usize>(), nulls(1).sum::<usize>()),
        (4500, 4500)
    );
}
