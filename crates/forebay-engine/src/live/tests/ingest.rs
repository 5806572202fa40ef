//! Runs built elsewhere.

use forebay_run::RunWriter;
use forebay_run::io::sim::SimDisk;
use forebay_run::operation::{DeltaKind, Operation};

use super::{create, open};
use crate::live::{IngestRun, LiveError, LiveOptions, LiveTable};

fn build(
    disk: &SimDisk,
    table: &LiveTable,
    partition: usize,
    records: &[(&str, Operation<'_>)],
) -> IngestRun {
    let new = table.new_run();
    let disk: std::sync::Arc<dyn forebay_run::io::Disk> = std::sync::Arc::new(disk.clone());
    let options = table.run_options(records.len() as u64, 100);
    let mut writer = RunWriter::create(&disk, &new.path, options).unwrap();
    for (key, operation) in records {
        writer.push(0, key.as_bytes(), *operation).unwrap();
    }
    writer.finish().unwrap();
    IngestRun {
        partition,
        id: new.id,
    }
}

fn table() -> (SimDisk, LiveTable) {
    create(LiveOptions::ordered(vec![b"m".to_vec()]).delta(DeltaKind::Append))
}

#[test]
fn added_runs_lie_between_what_was_written_before_and_after() {
    let (disk, table) = table();
    for key in ["a", "b", "x"] {
        table
            .update(key.as_bytes(), b"old")
            .unwrap()
            .wait()
            .unwrap();
    }
    let low = [
        ("a", Operation::Delete),
        ("b", Operation::Delta(b"+")),
        ("c", Operation::Insert(b"new")),
    ];
    let high = [
        ("x", Operation::Insert(b"ignored")),
        ("y", Operation::Update(b"new")),
    ];
    let runs = [
        build(&disk, &table, 0, &low),
        build(&disk, &table, 1, &high),
    ];
    table.ingest(&runs).unwrap();
    table.delta(b"c", b"+").unwrap().wait().unwrap();
    let check = |table: &LiveTable| {
        let keys = [&b"a"[..], b"b", b"c", b"x", b"y"];
        let values = table.get_many(&keys).unwrap();
        let texts: Vec<_> = values
            .iter()
            .map(|value| value.as_deref().map(String::from_utf8_lossy))
            .collect();
        let wanted = [None, Some("old+"), Some("new+"), Some("old"), Some("new")];
        assert_eq!(texts, wanted.map(|text| text.map(Into::into)));
    };
    check(&table);
    drop(table);
    let table = open(&disk).unwrap();
    check(&table);
    table.optimize().unwrap();
    check(&table);
}

#[test]
fn a_run_that_does_not_belong_there_is_refused_and_removed() {
    let (disk, table) = table();
    let good = build(&disk, &table, 0, &[("a", Operation::Update(b"1"))]);
    let astray = build(
        &disk,
        &table,
        0,
        &[("b", Operation::Delete), ("z", Operation::Delete)],
    );
    let files = disk.files().len();
    let error = table.ingest(&[good, astray]).unwrap_err();
    assert!(matches!(&error, LiveError::Run { .. }), "{error}");
    assert_eq!(table.get(b"a").unwrap(), None);
    assert_eq!(disk.files().len(), files - 2);
    let nowhere = build(&disk, &table, 7, &[("a", Operation::Delete)]);
    assert!(matches!(
        table.ingest(&[nowhere]),
        Err(LiveError::Ingest { .. })
    ));
    table.update(b"k", b"v").unwrap().wait().unwrap();
}
