//! Samples the keys of a load, for planning. It writes nothing.

use std::sync::Arc;

use forebay_engine::live::LiveOptions;
use forebay_io::{Clock, Random, Throttle};
use forebay_run::hash::KeyHasher;

use super::fit::TableFit;
use super::{LoadError, LoadRequest};
use crate::progress::Progress;
use crate::push::build::tallies;
use crate::push::dry_run::{Drawing, Extent, Lens, look};
use crate::push::read::ReadRows;
use crate::push::source_reader::SourceReader;
use crate::sort::{Duplicates, key_samples};

/// The method of drawing rows from the sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sampler {
    /// The first rows of many parts of the sources, 100,000 at most. This is fast. If parts are
    /// sorted, it says little about the rest of each part.
    Split,
    /// Random rows, each with the same chance. All rows are read.
    Random,
    /// Every n-th row of each part. All rows are read, and the sample is the same each time.
    Interval,
}

/// A sample of the sources.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadSample {
    /// The drawn keys, in any order.
    pub keys: Vec<Vec<u8>>,
    /// The number of rows that would be loaded, counting all rows of a key.
    pub rows: u64,
    /// The bytes of their keys and values.
    pub bytes: u64,
    /// Whether `rows` and `bytes` are exact counts.
    pub is_exact: bool,
    /// Bad rows among those that were read.
    pub rejected: u64,
}

/// The most keys in a sample.
const KEYS: usize = 20_000;

impl LoadSample {
    /// Creates a sample of rows that were read and sorted for a load.
    pub(super) fn of(read: &ReadRows) -> Self {
        let (source, dropped) = tallies(&read.collected);
        let kept = source.without(&dropped);
        Self {
            keys: evenly(key_samples(&read.collected)),
            rows: kept.records,
            bytes: kept.bytes,
            is_exact: true,
            rejected: read.rejected,
        }
    }

    /// Creates a sample from drawn keys, each with the number of bytes it represents, of this many
    /// rows.
    pub fn of_keys(keys: Vec<(Vec<u8>, u64)>, rows: u64) -> Self {
        Self {
            bytes: keys.iter().map(|(_, bytes)| bytes).sum(),
            keys: evenly(keys),
            rows,
            is_exact: false,
            rejected: 0,
        }
    }
}

/// Turns keys with the number of bytes each represents into keys that each represent about as many.
fn evenly(mut samples: Vec<(Vec<u8>, u64)>) -> Vec<Vec<u8>> {
    samples.sort_unstable();
    let all: u64 = samples.iter().map(|(_, bytes)| bytes).sum();
    let step = (all / KEYS as u64).max(1);
    let (mut keys, mut passed, mut due) = (Vec::new(), 0, step / 2);
    for (key, bytes) in samples {
        passed += bytes;
        while due < passed {
            keys.push(key.clone());
            due += step;
        }
    }
    keys
}

/// Draws keys from a request's sources, for a table with these options.
pub fn sample(
    request: &LoadRequest,
    options: &LiveOptions,
    sampler: Sampler,
    (clock, random): (&Arc<dyn Clock>, &dyn Random),
    progress: &dyn Progress,
) -> Result<LoadSample, LoadError> {
    let fit = TableFit::new(request, options, clock.unix_ms());
    let (extent, drawing) = match sampler {
        Sampler::Split => (Extent::Sample, Drawing::AtRandom),
        Sampler::Random => (Extent::All, Drawing::AtRandom),
        Sampler::Interval => (Extent::All, Drawing::AtIntervals),
    };
    let hasher = KeyHasher::new(format!("{}:", request.table).as_bytes());
    let throttle = Throttle::new(request.rate_bytes, Arc::clone(clock));
    let lens = Lens {
        extent,
        threads: request.threads,
        memory_bytes: request.memory_bytes,
        keeps_first: request.duplicates == Duplicates::First,
        drawing,
        drawn_rows: KEYS,
        hasher: &hasher,
        throttle: &throttle,
        clock: &**clock,
        random,
    };
    let looking = SourceReader {
        plan: None,
        threads: request.threads,
        throttle: &throttle,
        progress,
    };
    let sources = &request.source_options;
    let (_, looked) = looking.read(
        sources,
        fit.open(sources)?,
        |options| fit.open(options),
        |sources, encoder| look(sources, encoder, lens, progress),
    )?;
    let scale = match (looked.is_all, looked.total_rows) {
        (false, Some(total)) => total as f64 / looked.rows.max(1) as f64,
        _ => 1.0,
    };
    let scaled = |count: u64| (count as f64 * scale).round() as u64;
    Ok(LoadSample {
        keys: looked.sample.into_iter().map(|drawn| drawn.key).collect(),
        rows: scaled(looked.stored),
        bytes: scaled(looked.bytes),
        is_exact: looked.is_all,
        rejected: looked.rejected,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_repeated_by_its_weight() {
        let sample = |bytes: u64| {
            let samples = [
                (b"c".to_vec(), 1),
                (b"a".to_vec(), bytes),
                (b"b".to_vec(), 1),
            ];
            evenly(samples.to_vec())
        };
        assert_eq!(
            sample(2),
            ["a", "a", "b", "c"].map(|key| key.as_bytes().to_vec())
        );
        let many = sample(1 << 30);
        assert!(
            many.len() <= KEYS + 1 && many.len() > KEYS - 3,
            "{}",
            many.len()
        );
        assert!(evenly(Vec::new()).is_empty());
    }
}
