//! Runs built elsewhere.

use crate::keys::partition::PartitionId;
use forebay_io::sim::{Fault, SimDisk};
use forebay_run::RunWriter;
use forebay_run::operation::{DeltaKind, Operation};

use super::{create, open};
use crate::live::{IngestRun, LiveDraft, LiveError, LiveTable};

fn build(
    disk: &SimDisk,
    table: &LiveTable,
    partition: u32,
    records: &[(&str, Operation<'_>)],
) -> IngestRun {
    let new = table.new_run();
    let disk: std::sync::Arc<dyn forebay_io::Disk> = std::sync::Arc::new(disk.clone());
    let options = table.run_options(records.len() as u64, 100);
    let mut writer = RunWriter::create(&disk, &new.path, options).unwrap();
    for (key, operation) in records {
        writer.push(0, key.as_bytes(), *operation).unwrap();
    }
    writer.finish().unwrap();
    IngestRun {
        partition: PartitionId(partition),
        id: new.id,
    }
}

fn table() -> (SimDisk, LiveTable) {
    create(LiveDraft::ordered(vec![b"m".to_vec()]).delta(DeltaKind::Append))
}

#[test]
fn added_runs_lie_between_earlier_and_later_writes() {
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
    table.compact().unwrap();
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
        Err(LiveError::Partition { .. })
    ));
    table.update(b"k", b"v").unwrap().wait().unwrap();
}

#[test]
fn a_run_is_added_once() {
    let (disk, table) = table();
    let run = build(&disk, &table, 0, &[("a", Operation::Update(b"1"))]);
    let twice = table.ingest(&[run.clone(), run.clone()]).unwrap_err();
    assert!(matches!(&twice, LiveError::Ingest { .. }), "{twice}");
    table.ingest(std::slice::from_ref(&run)).unwrap();
    let again = table.ingest(&[run]).unwrap_err();
    assert!(matches!(&again, LiveError::Ingest { .. }), "{again}");
    drop(table);
    let table = open(&disk).unwrap();
    assert_eq!(table.get(b"a").unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(table.stats().run_records, 1);
}

#[test]
fn an_error_of_the_device_while_runs_are_added_closes_the_table_to_writes() {
    let (disk, table) = table();
    let run = build(&disk, &table, 0, &[("a", Operation::Update(b"1"))]);
    // The first call opens the run, the next ones make names and manifest durable.
    let calls = disk.calls();
    table.ingest(&[run]).unwrap();
    let calls = disk.calls() - calls;
    let mut closed = 0;
    for nth in 0..calls {
        let (disk, table) = self::table();
        let run = build(&disk, &table, 0, &[("a", Operation::Update(b"1"))]);
        disk.plan(nth, Fault::Error);
        let error = table.ingest(&[run]).unwrap_err();
        let is_device = matches!(&error, LiveError::Store(_));
        assert_eq!(
            table.stats().failed.is_some(),
            is_device,
            "call {nth}: {error}"
        );
        closed += u64::from(is_device);
    }
    assert!(closed >= 3, "{closed} of {calls} calls");
}
