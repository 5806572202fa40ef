//! The flat input: fixed-width records `key | value`, back to back, in one file NAME.flat.
//!
//! Beside it lie NAME.json (the shape and the expected checksum), NAME.queries and NAME.misses. The
//! last two have keys, back to back, in the order in which every contender is asked for them.
//! Values are printable, so that the same records go through CSV, SQL and Redis.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use memmap2::Mmap;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Queries in the order asked; phases of a measurement take different stretches of them.
pub const QUERIES: usize = 1 << 20;
const MISSES: u64 = 1 << 18;
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

#[derive(Debug, Clone, Copy, ValueEnum, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum KeyStyle {
    Hex,
    Decimal,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum ExportFormat {
    /// `key,value` lines under a header `k,v`.
    Csv,
    /// `key TAB value` lines, no header.
    Tsv,
    /// `SET key:KEY VALUE` in the Redis protocol.
    Resp,
}

pub struct GenOptions {
    pub records: u64,
    pub value_bytes: usize,
    pub keys: KeyStyle,
    /// Another salt gives the same keys other values: the next version of a table.
    pub salt: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Shape {
    pub records: u64,
    pub key_bytes: usize,
    pub value_bytes: usize,
    pub keys: KeyStyle,
    /// What `value_check` of the answers to the whole query file adds up to.
    pub expected: u64,
}

/// The flat set, mapped.
pub struct Dataset {
    pub shape: Shape,
    map: Mmap,
    records: usize,
}

impl Dataset {
    /// `path` is the set's name without its endings.
    pub fn open(path: &Path) -> Result<Self> {
        let shape = Shape::read(path)?;
        let file = File::open(path.with_extension("flat"))?;
        // Safety: the file is written once by `generate` and never changed.
        let map = unsafe { Mmap::map(&file)? };
        let records = shape.records as usize;
        if map.len() != records * (shape.key_bytes + shape.value_bytes) {
            bail!("{} is cut short: generate it again", path.display());
        }
        Ok(Self {
            shape,
            map,
            records,
        })
    }

    pub fn limited(mut self, records: Option<u64>) -> Self {
        self.records = self.records.min(records.map_or(usize::MAX, |n| n as usize));
        self
    }

    pub fn len(&self) -> usize {
        self.records
    }

    pub fn record(&self, index: usize) -> (&[u8], &[u8]) {
        let width = self.shape.key_bytes + self.shape.value_bytes;
        self.map[index * width..(index + 1) * width].split_at(self.shape.key_bytes)
    }

    /// Starts fetching a record into the processor's cache, for builders that gather in sort order.
    #[inline]
    pub fn prefetch(&self, index: usize) {
        let width = self.shape.key_bytes + self.shape.value_bytes;
        #[cfg(target_arch = "x86_64")]
        for line in (index * width..((index + 1) * width).min(self.map.len())).step_by(64) {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // Safety: inside the mapping, and a prefetch reads nothing that shows.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(self.map.as_ptr().add(line).cast()) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (index, width);
    }

    /// The entries of a sort with their records, fetched ahead so that memory's latency hides.
    pub fn gather<'a, E>(
        &'a self,
        order: &'a [E],
        number: impl Fn(&E) -> u32 + 'a,
    ) -> impl Iterator<Item = (&'a E, &'a [u8], &'a [u8])> {
        const AHEAD: usize = 16;
        order.iter().enumerate().map(move |(place, entry)| {
            if let Some(later) = order.get(place + AHEAD) {
                self.prefetch(number(later) as usize);
            }
            let (key, value) = self.record(number(entry) as usize);
            (entry, key, value)
        })
    }

    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        (0..self.records).map(|index| self.record(index))
    }

    pub fn payload_bytes(&self) -> u64 {
        self.records as u64 * (self.shape.key_bytes + self.shape.value_bytes) as u64
    }

    /// The records' numbers in the order of their keys, found with two threads.
    pub fn sorted_by_key(&self) -> Vec<u32> {
        use rayon::prelude::*;
        let mut order: Vec<(u128, u32)> = (0..self.records as u32)
            .into_par_iter()
            .map(|index| (key_as_number(self.record(index as usize).0), index))
            .collect();
        order.par_sort_unstable();
        order.into_iter().map(|(_, index)| index).collect()
    }
}

/// A key of at most 16 bytes as a number that sorts as the key does.
fn key_as_number(key: &[u8]) -> u128 {
    let mut bytes = [0u8; 16];
    bytes[..key.len()].copy_from_slice(key);
    u128::from_be_bytes(bytes)
}

impl Shape {
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read(path.with_extension("json"))
            .with_context(|| format!("no data set {}: run `bench gen` first", path.display()))?;
        Ok(serde_json::from_slice(&text)?)
    }
}

/// Keys to ask for, back to back in one allocation.
pub struct Queries {
    bytes: Vec<u8>,
    key_bytes: usize,
}

impl Queries {
    pub fn read(path: &Path, ending: &str, key_bytes: usize) -> Result<Self> {
        Ok(Self {
            bytes: std::fs::read(path.with_extension(ending))?,
            key_bytes,
        })
    }

    pub fn len(&self) -> usize {
        self.bytes.len() / self.key_bytes
    }

    #[inline]
    pub fn key(&self, index: usize) -> &[u8] {
        &self.bytes[index * self.key_bytes..][..self.key_bytes]
    }
}

/// What a reader adds up of each answer, so that it has touched the value's first and last bytes.
#[inline]
pub fn value_check(value: &[u8]) -> u64 {
    let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap_or_default());
    word(&value[..8]).wrapping_add(word(&value[value.len() - 8..]))
}

/// A bijective mixer: different numbers give different keys.
fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

fn write_key(style: KeyStyle, number: u64, out: &mut Vec<u8>) {
    out.clear();
    let _ = match style {
        KeyStyle::Hex => write!(out, "{:016x}", mix(number)),
        KeyStyle::Decimal => write!(out, "{number:012}"),
    };
}

/// The key of a record in a set with decimal keys.
pub fn write_decimal(number: u64) -> String {
    format!("{number:012}")
}

fn letters(state: u64) -> [u8; 10] {
    std::array::from_fn(|i| ALPHABET[(state >> (6 * i)) as usize & 63])
}

fn write_value(number: u64, salt: u64, bytes: usize, out: &mut Vec<u8>) {
    out.clear();
    let mut state = mix(!number ^ salt << 48);
    while out.len() < bytes {
        state = mix(state);
        out.extend(letters(state));
    }
    out.truncate(bytes);
}

/// Whether a value begins as that of the record does in the set of this salt.
pub fn value_begins(number: u64, salt: u64, value: &[u8]) -> bool {
    value.starts_with(&letters(mix(mix(!number ^ salt << 48))))
}

pub fn generate(options: &GenOptions, path: &Path) -> Result<Value> {
    if options.value_bytes < 8 || options.records == 0 || options.records > u64::from(u32::MAX) {
        bail!("a set has 1 to 2^32-1 records with values of at least 8 bytes");
    }
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir)?;
    }
    let mut key = Vec::new();
    let mut value = Vec::new();
    let mut file = BufWriter::with_capacity(1 << 20, File::create(path.with_extension("flat"))?);
    for number in 0..options.records {
        write_key(options.keys, number, &mut key);
        write_value(number, options.salt, options.value_bytes, &mut value);
        file.write_all(&key)?;
        file.write_all(&value)?;
    }
    file.into_inner()
        .map_err(|error| error.into_error())?
        .sync_all()?;
    let shape = Shape {
        records: options.records,
        key_bytes: key.len(),
        value_bytes: options.value_bytes,
        keys: options.keys,
        expected: write_queries(options, path)?,
    };
    write_misses(options, path)?;
    std::fs::write(path.with_extension("json"), serde_json::to_vec(&shape)?)?;
    Ok(serde_json::to_value(&shape)?)
}

/// Uniform over the records; answers the checksum expected of all.
fn write_queries(options: &GenOptions, path: &Path) -> Result<u64> {
    let mut file = BufWriter::new(File::create(path.with_extension("queries"))?);
    let (mut key, mut value, mut expected) = (Vec::new(), Vec::new(), 0u64);
    for turn in 0..QUERIES as u64 {
        let number = (u128::from(mix(turn ^ 0x5151)) * u128::from(options.records) >> 64) as u64;
        write_key(options.keys, number, &mut key);
        write_value(number, options.salt, options.value_bytes, &mut value);
        expected = expected.wrapping_add(value_check(&value));
        file.write_all(&key)?;
    }
    file.flush()?;
    Ok(expected)
}

/// Keys of the same look that no record has.
fn write_misses(options: &GenOptions, path: &Path) -> Result<()> {
    let mut file = BufWriter::new(File::create(path.with_extension("misses"))?);
    let mut key = Vec::new();
    for turn in 0..MISSES {
        write_key(options.keys, options.records + turn, &mut key);
        file.write_all(&key)?;
    }
    Ok(file.flush()?)
}

pub fn export(data: &Dataset, format: ExportFormat, out: &PathBuf) -> Result<Value> {
    let mut file = BufWriter::with_capacity(1 << 20, File::create(out)?);
    if matches!(format, ExportFormat::Csv) {
        file.write_all(b"k,v\n")?;
    }
    for (key, value) in data.iter() {
        match format {
            ExportFormat::Csv => write_fields(&mut file, [key, b",", value, b"\n"])?,
            ExportFormat::Tsv => write_fields(&mut file, [key, b"\t", value, b"\n"])?,
            ExportFormat::Resp => {
                write!(file, "*3\r\n$3\r\nSET\r\n${}\r\nkey:", key.len() + 4)?;
                file.write_all(key)?;
                write!(file, "\r\n${}\r\n", value.len())?;
                write_fields(&mut file, [value, b"\r\n", b"", b""])?;
            }
        }
    }
    file.flush()?;
    Ok(json!({"records": data.len(), "bytes": std::fs::metadata(out)?.len()}))
}

fn write_fields(file: &mut impl Write, fields: [&[u8]; 4]) -> std::io::Result<()> {
    fields.iter().try_for_each(|field| file.write_all(field))
}
