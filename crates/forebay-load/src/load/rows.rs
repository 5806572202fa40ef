//! Reads rows and orders them to be sent one by one.
//!
//! This is the staging of the Planned Bulk paper (section 3.1), and its ways of inserting.
//!
//! Reading, encoding and sorting are those of a load by runs (`super`), with the same memory and
//! spilled runs. The rows sent are therefore those that the runs would have. This module does not
//! use sockets: the sender takes the rows piece by piece.

use std::sync::Arc;

use forebay_engine::live::{LiveOptions, Load};
use forebay_engine::{Bound, PartitionRange, Store};
use forebay_run::hash::SLOTS;
use forebay_run::operation::Operation;

use super::fit::TableFit;
use super::load_ranges::LoadRanges;
use super::{LoadError, LoadRequest, LoadSample, composition};
use crate::progress::Progress;
use crate::push::PushError;
use crate::push::build::tallies;
use crate::push::read::ReadRows;
use crate::push::rejects::without_empty_file;
use crate::push::work::Work;
use crate::sort::{
    Arrangement, Boundaries, Duplicates, SortError, SortPlan, SortSpace, key_samples,
    walk_partition,
};

/// Rows that were read, in the order in which they are sent. Dropping this removes spilled runs.
#[derive(Debug)]
pub struct StagedRows {
    read: ReadRows,
    plan: SortPlan,
    load: Load,
}

/// The pieces of staged rows: each has the rows between two places of their order.
#[derive(Debug)]
pub struct RowPieces(Boundaries);

/// Reads a request's rows and sorts them, merging the rows of each key. In their order of arrival,
/// rows are not merged. A bad row ends it before anything is sent.
pub fn stage_rows(
    request: &LoadRequest,
    store: &Store,
    load: Load,
    arrangement: Arrangement,
    progress: &dyn Progress,
) -> Result<StagedRows, LoadError> {
    without_empty_file(&request.bad_rows, &**store.disk(), || {
        let fit = TableFit::new(request, load.options(), store.clock().unix_ms());
        let options = &request.source_options;
        let opened = fit.open(options)?;
        let plan = plan(request, store, &load, arrangement)?;
        let bad_rows = &request.bad_rows;
        let work = Work::new(plan.clone(), bad_rows, request.rate_bytes, store, progress);
        let work = work.with_table_types();
        let (_, read) = work.read(options, opened, |options| fit.open(options))?;
        let staged = StagedRows { read, plan, load };
        match staged.rows() == 0 && staged.rejected() > 0 {
            true => Err(PushError::NothingLeft.into()),
            false => Ok(staged),
        }
    })
}

fn plan(
    request: &LoadRequest,
    store: &Store,
    load: &Load,
    arrangement: Arrangement,
) -> Result<SortPlan, LoadError> {
    let space = SortSpace {
        disk: Arc::clone(store.disk()),
        scratch: load.scratch_dir()?,
        memory_bytes: request.memory_bytes,
        threads: request.threads,
    };
    let (mut duplicates, with_operations) = composition(request, load.options());
    if arrangement == Arrangement::AsTheyCame {
        // No two rows have the same place.
        duplicates = Duplicates::Last;
    }
    let run = load.run_options();
    let plan = SortPlan::new(space, run, None, duplicates, with_operations);
    Ok(plan.arranged(arrangement))
}

impl StagedRows {
    pub fn options(&self) -> &LiveOptions {
        self.load.options()
    }

    /// Returns the most rows there can be: rows of one key that no thread has merged yet count
    /// separately.
    pub fn rows(&self) -> u64 {
        let (source, dropped) = tallies(&self.read.collected);
        source.records - dropped.records
    }

    /// Returns the number of rows that were merged with another row of their key while they were
    /// read.
    pub fn duplicates(&self) -> u64 {
        tallies(&self.read.collected).1.records
    }

    /// Returns the number of bad rows that were left out.
    pub fn rejected(&self) -> u64 {
        self.read.rejected
    }

    pub fn lossy(&self) -> &[crate::convert::Lossy] {
        &self.read.lossy
    }

    /// Returns a sample of the rows, for planning.
    pub fn sample(&self) -> LoadSample {
        LoadSample::of(&self.read)
    }

    /// Splits the rows into pieces. By key, these are the table's partitions, each split further if
    /// more pieces are wanted. Shuffled rows are split into as many as wanted. In order of arrival
    /// there is one piece.
    pub fn pieces(&mut self, partitions: Vec<PartitionRange>, wanted: usize) -> RowPieces {
        let wanted = wanted.max(1);
        RowPieces(match self.plan.arrangement {
            Arrangement::ByKey => {
                self.load.repartition(partitions);
                let here = LoadRanges::of(&self.load);
                finer(here.boundaries, wanted, || {
                    key_samples(&self.read.collected)
                })
            }
            Arrangement::Shuffled(_) => {
                let step = u64::MAX / wanted as u64;
                let begins = (1..wanted as u64).map(|number| number * step);
                let begins = begins.map(|begin| Bound::Key(begin.to_be_bytes().to_vec()));
                Boundaries::at([start()].into_iter().chain(begins).collect())
            }
            Arrangement::AsTheyCame => Boundaries::at(vec![start()]),
        })
    }

    /// Passes the rows of a piece to `accept` in their order; returns the number of rows merged
    /// into another row of their key. An error of `accept` ends it.
    pub fn walk<E: From<LoadError>>(
        &self,
        pieces: &RowPieces,
        piece: usize,
        mut accept: impl FnMut(&[u8], Operation<'_>) -> Result<(), E>,
    ) -> Result<u64, E> {
        let collected = &self.read.collected;
        let walked = walk_partition(&self.plan, &pieces.0, collected, piece, |key, operation| {
            accept(key, operation).map_err(WalkEnd::Accept)
        });
        walked.map_err(|stopped| match stopped {
            WalkEnd::Accept(error) => error,
            WalkEnd::Sort(error) => {
                LoadError::from(PushError::from(error).in_files(&self.read.files)).into()
            }
        })
    }
}

/// The reason for which a walk ended early.
enum WalkEnd<E> {
    Sort(SortError),
    Accept(E),
}

impl<E> From<SortError> for WalkEnd<E> {
    fn from(error: SortError) -> Self {
        WalkEnd::Sort(error)
    }
}

impl RowPieces {
    /// Returns the lower bound of each piece, in the table's order if the rows are in it.
    pub fn begins(&self) -> &[Bound] {
        self.0.as_slice()
    }
}

fn start() -> Bound {
    Bound::Key(Vec::new())
}

/// Splits at these boundaries, and between them until there are about as many pieces as wanted.
fn finer(
    boundaries: Boundaries,
    wanted: usize,
    samples: impl FnOnce() -> Vec<(Vec<u8>, u64)>,
) -> Boundaries {
    let begins = boundaries.as_slice();
    if begins.len() >= wanted {
        return boundaries;
    }
    let finer = match begins[0] {
        Bound::Slot(_) => finer_slots(begins, wanted),
        Bound::Key(_) => finer_keys(begins, wanted, samples()),
    };
    Boundaries::at(finer)
}

fn finer_slots(begins: &[Bound], wanted: usize) -> Vec<Bound> {
    let step = (SLOTS / (wanted as u32).min(SLOTS)).max(1);
    let mut slots = Vec::new();
    for (at, begin) in begins.iter().enumerate() {
        let (Bound::Slot(from), next) = (begin, begins.get(at + 1)) else {
            continue;
        };
        let end = match next {
            Some(Bound::Slot(to)) => u32::from(*to),
            _ => SLOTS,
        };
        let each = (u32::from(*from)..end).step_by(step as usize);
        slots.extend(each.map(|slot| Bound::Slot(slot as u16)));
    }
    slots
}

fn finer_keys(begins: &[Bound], wanted: usize, mut samples: Vec<(Vec<u8>, u64)>) -> Vec<Bound> {
    samples.sort_unstable();
    let all: u64 = samples.iter().map(|(_, bytes)| bytes).sum();
    let most = (all / wanted as u64).max(1);
    let (mut cut, mut next, mut passed) = (Vec::new(), begins.iter().peekable(), 0);
    for (key, bytes) in samples {
        let reaches = |begin: &&Bound| matches!(begin, Bound::Key(first) if *first <= key);
        while let Some(begin) = next.next_if(reaches) {
            cut.push(begin.clone());
            passed = 0;
        }
        let rises = !matches!(cut.last(), Some(Bound::Key(last)) if *last >= key);
        if passed >= most && rises {
            cut.push(Bound::Key(key));
            passed = 0;
        }
        passed += bytes;
    }
    cut.extend(next.cloned());
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u32) -> Vec<u8> {
        format!("k{number:05}").into_bytes()
    }

    #[test]
    fn partitions_are_split_further_where_their_rows_are() {
        let begins = vec![start(), Bound::Key(key(10_000)), Bound::Key(key(20_000))];
        let boundaries = Boundaries::at(begins.clone());
        // All rows are in the middle.
        let samples = || (0..1000).map(|at| (key(10_000 + at), 10)).collect();
        let cut = finer(boundaries.clone(), 12, samples);
        let cut = cut.as_slice();
        assert_eq!(cut.first(), begins.first());
        assert_eq!(cut.last(), begins.last());
        assert!(cut.len() >= 12 && cut.len() <= 16, "{}", cut.len());
        assert!(begins.iter().all(|begin| cut.contains(begin)));
        assert!(cut.is_sorted_by(|a, b| match (a, b) {
            (Bound::Key(a), Bound::Key(b)) => a < b,
            _ => false,
        }));
        let same = finer(boundaries.clone(), 3, || {
            panic!("there are enough partitions")
        });
        assert_eq!(same, boundaries);
        assert_eq!(finer(boundaries.clone(), 9, Vec::new), boundaries);
    }

    #[test]
    fn slots_are_split_evenly() {
        let boundaries = Boundaries::at(vec![Bound::Slot(0), Bound::Slot(8192)]);
        let cut = finer(boundaries, 8, || panic!("slots need no samples"));
        let slots = (0..8).map(|at| Bound::Slot(at * 2048));
        assert_eq!(cut.as_slice(), slots.collect::<Vec<_>>());
    }
}
