//! Simulates a cluster in one process: the records and reports of tasks, with and without losses.
#![allow(
    clippy::disallowed_methods,
    reason = "tests look at the files themselves"
)]

mod alike;
mod loads;
mod options;

use std::path::Path;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow_select::concat::concat_batches;
use arrow_select::take::take_record_batch;
use forebay_engine::{RunRef, Store};
use forebay_io::sim::HandClock;
use forebay_io::{OsDisk, SystemRandom};
use forebay_run::{Compression, Order};

use alike::{alike, counted};

use super::chunk::Unpacked;
use super::report::Report;
use super::wire::{Arrived, CONTROL_SEQUENCE};
use super::*;
use crate::encode::ValueChoice;
use crate::progress::Silent;
use crate::push::{BadRows, GivenBoundaries, PushReport, PushRequest, push};
use crate::sort::Duplicates;
use crate::sources::{Batches, Input, SourceOptions};

fn store(dir: &Path) -> Store {
    let disk = Arc::new(OsDisk::default());
    Store::open_or_create(
        disk,
        Arc::new(HandClock::at(1_700_000_000_000)),
        Arc::new(SystemRandom),
        dir,
    )
    .unwrap()
}

fn request() -> PushRequest {
    PushRequest {
        table: "birds".parse().unwrap(),
        sources: Input::Files(Vec::new()),
        source_options: SourceOptions::default(),
        key: Some("bird/{id:06}".parse().unwrap()),
        value: ValueChoice::Row,
        onto: None,
        operation_column: None,
        delta: None,
        ttl: None,
        order: Order::Hashed,
        partitions: Some(4),
        boundaries: None,
        cuts: Vec::new(),
        always_cut: false,
        compression: Compression::None,
        page_bytes: None,
        duplicates: Duplicates::Fail,
        bad_rows: BadRows::Fail,
        // The gathered amount is so small that each task sends many chunks.
        memory_bytes: 16 << 10,
        threads: 1,
        rate_bytes: None,
        version: None,
        limits: Vec::new(),
        force: true,
        swap: true,
        keep: 3,
    }
}

/// Rows with these ids; every tenth has no name.
fn birds(ids: impl IntoIterator<Item = i64>) -> RecordBatch {
    let ids: Vec<i64> = ids.into_iter().collect();
    let name = |(row, id): (usize, &i64)| (id % 10 != 0).then(|| format!("bird {id}, row {row}"));
    let names: StringArray = ids.iter().enumerate().map(name).collect();
    let seen: Int64Array = ids
        .iter()
        .map(|id| (id % 7 != 0).then_some(id % 900))
        .collect();
    let ids: ArrayRef = Arc::new(Int64Array::from(ids));
    let columns: [(&str, ArrayRef, bool); 3] = [
        ("id", ids, true),
        ("name", Arc::new(names), true),
        ("seen", Arc::new(seen), true),
    ];
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

/// A distributed push without an engine.
struct Cluster {
    dir: tempfile::TempDir,
    store: Store,
    push: DistributedPush,
}

impl Cluster {
    fn begin(request: PushRequest, rows: &RecordBatch) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = store(&dir.path().join("store"));
        Self::on(dir, store, request, rows)
    }

    fn on(dir: tempfile::TempDir, store: Store, request: PushRequest, rows: &RecordBatch) -> Self {
        let push = DistributedPush::begin(request, store.clone(), rows.schema(), "birds").unwrap();
        Self { dir, store, push }
    }

    fn recipe(&self) -> Recipe {
        let recipe = self.push.recipe("here").unwrap();
        Recipe::parse(&recipe.to_bytes().unwrap()).unwrap()
    }

    /// Returns the batches that the task of one part of the source sends.
    fn encode(&self, source: i64, rows: &RecordBatch) -> RecordBatch {
        encode(self.recipe(), source, rows)
    }

    /// Splits the rows into this many parts of the source.
    fn encode_all(&self, rows: &RecordBatch, parts: usize) -> RecordBatch {
        encode_all(&self.recipe(), rows, parts)
    }

    fn write(&self, records: &RecordBatch) -> Result<Vec<String>, DistributedError> {
        write(self.recipe(), &self.store, self.dir.path(), records)
    }

    fn write_all(&self, records: &RecordBatch) -> Vec<String> {
        let reports = (0..self.push.partitions().unwrap())
            .flat_map(|partition| self.write(&of_partition(records, partition)).unwrap());
        reports.collect()
    }

    fn runs(&self) -> usize {
        let runs = self.dir.path().join("store/tables/birds/runs");
        std::fs::read_dir(runs).map_or(0, Iterator::count)
    }

    /// Commits reports that must be refused; returns the error, and checks that nothing remains.
    fn refused(self, reports: &[String]) -> String {
        let Self { dir, store, push } = self;
        let error = push.commit(reports, &Silent).unwrap_err().to_string();
        assert!(store.tables().unwrap().is_empty(), "{error}");
        let runs = std::fs::read_dir(dir.path().join("store/tables/birds/runs")).unwrap();
        assert_eq!(runs.count(), 0, "{error}");
        error
    }
}

/// Returns the batches that the task of one part of the source sends.
fn encode(recipe: Recipe, source: i64, rows: &RecordBatch) -> RecordBatch {
    let slices = (0..rows.num_rows()).step_by(700);
    let batches = slices.map(|start| rows.slice(start, 700.min(rows.num_rows() - start)));
    sent(RowTask::new(recipe, source).unwrap(), batches).unwrap()
}

/// Returns the batches that a task sends for these batches.
fn sent(
    mut task: RowTask,
    batches: impl IntoIterator<Item = RecordBatch>,
) -> Result<RecordBatch, DistributedError> {
    let mut out = Vec::new();
    for batch in batches {
        out.extend(task.encode(&batch)?);
    }
    out.extend(task.finish()?);
    Ok(concat_batches(&record_schema(), &out).unwrap())
}

/// Returns the number of records in the chunks.
fn records_in(sent: &RecordBatch) -> usize {
    let arrived = Arrived::new(sent).unwrap();
    let rows = (0..arrived.len()).map(|index| arrived.get(index));
    let chunks = rows.filter(|row| row.sequence != CONTROL_SEQUENCE);
    chunks.map(|row| Unpacked::new(row.records).count()).sum()
}

/// Splits the rows into this many parts of the source.
fn encode_all(recipe: &Recipe, rows: &RecordBatch, parts: usize) -> RecordBatch {
    let each = rows.num_rows().div_ceil(parts).max(1);
    let part = |part: usize| {
        let start = (part * each).min(rows.num_rows());
        rows.slice(start, each.min(rows.num_rows() - start))
    };
    let sent: Vec<_> = (0..parts)
        .map(|at| encode(recipe.clone(), at as i64, &part(at)))
        .collect();
    concat_batches(&record_schema(), &sent).unwrap()
}

/// Returns the report of the task of these records.
fn write(
    recipe: Recipe,
    store: &Store,
    dir: &Path,
    records: &RecordBatch,
) -> Result<Vec<String>, DistributedError> {
    let scratch = dir.join("scratch");
    let mut task = PartTask::new(recipe, store.clone(), &scratch)?;
    for start in (0..records.num_rows()).step_by(999) {
        task.add(&records.slice(start, 999.min(records.num_rows() - start)))?;
    }
    let reports = task.finish();
    assert_eq!(std::fs::read_dir(&scratch).unwrap().count(), 0);
    reports
}

/// Shuffles: returns records of one partition, in the order of source and sequence.
fn of_partition(records: &RecordBatch, partition: usize) -> RecordBatch {
    of_partitions(records, partition..partition + 1)
}

fn of_partitions(records: &RecordBatch, partitions: std::ops::Range<usize>) -> RecordBatch {
    let arrived = Arrived::new(records).unwrap();
    let mut chosen: Vec<usize> = (0..arrived.len())
        .filter(|index| partitions.contains(&(arrived.get(*index).partition as usize)))
        .collect();
    chosen.sort_by_key(|index| (arrived.get(*index).source, arrived.get(*index).sequence));
    let chosen = arrow_array::UInt64Array::from_iter_values(chosen.iter().map(|at| *at as u64));
    take_record_batch(records, &chosen).unwrap()
}

/// Returns the version that a local push makes, in another store.
fn local(request: &PushRequest, dir: &Path, rows: &RecordBatch) -> (Store, PushReport) {
    let store = store(&dir.join("local"));
    let reader = arrow_array::RecordBatchIterator::new([Ok(rows.clone())], rows.schema());
    let request = PushRequest {
        sources: Input::Batches(Batches::new("birds", None, reader)),
        ..request.clone()
    };
    let report = push(&request, &store, &Silent).unwrap();
    (store, report)
}

type Files = Vec<(String, Option<Vec<u8>>, Option<Vec<u8>>)>;

/// Returns the bounds and the bytes of a version's files, and its counts of columns.
fn files(store: &Store, version: u64) -> (Files, String) {
    let table = store.table(&"birds".parse().unwrap()).unwrap();
    let manifest = table.manifest(version).unwrap();
    let read = |run: &RunRef, ending: &str| {
        let name = format!("tables/birds/runs/{}.{ending}", run.id);
        std::fs::read(store.root().join(name)).ok()
    };
    let parts = manifest.partitions.iter().map(|part| {
        let run = part.runs.first();
        (
            part.bounds.lower.to_string(),
            run.and_then(|run| read(run, "run")),
            run.and_then(|run| read(run, "ext")),
        )
    });
    let said = format!(
        "{:?} {:?} {:?} {} {:?} {:?} {}",
        manifest.totals,
        counted(manifest.stats),
        manifest.value,
        manifest.key,
        manifest.ttl,
        manifest.delta,
        manifest.source
    );
    (parts.collect(), said)
}

/// Pushes the rows both ways and compares the versions byte for byte.
fn same_both_ways(request: PushRequest, rows: &RecordBatch, parts: usize) -> PushReport {
    let cluster = Cluster::begin(request.clone(), rows);
    let records = cluster.encode_all(rows, parts);
    let reports = cluster.write_all(&records);
    let Cluster { dir, store, push } = cluster;
    let distributed = push.commit(&reports, &Silent).unwrap();
    let (other, report) = local(&request, dir.path(), rows);
    let (ours, wanted) = (files(&store, 1), files(&other, 1));
    assert_eq!(ours.1, wanted.1);
    assert_eq!(ours.0.len(), wanted.0.len());
    for (ours, wanted) in ours.0.iter().zip(&wanted.0) {
        assert!(ours == wanted, "{request:?}: partition at {}", wanted.0);
    }
    assert_eq!(distributed, alike(report, &distributed));
    distributed
}

fn boundaries(json: &str) -> Option<GivenBoundaries> {
    Some(GivenBoundaries::parse(json).unwrap())
}

#[test]
fn a_version_is_byte_for_byte_that_of_a_local_push() {
    let rows = birds((0..9000).map(|row| row * 7919 % 9000));
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
        let hashed = PushRequest {
            compression,
            ..request()
        };
        let report = same_both_ways(hashed, &rows, 3);
        assert_eq!((report.rows_between.1, report.swapped), (9000, true));
        let ordered = PushRequest {
            compression,
            order: Order::Ordered,
            partitions: None,
            boundaries: boundaries(r#"["bird/000500", "bird/004000", "bird/xx"]"#),
            ..request()
        };
        same_both_ways(ordered, &rows, 5);
    }
}

#[test]
fn ordered_partitions_are_split_by_samples() {
    let rows = birds(0..9000);
    let ordered = PushRequest {
        order: Order::Ordered,
        ..request()
    };
    let mut cluster = Cluster::begin(ordered, &rows);
    assert!(cluster.push.needs_samples());
    assert!(cluster.push.partitions().is_err());
    let mut task = RowTask::new(cluster.recipe(), 0).unwrap();
    assert!(matches!(
        task.encode(&rows),
        Err(DistributedError::NoBoundaries)
    ));
    let every = |step: i64| birds((0..9000).step_by(step as usize));
    let samples = task.sample(&every(9), &[9; 1000]).unwrap();
    assert_eq!(samples.num_rows(), 1000);
    assert_eq!(cluster.push.set_boundaries(&[samples], 9000).unwrap(), 4);
    let records = cluster.encode_all(&rows, 2);
    for partition in 0..4 {
        let count = records_in(&of_partition(&records, partition));
        assert!((2100..2400).contains(&count), "{partition}: {count}");
    }
    let reports = cluster.write_all(&records);
    let report = cluster.push.commit(&reports, &Silent).unwrap();
    assert_eq!(report.rows_between, (9000, 9000));

    // The size decides the number of partitions. Empty samples are not samples.
    let by_size = PushRequest {
        partitions: None,
        ..request()
    };
    let mut cluster = Cluster::begin(by_size, &rows);
    let error = cluster
        .push
        .set_boundaries(&[], 9000)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("9000 rows") && error.contains("--boundaries"),
        "{error}"
    );
    let mut task = RowTask::new(cluster.recipe(), 0).unwrap();
    let samples = task.sample(&every(9), &[9_000; 1000]).unwrap();
    assert_eq!(
        cluster.push.set_boundaries(&[samples], 9_000_000).unwrap(),
        8
    );
}

#[test]
fn retried_tasks_do_no_harm() {
    let rows = birds(0..5000);
    let cluster = Cluster::begin(request(), &rows);
    let records = cluster.encode_all(&rows, 3);
    let first = cluster.write_all(&records);
    let second = cluster.write_all(&records);
    assert_eq!(cluster.runs(), 8);
    // Some of the reports are of the first runs, some of the second.
    let reports: Vec<String> = (first.into_iter().zip(second).enumerate())
        .map(|(at, (first, second))| if at % 2 == 0 { first } else { second })
        .collect();
    let Cluster { dir, store, push } = cluster;
    push.commit(&reports, &Silent).unwrap();
    let runs = std::fs::read_dir(dir.path().join("store/tables/birds/runs")).unwrap();
    assert_eq!(runs.count(), 4);
    let table = store.table(&"birds".parse().unwrap()).unwrap();
    let verified = table.verify(1, &mut |_| ()).unwrap();
    assert!(verified.problems.is_empty());
}

#[test]
fn records_lost_or_doubled_by_the_shuffle_are_detected_on_arrival() {
    let rows = birds(0..3000);
    let cluster = Cluster::begin(request(), &rows);
    let records = cluster.encode_all(&rows, 3);
    let part = of_partition(&records, 2);
    let (count, row) = (part.num_rows(), |at: usize| part.slice(at, 1));
    let join = |parts: &[RecordBatch]| concat_batches(&record_schema(), parts).unwrap();
    let refused = |records: &RecordBatch| cluster.write(records).unwrap_err().to_string();
    // In this order the three control rows come first.
    let lost = refused(&part.slice(0, count - 1));
    let reported = |of: &RecordBatch| format!("{} records", records_in(of));
    assert!(count > 20, "there are many chunks");
    assert!(
        lost.contains("partition 2")
            && lost.contains(&reported(&part))
            && lost.contains(&reported(&part.slice(0, count - 1))),
        "{lost}"
    );
    let control_lost = refused(&part.slice(1, count - 1));
    assert!(control_lost.contains("partition 2"), "{control_lost}");
    let doubled = refused(&join(&[row(0), part.clone()]));
    assert!(doubled.contains("source 0 ended twice"), "{doubled}");
    // Counting does not reveal a record that was replaced by another one.
    let other = of_partition(&records, 1);
    let mut columns = other.slice(5, 1).columns().to_vec();
    columns[0] = row(5).column(0).clone();
    let stranger = RecordBatch::try_new(record_schema(), columns).unwrap();
    let swapped = refused(&join(&[part.slice(0, count - 1), stranger]));
    assert!(swapped.contains("partition 2"), "{swapped}");
    // Two partitions of one task; one of them lacks a source that had nothing else for it.
    let nothing = cluster.encode(9, &rows.slice(0, 0));
    let both = join(&[part.clone(), other, of_partition(&nothing, 1)]);
    let differ = refused(&both);
    assert!(
        differ.contains("partition 2")
            && differ.contains("partition 1")
            && differ.contains("3 sources"),
        "{differ}"
    );
    assert_eq!(cluster.runs(), 0);
    // The complete set of reports passes.
    assert_eq!(cluster.write(&part).unwrap().len(), 1);
    drop(cluster.push);
    assert!(cluster.store.tables().unwrap().is_empty());
    assert_eq!(
        std::fs::read_dir(cluster.dir.path().join("store/tables/birds/runs"))
            .unwrap()
            .count(),
        0
    );
}

#[test]
fn a_wrong_duplicate_of_records_is_a_duplicate_of_keys() {
    let rows = birds(0..3000);
    let cluster = Cluster::begin(request(), &rows);
    let part = of_partition(&cluster.encode_all(&rows, 1), 0);
    let count = part.num_rows();
    let doubled = concat_batches(&record_schema(), &[part.clone(), part.slice(count - 1, 1)]);
    let error = cluster.write(&doubled.unwrap()).unwrap_err().to_string();
    assert!(error.contains("partition 0"), "{error}");
}

#[test]
fn reports_that_are_lost_doubled_foreign_or_altered_are_refused() {
    let rows = birds(0..3000);
    let begin = || {
        let cluster = Cluster::begin(request(), &rows);
        let records = cluster.encode_all(&rows, 3);
        let reports = cluster.write_all(&records);
        (cluster, reports)
    };
    let (cluster, mut reports) = begin();
    reports.remove(2);
    let lost = cluster.refused(&reports);
    assert!(
        lost.contains("partition 2 has 0 reports instead of one, of 3 reports for 4 partitions"),
        "{lost}"
    );
    let (cluster, mut reports) = begin();
    reports.push(reports[1].clone());
    let doubled = cluster.refused(&reports);
    assert!(doubled.contains("partition 1 has 2 reports"), "{doubled}");
    let (cluster, mut reports) = begin();
    let (foreign_cluster, foreign) = begin();
    reports[3].clone_from(&foreign[3]);
    let foreign = cluster.refused(&reports);
    assert!(
        foreign.contains("report 4 of 4") && foreign.contains("version 1 of table birds"),
        "{foreign}"
    );
    drop(foreign_cluster);
    let (cluster, mut reports) = begin();
    reports[0] = reports[0].replacen("\"records\": 7", "\"records\": 8", 1);
    let altered = cluster.refused(&reports);
    assert!(
        altered.contains("report 1 of 4") && altered.contains("checksum"),
        "{altered}"
    );
    let (cluster, _) = begin();
    let none = cluster.refused(&[]);
    assert!(none.contains("partition 0 has 0 reports"), "{none}");
}

#[test]
fn reports_that_were_altered_and_sealed_again_contradict_each_other() {
    let rows = birds(0..3000);
    let alter = |change: &dyn Fn(&mut Report)| {
        let cluster = Cluster::begin(request(), &rows);
        let mut reports = cluster.write_all(&cluster.encode_all(&rows, 3));
        let mut report = Report::parse(&reports[1]).unwrap();
        change(&mut report);
        reports[1] = report.to_text().unwrap();
        cluster.refused(&reports)
    };
    let more = alter(&|report| report.came.records += 1);
    assert!(
        more.contains("partition 1") && more.contains("came"),
        "{more}"
    );
    let others = alter(&|report| report.sources.count += 1);
    assert!(
        others.contains("partition 1 was built from 4 sources"),
        "{others}"
    );
    let whole = alter(&|report| report.whole.rejected += 1);
    assert!(whole.contains("partition 1"), "{whole}");
    let partition = alter(&|report| report.partition = 7);
    assert!(
        partition.contains("partition 7, and there are 4"),
        "{partition}"
    );
    let moved = alter(&|report| report.partition = 2);
    assert!(moved.contains("was not written for it"), "{moved}");
    let dropped = alter(&|report| {
        report.dropped.records = 1;
        report.came.records += 1;
    });
    assert!(
        dropped.contains("were left out, and none may be"),
        "{dropped}"
    );
    let emptied = alter(&|report| {
        report.run = None;
        report.came = Sum::default();
    });
    assert!(emptied.contains("all partitions together got"), "{emptied}");
    let absent = alter(&|report| {
        let run = report.run.as_mut().unwrap();
        let other = format!(
            "{}0000000000000000",
            &run.id.as_str()[..run.id.as_str().len() - 16]
        );
        run.id = forebay_engine::RunId::new(&other).unwrap();
    });
    assert!(absent.contains("0000000000000000.run"), "{absent}");
}

#[test]
fn the_lock_is_held_and_files_of_a_dead_driver_are_removed() {
    let rows = birds(0..2000);
    let Cluster { dir, store, push } = Cluster::begin(request(), &rows);
    let second = DistributedPush::begin(request(), store.clone(), rows.schema(), "birds");
    let error = second.unwrap_err();
    assert!(
        matches!(
            error,
            DistributedError::Push(PushError::Engine(forebay_engine::PushError::Busy { .. }))
        ),
        "{error}"
    );
    drop(push);
    let cluster = Cluster::on(dir, store, request(), &rows);
    let records = cluster.encode_all(&rows, 2);
    let reports = cluster.write_all(&records);
    // A task that ends long after the push.
    let recipe = cluster.recipe();
    let Cluster { dir, store, push } = cluster;
    drop(push);
    let scratch = dir.path().join("scratch");
    let mut late = PartTask::new(recipe, store.clone(), &scratch).unwrap();
    late.add(&of_partition(&records, 0)).unwrap();
    assert_eq!(late.finish().unwrap().len(), 1);
    let cluster = Cluster::on(dir, store, request(), &rows);
    assert_eq!(cluster.runs(), 0);
    let error = cluster.refused(&reports);
    assert!(error.contains("report 1 of 4"), "{error}");
}

#[test]
fn partitions_from_different_runs_of_a_source_are_not_mixed() {
    let rows = birds(0..3000);
    let cluster = Cluster::begin(request(), &rows);
    let (first, rest) = (birds(0..1000), cluster.encode(0, &rows.slice(1000, 2000)));
    // The second time the source gives other content with as many rows.
    let again = birds((0..1000).map(|id| if id == 3 { 9003 } else { id }));
    let records = |source: &RecordBatch| {
        let sent = [cluster.encode(1, source), rest.clone()];
        concat_batches(&record_schema(), &sent).unwrap()
    };
    let (once, twice) = (records(&first), records(&again));
    let parts = [&once, &once, &twice, &twice];
    let reports: Vec<String> = (parts.into_iter().enumerate())
        .flat_map(|(at, records)| cluster.write(&of_partition(records, at)).unwrap())
        .collect();
    let refused = cluster.refused(&reports);
    assert!(
        refused.contains("partition 2 was built from 2 sources")
            && refused.contains("and partition 0"),
        "{refused}"
    );
}
