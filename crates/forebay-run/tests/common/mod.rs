//! Records, runs and their plain model, shared by the tests of the format.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use forebay_io::Disk;
use forebay_io::sim::Rng;
use forebay_run::hash::KeyHasher;
use forebay_run::operation::Operation;
use forebay_run::{Compression, Order, Run, RunOptions, RunSummary, RunWriter};
use xxhash_rust::xxh3::xxh3_64;

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
pub fn records(rng: &mut Rng, count: usize, value_bytes: u64) -> Vec<(Vec<u8>, Vec<u8>)> {
    (0..count)
        .map(|i| {
            let mut key = format!("key/{:03}/{i}", rng.below(7)).into_bytes();
            if rng.below(50) == 0 {
                key.resize(200 + rng.below(800) as usize, b'k');
                key.extend_from_slice(format!("{i}").as_bytes());
            }
            let bytes = match rng.below(100) {
                0 => 5000 + rng.below(20_000),
                1..5 => 0,
                _ => rng.below(2 * value_bytes + 1),
            };
            let mut filler = Rng(rng.next_u64());
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
        filter_records: Some(500),
        ..RunOptions::new(order, compression, PREFIX)
    }
}

/// Writes the model as a run and opens it.
pub fn build(disk: &Arc<dyn Disk>, path: &Path, options: RunOptions, model: &Model) -> Arc<Run> {
    write(disk, path, options, model);
    Arc::new(Run::open(&**disk, path).unwrap())
}

pub fn sim_disk() -> (forebay_io::sim::SimDisk, Arc<dyn Disk>) {
    let sim = forebay_io::sim::SimDisk::new();
    sim.create_dir_all(Path::new("/d")).unwrap();
    (sim.clone(), Arc::new(sim))
}

/// Replaces a run's filter by zeros and corrects all checksums.
pub fn empty_the_filter(run: &mut [u8]) {
    let word = |run: &[u8], at: usize| u64::from_le_bytes(*run[at..].first_chunk().unwrap());
    let footer = run.len() - 128;
    let table = word(run, footer + 88) as usize;
    for entry in (table..footer).step_by(32) {
        if run[entry] == 6 {
            let (offset, len) = (
                word(run, entry + 8) as usize,
                word(run, entry + 16) as usize,
            );
            run[offset..offset + len].fill(0);
            let checksum = xxh3_64(&run[offset..offset + len]);
            run[entry + 24..entry + 32].copy_from_slice(&checksum.to_le_bytes());
        }
    }
    let checksum = xxh3_64(&run[table..footer]);
    run[footer + 96..footer + 104].copy_from_slice(&checksum.to_le_bytes());
    let checksum = xxh3_64(&run[footer..footer + 112]);
    run[footer + 112..footer + 120].copy_from_slice(&checksum.to_le_bytes());
}
