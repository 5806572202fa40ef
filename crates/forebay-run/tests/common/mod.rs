//! Records, runs and their plain model, shared by the tests of the format.
#![allow(dead_code)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_run::hash::KeyHasher;
use forebay_run::io::Disk;
use forebay_run::io::sim::Dice;
use forebay_run::operation::Operation;
use forebay_run::{Compression, Order, Run, RunOptions, RunSummary, RunWriter};

pub const PREFIX: &[u8] = b"table:";
pub const ORDERS: [Order; 2] = [Order::Hashed, Order::Ordered];
pub const COMPRESSIONS: [Compression; 3] = [Compression::None, Compression::Lz4, Compression::Zstd];

/// (hash or 0, key) to value.
pub type Model = BTreeMap<(u64, Vec<u8>), Vec<u8>>;

pub fn sort_hash(order: Order, key: &[u8]) -> u64 {
    match order {
        Order::Hashed => KeyHasher::new(PREFIX).hash64(key),
        Order::Ordered => 0,
    }
}

pub fn model(order: Order, records: &[(Vec<u8>, Vec<u8>)]) -> Model {
    let entry =
        |(key, value): &(Vec<u8>, Vec<u8>)| ((sort_hash(order, key), key.clone()), value.clone());
    records.iter().map(entry).collect()
}

/// Distinct keys of several shapes, values of `value_bytes` on average, now and then a large one.
pub fn records(dice: &mut Dice, count: usize, value_bytes: u64) -> Vec<(Vec<u8>, Vec<u8>)> {
    (0..count)
        .map(|i| {
            let mut key = format!("key/{:03}/{i}", dice.below(7)).into_bytes();
            if dice.below(50) == 0 {
                key.resize(200 + dice.below(800) as usize, b'k');
                key.extend_from_slice(format!("{i}").as_bytes());
            }
            let bytes = match dice.below(100) {
                0 => 5000 + dice.below(20_000),
                1..5 => 0,
                _ => dice.below(2 * value_bytes + 1),
            };
            let mut filler = Dice(dice.next_u64());
            let text = (0..bytes).map(|_| b'a' + (filler.below(9) as u8)).collect();
            (key, text)
        })
        .collect()
}

pub fn write(disk: &Arc<dyn Disk>, path: &Path, options: RunOptions, model: &Model) -> RunSummary {
    let mut writer = RunWriter::create(disk, path, options).unwrap();
    for ((hash, key), value) in model {
        writer.push(*hash, key, Operation::Update(value)).unwrap();
    }
    writer.finish().unwrap()
}

pub fn options(order: Order, compression: Compression) -> RunOptions {
    RunOptions {
        meta: b"kept as it is".to_vec(),
        ..RunOptions::new(order, compression, PREFIX)
    }
}

/// Writes the model as a run and opens it.
pub fn build(disk: &Arc<dyn Disk>, path: &Path, options: RunOptions, model: &Model) -> Arc<Run> {
    write(disk, path, options, model);
    Arc::new(Run::open(&**disk, path).unwrap())
}

pub fn sim_disk() -> (forebay_run::io::sim::SimDisk, Arc<dyn Disk>) {
    let sim = forebay_run::io::sim::SimDisk::new();
    sim.create_dir_all(Path::new("/d")).unwrap();
    (sim.clone(), Arc::new(sim))
}

pub fn in_dir(dir: &Path, name: &str) -> PathBuf {
    dir.join(name)
}
