//! What is watched while a contender writes: progress, memory, files, pauses.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::{Value, json};

use crate::machine::{disk_bytes_under, io_field, status_bytes};

const STEP: Duration = Duration::from_millis(50);
/// The files are summed up, and a point of the curve is taken, every so many steps.
const STEPS_A_POINT: u32 = 20;

/// One second of the run.
#[derive(Debug, Clone, Serialize)]
struct Point {
    second: f64,
    done: u64,
    resident_bytes: u64,
    write_bytes: u64,
    disk_bytes: u64,
}

#[derive(Debug, Default)]
struct Seen {
    points: Vec<Point>,
    resident: u64,
    anonymous: u64,
    file: u64,
    disk: u64,
}

/// Watches this process and its store from a thread of its own.
pub struct Monitor {
    pub done: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    watcher: JoinHandle<Seen>,
}

impl Monitor {
    pub fn watch(store: &Path) -> Self {
        let (done, stop) = (
            Arc::new(AtomicU64::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        let (seen_done, seen_stop) = (Arc::clone(&done), Arc::clone(&stop));
        let store = store.to_path_buf();
        let watcher = std::thread::spawn(move || watch(&store, &seen_done, &seen_stop));
        Self {
            done,
            stop,
            watcher,
        }
    }

    /// What was seen; `baseline_bytes` is what the process had in memory before it opened the
    /// store.
    pub fn finish(self) -> Value {
        self.stop.store(true, Relaxed);
        let Ok(seen) = self.watcher.join() else {
            return Value::Null;
        };
        json!({
            "curve": seen.points,
            "peak_resident_bytes": seen.resident,
            "peak_anonymous_bytes": seen.anonymous,
            "peak_file_bytes": seen.file,
            "peak_disk_bytes": seen.disk,
        })
    }
}

fn watch(store: &PathBuf, done: &AtomicU64, stop: &AtomicBool) -> Seen {
    let start = Instant::now();
    let mut seen = Seen::default();
    for step in 1u32.. {
        let last = stop.load(Relaxed);
        let resident_bytes = status_bytes("VmRSS");
        seen.resident = seen.resident.max(resident_bytes);
        seen.anonymous = seen.anonymous.max(status_bytes("RssAnon"));
        seen.file = seen.file.max(status_bytes("RssFile"));
        if step % STEPS_A_POINT == 0 || last {
            // Files come and go meanwhile: a sum that failed is left out.
            let disk_bytes = disk_bytes_under(store).unwrap_or(0);
            seen.disk = seen.disk.max(disk_bytes);
            seen.points.push(Point {
                second: start.elapsed().as_secs_f64(),
                done: done.load(Relaxed),
                resident_bytes,
                write_bytes: io_field("write_bytes"),
                disk_bytes,
            });
        }
        if last {
            break;
        }
        std::thread::sleep((STEP * step).saturating_sub(start.elapsed()));
    }
    seen
}

/// The times between one write's end and the next one's, by a clock that costs little.
pub struct Pauses {
    ticks_a_second: f64,
    last: u64,
    worst: u64,
    limits: [u64; 3],
    above: [u64; 3],
}

/// Pauses longer than these are counted.
const PAUSES_MS: [u64; 3] = [1, 10, 100];

impl Pauses {
    pub fn start() -> Self {
        let (clock, first) = (Instant::now(), ticks());
        std::thread::sleep(Duration::from_millis(50));
        let ticks_a_second = (ticks() - first) as f64 / clock.elapsed().as_secs_f64();
        Self {
            ticks_a_second,
            last: ticks(),
            worst: 0,
            limits: PAUSES_MS.map(|ms| (ms as f64 * ticks_a_second / 1000.0) as u64),
            above: [0; 3],
        }
    }

    /// A write has ended.
    #[inline]
    pub fn ended(&mut self) {
        let now = ticks();
        let pause = now.wrapping_sub(self.last);
        self.last = now;
        if pause > self.worst {
            self.worst = pause;
        }
        if pause > self.limits[0] {
            self.count(pause);
        }
    }

    #[cold]
    fn count(&mut self, pause: u64) {
        for (above, limit) in self.above.iter_mut().zip(self.limits) {
            *above += u64::from(pause > limit);
        }
    }

    pub fn report(&self) -> Value {
        json!({
            "worst_ms": self.worst as f64 / self.ticks_a_second * 1000.0,
            "above_1_ms": self.above[0],
            "above_10_ms": self.above[1],
            "above_100_ms": self.above[2],
        })
    }
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn ticks() -> u64 {
    // Safety: reads the processor's time stamp counter, which every such processor has.
    unsafe { std::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn ticks() -> u64 {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}
