//! Tests of loads: the results of tasks against those of one machine, and refused loads.

use forebay_engine::PartitionRange;
use forebay_engine::live::{Expiry, LiveDraft};
use forebay_engine::{Ttl, ValueKind};
use forebay_run::operation::DeltaKind;

use super::*;
use crate::encode::Verb;
use crate::load::{BuiltLoad, LoadError, LoadRequest, build_load};

const KEYS: i64 = 3000;

/// Rows whose keys occur several times, with the operation of each.
fn changes(rows: i64) -> RecordBatch {
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(
        (0..rows).map(|row| row * 7919 % KEYS),
    ));
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values((0..rows).map(|row| row % 97)));
    let verbs = ["update", "insert", "delete", "delta"];
    let ops = (0..rows).map(|row| verbs[(row * row % 101 % 4) as usize]);
    let ops: ArrayRef = Arc::new(StringArray::from_iter_values(ops));
    let lives: ArrayRef = Arc::new(Int64Array::from_iter_values(
        (0..rows).map(|row| 60 + row % 1000),
    ));
    let columns = [("id", ids), ("n", numbers), ("op", ops), ("lives", lives)];
    RecordBatch::try_from_iter(columns).unwrap()
}

fn request() -> LoadRequest {
    LoadRequest {
        table: "birds".parse().unwrap(),
        sources: Input::Files(Vec::new()),
        source_options: SourceOptions::default(),
        key: "{id:06}".parse().unwrap(),
        value_column: Some("n".to_owned()),
        leaves_out: false,
        verb: Verb::Update,
        operation_column: None,
        ttl: None,
        duplicates: Duplicates::Last,
        bad_rows: BadRows::Fail,
        memory_bytes: 16 << 10,
        threads: 1,
        rate_bytes: None,
    }
}

fn ordered() -> LiveDraft {
    LiveDraft::ordered(vec![b"000700".to_vec(), b"002".to_vec()])
}

/// Runs tasks without an engine.
struct Tasks {
    dir: tempfile::TempDir,
    store: Store,
    load: DistributedLoad,
}

impl Tasks {
    fn begin(request: LoadRequest, draft: &LiveDraft, rows: &RecordBatch) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = store(&dir.path().join("store"));
        let load = stage(&store, &request, draft);
        let load = DistributedLoad::begin(request, load, &store, rows.schema(), "birds");
        let load = load.unwrap();
        Self { dir, store, load }
    }

    fn recipe(&self) -> Recipe {
        let recipe = self.load.recipe("here").unwrap();
        Recipe::parse(&recipe.to_bytes().unwrap()).unwrap()
    }

    fn write_all(&self, records: &RecordBatch) -> Vec<String> {
        let one = |partition| {
            let of_one = of_partition(records, partition);
            write(self.recipe(), &self.store, self.dir.path(), &of_one).unwrap()
        };
        (0..self.load.partitions()).flat_map(one).collect()
    }

    fn staged(&self) -> usize {
        std::fs::read_dir(self.dir.path().join("store/tables/birds/runs"))
            .unwrap()
            .filter(|entry| {
                let name = entry.as_ref().unwrap().file_name();
                name.to_string_lossy().starts_with("load-")
            })
            .count()
    }

    /// Builds reports that must be refused; returns the error, and checks that nothing remains.
    fn refused(self, reports: &[String]) -> String {
        let runs = self.dir.path().join("store/tables/birds/runs");
        let error = self.load.build(reports).unwrap_err().to_string();
        assert_eq!(std::fs::read_dir(runs).unwrap().count(), 0, "{error}");
        error
    }
}

fn stage(store: &Store, request: &LoadRequest, draft: &LiveDraft) -> forebay_engine::live::Load {
    let (options, partitions) = (&draft.options, draft.partitions.clone());
    let turn = store.take_load_turn(&request.table).unwrap();
    store.stage_load(turn, options, partitions).unwrap()
}

/// Returns the bytes of each partition's run.
fn bytes_of(store: &Store, built: &BuiltLoad) -> Vec<(u32, Vec<u8>)> {
    let read = |(partition, run): &(forebay_engine::PartitionId, RunRef)| {
        let name = format!("tables/birds/runs/load-{}.run", run.id);
        (partition.0, std::fs::read(store.root().join(name)).unwrap())
    };
    built.runs.iter().map(read).collect()
}

/// Builds the load both ways, and compares the runs byte for byte.
fn same_both_ways(request: LoadRequest, draft: &LiveDraft, rows: &RecordBatch) -> BuiltLoad {
    let tasks = Tasks::begin(request.clone(), draft, rows);
    let records = encode_all(&tasks.recipe(), rows, 3);
    let reports = tasks.write_all(&records);
    let Tasks { dir, store, load } = tasks;
    let built = load.build(&reports).unwrap();
    let local = super::store(&dir.path().join("local"));
    let reader = arrow_array::RecordBatchIterator::new([Ok(rows.clone())], rows.schema());
    let local_request = LoadRequest {
        sources: Input::Batches(Batches::new("birds", None, reader)),
        ..request.clone()
    };
    let load = stage(&local, &request, draft);
    let none = |_| Ok::<Option<Vec<PartitionRange>>, LoadError>(None);
    let wanted = build_load(&local_request, &local, load, &Silent, none).unwrap();
    assert_eq!(built.report, wanted.report);
    let (ours, theirs) = (bytes_of(&store, &built), bytes_of(&local, &wanted));
    assert!(ours == theirs, "{request:?}");
    built
}

#[test]
fn runs_are_byte_for_byte_those_of_a_load_on_one_machine() {
    let rows = changes(9000);
    for draft in [ordered(), LiveDraft::hashed().partitions(5)] {
        let built = same_both_ways(request(), &draft, &rows);
        assert_eq!(built.report.rows, KEYS as u64);
        assert_eq!(built.report.duplicates, 6000);
        assert_eq!(built.runs.len(), draft.partitions.len());
        let first = LoadRequest {
            duplicates: Duplicates::First,
            ..request()
        };
        same_both_ways(first, &draft, &rows);
    }
}

#[test]
fn operations_of_a_key_are_composed_in_the_order_of_the_sources() {
    let rows = changes(9000);
    let by_column = LoadRequest {
        operation_column: Some("op".to_owned()),
        ..request()
    };
    for kind in [DeltaKind::AddI64, DeltaKind::Append] {
        let draft = ordered().delta(kind);
        let built = same_both_ways(by_column.clone(), &draft, &rows);
        let applied = built.report.applied;
        assert!(
            applied.deletes > 100 && applied.updates > 100,
            "{applied:?}"
        );
    }
    for verb in [Verb::Insert, Verb::Delta] {
        let all = LoadRequest { verb, ..request() };
        let tasks = Tasks::begin(all.clone(), &ordered().delta(DeltaKind::AddI64), &rows);
        assert_eq!(tasks.load.is_by_age(), verb == Verb::Insert);
        same_both_ways(all, &ordered().delta(DeltaKind::AddI64), &rows);
    }
}

#[test]
fn rows_expire_by_the_table_or_a_column() {
    let rows = changes(4000);
    let draft = ordered().expiry(Expiry::AfterMs(60_000));
    same_both_ways(request(), &draft, &rows);
    let by_column = LoadRequest {
        ttl: Some(Ttl::Column("lives".to_owned())),
        ..request()
    };
    same_both_ways(by_column, &draft, &rows);
}

#[test]
fn whole_rows_are_stored_without_the_columns_beside() {
    let rows = birds((0..5000).map(|row| row * 7919 % 5000));
    let mut draft = ordered();
    draft.options.value = ValueKind::Row;
    let columns = crate::types::row_schema(&rows.schema()).unwrap();
    draft.options.schema = columns;
    let whole = LoadRequest {
        value_column: None,
        leaves_out: false,
        // Filters have other sizes if one side spills: a spill covers all partitions.
        memory_bytes: 1 << 20,
        ..request()
    };
    let built = same_both_ways(whole.clone(), &draft, &rows);
    assert_eq!(built.report.rows, 5000);
    // A column that is not part of the rows is reported before anything runs.
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path());
    let load = stage(&store, &whole, &draft);
    let error = DistributedLoad::begin(whole, load, &store, changes(1).schema(), "birds");
    let error = error.unwrap_err().to_string();
    assert!(error.contains("table birds"), "{error}");
}

#[test]
fn retried_tasks_do_no_harm_and_all_files_are_removed_with_the_load() {
    let rows = changes(5000);
    let tasks = Tasks::begin(request(), &ordered(), &rows);
    let records = encode_all(&tasks.recipe(), &rows, 3);
    let first = tasks.write_all(&records);
    let second = tasks.write_all(&records);
    assert_eq!(tasks.staged(), 6);
    let reports = [first[0].clone(), second[1].clone(), first[2].clone()];
    let Tasks { dir, store, load } = tasks;
    let built = load.build(&reports).unwrap();
    assert_eq!(bytes_of(&store, &built).len(), 3);
    built.load.stage(&built.runs).unwrap();
    drop(built);
    let runs = std::fs::read_dir(dir.path().join("store/tables/birds/runs")).unwrap();
    assert_eq!(runs.count(), 0);
}

#[test]
fn reports_that_are_lost_or_of_another_load_are_refused() {
    let rows = changes(3000);
    let begin = || {
        let tasks = Tasks::begin(request(), &ordered(), &rows);
        let records = encode_all(&tasks.recipe(), &rows, 2);
        let reports = tasks.write_all(&records);
        (tasks, reports)
    };
    let (tasks, reports) = begin();
    let lost = tasks.refused(&reports[1..]);
    assert!(lost.contains("partition 0 has 0 reports"), "{lost}");
    let ((_other, others), (tasks, mut reports)) = (begin(), begin());
    reports[1].clone_from(&others[1]);
    let foreign = tasks.refused(&reports);
    assert!(foreign.contains("it is one of load"), "{foreign}");
    let (tasks, reports) = begin();
    let records = encode_all(&tasks.recipe(), &changes(2999), 2);
    let mut mixed = tasks.write_all(&records);
    mixed[0].clone_from(&reports[0]);
    let mixed = tasks.refused(&mixed);
    assert!(
        mixed.contains("rows that are the same each time"),
        "{mixed}"
    );
}

#[test]
fn lost_records_and_operations_that_differ_are_found_where_they_arrive() {
    let rows = changes(3000);
    let by_column = LoadRequest {
        operation_column: Some("op".to_owned()),
        ..request()
    };
    let tasks = Tasks::begin(by_column, &ordered().delta(DeltaKind::AddI64), &rows);
    let part = of_partition(&encode_all(&tasks.recipe(), &rows, 1), 1);
    let count = part.num_rows();
    let refused = |records: &RecordBatch| {
        let error = write(tasks.recipe(), &tasks.store, tasks.dir.path(), records);
        error.unwrap_err().to_string()
    };
    let lost = refused(&part.slice(0, count - 1));
    assert!(lost.contains("partition 1"), "{lost}");
    let backwards = concat_batches(
        &record_schema(),
        &[part.slice(0, 1), part.slice(2, 1), part.slice(1, 1)],
    );
    let backwards = refused(&backwards.unwrap());
    assert!(backwards.contains("follows chunk"), "{backwards}");
    assert_eq!(tasks.staged(), 0);
}

#[test]
fn bad_rows_end_the_task_or_are_counted() {
    let ids: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None, Some(3)]));
    let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
    let rows = RecordBatch::try_from_iter([("id", ids), ("n", numbers)]).unwrap();
    let tasks = Tasks::begin(request(), &ordered(), &rows);
    let mut task = RowTask::new(tasks.recipe(), 0).unwrap();
    let error = task.encode(&rows).unwrap_err().to_string();
    assert!(error.contains("id") && error.contains("null"), "{error}");
    let skip = LoadRequest {
        bad_rows: BadRows::Skip,
        ..request()
    };
    let built = same_both_ways(skip, &ordered(), &rows);
    assert_eq!((built.report.rows, built.report.rejected), (2, 1));
}

#[test]
fn a_table_whose_partitions_are_not_all_known_is_refused() {
    let mut draft = ordered();
    draft.partitions.remove(1);
    let rows = changes(10);
    let tasks = Tasks::begin(request(), &draft, &rows);
    let error = tasks.load.recipe("here").unwrap_err().to_string();
    assert!(error.contains("no partition of table birds"), "{error}");
}
