//! A reading client that keeps books: closed loops on a few connections, each answer checked
//! against the data, latencies in slices of time. It distinguishes the versions of a table by their
//! values. So it sees when a swap took effect and whether one reply ever mixed two versions.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::dataset::{value_begins, write_decimal};

/// Length of a slice of the timeline.
const SLICE: Duration = Duration::from_millis(100);
/// Every so many requests one asks for several keys, to see that its answer is of one version.
const MGET_EVERY: u64 = 16;
const MGET_KEYS: usize = 8;

pub struct LoadOptions {
    pub port: u16,
    pub table: String,
    pub records: u64,
    pub connections: usize,
    pub seconds: f64,
    /// What was given as `--salt` to the sets of the versions that may answer.
    pub salts: Vec<u64>,
}

/// One answered request.
#[derive(Clone, Copy)]
struct Sample {
    at: Duration,
    latency: Duration,
    /// Index into the salts; None when the answer was wrong or an error.
    version: Option<usize>,
    mixed: bool,
}

pub fn run(options: &LoadOptions) -> Result<Value> {
    let start = Instant::now();
    let results: Vec<Result<Vec<Sample>>> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..options.connections)
            .map(|number| scope.spawn(move || worker(options, number as u64, start)))
            .collect();
        workers
            .into_iter()
            .map(|worker| {
                worker
                    .join()
                    .unwrap_or_else(|_| bail!("a connection's thread died"))
            })
            .collect()
    });
    let mut samples = Vec::new();
    for result in results {
        samples.extend(result?);
    }
    samples.sort_unstable_by_key(|sample| sample.at);
    Ok(summary(&samples, options))
}

fn worker(options: &LoadOptions, number: u64, start: Instant) -> Result<Vec<Sample>> {
    let stream = TcpStream::connect(("127.0.0.1", options.port)).context("connecting")?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let mut client = Client {
        reader: BufReader::new(stream.try_clone()?),
        stream,
        line: Vec::new(),
        body: Vec::new(),
    };
    let mut random = Random(0x9E37 + number * 77);
    let mut samples = Vec::with_capacity(1 << 20);
    let mut turn = number;
    while start.elapsed().as_secs_f64() < options.seconds {
        turn += 1;
        let keys = if turn % MGET_EVERY == 0 { MGET_KEYS } else { 1 };
        let numbers: Vec<u64> = (0..keys).map(|_| random.below(options.records)).collect();
        let before = Instant::now();
        let versions = client.ask(options, &numbers)?;
        let latency = before.elapsed();
        samples.push(Sample {
            at: before - start + latency,
            latency,
            version: if versions.iter().all(Option::is_some) {
                versions[0]
            } else {
                None
            },
            mixed: versions.iter().any(|&version| version != versions[0]),
        });
    }
    Ok(samples)
}

struct Client {
    reader: BufReader<TcpStream>,
    stream: TcpStream,
    line: Vec<u8>,
    body: Vec<u8>,
}

impl Client {
    /// For each key the version that answered, None for an error, a missing key or a wrong value.
    fn ask(&mut self, options: &LoadOptions, numbers: &[u64]) -> Result<Vec<Option<usize>>> {
        let mut request = Vec::with_capacity(64 * (numbers.len() + 1));
        let verb = if numbers.len() == 1 { "GET" } else { "MGET" };
        write!(
            request,
            "*{}\r\n${}\r\n{verb}\r\n",
            numbers.len() + 1,
            verb.len()
        )?;
        for &number in numbers {
            let key = write_decimal(number);
            write!(
                request,
                "${}\r\n{}:{key}\r\n",
                options.table.len() + 1 + key.len(),
                options.table
            )?;
        }
        self.stream.write_all(&request)?;
        if numbers.len() > 1 && self.header()? != (b'*', numbers.len() as i64) {
            return Ok(vec![None; numbers.len()]);
        }
        numbers
            .iter()
            .map(|&number| self.answer(options, number))
            .collect()
    }

    fn answer(&mut self, options: &LoadOptions, number: u64) -> Result<Option<usize>> {
        let (kind, bytes) = self.header()?;
        if kind != b'$' || bytes < 0 {
            return Ok(None);
        }
        self.body.resize(bytes as usize + 2, 0);
        self.reader.read_exact(&mut self.body)?;
        Ok(options
            .salts
            .iter()
            .position(|&salt| value_begins(number, salt, &self.body)))
    }

    /// The first byte of a reply's line and its number.
    fn header(&mut self) -> Result<(u8, i64)> {
        self.line.clear();
        if self.reader.read_until(b'\n', &mut self.line)? == 0 {
            bail!("the server closed the connection");
        }
        let text = std::str::from_utf8(&self.line[1..]).unwrap_or("").trim();
        Ok((self.line[0], text.parse().unwrap_or(-1)))
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (u128::from(self.0) * u128::from(bound) >> 64) as u64
    }
}

fn percentile(latencies: &mut [u64], share: f64) -> u64 {
    latencies.sort_unstable();
    latencies
        .get(((latencies.len().max(1) - 1) as f64 * share) as usize)
        .copied()
        .unwrap_or(0)
}

fn micros(samples: &[Sample]) -> Vec<u64> {
    samples
        .iter()
        .map(|sample| sample.latency.as_micros() as u64)
        .collect()
}

fn summary(samples: &[Sample], options: &LoadOptions) -> Value {
    let mut timeline = Vec::new();
    let mut rest = samples;
    let mut slice = 0u32;
    while !rest.is_empty() {
        slice += 1;
        let (now, later) = rest.split_at(rest.partition_point(|sample| sample.at < SLICE * slice));
        rest = later;
        let mut times = micros(now);
        let count = |version| {
            now.iter()
                .filter(|sample| sample.version == Some(version))
                .count()
        };
        timeline.push(json!({
            "second": (SLICE * slice).as_secs_f64(),
            "requests": now.len(),
            "p50_us": percentile(&mut times, 0.5),
            "p99_us": percentile(&mut times, 0.99),
            "max_us": times.last(),
            "by_version": (0..options.salts.len()).map(count).collect::<Vec<_>>(),
        }));
    }
    let mut all = micros(samples);
    json!({
        "requests": samples.len(),
        "errors": samples.iter().filter(|sample| sample.version.is_none()).count(),
        "mixed": samples.iter().filter(|sample| sample.mixed).count(),
        "p50_us": percentile(&mut all, 0.5),
        "p99_us": percentile(&mut all, 0.99),
        "p999_us": percentile(&mut all, 0.999),
        "max_us": all.last(),
        "swaps": swaps(samples),
        "timeline": timeline,
    })
}

/// Around each change of the answering version: when it was first seen, and the p99 of the second
/// around it beside that of the two seconds before.
fn swaps(samples: &[Sample]) -> Vec<Value> {
    let between = |from: f64, to: f64| {
        let at = |second: f64| samples.partition_point(|sample| sample.at.as_secs_f64() < second);
        micros(&samples[at(from)..at(to).max(at(from))])
    };
    let mut out = Vec::new();
    let mut serving = samples.first().and_then(|sample| sample.version);
    let mut last = Duration::ZERO;
    for sample in samples {
        // Requests already under way may still end on the old version: one change a second.
        let settled = sample.at > last + Duration::from_secs(1);
        if sample.version.is_some() && sample.version != serving && settled {
            (serving, last) = (sample.version, sample.at);
            let at = sample.at.as_secs_f64();
            out.push(json!({
                "at": at,
                "p99_before_us": percentile(&mut between(at - 2.5, at - 0.5), 0.99),
                "p99_around_us": percentile(&mut between(at - 0.5, at + 0.5), 0.99),
                "max_around_us": between(at - 0.5, at + 0.5).iter().max(),
            }));
        }
    }
    out
}
