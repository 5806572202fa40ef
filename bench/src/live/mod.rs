//! Stores that take writes: `bench live` is the HugeDB paper's experiment (random upserts, a scan,
//! gets), `bench delta` counts under keys of which some are frequent. One contender a process, as
//! everywhere.

mod delta;
mod fjall_store;
mod forebay;
mod insert;
mod lmdb;
mod monitor;
mod redb_store;
mod rocks;
mod sort;
mod workload;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use forebay_engine::live::Durability;
use serde_json::Value;

/// What a contender is told.
#[derive(Debug, Clone)]
pub struct Task {
    pub store: PathBuf,
    /// Upserts, or increments.
    pub records: u64,
    /// Writing stops here, and the rest is measured with what is there; settling, scans and gets
    /// have parts of this.
    pub cap: Duration,
}

impl Task {
    /// How long background work may go on after the last write.
    fn settling(&self) -> Duration {
        self.cap / 3
    }

    /// How long a scan may take.
    fn scanning(&self) -> Duration {
        self.cap / 6
    }

    /// How long a million gets may.
    fn getting(&self) -> Duration {
        self.cap / 12
    }
}

/// A store of u64 keys and u64 values, opened anew.
pub trait Engine {
    /// Upserts. May gather some before it writes them in one batch.
    fn put(&mut self, key: u64, value: u64) -> Result<()>;

    /// Adds one to the value of `key`, or sets it to one.
    fn increment(&mut self, key: u64) -> Result<()>;

    /// Returns when all that was written lies in the store's own files, not in memory or a log
    /// alone.
    fn flush(&mut self) -> Result<()>;

    /// Whether background work (flushes, merges) is still going on.
    fn is_busy(&self) -> bool {
        false
    }

    /// Brings the store into its best form for reading.
    fn optimize(&mut self) -> Result<()> {
        Ok(())
    }

    /// Hands over all records in the order of their keys, while the answer is `true`.
    fn scan(&mut self, visit: &mut dyn FnMut(u64, u64) -> bool) -> Result<()>;

    fn get(&mut self, key: u64) -> Result<Option<u64>>;
}

/// Records of a batch, for contenders that write batches.
const BATCH_RECORDS: usize = 1000;
/// Writes of a transaction, for those that have transactions.
const TRANSACTION_RECORDS: usize = 20_000;

/// The writes of the next transaction.
#[derive(Debug, Default)]
struct Gathered {
    puts: Vec<(u64, u64)>,
    increments: Vec<u64>,
}

impl Gathered {
    /// In the order of their keys, as B-trees like it best; of one key in the order of writing.
    fn sort(&mut self) {
        self.puts.sort_by_key(|put| put.0);
        self.increments.sort_unstable();
    }

    /// `true`: enough for a transaction.
    fn put(&mut self, key: u64, value: u64) -> bool {
        self.puts.push((key, value));
        self.puts.len() == TRANSACTION_RECORDS
    }

    fn increment(&mut self, key: u64) -> bool {
        self.increments.push(key);
        self.increments.len() == TRANSACTION_RECORDS
    }

    fn clear(&mut self) {
        self.puts.clear();
        self.increments.clear();
    }
}

/// A number of eight bytes, as contenders store values.
fn number(bytes: &[u8]) -> Result<u64> {
    let bytes = bytes
        .try_into()
        .context("a field that is not 8 bytes long")?;
    Ok(u64::from_le_bytes(bytes))
}

/// The contenders of `bench live`. Those of RocksDB and Forebay write no log unless their name says
/// so.
pub const LIVE_NAMES: &[&str] = &[
    "external-sort",
    "forebay",
    "forebay-unmapped",
    "forebay-os",
    "forebay-100ms",
    "rocksdb-universal",
    "rocksdb-leveled",
    "rocksdb-universal-log",
    "rocksdb-leveled-log",
    "fjall",
    "lmdb",
    "redb",
];

/// The contenders of `bench delta`.
pub const DELTA_NAMES: &[&str] = &[
    "forebay",
    "rocksdb-get-put",
    "rocksdb-merge",
    "fjall",
    "lmdb",
    "redb",
];

pub fn live(name: &str, task: &Task) -> Result<Value> {
    use rocks::{Rocks, Style};
    let forebay = |durability| move |path: &Path| forebay::Forebay::create(path, durability, false);
    match name {
        "forebay" => insert::run(task, forebay(None)),
        "forebay-unmapped" => insert::run(task, |p: &Path| forebay::Forebay::create(p, None, true)),
        "forebay-os" => insert::run(task, forebay(Some(Durability::Os))),
        "forebay-100ms" => insert::run(task, forebay(Some(Durability::EveryMs(100)))),
        "external-sort" => insert::run(task, sort::Sorter::create),
        "rocksdb-universal" => {
            insert::run(task, |p: &Path| Rocks::create(p, Style::Universal, false))
        }
        "rocksdb-leveled" => insert::run(task, |p: &Path| Rocks::create(p, Style::Leveled, false)),
        "rocksdb-universal-log" => {
            insert::run(task, |p: &Path| Rocks::create(p, Style::Universal, true))
        }
        "rocksdb-leveled-log" => {
            insert::run(task, |p: &Path| Rocks::create(p, Style::Leveled, true))
        }
        "fjall" => insert::run(task, fjall_store::Fjall::create),
        "lmdb" => insert::run(task, lmdb::Lmdb::create),
        "redb" => insert::run(task, redb_store::Redb::create),
        _ => bail!("no such contender: {name}"),
    }
}

pub fn delta(name: &str, task: &Task) -> Result<Value> {
    use rocks::Rocks;
    match name {
        "forebay" => delta::run(task, |path: &Path| {
            forebay::Forebay::create(path, None, false)
        }),
        "rocksdb-get-put" => delta::run(task, Rocks::counting),
        "rocksdb-merge" => delta::run(task, rocks::Merging::create),
        "fjall" => delta::run(task, fjall_store::Fjall::create),
        "lmdb" => delta::run(task, lmdb::Lmdb::create),
        "redb" => delta::run(task, redb_store::Redb::create),
        _ => bail!("no such contender: {name}"),
    }
}
