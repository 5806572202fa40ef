//! The limit: an external merge sort of the same records, which is no store. Three buffers of 48 MB
//! are filled in turn and sorted and written by two threads; then two threads merge all of these
//! runs, each one half of the keys. Keys are distinct.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use anyhow::{Context, Result, anyhow, bail};

use super::Engine;

type Record = (u64, u64);

const RECORD_BYTES: usize = 16;
const PAGE_RECORDS: usize = 256;
const BUFFER_RECORDS: usize = 3 << 20;
const BUFFERS: usize = 3;
const THREADS: usize = 2;
/// What is read at a time of each run while they are merged, and written at a time.
const READ_BYTES: usize = 256 << 10;
const WRITE_BYTES: usize = 1 << 20;

struct Run {
    file: File,
    records: u64,
    /// The key of every 256th record: the first of each page.
    firsts: Vec<u64>,
}

pub struct Sorter {
    path: PathBuf,
    buffer: Vec<Record>,
    empty: Receiver<Vec<Record>>,
    full: Option<SyncSender<(usize, Vec<Record>)>>,
    workers: Vec<JoinHandle<Result<Vec<Run>>>>,
    spilled: usize,
    /// The sorted halves, once there.
    halves: Vec<Run>,
}

impl Sorter {
    pub fn create(path: &Path) -> Result<Self> {
        let (full, jobs) = sync_channel(BUFFERS);
        let (give_back, empty) = channel();
        for _ in 1..BUFFERS {
            give_back.send(Vec::with_capacity(BUFFER_RECORDS))?;
        }
        let jobs = Arc::new(Mutex::new(jobs));
        let workers = (0..THREADS)
            .map(|_| {
                let (path, jobs, back) = (path.to_path_buf(), Arc::clone(&jobs), give_back.clone());
                std::thread::spawn(move || sort_all(&path, &jobs, &back))
            })
            .collect();
        Ok(Self {
            path: path.to_path_buf(),
            buffer: Vec::with_capacity(BUFFER_RECORDS),
            empty,
            full: Some(full),
            workers,
            spilled: 0,
            halves: Vec::new(),
        })
    }

    fn hand_over(&mut self, next: Vec<Record>) -> Result<()> {
        let buffer = std::mem::replace(&mut self.buffer, next);
        let full = self.full.as_ref().context("the sort has ended")?;
        full.send((self.spilled, buffer))
            .map_err(|_| anyhow!("the sorting threads have ended"))?;
        self.spilled += 1;
        Ok(())
    }
}

/// Sorts buffers as they come and writes each as a run.
fn sort_all(
    path: &Path,
    jobs: &Mutex<Receiver<(usize, Vec<Record>)>>,
    back: &Sender<Vec<Record>>,
) -> Result<Vec<Run>> {
    let mut runs = Vec::new();
    let mut bytes = Vec::with_capacity(WRITE_BYTES);
    loop {
        let job = jobs
            .lock()
            .map_err(|_| anyhow!("a thread panicked"))?
            .recv();
        let Ok((number, mut buffer)) = job else {
            return Ok(runs);
        };
        buffer.sort_unstable_by_key(|record| record.0);
        let name = path.join(format!("spilled-{number}"));
        let mut file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(name)?;
        for some in buffer.chunks(WRITE_BYTES / RECORD_BYTES) {
            bytes.clear();
            some.iter().for_each(|record| encode(*record, &mut bytes));
            file.write_all(&bytes)?;
        }
        runs.push(Run {
            file,
            records: buffer.len() as u64,
            firsts: firsts(&buffer),
        });
        buffer.clear();
        // After the last buffer nobody waits for it.
        let _ = back.send(buffer);
    }
}

fn firsts(records: &[Record]) -> Vec<u64> {
    let pages = records.chunks(PAGE_RECORDS);
    pages.map(|page| page[0].0).collect()
}

fn encode((key, value): Record, out: &mut Vec<u8>) {
    let mut bytes = [0; RECORD_BYTES];
    bytes[..8].copy_from_slice(&key.to_be_bytes());
    bytes[8..].copy_from_slice(&value.to_le_bytes());
    out.extend_from_slice(&bytes);
}

fn decode(bytes: &[u8; RECORD_BYTES]) -> Record {
    let (key, value) = bytes.split_at(8);
    let word = |bytes: &[u8]| {
        bytes
            .first_chunk()
            .map_or(0, |word| u64::from_le_bytes(*word))
    };
    (word(key).swap_bytes(), word(value))
}

impl Run {
    /// The number of the first record whose key is not below `key`, and that record.
    fn lower_bound(&self, key: u64) -> Result<(u64, Option<Record>)> {
        let page = self.firsts.partition_point(|&first| first <= key);
        let Some(page) = page.checked_sub(1) else {
            return Ok((0, None));
        };
        let from = (page * PAGE_RECORDS) as u64;
        let count = (self.records - from).min(PAGE_RECORDS as u64) as usize;
        let mut bytes = [0; PAGE_RECORDS * RECORD_BYTES];
        let bytes = &mut bytes[..count * RECORD_BYTES];
        self.file.read_exact_at(bytes, from * RECORD_BYTES as u64)?;
        let (records, _) = bytes.as_chunks::<RECORD_BYTES>();
        let at = records.partition_point(|record| decode(record).0 < key);
        Ok((from + at as u64, records.get(at).map(decode)))
    }
}

/// Records of a run from one place to another, read in pieces.
struct Reader<'r> {
    run: &'r Run,
    next: u64,
    end: u64,
    bytes: Vec<u8>,
    at: usize,
}

impl<'r> Reader<'r> {
    fn new(run: &'r Run, next: u64, end: u64) -> Self {
        Self {
            run,
            next,
            end,
            bytes: Vec::new(),
            at: 0,
        }
    }

    #[inline]
    fn read(&mut self) -> Result<Option<Record>> {
        if self.at == self.bytes.len() && !self.fill()? {
            return Ok(None);
        }
        let record = self.bytes[self.at..].first_chunk().map(decode);
        self.at += RECORD_BYTES;
        Ok(record)
    }

    fn fill(&mut self) -> Result<bool> {
        let records = (self.end - self.next).min((READ_BYTES / RECORD_BYTES) as u64);
        self.bytes.resize(records as usize * RECORD_BYTES, 0);
        self.at = 0;
        let from = self.next * RECORD_BYTES as u64;
        self.run.file.read_exact_at(&mut self.bytes, from)?;
        self.next += records;
        Ok(records > 0)
    }
}

/// Merges what lies between two keys of all runs into a new file.
fn merge(runs: &[Run], from: u64, to: Option<u64>, path: &Path) -> Result<Run> {
    let mut readers = Vec::new();
    for run in runs {
        let end = to.map_or(Ok((run.records, None)), |to| run.lower_bound(to))?;
        readers.push(Reader::new(run, run.lower_bound(from)?.0, end.0));
    }
    let mut file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(path)?;
    let mut bytes = Vec::with_capacity(WRITE_BYTES + RECORD_BYTES);
    let mut tree = Tournament::new(&mut readers)?;
    let (mut records, mut firsts) = (0, Vec::new());
    while let Some(record) = tree.next(&mut readers)? {
        if records % PAGE_RECORDS as u64 == 0 {
            firsts.push(record.0);
        }
        encode(record, &mut bytes);
        records += 1;
        if bytes.len() >= WRITE_BYTES {
            file.write_all(&bytes)?;
            bytes.clear();
        }
    }
    file.write_all(&bytes)?;
    file.sync_all()?;
    Ok(Run {
        file,
        records,
        firsts,
    })
}

/// A tournament of readers: the winner in 0, the losers of the matches behind it.
struct Tournament {
    /// The key, or `ENDED`; the value; the reader.
    nodes: Vec<(u128, u64, usize)>,
}

const ENDED: u128 = u128::MAX;

impl Tournament {
    fn new(readers: &mut [Reader]) -> Result<Self> {
        let count = readers.len();
        let mut winners = vec![(ENDED, 0, 0); 2 * count.max(1)];
        for (reader, place) in (count..).take(count).enumerate() {
            winners[place] = Self::enter(readers, reader)?;
        }
        let mut nodes = vec![(ENDED, 0, 0); count.max(1)];
        for node in (1..count).rev() {
            let (a, b) = (winners[2 * node], winners[2 * node + 1]);
            (winners[node], nodes[node]) = if a.0 <= b.0 { (a, b) } else { (b, a) };
        }
        nodes[0] = winners[1];
        Ok(Self { nodes })
    }

    fn enter(readers: &mut [Reader], reader: usize) -> Result<(u128, u64, usize)> {
        let record = readers[reader].read()?;
        Ok(record.map_or((ENDED, 0, reader), |(key, value)| {
            (u128::from(key), value, reader)
        }))
    }

    #[inline]
    fn next(&mut self, readers: &mut [Reader]) -> Result<Option<Record>> {
        let (key, value, reader) = self.nodes[0];
        if key == ENDED {
            return Ok(None);
        }
        let mut winner = Self::enter(readers, reader)?;
        let mut node = (reader + readers.len()) / 2;
        while node > 0 {
            let other = self.nodes[node];
            let lost = other.0 < winner.0;
            self.nodes[node] = std::hint::select_unpredictable(lost, winner, other);
            winner = std::hint::select_unpredictable(lost, other, winner);
            node /= 2;
        }
        self.nodes[0] = winner;
        Ok(Some((key as u64, value)))
    }
}

impl Engine for Sorter {
    fn put(&mut self, key: u64, value: u64) -> Result<()> {
        if self.buffer.len() == BUFFER_RECORDS {
            let next = self.empty.recv()?;
            self.hand_over(next)?;
        }
        self.buffer.push((key, value));
        Ok(())
    }

    fn increment(&mut self, _key: u64) -> Result<()> {
        bail!("a sort does not count")
    }

    fn flush(&mut self) -> Result<()> {
        self.hand_over(Vec::new())?;
        self.full = None;
        let mut runs = Vec::new();
        for worker in self.workers.drain(..) {
            runs.extend(worker.join().map_err(|_| anyhow!("a thread panicked"))??);
        }
        // The buffers go back to the system before the merge takes its own.
        while self.empty.try_recv().is_ok() {}
        let middle = 1 << 63;
        let (low, high) = (self.path.join("low"), self.path.join("high"));
        let (low, high) = rayon::join(
            || merge(&runs, 0, Some(middle), &low),
            || merge(&runs, middle, None, &high),
        );
        self.halves = vec![low?, high?];
        for number in 0..self.spilled {
            std::fs::remove_file(self.path.join(format!("spilled-{number}")))?;
        }
        Ok(())
    }

    fn scan(&mut self, visit: &mut dyn FnMut(u64, u64) -> bool) -> Result<()> {
        for half in &self.halves {
            let mut reader = Reader::new(half, 0, half.records);
            while let Some((key, value)) = reader.read()? {
                if !visit(key, value) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn get(&mut self, key: u64) -> Result<Option<u64>> {
        let half = &self.halves[usize::from(key >= 1 << 63)];
        let (_, found) = half.lower_bound(key)?;
        Ok(found.filter(|found| found.0 == key).map(|found| found.1))
    }
}
