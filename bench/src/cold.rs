//! Gets whose pages are not in memory: how often each goes to the device, and how much it reads.

use std::path::Path;
use std::time::Instant;

use anyhow::{Result, bail};
use serde_json::{Value, json};

use crate::dataset::{Queries, value_check};
use crate::machine::{DeviceReads, drop_cache};
use crate::peers::{Session, Store};

/// The store is open. If it holds an index in memory, the index is there. Nothing of its files is
/// in the page cache when the gets begin.
pub fn measure<S: Store>(store: &S, path: &Path, queries: &Queries, gets: usize) -> Result<Value> {
    let mut session = store.session()?;
    // One get first, for what only the first one loads.
    session.get(queries.key(queries.len() - 1), value_check);
    drop_cache(path)?;
    let mut reads = Vec::with_capacity(gets);
    let mut times = Vec::with_capacity(gets);
    for index in 0..gets.min(queries.len() - 1) {
        let before = DeviceReads::now()?;
        let start = Instant::now();
        let found = session.get(queries.key(index), value_check);
        times.push(start.elapsed().as_nanos() as u64 / 1000);
        reads.push(DeviceReads::now()?.since(before));
        if found.is_none() {
            bail!("query {index} found nothing");
        }
    }
    // A get that found its page brought in by another's read ahead says nothing about cold gets.
    let cold: Vec<usize> = (0..reads.len())
        .filter(|&index| reads[index].bytes > 0)
        .collect();
    Ok(json!({
        "gets": reads.len(),
        "cold_gets": cold.len(),
        "disk_reads": summary(cold.iter().map(|&index| reads[index].disk_reads)),
        "major_faults": summary(cold.iter().map(|&index| reads[index].major_faults)),
        "bytes": summary(cold.iter().map(|&index| reads[index].bytes)),
        "us": summary(cold.iter().map(|&index| times[index])),
    }))
}

fn summary(numbers: impl Iterator<Item = u64>) -> Value {
    let mut numbers: Vec<u64> = numbers.collect();
    numbers.sort_unstable();
    let mean = numbers.iter().sum::<u64>() as f64 / numbers.len().max(1) as f64;
    let at = |share: f64| numbers.get(((numbers.len().max(1) - 1) as f64 * share) as usize);
    json!({"mean": mean, "median": at(0.5), "p99": at(0.99), "max": numbers.last()})
}
