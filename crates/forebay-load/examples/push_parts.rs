//! Measures how long each part of a push takes: `cargo run --release -p forebay-load --example
//! push_parts -- FILE KEY [THREADS]`.
//!
//! Each output line does all the work of the line before it, plus one more part: reading and
//! decoding, encoding keys and values, sorting, then writing and syncing runs and reading them
//! back. At the end the example measures the read-back once more, alone.

#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a measurement, of the real disk and clock"
)]

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use forebay_load::encode::{RowEncoder, ValueChoice};
use forebay_load::progress::Silent;
use forebay_load::push::PushError;
use forebay_load::sort::write_partitions;
use forebay_load::sort::{
    AsTheyAre, Boundaries, CollectedRecords, Collector, Duplicates, SortPlan, SortSpace,
};
use forebay_load::sources::{SourceOptions, SourceSet};
use forebay_run::verify::read_back;
use forebay_run::{Compression, Order, RunOptions};

type AnyError = Box<dyn std::error::Error + Send + Sync>;

const PARTITIONS: u32 = 16;

/// The last part of a push that a measurement includes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd)]
enum Depth {
    Decode,
    Encode,
    Sort,
}

struct Parts {
    sources: SourceSet,
    encoder: RowEncoder,
    plan: SortPlan,
}

impl Parts {
    fn read(&self, depth: Depth) -> Result<Vec<CollectedRecords>, AnyError> {
        let next = AtomicUsize::new(0);
        let work = || self.work(&next, depth);
        let results: Vec<Result<CollectedRecords, PushError>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..self.plan.threads).map(|_| scope.spawn(work)).collect();
            let joined = threads.into_iter().map(|thread| thread.join());
            joined
                .map(|result| result.unwrap_or_else(|_| panic!("a thread ended")))
                .collect()
        });
        Ok(results.into_iter().collect::<Result<_, _>>()?)
    }

    fn work(&self, next: &AtomicUsize, depth: Depth) -> Result<CollectedRecords, PushError> {
        let mut encoder = self.encoder.clone();
        let mut collector = Collector::new(&self.plan);
        let mut seen = 0;
        while let Some((number, unit)) = {
            let number = next.fetch_add(1, Relaxed);
            self.sources.units.get(number).map(|unit| (number, unit))
        } {
            collector.start_unit(number as u32);
            unit.read::<PushError>(
                |batch, _| {
                    seen += batch.num_rows();
                    if depth == Depth::Decode {
                        return Ok(());
                    }
                    encoder.encode::<PushError>(
                        &batch,
                        |_, key, operation| {
                            let value = operation.value().map_or(&[][..], |(value, _)| value);
                            seen += std::hint::black_box(key.len() + value.len());
                            match depth {
                                Depth::Sort => Ok(collector.push(key, value)?),
                                _ => Ok(()),
                            }
                        },
                        |_, bad| panic!("{bad}"),
                    )
                },
                |reject| panic!("{}", reject.reason),
            )?;
        }
        std::hint::black_box(seen);
        Ok(collector.finish()?)
    }
}

fn main() -> Result<(), AnyError> {
    let mut words = std::env::args().skip(1);
    let (file, key) = words.next().zip(words.next()).ok_or("give FILE and KEY")?;
    let threads = words.next().map_or(Ok(2), |text| text.parse())?;
    let sources = SourceSet::open(&vec![file].into(), &SourceOptions::default())?;
    let encoder = RowEncoder::new(&sources.schema, &key.parse()?, &ValueChoice::Row)?;
    let scratch = std::env::temp_dir().join(format!("push-parts-{}", std::process::id()));
    std::fs::create_dir_all(&scratch)?;
    let space = SortSpace {
        disk: Arc::new(forebay_io::OsDisk::default()),
        scratch: scratch.clone(),
        memory_bytes: 8 << 30,
        threads,
    };
    let run = RunOptions::new(Order::Hashed, Compression::None, b"parts:");
    let parts = Parts {
        sources,
        encoder,
        plan: SortPlan::new(space, run, None, Duplicates::Fail, false),
    };
    let result = measure(&parts, &scratch);
    std::fs::remove_dir_all(&scratch)?;
    result
}

fn measure(parts: &Parts, scratch: &std::path::Path) -> Result<(), AnyError> {
    let mut collected = Vec::new();
    for (what, depth) in [
        ("decode", Depth::Decode),
        ("decode, encode", Depth::Encode),
        ("decode, encode, sort", Depth::Sort),
    ] {
        let start = Instant::now();
        collected = parts.read(depth)?;
        println!("{what}: {:.2} s", start.elapsed().as_secs_f64());
    }
    let path = |partition: usize| -> PathBuf { scratch.join(format!("{partition}.run")) };
    let (boundaries, finish) = (Boundaries::slots(PARTITIONS), AsTheyAre { filters: false });
    let start = Instant::now();
    let built = write_partitions(
        &parts.plan,
        &boundaries,
        &collected,
        &finish,
        &path,
        &|_| (),
        &Silent,
    )?;
    println!(
        "merge, write, sync, read back: {:.2} s",
        start.elapsed().as_secs_f64()
    );
    let start = Instant::now();
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..parts.plan.threads {
            scope.spawn(|| {
                while let Some(run) = built.get(next.fetch_add(1, Relaxed)) {
                    let disk = &*parts.plan.disk;
                    read_back(disk, &path(run.partition), Order::Hashed, &mut |_| ())
                        .unwrap_or_else(|error| panic!("{error}"));
                }
            });
        }
    });
    println!("read back alone: {:.2} s", start.elapsed().as_secs_f64());
    Ok(())
}
