//! Spock's own format (the paper's section 4.1) as the baseline: an index file of entries, the
//! upper 8 bytes of the key's MD5 and the 4-byte offset of its records, sorted; a data file of
//! (number of collided records in one byte, then for each: key size, value size, key, value).
//! Searched by bisection or interpolation (4.2.2). One chunk, both files mapped, native code
//! instead of Java.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Result, bail};
use md5::{Digest, Md5};
use memmap2::Mmap;
use rayon::prelude::*;

use super::{Session, Stages, Store, create};
use crate::dataset::Dataset;

const ENTRY: usize = 12;

fn md5_prefix(key: &[u8]) -> u64 {
    let digest = Md5::digest(key);
    u64::from_be_bytes(std::array::from_fn(|i| digest[i]))
}

pub fn build(data: &Dataset, path: &Path, stages: &mut Stages) -> Result<()> {
    let mut order: Vec<(u64, u32)> = (0..data.len())
        .into_par_iter()
        .map(|i| (md5_prefix(data.record(i).0), i as u32))
        .collect();
    order.par_sort_unstable();
    stages.reached("sorted");
    let mut index = BufWriter::with_capacity(1 << 20, create(&path.join("0_0_0.index"))?);
    let mut body = BufWriter::with_capacity(1 << 20, create(&path.join("0_0_0.data"))?);
    let mut offset = 0u64;
    let mut place = 0;
    for group in order.chunk_by(|a, b| a.0 == b.0) {
        place += group.len();
        if let Some(later) = order.get(place + 16) {
            data.prefetch(later.1 as usize);
        }
        index.write_all(&group[0].0.to_be_bytes())?;
        let Ok(short) = u32::try_from(offset) else {
            bail!("a chunk's data file ends at 4 GiB")
        };
        index.write_all(&short.to_be_bytes())?;
        body.write_all(&[group.len() as u8])?;
        offset += 1;
        for &(_, number) in group {
            let (key, value) = data.record(number as usize);
            body.write_all(&(key.len() as u32).to_be_bytes())?;
            body.write_all(&(value.len() as u32).to_be_bytes())?;
            body.write_all(key)?;
            body.write_all(value)?;
            offset += 8 + (key.len() + value.len()) as u64;
        }
    }
    stages.reached("written");
    for file in [index, body] {
        file.into_inner()
            .map_err(|error| error.into_error())?
            .sync_all()?;
    }
    Ok(())
}

/// One chunk, mapped.
pub struct Chunk {
    index: Mmap,
    body: Mmap,
}

impl Chunk {
    fn open(path: &Path) -> Result<Self> {
        // Safety: written once, never changed.
        let map = |name: &str| -> Result<Mmap> {
            Ok(unsafe { Mmap::map(&File::open(path.join(name))?)? })
        };
        Ok(Self {
            index: map("0_0_0.index")?,
            body: map("0_0_0.data")?,
        })
    }

    fn len(&self) -> usize {
        self.index.len() / ENTRY
    }

    #[inline]
    fn prefix(&self, place: usize) -> u64 {
        let bytes = &self.index[place * ENTRY..place * ENTRY + 8];
        u64::from_be_bytes(bytes.try_into().unwrap_or_default())
    }

    #[inline]
    fn number(bytes: &[u8], at: usize) -> usize {
        u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap_or_default()) as usize
    }

    /// Compares the key with those of the records that share the entry's prefix.
    #[inline]
    fn value_at(&self, place: usize, key: &[u8]) -> Option<&[u8]> {
        let mut at = Self::number(&self.index, place * ENTRY + 8);
        let collided = self.body[at];
        at += 1;
        for _ in 0..collided {
            let (keys, values) = (
                Self::number(&self.body, at),
                Self::number(&self.body, at + 4),
            );
            let value_at = at + 8 + keys;
            if &self.body[at + 8..value_at] == key {
                return Some(&self.body[value_at..value_at + values]);
            }
            at = value_at + values;
        }
        None
    }

    #[inline]
    fn bisect(&self, wanted: u64) -> Option<usize> {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = (low + high) / 2;
            match self.prefix(middle).cmp(&wanted) {
                std::cmp::Ordering::Equal => return Some(middle),
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        None
    }

    /// Looks where a prefix would be if they were spread evenly between the bounds known so far.
    #[inline]
    fn interpolate(&self, wanted: u64) -> Option<usize> {
        let (mut low, mut high) = (0, self.len());
        let (mut least, mut most) = (0u64, u64::MAX);
        while low < high && least <= wanted && wanted <= most {
            let share =
                u128::from(wanted - least) * (high - low) as u128 / (u128::from(most - least) + 1);
            let place = low + share as usize;
            let here = self.prefix(place);
            match here.cmp(&wanted) {
                std::cmp::Ordering::Equal => return Some(place),
                std::cmp::Ordering::Less => (low, least) = (place + 1, here + 1),
                std::cmp::Ordering::Greater => (high, most) = (place, here - 1),
            }
        }
        None
    }
}

/// The chunk, searched by bisection.
pub struct Binary(Chunk);
/// The chunk, searched by interpolation.
pub struct Interpolation(Chunk);

impl Store for Binary {
    type Session<'a> = &'a Binary;

    fn open(path: &Path, _data: &Path) -> Result<Self> {
        Ok(Self(Chunk::open(path)?))
    }

    fn session(&self) -> Result<&Binary> {
        Ok(self)
    }

    fn index_bytes(&self) -> Option<u64> {
        Some(self.0.index.len() as u64)
    }
}

impl Session for &Binary {
    #[inline]
    fn get<R>(&mut self, key: &[u8], visit: impl FnOnce(&[u8]) -> R) -> Option<R> {
        let place = self.0.bisect(md5_prefix(key))?;
        self.0.value_at(place, key).map(visit)
    }
}

impl Store for Interpolation {
    type Session<'a> = &'a Interpolation;

    fn open(path: &Path, _data: &Path) -> Result<Self> {
        Ok(Self(Chunk::open(path)?))
    }

    fn session(&self) -> Result<&Interpolation> {
        Ok(self)
    }

    fn index_bytes(&self) -> Option<u64> {
        Some(self.0.index.len() as u64)
    }
}

impl Session for &Interpolation {
    #[inline]
    fn get<R>(&mut self, key: &[u8], visit: impl FnOnce(&[u8]) -> R) -> Option<R> {
        let place = self.0.interpolate(md5_prefix(key))?;
        self.0.value_at(place, key).map(visit)
    }
}
