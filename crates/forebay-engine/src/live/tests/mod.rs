//! The engine as its users see it, on disks in memory.

mod basic;
mod by_hand;
mod copies;
mod damage;
mod divided;
mod entry_load;
mod expiry;
mod files;
mod holding;
mod ingest;
mod memory;
mod pause;
mod rate;
mod removal;
mod replicas;
mod split;
mod together;
mod traffic;
mod unwaiting;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use forebay_io::sim::{Rng, SeededRandom, SimDisk};
use forebay_io::{Disk, SystemClock};
use forebay_run::scan::Direction;

use crate::live::{Budget, LiveDraft, LiveError, LiveScan, LiveTable};
use crate::name::TableName;
use crate::tables::store::Store;

/// The expected content of a table.
type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn store_on(disk: Arc<dyn Disk>, seed: u64) -> Store {
    let random = Arc::new(SeededRandom::new(seed));
    Store::open_or_create(disk, Arc::new(SystemClock), random, Path::new("/s")).unwrap()
}

fn name() -> TableName {
    TableName::new("t").unwrap()
}

/// A store in memory with a fresh live table in it.
fn create(options: LiveDraft) -> (SimDisk, LiveTable) {
    let disk = SimDisk::new();
    let table = create_on(&disk, options, &Budget::new(64 << 20));
    (disk, table)
}

fn create_on(disk: &SimDisk, options: LiveDraft, budget: &Arc<Budget>) -> LiveTable {
    store_on(Arc::new(disk.clone()), 1)
        .create_live(&name(), options, budget)
        .unwrap()
}

fn open(disk: &SimDisk) -> Result<LiveTable, LiveError> {
    // Another seed each time, so that no id of a run comes twice.
    store_on(Arc::new(disk.clone()), disk.calls()).live_table(&name(), &Budget::new(64 << 20))
}

fn both_orders() -> [LiveDraft; 2] {
    [
        LiveDraft::hashed(),
        LiveDraft::ordered(vec![b"key-3".to_vec(), b"key-6".to_vec()]),
    ]
}

fn key(number: u64) -> Vec<u8> {
    format!("key-{}", number % 1000 * 7919 % 1000).into_bytes()
}

fn collect(mut scan: LiveScan) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut records = Vec::new();
    while scan.advance().unwrap() {
        records.push((scan.key().to_vec(), scan.value().to_vec()));
    }
    records
}

/// Compares every way of reading with the model.
fn check(table: &LiveTable, model: &Model) {
    for number in 0..1000 {
        let key = key(number);
        assert_eq!(
            table.get(&key).unwrap().as_ref(),
            model.get(&key),
            "{key:?}"
        );
    }
    let keys: Vec<Vec<u8>> = (0..1000).map(key).collect();
    let values = table.get_many(&keys).unwrap();
    let wanted: Vec<_> = keys.iter().map(|key| model.get(key).cloned()).collect();
    assert_eq!(values, wanted);
    let snapshot = table.snapshot();
    let forward = collect(snapshot.scan(Direction::Forward));
    let mut backward = collect(snapshot.scan(Direction::Backward));
    backward.reverse();
    assert_eq!(forward, backward);
    let found: Model = forward.iter().cloned().collect();
    assert_eq!(found.len(), forward.len());
    assert_eq!(&found, model);
    for (key, value) in model {
        assert_eq!(snapshot.get(key).unwrap().as_ref(), Some(value));
    }
}

/// Does some random writes to both.
fn write_some(table: &LiveTable, model: &mut Model, rng: &mut Rng, writes: u64) {
    for _ in 0..writes {
        let key = key(rng.next_u64());
        let value = rng.next_u64().to_string().into_bytes();
        match rng.below(4) {
            0 => {
                table.insert(&key, &value).unwrap().wait().unwrap();
                model.entry(key).or_insert(value);
            }
            1 => {
                table.delete(&key).unwrap().wait().unwrap();
                model.remove(&key);
            }
            2 if table.options().delta.is_some() => {
                table.delta(&key, &value).unwrap().wait().unwrap();
                model.entry(key).or_default().extend_from_slice(&value);
            }
            _ => {
                table.update(&key, &value).unwrap().wait().unwrap();
                model.insert(key, value);
            }
        }
    }
}
