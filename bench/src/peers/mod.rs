//! The contenders. Each builds its store from the flat set and opens it for reading in its best
//! way; its module says how it is tuned.

mod cdb;
mod forebay;
mod hashmap;
mod lmdb;
mod redb_store;
mod rocks;
pub mod rocks_sys;
mod spock;

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::dataset::{Dataset, Queries, Shape};
use crate::{cold as cold_gets, machine, measure};

/// A store opened for reading.
pub trait Store: Sync + Sized {
    type Session<'a>: Session
    where
        Self: 'a;
    fn open(path: &Path, data: &Path) -> Result<Self>;
    /// What one thread reads through.
    fn session(&self) -> Result<Self::Session<'_>>;
    /// Bytes that must stay in memory beyond the file's pages: the index.
    fn index_bytes(&self) -> Option<u64> {
        None
    }
}

pub trait Session {
    /// Calls `visit` with the value, borrowed from the store where it can be.
    fn get<R>(&mut self, key: &[u8], visit: impl FnOnce(&[u8]) -> R) -> Option<R>;

    /// Many keys at once; a store without such a call is asked for one after the other.
    fn get_batch(&mut self, keys: &[&[u8]; measure::BATCH], visit: &mut impl FnMut(&[u8])) {
        for key in keys {
            self.get(key, &mut *visit);
        }
    }
}

/// Writes a store. `prepared` is called when sorting and the like is done and writing begins, so
/// that the report can tell the two apart; all of it counts.
pub type BuildFn = fn(data: &Dataset, path: &Path, stages: &mut Stages) -> Result<()>;

/// The seconds a build took up to its named points.
pub struct Stages {
    start: Instant,
    named: serde_json::Map<String, Value>,
}

impl Stages {
    pub fn reached(&mut self, name: &str) {
        self.named
            .insert(name.into(), json!(self.start.elapsed().as_secs_f64()));
    }
}

pub const NAMES: &[&str] = &[
    "forebay",
    "hashmap",
    "cdb",
    "spock-binary",
    "spock-interpolation",
    "lmdb",
    "redb",
    "rocksdb-block",
    "rocksdb-plain",
    "rocksdb-cuckoo",
];

/// Calls a function generic over the store with the type that a name stands for.
macro_rules! with_store {
    ($name:expr, $call:ident ( $($argument:expr),* )) => {
        match $name {
            "forebay" => $call::<forebay::Forebay>($($argument),*),
            "hashmap" => $call::<hashmap::Arena>($($argument),*),
            "cdb" => $call::<cdb::Cdb>($($argument),*),
            "spock-binary" => $call::<spock::Binary>($($argument),*),
            "spock-interpolation" => $call::<spock::Interpolation>($($argument),*),
            "lmdb" => $call::<lmdb::Lmdb>($($argument),*),
            "redb" => $call::<redb_store::Redb>($($argument),*),
            "rocksdb-block" => $call::<rocks::Block>($($argument),*),
            "rocksdb-plain" => $call::<rocks::Plain>($($argument),*),
            "rocksdb-cuckoo" => $call::<rocks::Cuckoo>($($argument),*),
            other => bail!("no contender {other}; there are {}", NAMES.join(", ")),
        }
    };
}

fn builder_of(peer: &str) -> Result<BuildFn> {
    Ok(match peer {
        "forebay" => forebay::build,
        "hashmap" => hashmap::build,
        "cdb" => cdb::build,
        "spock-binary" | "spock-interpolation" => spock::build,
        "lmdb" => lmdb::build,
        "redb" => redb_store::build,
        "rocksdb-block" => rocks::build_block,
        "rocksdb-plain" => rocks::build_plain,
        "rocksdb-cuckoo" => rocks::build_cuckoo,
        other => bail!("no contender {other}; there are {}", NAMES.join(", ")),
    })
}

/// Builds with two threads (where the contender can use them) into an empty directory.
pub fn build(peer: &str, data: &Dataset, path: &Path) -> Result<Value> {
    let build = builder_of(peer)?;
    if path.exists() {
        std::fs::remove_dir_all(path)?;
    }
    std::fs::create_dir_all(path)?;
    rayon::ThreadPoolBuilder::new()
        .num_threads(2)
        .build_global()?;
    // The flat file is in memory for all of them alike.
    let touched: u64 = data
        .iter()
        .step_by(16)
        .map(|(key, _)| u64::from(key[0]))
        .sum();
    std::hint::black_box(touched);
    machine::reset_peak();
    let watch = machine::AnonymousPeak::watch();
    let mut stages = Stages {
        start: Instant::now(),
        named: serde_json::Map::new(),
    };
    build(data, path, &mut stages).with_context(|| format!("building {peer}"))?;
    let seconds = stages.start.elapsed().as_secs_f64();
    Ok(json!({
        "peer": peer,
        "records": data.len(),
        "seconds": seconds,
        "stages": stages.named,
        "file_bytes": machine::bytes_under(path)?,
        "payload_bytes": data.payload_bytes(),
        "peak_rss_bytes": machine::status_bytes("VmHWM"),
        "peak_anonymous_bytes": watch.bytes(),
    }))
}

pub fn read(peer: &str, data: &Path, path: &Path, huge: bool) -> Result<Value> {
    with_store!(peer, read_store(data, path, huge))
}

fn read_store<S: Store>(data: &Path, path: &Path, huge: bool) -> Result<Value> {
    let shape = Shape::read(data)?;
    let queries = Queries::read(data, "queries", shape.key_bytes)?;
    let misses = Queries::read(data, "misses", shape.key_bytes)?;
    // From the device each time, so that huge pages of an earlier run do not linger for this one.
    machine::drop_cache(path)?;
    if !huge {
        machine::warm_cache(path)?;
    }
    let before = machine::status_bytes("RssAnon");
    let start = Instant::now();
    let store = S::open(path, data)?;
    let open_seconds = start.elapsed().as_secs_f64();
    if huge {
        machine::advise_huge(path)?;
    }
    machine::touch_mappings(path)?;
    let grown = machine::status_bytes("RssAnon").saturating_sub(before);
    let mut out = measure::measure(&store, &shape, &queries, &misses)?;
    out.insert("open_seconds".into(), json!(open_seconds));
    out.insert("anonymous_bytes".into(), json!(grown));
    out.insert("index_bytes".into(), json!(store.index_bytes()));
    out.insert("mapped".into(), machine::mapped_bytes(path)?);
    out.insert("file_bytes".into(), json!(machine::bytes_under(path)?));
    out.insert("records".into(), json!(shape.records));
    Ok(Value::Object(out))
}

pub fn cold(peer: &str, data: &Path, path: &Path, gets: usize) -> Result<Value> {
    with_store!(peer, cold_store(data, path, gets))
}

fn cold_store<S: Store>(data: &Path, path: &Path, gets: usize) -> Result<Value> {
    let shape = Shape::read(data)?;
    let queries = Queries::read(data, "queries", shape.key_bytes)?;
    machine::drop_cache(path)?;
    let store = S::open(path, data)?;
    cold_gets::measure(&store, path, &queries, gets)
}

/// Creates a file for writing, not there before.
pub fn create(path: &Path) -> Result<std::fs::File> {
    let file = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(path);
    file.with_context(|| format!("creating {}", path.display()))
}
