//! Counting: increments of keys of which few are frequent (Zipf, exponent 0.99).

use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::monitor::{Monitor, Pauses};
use super::workload::zipf_keys;
use super::{Engine, Task};
use crate::machine::{disk_bytes_under, io_field, status_bytes};

const KEYS: u64 = 1_000_000;
const EXPONENT: f64 = 0.99;
const STRIDE: u64 = 256;

pub fn run<E: Engine>(task: &Task, create: impl FnOnce(&Path) -> Result<E>) -> Result<Value> {
    let keys = zipf_keys(task.records, KEYS, EXPONENT);
    let baseline = status_bytes("VmRSS");
    std::fs::create_dir_all(&task.store)?;
    let mut engine = create(&task.store)?;
    let monitor = Monitor::watch(&task.store);
    let mut pauses = Pauses::start();
    let start = Instant::now();
    let mut done = 0;
    for &key in &keys {
        engine.increment(key)?;
        pauses.ended();
        done += 1;
        if done % STRIDE == 0 {
            monitor.done.store(done, Relaxed);
            if start.elapsed() > task.cap {
                break;
            }
        }
    }
    let write_seconds = start.elapsed().as_secs_f64();
    engine.flush()?;
    let flushed_seconds = start.elapsed().as_secs_f64();
    let deadline = start.elapsed() + task.settling();
    while engine.is_busy() && start.elapsed() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    let settled_seconds = start.elapsed().as_secs_f64();
    let disk_bytes = disk_bytes_under(&task.store)?;
    let mut out = monitor.finish();
    let (mut sum, mut counted) = (0u64, 0u64);
    engine.scan(&mut |_, value| {
        sum += value;
        counted += 1;
        true
    })?;
    ensure!(
        sum == done,
        "{done} increments, but the counters sum up to {sum}"
    );
    for (name, value) in [
        ("baseline_bytes", json!(baseline)),
        ("done", json!(done)),
        ("complete", json!(done == task.records)),
        ("keys", json!(counted)),
        ("write_seconds", json!(write_seconds)),
        ("flushed_seconds", json!(flushed_seconds)),
        ("settled_seconds", json!(settled_seconds)),
        ("pauses", pauses.report()),
        ("write_bytes", json!(io_field("write_bytes"))),
        ("disk_bytes", json!(disk_bytes)),
    ] {
        out[name] = value;
    }
    Ok(out)
}
