//! The size of a partition, and the distribution of its keys, for planners of splits and moves.
//!
//! All of it comes from memory: counts of runs, their indexes, the lists of runs in memory. Nothing
//! is read from the device. Only the partition's lock is taken, for a moment.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::keys::bound::Bound;
use crate::keys::partition::{Bounds, PartitionId};
use crate::live::LiveTable;
use crate::live::memory::mini::MiniRun;
use crate::live::memory::run::LiveRun;
use crate::live::partition::part::PartView;
use crate::live::partition::shared::LiveShared;

/// The approximate size of a partition.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionSize {
    /// Duplicate and deleted keys are counted separately, until runs are merged.
    pub records: u64,
    /// Bytes of files and of memory. Of a file that was split, only this partition's part.
    pub bytes: u64,
    /// Of an ordered table, keys that divide the records about evenly, rising: 15, or as many as
    /// there are pages.
    // Older programs write and read this name.
    #[serde(rename = "marks", default, skip_serializing_if = "Vec::is_empty")]
    pub split_points: Vec<Bound>,
}

/// The greatest number of keys that divide a partition.
const MOST_SPLIT_POINTS: usize = 15;
/// How many keys of each source are sampled.
const LOOKED_AT: usize = 64;

/// Split points are kept while less than this fraction of a partition is new.
const NEW_PART: u64 = 16;

impl LiveTable {
    /// Returns the approximate size of a partition; `None` if this table does not hold it. `known`
    /// is an earlier result. If little has changed since, its split points are used again: to find
    /// them reads each page's entry in the indexes.
    pub fn size_of(&self, id: PartitionId, known: Option<&PartitionSize>) -> Option<PartitionSize> {
        self.shared().size_of(id, known)
    }
}

impl LiveShared {
    fn size_of(&self, id: PartitionId, known: Option<&PartitionSize>) -> Option<PartitionSize> {
        let place = self.parts.find(id)?;
        let part = self.parts.at(place).lock();
        let (view, buffered) = (Arc::clone(&part.view), part.memtable.records());
        let buffer_bytes = match buffered {
            0 => 0,
            _ => part.memtable.memory_bytes() as u64,
        };
        drop(part);
        let sources = Sources::seen(&view);
        let (mut records, mut bytes) = (buffered, buffer_bytes);
        for mini in &sources.minis {
            records += mini.records();
            bytes += mini.end() as u64;
        }
        for run in &sources.runs {
            records += part_seen(run, run.reference.summary.records);
            bytes += part_seen(run, run.reference.files_bytes());
        }
        let bounds = self.parts.bounds_at(place);
        let is_near = |known: &&PartitionSize| {
            known.records.abs_diff(records) <= known.records / NEW_PART
                && !known.split_points.is_empty()
        };
        let split_points = match (&bounds.lower, known.filter(is_near)) {
            (Bound::Slot(_), _) => Vec::new(),
            (Bound::Key(_), Some(known)) => {
                let split_points = known
                    .split_points
                    .iter()
                    .filter(|point| bounds.holds(point));
                split_points.cloned().collect()
            }
            (Bound::Key(_), None) => sources.split_points(bounds),
        };
        Some(PartitionSize {
            records,
            bytes,
            split_points,
        })
    }
}

/// The visible sources of a partition. Sources that are older than a deletion of all keys are left
/// out.
struct Sources<'a> {
    minis: Vec<&'a MiniRun>,
    runs: Vec<&'a LiveRun>,
}

/// Scales a number of a whole file to the part that the partition sees, approximately.
fn part_seen(run: &LiveRun, all: u64) -> u64 {
    let pages = run.reference.summary.pages.max(1);
    match run.pages_seen() {
        // A part of one page is about a half of it.
        0 => all / pages / 2,
        seen => (u128::from(all) * u128::from(seen) / u128::from(pages)) as u64,
    }
}

impl<'a> Sources<'a> {
    fn seen(view: &'a PartView) -> Self {
        let (mut minis, mut runs) = (Vec::new(), Vec::new());
        for mini in view.all_minis().rev() {
            minis.push(&**mini);
            if mini.removed.is_all() {
                return Self { minis, runs };
            }
        }
        for run in view.runs.iter().rev() {
            runs.push(&**run);
            if run.reference.removed.is_all() {
                break;
            }
        }
        Self { minis, runs }
    }

    fn split_points(&self, bounds: &Bounds) -> Vec<Bound> {
        let mut sampled = SampledKeys {
            bounds,
            keys: Vec::new(),
        };
        for mini in &self.minis {
            sampled.add(
                &mini.listed_keys(LOOKED_AT).collect::<Vec<_>>(),
                mini.records(),
            );
        }
        for run in &self.runs {
            let seen = usize::try_from(run.pages_seen()).unwrap_or(usize::MAX);
            let here = run.run.separators().filter(|key| sampled.is_here(key));
            let keys: Vec<&[u8]> = here.step_by((seen / LOOKED_AT).max(1)).collect();
            sampled.add(&keys, part_seen(run, run.reference.summary.records));
        }
        sampled.split_points()
    }
}

/// Sampled keys of a partition, each with the number of records that it stands for.
struct SampledKeys<'a> {
    bounds: &'a Bounds,
    keys: Vec<(Vec<u8>, f64)>,
}

impl SampledKeys<'_> {
    fn is_here(&self, key: &[u8]) -> bool {
        let is_from = |bound: &Bound| matches!(bound, Bound::Key(from) if from.as_slice() <= key);
        is_from(&self.bounds.lower) && !self.bounds.upper.as_ref().is_some_and(is_from)
    }

    fn add(&mut self, keys: &[&[u8]], records: u64) {
        let weight = records as f64 / keys.len().max(1) as f64;
        let keys = keys.iter().map(|key| (key.to_vec(), weight));
        self.keys.extend(keys);
    }

    fn split_points(mut self) -> Vec<Bound> {
        self.keys.sort_by(|(a, _), (b, _)| a.cmp(b));
        let all: f64 = self.keys.iter().map(|(_, weight)| weight).sum();
        let wanted = |point: usize| all * point as f64 / (MOST_SPLIT_POINTS + 1) as f64;
        let (mut split_points, mut below, mut point) = (Vec::new(), 0.0, 1);
        for (key, weight) in self.keys {
            let is_due = point <= MOST_SPLIT_POINTS && below + 0.5 * weight >= wanted(point);
            while point <= MOST_SPLIT_POINTS && below + 0.5 * weight >= wanted(point) {
                point += 1;
            }
            below += weight;
            let key = Bound::Key(key);
            if is_due && self.bounds.lower < key && split_points.last() != Some(&key) {
                split_points.push(key);
            }
        }
        split_points
    }
}
