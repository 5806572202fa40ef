//! Chooses random positions in a table from which to draw a key.
//!
//! A hashed table has keys evenly over all hashes. An ordered one is drawn from by its pages: a run
//! is chosen by its share of the records, and each of its pages is equally likely.

use std::ops::Bound;
use std::sync::Arc;

use forebay_io::Random;
use forebay_run::Order;
use forebay_run::run::Run;
use forebay_run::scan::ScanRange;

use crate::keys::bound;
use crate::source::Source;

/// The most keys that a walk from a random hash skips. Without such a skip, keys after a gap among
/// the hashes would be drawn much more often than others.
const HASHED_KEYS: u64 = 16;
/// The most keys to skip among records that are only in memory.
const MEMORY_KEYS: u64 = 10_000;

/// A random position in a table.
#[derive(Debug)]
pub struct RandomPlace {
    /// The range that begins at the position.
    pub range: ScanRange,
    /// So many keys from there are about equally likely: take any of them.
    pub keys: u64,
}

impl Source<'_> {
    /// Returns a position from which a key may be drawn. There may be no key after it.
    pub fn random_place(self, random: &dyn Random) -> RandomPlace {
        if self.order() == Order::Hashed {
            return RandomPlace {
                range: ScanRange::hashes(random.next_u64(), None),
                keys: HASHED_KEYS,
            };
        }
        let runs: Vec<Arc<Run>> = match self {
            Source::Batch(version) => version.runs().cloned().collect(),
            Source::Live(table) => table.snapshot().files().cloned().collect(),
        };
        let in_memory = match self {
            Source::Batch(_) => 0,
            Source::Live(table) => table.stats().memory_records,
        };
        let in_runs: u64 = runs.iter().map(|run| run.summary().records).sum();
        let mut record = random.next_u64() % (in_runs + in_memory).max(1);
        for run in runs {
            match record.checked_sub(run.summary().records) {
                Some(rest) => record = rest,
                None => return of_run(&run, random),
            }
        }
        self.of_partition(random, in_memory)
    }

    /// Returns the position at the beginning of a partition.
    fn of_partition(self, random: &dyn Random, records: u64) -> RandomPlace {
        let partitions = self.partitions();
        let chosen = random.next_u64() % (partitions.len().max(1) as u64);
        let lower = partitions
            .get(chosen as usize)
            .map(|range| &range.bounds.lower);
        RandomPlace {
            range: match lower {
                Some(bound::Bound::Key(key)) => from(key),
                _ => ScanRange::all(),
            },
            keys: records.clamp(1, MEMORY_KEYS),
        }
    }
}

fn of_run(run: &Run, random: &dyn Random) -> RandomPlace {
    let summary = run.summary();
    let pages = summary.pages.max(1);
    let page = random.next_u64() % pages;
    let before = page
        .checked_sub(1)
        .and_then(|page| usize::try_from(page).ok());
    RandomPlace {
        range: match before.and_then(|page| run.separators().nth(page)) {
            Some(key) => from(key),
            None => ScanRange::all(),
        },
        keys: summary.records.div_ceil(pages).max(1),
    }
}

fn from(key: &[u8]) -> ScanRange {
    ScanRange::keys(Bound::Included(key), Bound::Unbounded)
}
