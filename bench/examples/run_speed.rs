//! What writing, scanning and merging runs of small records (8-byte keys, 8-byte values) costs, in
//! nanoseconds of the thread's processor time a record: `cargo run --release --example run_speed`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Parser;
use forebay_run::hash::KeyHasher;
use forebay_io::{Disk, OsDisk};
use forebay_run::merge::{Merge, Resolve};
use forebay_run::operation::{DeltaKind, Operation};
use forebay_run::scan::{Cursor, Direction, ScanRange};
use forebay_run::{Compression, Order, Run, RunOptions, RunWriter};

#[derive(Parser)]
struct Cli {
    /// Records of each of the eight runs.
    #[arg(long, default_value_t = 1_000_000)]
    records: u64,
    /// Where the runs are written, and removed again.
    #[arg(long, default_value = "/dev/shm/run-speed")]
    dir: PathBuf,
    #[arg(long, default_value_t = 4096)]
    page_bytes: u32,
    /// Only what has this in its name.
    #[arg(long, default_value = "")]
    only: String,
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    std::fs::create_dir_all(&cli.dir)?;
    let result = [Order::Ordered, Order::Hashed]
        .into_iter()
        .filter(|order| format!("{order:?}").contains(&cli.only))
        .try_for_each(|order| measure(&cli, order));
    std::fs::remove_dir_all(&cli.dir)?;
    result
}

/// A bijection that looks random (splitmix64).
fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn options(order: Order, page_bytes: u32) -> RunOptions {
    RunOptions {
        page_bytes,
        ..RunOptions::new(order, Compression::None, b"")
    }
}

fn measure(cli: &Cli, order: Order) -> Result<()> {
    println!(
        "{order:?}, pages of {} bytes, {} records a run",
        cli.page_bytes, cli.records
    );
    let disk: Arc<dyn Disk> = Arc::new(OsDisk::default());
    let path = |name: &str| cli.dir.join(format!("{order:?}-{name}.run"));
    let hasher = KeyHasher::new(b"");
    let mut runs = Vec::new();
    for number in 0..8 {
        let mut records: Vec<(u64, [u8; 8])> = (0..cli.records)
            .map(|at| mix(number * cli.records + at).to_be_bytes())
            .map(|key| {
                (
                    if order == Order::Hashed {
                        hasher.hash64(&key)
                    } else {
                        0
                    },
                    key,
                )
            })
            .collect();
        records.sort_unstable();
        let path = path(&format!("input-{number}"));
        let (summary, time) = timed(|| {
            let mut writer = RunWriter::create(&disk, &path, options(order, cli.page_bytes))?;
            for (hash, key) in &records {
                writer.push(*hash, key, Operation::Update(key))?;
            }
            Ok(writer.finish_unsynced()?)
        })?;
        if number == 7 {
            say("push", time, summary.records);
            println!(
                "  {:24} {:8.3}",
                "file / payload",
                summary.file_bytes as f64 / (16 * summary.records) as f64
            );
        }
        runs.push(Arc::new(Run::open(&*disk, &path)?));
    }
    for pass in ["scan of one run, first", "scan of one run, again"] {
        scan(
            pass,
            runs[0].scan(ScanRange::all(), Direction::Forward),
            cli.records,
        )?;
    }
    scan(
        "scan of one run, backward",
        runs[0].scan(ScanRange::all(), Direction::Backward),
        cli.records,
    )?;
    for ways in [4, 5, 8] {
        scan(
            &format!("scan over {ways}"),
            merge(&runs[..ways]),
            ways as u64 * cli.records,
        )?;
    }
    for ways in [4, 8] {
        write_merge(&disk, cli, order, &runs[..ways], &path("merged"))?;
    }
    Ok(())
}

fn merge(runs: &[Arc<Run>]) -> Merge<forebay_run::RunScan> {
    let scans = runs
        .iter()
        .map(|run| run.scan(ScanRange::all(), Direction::Forward).releasing())
        .collect();
    Merge::new(
        scans,
        Resolve::Compose(DeltaKind::AddI64),
        Direction::Forward,
    )
}

fn write_merge(
    disk: &Arc<dyn Disk>,
    cli: &Cli,
    order: Order,
    runs: &[Arc<Run>],
    path: &Path,
) -> Result<()> {
    let (summary, time) = timed(|| {
        let mut merge = merge(runs);
        let mut writer = RunWriter::create(disk, path, options(order, cli.page_bytes))?;
        while merge.advance()? {
            let (tag, payload) = merge.encoded();
            writer.push_encoded(merge.hash(), merge.key(), tag, &payload)?;
        }
        Ok(writer.finish_unsynced()?)
    })?;
    std::fs::remove_file(path)?;
    ensure!(summary.records == runs.len() as u64 * cli.records);
    say(
        &format!("merge of {} into one", runs.len()),
        time,
        summary.records,
    );
    Ok(())
}

fn scan(name: &str, mut cursor: impl Cursor, expected: u64) -> Result<()> {
    let ((records, bytes), time) = timed(|| {
        let (mut records, mut sum) = (0, 0u64);
        while cursor.advance()? {
            records += 1;
            if let Some((value, _)) = cursor.value() {
                sum = sum.wrapping_add(u64::from(value[0]) + u64::from(cursor.key()[0]));
            }
        }
        Ok((records, sum))
    })?;
    ensure!(records == expected && bytes > 0);
    say(name, time, records);
    Ok(())
}

fn say(what: &str, time: Duration, records: u64) {
    println!(
        "  {what:24} {:8.1} ns",
        time.as_nanos() as f64 / records as f64
    );
}

fn timed<T>(work: impl FnOnce() -> Result<T>) -> Result<(T, Duration)> {
    let start = thread_time();
    let answer = work()?;
    Ok((answer, thread_time() - start))
}

/// The processor time that this thread has used, the kernel's for it included.
fn thread_time() -> Duration {
    // Safety: clock_gettime fills the struct it is given.
    let time = unsafe {
        let mut time: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time);
        time
    };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
