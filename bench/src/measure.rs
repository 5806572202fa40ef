//! The measurements of warm reads, the same for every contender.
//!
//! 1. independent: the processor may overlap one get with the next.
//! 2. dependent: each query's place is computed from the answer before.
//! 3. latency: each get timed by itself (the clock's own cost is reported beside it).
//! 4. misses, batches of 16, two threads.
//!
//! The loops of one thread count that thread's processor time: nothing in them waits, so on a quiet
//! machine it is the time that passes, and on a busy one it is not somebody else's. The time of
//! each get and that of two threads are by the wall clock.
//!
//! Each phase takes its own stretch of the query file, so that none reads what the one before left
//! in the processor's caches. Every answer's first and last eight bytes are read and added up.

use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde_json::{Map, Value, json};

use crate::dataset::{Queries, Shape, value_check};
use crate::peers::{Session, Store};

pub const BATCH: usize = 16;
const INDEPENDENT: usize = 1 << 19;
const DEPENDENT: usize = 1 << 17;
const LATENCY: usize = 1 << 17;
const BATCHED: usize = 1 << 17;
const PER_THREAD: usize = 1 << 16;

pub fn measure<S: Store>(
    store: &S,
    shape: &Shape,
    queries: &Queries,
    misses: &Queries,
) -> Result<Map<String, Value>> {
    let mut session = store.session()?;
    check_all(&mut session, shape, queries)?;
    let mut out = Map::new();
    let mut from = 0;
    let mut take = |count: usize| {
        let range = from..from + count;
        from += count;
        range
    };
    out.insert(
        "independent_ns".into(),
        json!(independent(&mut session, queries, take(INDEPENDENT))),
    );
    out.insert(
        "dependent_ns".into(),
        json!(dependent(&mut session, queries, take(DEPENDENT))),
    );
    latency(&mut session, queries, take(LATENCY), &mut out);
    out.insert(
        "batch16_ns".into(),
        json!(batches(&mut session, queries, take(BATCHED))),
    );
    let threads = [take(PER_THREAD), take(PER_THREAD)];
    out.insert("miss_ns".into(), json!(missing(&mut session, misses)?));
    drop(session);
    out.insert(
        "two_threads_mps".into(),
        json!(two_threads(store, queries, threads)?),
    );
    Ok(out)
}

/// Asks for every query once: the answers must be right, and the store is warm afterwards.
fn check_all(session: &mut impl Session, shape: &Shape, queries: &Queries) -> Result<()> {
    let mut sum = 0u64;
    for index in 0..queries.len() {
        let found = session.get(queries.key(index), value_check);
        let Some(check) = found else {
            bail!("query {index} found nothing")
        };
        sum = sum.wrapping_add(check);
    }
    if sum != shape.expected {
        bail!(
            "wrong answers: checksum {sum:x}, expected {:x}",
            shape.expected
        );
    }
    Ok(())
}

/// The processor time that this thread has used.
fn thread_time() -> Duration {
    // Safety: clock_gettime fills the struct it is given.
    let time = unsafe {
        let mut time: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time);
        time
    };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn per_get(start: Duration, gets: usize) -> f64 {
    (thread_time() - start).as_nanos() as f64 / gets as f64
}

fn independent(
    session: &mut impl Session,
    queries: &Queries,
    range: std::ops::Range<usize>,
) -> f64 {
    let (gets, mut sum) = (range.len(), 0u64);
    let start = thread_time();
    for index in range {
        sum = sum.wrapping_add(session.get(queries.key(index), value_check).unwrap_or(0));
    }
    let time = per_get(start, gets);
    black_box(sum);
    time
}

fn dependent(session: &mut impl Session, queries: &Queries, range: std::ops::Range<usize>) -> f64 {
    let (gets, mut last) = (range.len(), 0u64);
    // Always zero, but the compiler does not know: the next key's address waits for the last
    // answer.
    let none = black_box(0u64);
    let start = thread_time();
    for index in range {
        let place = index + (last & none) as usize;
        last = session.get(queries.key(place), value_check).unwrap_or(0);
    }
    let time = per_get(start, gets);
    black_box(last);
    time
}

fn latency(
    session: &mut impl Session,
    queries: &Queries,
    range: std::ops::Range<usize>,
    out: &mut Map<String, Value>,
) {
    let mut times = Vec::with_capacity(range.len());
    let mut sum = 0u64;
    for index in range {
        let key = queries.key(index);
        let start = Instant::now();
        sum = sum.wrapping_add(black_box(session.get(key, value_check)).unwrap_or(0));
        times.push(start.elapsed().as_nanos() as u32);
    }
    black_box(sum);
    times.sort_unstable();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    out.insert("p50_ns".into(), json!(at(0.50)));
    out.insert("p99_ns".into(), json!(at(0.99)));
    out.insert("p999_ns".into(), json!(at(0.999)));
    out.insert("clock_ns".into(), json!(clock_cost()));
}

/// What two readings of the clock with nothing between them cost.
fn clock_cost() -> f64 {
    let start = thread_time();
    for _ in 0..100_000 {
        black_box(Instant::now().elapsed());
    }
    per_get(start, 100_000) / 2.0
}

fn batches(session: &mut impl Session, queries: &Queries, range: std::ops::Range<usize>) -> f64 {
    let (gets, mut sum) = (range.len(), 0u64);
    let start = thread_time();
    for first in range.step_by(BATCH) {
        let keys: [&[u8]; BATCH] = std::array::from_fn(|i| queries.key(first + i));
        session.get_batch(&keys, &mut |value| {
            sum = sum.wrapping_add(value_check(value))
        });
    }
    let time = per_get(start, gets);
    black_box(sum);
    time
}

fn missing(session: &mut impl Session, misses: &Queries) -> Result<f64> {
    let gets = misses.len() / 2;
    // The first half warms whatever only misses touch.
    let mut found = 0;
    for index in gets..misses.len() {
        found += usize::from(session.get(misses.key(index), value_check).is_some());
    }
    let start = thread_time();
    for index in 0..gets {
        found += usize::from(session.get(misses.key(index), value_check).is_some());
    }
    let time = per_get(start, gets);
    if found > 0 {
        bail!("{found} keys found that are in no record");
    }
    Ok(time)
}

/// Millions of gets a second of two threads together.
fn two_threads<S: Store>(
    store: &S,
    queries: &Queries,
    ranges: [std::ops::Range<usize>; 2],
) -> Result<f64> {
    let gets: usize = ranges.iter().map(ExactSizeIterator::len).sum();
    let barrier = std::sync::Barrier::new(3);
    let mut seconds = 0.0;
    std::thread::scope(|scope| -> Result<()> {
        let workers: Vec<_> = ranges
            .into_iter()
            .map(|range| {
                let barrier = &barrier;
                scope.spawn(move || -> Result<()> {
                    let session = store.session();
                    barrier.wait();
                    independent(&mut session?, queries, range);
                    Ok(())
                })
            })
            .collect();
        barrier.wait();
        let start = Instant::now();
        for worker in workers {
            worker
                .join()
                .map_err(|_| anyhow::anyhow!("a reading thread died"))??;
        }
        seconds = start.elapsed().as_secs_f64();
        Ok(())
    })?;
    Ok(gets as f64 / seconds / 1e6)
}
