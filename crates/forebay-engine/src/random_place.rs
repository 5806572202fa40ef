//! Where to look for a key by chance.
//!
//! A hashed table has keys at all hashes alike. An ordered one is drawn from by its pages: a run is
//! chosen by its share of the records, and any page of it is as likely as any other.

use std::ops::Bound;
use std::sync::Arc;

use forebay_io::Random;
use forebay_run::Order;
use forebay_run::run::Run;
use forebay_run::scan::ScanRange;

use crate::bound;
use crate::source::Source;

/// A walk from any hash passes over so many keys at most, so that those behind a gap among the
/// hashes do not come more often than others by much.
const HASHED_KEYS: u64 = 16;
/// The same of records that are in memory alone.
const MEMORY_KEYS: u64 = 10_000;

/// A place of a table by chance.
#[derive(Debug)]
pub struct RandomPlace {
    /// From there on,
    pub range: ScanRange,
    /// so many keys are about as likely as each other: take any of them.
    pub keys: u64,
}

impl Source<'_> {
    /// A place where a key may be drawn from. There may be none behind it.
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

    /// From the beginning of a partition on.
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
