//! Helpers of the engine's tests: a repeatable clock and random generator, and small tables.
#![allow(clippy::unwrap_used)]

pub mod partial;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use forebay_engine::{
    Bound, Counting, Manifest, ManifestDraft, NewRun, Partition, Push, PushError, PushOptions,
    RunRef, Store, Table, TableName, ValueKind, Version,
};
use forebay_io::Disk;
use forebay_io::sim::{HandClock, SeededRandom, SimDisk};
use forebay_run::content::ContentSum;
use forebay_run::hash::{KeyHasher, SLOTS};
use forebay_run::operation::Operation;
use forebay_run::row::{Column, Kind, Schema};
use forebay_run::scan::Direction;
use forebay_run::{Compression, Order, RunOptions, RunWriter};

pub type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

pub fn random(seed: u64) -> Arc<SeededRandom> {
    Arc::new(SeededRandom::new(seed))
}

/// The time at which tests begin.
pub fn clock() -> Arc<HandClock> {
    Arc::new(HandClock::at(1_795_299_300_000))
}

pub fn root() -> &'static Path {
    Path::new("/store")
}

/// Opens or makes the store of a simulated disk.
pub fn store_on(disk: &SimDisk, seed: u64) -> Store {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    Store::open_or_create(disk, clock(), random(seed), root()).unwrap()
}

pub fn name(table: &str) -> TableName {
    TableName::new(table).unwrap()
}

/// Returns `count` rows whose values contain their version.
pub fn rows(version: u64, count: usize) -> Rows {
    let row = |i: usize| {
        let value = format!("{version}:{i}:{}", "x".repeat(i % 50));
        (format!("key-{i:05}").into_bytes(), value.into_bytes())
    };
    (0..count).map(row).collect()
}

/// Returns the bounds that divide a table into partitions.
pub fn bounds(order: Order, rows: &Rows, partitions: usize) -> Vec<Bound> {
    let keys: Vec<&Vec<u8>> = rows.keys().collect();
    let mut bounds: Vec<Bound> = (0..partitions)
        .map(|at| match order {
            Order::Hashed => Bound::Slot((at * SLOTS as usize / partitions) as u16),
            Order::Ordered if at == 0 => Bound::Key(Vec::new()),
            Order::Ordered => Bound::Key(keys[at * keys.len() / partitions].clone()),
        })
        .collect();
    bounds.dedup();
    bounds
}

/// Writes one run of operations, in the right order.
pub fn write_run(
    push: &Push,
    partition: usize,
    order: Order,
    operations: &[(&[u8], Operation<'_>)],
) -> Result<RunRef, PushError> {
    write_run_at(push, push.new_run(partition), order, operations)
}

/// Writes one run of operations, at its path.
pub fn write_run_at(
    push: &Push,
    run: NewRun,
    order: Order,
    operations: &[(&[u8], Operation<'_>)],
) -> Result<RunRef, PushError> {
    let prefix = push.table().name().wire_prefix();
    let hasher = KeyHasher::new(&prefix);
    let hash = |key: &[u8]| {
        if order == Order::Hashed {
            hasher.hash64(key)
        } else {
            0
        }
    };
    let mut sorted: Vec<_> = operations
        .iter()
        .map(|(key, op)| (hash(key), *key, *op))
        .collect();
    sorted.sort_by_key(|(hash, key, _)| (*hash, *key));
    let failed = |source| {
        let table = push.table().name().clone();
        PushError::Read(forebay_engine::ReadError::Run {
            table,
            version: push.version(),
            source,
        })
    };
    let options = RunOptions {
        filter_records: Some(operations.len() as u64),
        ..RunOptions::new(order, Compression::None, &prefix)
    };
    let disk = push.table().store().disk();
    let mut writer = RunWriter::create(disk, &run.path, options).map_err(failed)?;
    let mut counting = Counting::default();
    for (hash, key, op) in sorted {
        counting.add(op);
        writer.push(hash, key, op).map_err(failed)?;
    }
    Ok(RunRef {
        id: run.id,
        summary: writer.finish().map_err(failed)?,
        operations: counting.finish(),
    })
}

/// Writes the runs of a push and makes its manifest.
pub fn fill(push: &Push, order: Order, rows: &Rows, parts: usize) -> Result<Manifest, PushError> {
    fill_at(push, order, rows, parts, &|partition| {
        push.new_run(partition)
    })
}

/// Does [`fill`] with runs at other paths.
pub fn fill_at(
    push: &Push,
    order: Order,
    rows: &Rows,
    parts: usize,
    new_run: &dyn Fn(usize) -> NewRun,
) -> Result<Manifest, PushError> {
    let bounds = bounds(order, rows, parts);
    let hasher = KeyHasher::new(&push.table().name().wire_prefix());
    let place = |key: &[u8]| {
        let at = match order {
            Order::Hashed => Bound::Slot(hasher.slot(key)),
            Order::Ordered => Bound::Key(key.to_vec()),
        };
        bounds.iter().rposition(|bound| *bound <= at).unwrap()
    };
    let mut partitions = Vec::new();
    for (index, lower) in bounds.iter().enumerate() {
        let inside: Vec<(&[u8], Operation<'_>)> = rows
            .iter()
            .filter(|(key, _)| place(key) == index)
            .map(|(key, value)| (&key[..], Operation::Update(value)))
            .collect();
        let run = match inside.is_empty() {
            true => None,
            false => Some(write_run_at(push, new_run(index), order, &inside)?),
        };
        partitions.push((lower.clone(), run.into_iter().collect()));
    }
    push.manifest(draft(order, Partition::side_by_side(partitions)))
}

/// A draft of a table of plain bytes.
pub fn draft(order: Order, partitions: Vec<Partition>) -> ManifestDraft {
    ManifestDraft {
        order,
        value: ValueKind::Bytes {
            column: "v".to_owned(),
        },
        schema: Schema::new(vec![Column::new("v", Kind::Binary, false)]),
        key: "{k}".to_owned(),
        delta: None,
        ttl: None,
        onto: None,
        partitions,
        stats: Vec::new(),
        source: "a test".to_owned(),
    }
}

/// Pushes a version without swapping to it.
pub fn push(
    store: &Store,
    table: &str,
    order: Order,
    rows: &Rows,
    parts: usize,
) -> Result<u64, PushError> {
    let push = store.begin_push(&name(table), PushOptions::default())?;
    let manifest = fill(&push, order, rows, parts)?;
    push.commit(manifest)
}

/// Returns all rows of a version.
pub fn read_all(version: &Arc<Version>) -> Rows {
    let mut scan = version.scan(Direction::Forward);
    let mut rows = Rows::new();
    while scan.advance().unwrap() {
        rows.insert(scan.key().to_vec(), scan.value().to_vec());
    }
    rows
}

/// A table as readers see it: its versions, and the serving one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// The number of rows of each, and their sum.
    pub versions: BTreeMap<u64, (usize, ContentSum)>,
    pub serving: Option<u64>,
    pub before: Option<u64>,
}

/// Reads the whole of a table; every version must be sound. `None`: there is no such table.
pub fn view(store: &Store, table: &str) -> Option<View> {
    if !store.tables().unwrap().contains(&name(table)) {
        assert!(store.table(&name(table)).is_err());
        return None;
    }
    let table = store.table(&name(table)).unwrap();
    let pointer = table.pointer().unwrap();
    let versions = table.version_numbers().unwrap();
    let versions = versions
        .into_iter()
        .map(|version| (version, sound(&table, version)));
    Some(View {
        versions: versions.collect(),
        serving: pointer.serving,
        before: pointer.before(),
    })
}

fn sound(table: &Table, version: u64) -> (usize, ContentSum) {
    let report = table.verify(version, &mut |_| {}).unwrap();
    assert!(
        report.problems.is_empty(),
        "version {version}: {:?}",
        report.problems
    );
    let version = table.open_version(version).unwrap();
    let (least, most) = version.manifest().rows_between();
    assert!((least..=most).contains(&report.totals.rows));
    let rows = read_all(&version);
    let sum = rows
        .iter()
        .map(|(key, value)| ContentSum::of(key, value))
        .sum();
    assert_eq!(sum, report.totals.content);
    (rows.len(), sum)
}
