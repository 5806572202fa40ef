//! The reader of runs. Any bytes give errors, never a panic; a reader that goes through a file
//! ends.

use std::path::Path;
use std::sync::Arc;

use forebay_io::Disk;
use forebay_io::sim::SimDisk;
use forebay_run::operation::Operation;
use forebay_run::scan::{Cursor, Direction, ScanRange};
use forebay_run::{Compression, Order, Run, RunError, RunOptions, RunWriter};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

const RUN: &str = "/runs/x.run";
const PREFIX: &[u8] = b"people:";
const FOOTER_BYTES: usize = 128;
const SECTION_BYTES: usize = 32;

/// The bytes as they are, and with all their checksums made right.
pub fn check(data: &[u8]) {
    _ = read(data);
    let mut sealed = data.to_vec();
    if reseal(&mut sealed).is_some() {
        _ = read(&sealed);
    }
}

/// Opens a run of these bytes, looks keys up and reads it both ways.
fn read(data: &[u8]) -> Result<(), RunError> {
    let disk = disk_with(data);
    let run = Arc::new(Run::open(&disk, Path::new(RUN))?);
    for index in 0..4 {
        let key = key(index * 50);
        let hash = run.hasher().hash64(&key);
        _ = (run.may_hold(hash), run.get(hash, &key));
    }
    for direction in [Direction::Forward, Direction::Backward] {
        let mut scan = run.scan(ScanRange::all(), direction);
        while let Ok(true) = scan.advance() {
            _ = (scan.hash(), scan.key().len(), scan.operation());
        }
    }
    run.verify(&mut |_| ()).map(|_| ())
}

fn disk_with(data: &[u8]) -> SimDisk {
    let disk = SimDisk::new();
    disk.create_dir_all(Path::new("/runs"))
        .expect("a directory in memory");
    let mut file = disk.create(Path::new(RUN)).expect("a file in memory");
    file.write_all(data).expect("bytes in memory");
    disk
}

/// Makes the checksums of pages, sections, their table and the footer right, as far as the footer
/// says where they are. So damage gets past the checksums to the code behind them.
fn reseal(data: &mut [u8]) -> Option<()> {
    let footer = data.len().checked_sub(FOOTER_BYTES)?;
    let number = |data: &[u8], at: usize| {
        data.get(at..at + 8)?
            .first_chunk()
            .map(|word| u64::from_le_bytes(*word))
    };
    let small = |data: &[u8], at: usize| {
        data.get(at..at + 4)?
            .first_chunk()
            .map(|word| u32::from_le_bytes(*word) as usize)
    };
    let pages_bytes = usize::try_from(number(data, footer + 80)?).ok()?;
    let page_bytes = small(data, footer + 16)?.max(64);
    if data[footer + 13] == 0 {
        let pages = data.get_mut(..pages_bytes)?.chunks_exact_mut(page_bytes);
        for (index, page) in pages.enumerate() {
            let sum = xxh3_64_with_seed(&page[8..], index as u64);
            page[..8].copy_from_slice(&sum.to_le_bytes());
        }
    }
    let table = usize::try_from(number(data, footer + 88)?).ok()?;
    for entry in (table..footer).step_by(SECTION_BYTES) {
        let start = usize::try_from(number(data, entry + 8)?).ok()?;
        let end = start.checked_add(usize::try_from(number(data, entry + 16)?).ok()?)?;
        let sum = xxh3_64(data.get(start..end)?);
        data.get_mut(entry + 24..entry + 32)?
            .copy_from_slice(&sum.to_le_bytes());
    }
    let sum = xxh3_64(data.get(table..footer)?);
    data[footer + 96..footer + 104].copy_from_slice(&sum.to_le_bytes());
    let sum = xxh3_64(&data[footer..footer + FOOTER_BYTES - 16]);
    data[footer + FOOTER_BYTES - 16..footer + FOOTER_BYTES - 8].copy_from_slice(&sum.to_le_bytes());
    Some(())
}

fn key(index: usize) -> Vec<u8> {
    format!("key-{index:05}").into_bytes()
}

/// A run of each order and compression, of some pages.
pub fn samples() -> Vec<Vec<u8>> {
    let mut samples = Vec::new();
    for order in [Order::Hashed, Order::Ordered] {
        for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
            samples.push(sample(order, compression));
        }
    }
    samples
}

fn sample(order: Order, compression: Compression) -> Vec<u8> {
    let sim = SimDisk::new();
    sim.create_dir_all(Path::new("/runs"))
        .expect("a directory in memory");
    let disk: Arc<dyn Disk> = Arc::new(sim.clone());
    let options = RunOptions {
        filter_records: (compression == Compression::Lz4).then_some(200),
        ..RunOptions::new(order, compression, PREFIX)
    };
    let hasher = forebay_run::hash::KeyHasher::new(PREFIX);
    let mut records: Vec<(u64, Vec<u8>)> = (0..200)
        .map(|index| {
            (
                if order == Order::Hashed {
                    hasher.hash64(&key(index))
                } else {
                    0
                },
                key(index),
            )
        })
        .collect();
    records.sort();
    let mut writer = RunWriter::create(&disk, Path::new(RUN), options).expect("a writer");
    for (index, (hash, key)) in records.iter().enumerate() {
        let value = vec![b'v'; index % 90];
        writer
            .push(*hash, key, Operation::Update(&value))
            .expect("a record");
    }
    writer.finish().expect("a run");
    sim.read(Path::new(RUN)).expect("the run's bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resealing_finds_every_checksum() {
        for sample in samples() {
            let mut sealed = sample.clone();
            reseal(&mut sealed).expect("a footer");
            assert_eq!(
                sealed, sample,
                "the checksums of a good run are right already"
            );
            assert!(read(&sealed).is_ok());
            // A changed content checksum in the footer gets past the seal, and is found behind it.
            let at = sealed.len() - FOOTER_BYTES + 48;
            sealed[at] ^= 1;
            reseal(&mut sealed).expect("a footer");
            let error = read(&sealed).expect_err("the content differs").to_string();
            assert!(!error.contains("checksum does not match"), "{error}");
        }
    }
}
