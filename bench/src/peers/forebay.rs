//! Forebay's run format through forebay-run: hashed order, pages sized by the records, nothing
//! compressed, every page checked by its checksum when first touched. Two runs, as a table of two
//! partitions has: each thread writes one. A look-up hashes the key, picks the run by its slot and
//! asks it.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use forebay_run::hash::{KeyHasher, SLOTS, first_hash_of};
use forebay_io::{Disk, OsDisk};
use forebay_run::operation::Operation;
use forebay_run::{Compression, Order, Run, RunOptions, RunWriter};
use rayon::prelude::*;

use super::{Session, Stages, Store};
use crate::dataset::Dataset;
use crate::measure::BATCH;

const PREFIX: &[u8] = b"bench:";
const NAMES: [&str; 2] = ["0.run", "1.run"];

/// The least hash64 of the second partition.
fn boundary() -> Result<u64> {
    first_hash_of(SLOTS / 2).context("no slot in the middle")
}

pub fn build(data: &Dataset, path: &Path, stages: &mut Stages) -> Result<()> {
    let hasher = KeyHasher::new(PREFIX);
    let mut order: Vec<(u64, u32)> = (0..data.len() as u32)
        .into_par_iter()
        .map(|number| (hasher.hash64(data.record(number as usize).0), number))
        .collect();
    // Equal hashes are rare, and then the key decides.
    order.par_sort_unstable_by(|a, b| {
        let key = |number: u32| data.record(number as usize).0;
        a.0.cmp(&b.0).then_with(|| key(a.1).cmp(key(b.1)))
    });
    stages.reached("sorted");
    let split = boundary()?;
    let (low, high) = order.split_at(order.partition_point(|entry| entry.0 < split));
    let (first, second) = rayon::join(
        || write(data, low, &path.join(NAMES[0])),
        || write(data, high, &path.join(NAMES[1])),
    );
    first.and(second)
}

fn write(data: &Dataset, order: &[(u64, u32)], path: &Path) -> Result<()> {
    let disk: Arc<dyn Disk> = Arc::new(OsDisk::default());
    let options = RunOptions::new(Order::Hashed, Compression::None, PREFIX)
        .for_records_of(data.payload_bytes() / data.len().max(1) as u64);
    let mut writer = RunWriter::create(&disk, path, options)?;
    for (&(hash, _), key, value) in data.gather(order, |entry| entry.1) {
        writer.push(hash, key, Operation::Update(value))?;
    }
    // Finishing also syncs the file.
    writer.finish()?;
    Ok(())
}

pub struct Forebay {
    hasher: KeyHasher,
    boundary: u64,
    runs: [Run; 2],
}

impl Forebay {
    fn run(&self, hash: u64) -> &Run {
        &self.runs[usize::from(hash >= self.boundary)]
    }
}

impl Store for Forebay {
    type Session<'a> = &'a Forebay;

    fn open(path: &Path, _data: &Path) -> Result<Self> {
        let disk = OsDisk::default();
        let runs = [
            Run::open(&disk, &path.join(NAMES[0]))?,
            Run::open(&disk, &path.join(NAMES[1]))?,
        ];
        Ok(Self {
            hasher: KeyHasher::new(PREFIX),
            boundary: boundary()?,
            runs,
        })
    }

    fn session(&self) -> Result<&Forebay> {
        Ok(self)
    }

    fn index_bytes(&self) -> Option<u64> {
        Some(self.runs.iter().map(|run| run.memory_bytes() as u64).sum())
    }
}

impl Session for &Forebay {
    #[inline]
    fn get<R>(&mut self, key: &[u8], visit: impl FnOnce(&[u8]) -> R) -> Option<R> {
        let hash = self.hasher.hash64(key);
        let run = self.run(hash);
        run.visit(hash, key, |found| found.into_value(|| 0).map(|value| visit(&value)))
            .ok()
            .flatten()
            .flatten()
    }

    /// All sixteen look-ups go step by step together, whichever of the runs they lie in.
    fn get_batch(&mut self, keys: &[&[u8]; BATCH], visit: &mut impl FnMut(&[u8])) {
        let this = *self;
        let hashes = keys.map(|key| this.hasher.hash64(key));
        for hash in hashes {
            this.run(hash).approach(hash);
        }
        let mut ahead = hashes.map(|hash| this.run(hash).ahead(hash));
        for (ahead, hash) in ahead.iter_mut().zip(hashes) {
            ahead.iter_mut().for_each(|ahead| ahead.match_records(hash));
        }
        for ((key, hash), ahead) in keys.iter().zip(hashes).zip(ahead) {
            let found = this.run(hash).visit_from(ahead, hash, key, |found| {
                found.into_value(|| 0).map(|value| visit(&value))
            });
            debug_assert!(found.is_ok());
        }
    }
}
