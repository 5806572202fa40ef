//! The paper's experiment: random upserts, then a full ordered scan, then random gets before and
//! after the store was brought into its best form.

use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::{Map, Value, json};

use super::monitor::{Monitor, Pauses};
use super::workload::{asked, key_of, value_of};
use super::{Engine, Task};
use crate::machine::{cpu_seconds, disk_bytes_under, io_field, status_bytes};

const GETS: u64 = 1_000_000;
/// The clock is looked at, and progress told, every so many writes.
const STRIDE: u64 = 256;
/// The time of so many writes is taken as one: a pause of any of them is nearly all of it.
const PAUSE_STRIDE: u64 = 16;

/// What was measured is printed after each phase, all of it so far: who is stopped has told the
/// rest.
pub fn run<E: Engine>(task: &Task, create: impl FnOnce(&Path) -> Result<E>) -> Result<Value> {
    let baseline = status_bytes("VmRSS");
    std::fs::create_dir_all(&task.store)?;
    let mut engine = create(&task.store)?;
    let mut out = Map::new();
    out.insert("baseline_bytes".into(), json!(baseline));
    let written = write(task, &mut engine, &mut out)?;
    println!("{}", Value::Object(out.clone()));
    read(task, &mut engine, written, "", &mut out)?;
    println!("{}", Value::Object(out.clone()));
    optimize(task, &mut engine, &mut out)?;
    println!("{}", Value::Object(out.clone()));
    read(task, &mut engine, written, "optimized_", &mut out)?;
    Ok(Value::Object(out))
}

/// Bytes written to the device since the process began, and those that the store takes there.
fn state(task: &Task) -> Result<Value> {
    Ok(json!({
        "write_bytes": io_field("write_bytes"),
        "disk_bytes": disk_bytes_under(&task.store)?,
        "cpu_seconds": cpu_seconds(),
    }))
}

fn write(task: &Task, engine: &mut impl Engine, out: &mut Map<String, Value>) -> Result<u64> {
    let monitor = Monitor::watch(&task.store);
    let mut pauses = Pauses::start();
    let start = Instant::now();
    let mut written = 0;
    while written < task.records && (written % STRIDE != 0 || start.elapsed() < task.cap) {
        let key = key_of(written);
        engine.put(key, value_of(key))?;
        written += 1;
        if written % PAUSE_STRIDE == 0 {
            pauses.ended();
        }
        if written % STRIDE == 0 {
            monitor.done.store(written, Relaxed);
        }
    }
    monitor.done.store(written, Relaxed);
    out.insert("written".into(), json!(written));
    out.insert("complete".into(), json!(written == task.records));
    out.insert("write_seconds".into(), json!(start.elapsed().as_secs_f64()));
    out.insert("pauses".into(), pauses.report());
    engine.flush()?;
    out.insert(
        "flushed_seconds".into(),
        json!(start.elapsed().as_secs_f64()),
    );
    let deadline = Instant::now() + task.settling();
    while engine.is_busy() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    out.insert("settled".into(), json!(!engine.is_busy()));
    out.insert(
        "settled_seconds".into(),
        json!(start.elapsed().as_secs_f64()),
    );
    out.insert("after_writing".into(), state(task)?);
    if let Value::Object(seen) = monitor.finish() {
        out.extend(seen);
    }
    Ok(written)
}

/// A scan and gets, and the memory that they took.
fn read(
    task: &Task,
    engine: &mut impl Engine,
    written: u64,
    name: &str,
    out: &mut Map<String, Value>,
) -> Result<()> {
    let monitor = Monitor::watch(&task.store);
    let (scanned, seconds) = scan(task, engine, written)?;
    let gets_ns = gets(task, engine, written)?;
    let seen = monitor.finish();
    for (field, value) in [
        ("scanned", json!(scanned)),
        ("scan_seconds", json!(seconds)),
        ("get_ns", json!(gets_ns)),
        (
            "read_peak_resident_bytes",
            seen["peak_resident_bytes"].clone(),
        ),
        (
            "read_peak_anonymous_bytes",
            seen["peak_anonymous_bytes"].clone(),
        ),
    ] {
        out.insert(format!("{name}{field}"), value);
    }
    Ok(())
}

fn optimize(task: &Task, engine: &mut impl Engine, out: &mut Map<String, Value>) -> Result<()> {
    let monitor = Monitor::watch(&task.store);
    let start = Instant::now();
    engine.optimize()?;
    out.insert(
        "optimize_seconds".into(),
        json!(start.elapsed().as_secs_f64()),
    );
    out.insert(
        "optimize_peak_resident_bytes".into(),
        monitor.finish()["peak_resident_bytes"].clone(),
    );
    out.insert("after_optimize".into(), state(task)?);
    Ok(())
}

/// Reads all, in order, and makes sure that it is what was written; how many records that were when
/// time was up, and how long it took.
fn scan(task: &Task, engine: &mut impl Engine, written: u64) -> Result<(u64, f64)> {
    let start = Instant::now();
    let (mut count, mut wrong, mut last, mut in_time) = (0u64, 0u64, 0u64, true);
    engine.scan(&mut |key, value| {
        wrong += u64::from(value != value_of(key)) + u64::from(count > 0 && key <= last);
        last = key;
        count += 1;
        if count % (256 * STRIDE) == 0 {
            in_time = start.elapsed() < task.scanning();
        }
        in_time
    })?;
    let seconds = start.elapsed().as_secs_f64();
    ensure!(
        wrong == 0 && (count == written || !in_time),
        "scan: {count} records of {written}, {wrong} wrong"
    );
    Ok((count, seconds))
}

/// Nanoseconds a get of random keys that are there, as many as there is time for.
fn gets(task: &Task, engine: &mut impl Engine, written: u64) -> Result<f64> {
    let start = Instant::now();
    let mut gets = 0;
    for number in asked(GETS.min(written), written) {
        let key = key_of(number);
        let found = engine.get(key)?;
        ensure!(
            found == Some(value_of(key)),
            "get: key {key:x} has {found:x?}"
        );
        gets += 1;
        if gets % STRIDE == 0 && start.elapsed() > task.getting() {
            break;
        }
    }
    Ok(start.elapsed().as_nanos() as f64 / gets.max(1) as f64)
}
