//! Builds and checks the partitions' runs: the second half of a push or a load.

use forebay_engine::{NewRun, RunRef};

use super::{ComposedRows, PushError};
use crate::progress::{Progress, Unit};
use crate::sort::{
    Boundaries, CollectedRecords, Duplicates, Finish, SortPlan, SortedPartition, Tally,
    write_partitions,
};
use forebay_io::Throttle;

/// The inputs for building runs.
pub struct BuildJob<'a> {
    pub plan: &'a SortPlan,
    pub finish: &'a dyn Finish,
    pub throttle: &'a Throttle,
    pub progress: &'a dyn Progress,
}

/// The runs that were written.
pub struct Outputs {
    /// The runs at the indices of their partitions; `None` for a partition without rows.
    pub runs: Vec<Option<RunRef>>,
    pub kept: Tally,
    pub duplicates: u64,
}

/// Returns the tally of the records received, and of those left out while they were collected.
pub fn tallies(collected: &[CollectedRecords]) -> (Tally, Tally) {
    let (mut source, mut dropped) = (Tally::default(), Tally::default());
    for part in collected {
        source.merge(&part.seen);
        dropped.merge(&part.dropped);
    }
    (source, dropped)
}

impl BuildJob<'_> {
    /// Writes the partitions, each at the place that `new_run` gives. It reads them back and
    /// compares them with the records received.
    pub fn build(
        &self,
        collected: &[CollectedRecords],
        boundaries: &Boundaries,
        new_run: &dyn Fn(usize) -> NewRun,
    ) -> Result<Outputs, PushError> {
        let (source, dropped) = tallies(collected);
        let new: Vec<NewRun> = (0..boundaries.len()).map(new_run).collect();
        let records = source.records - dropped.records;
        self.progress.stage("building", Some(records), Unit::Rows);
        let built = write_partitions(
            self.plan,
            boundaries,
            collected,
            self.finish,
            &|partition: usize| new[partition].path.clone(),
            &|bytes| self.throttle.take(bytes),
            self.progress,
        )?;
        let kept = self.compare(&source, dropped, &built)?;
        let mut outputs = Outputs {
            runs: (0..boundaries.len()).map(|_| None).collect(),
            kept,
            duplicates: dropped.records,
        };
        for built in built {
            outputs.duplicates += built.dropped.records;
            if built.summary.records > 0 {
                outputs.runs[built.partition] = Some(RunRef {
                    id: new[built.partition].id.clone(),
                    summary: built.summary,
                    operations: built.operations,
                });
            }
        }
        Ok(outputs)
    }

    /// Returns the records read back, if they equal those received. Composed records have other
    /// content than those received, so only their number is compared. Their runs are read back
    /// nevertheless.
    fn compare(
        &self,
        source: &Tally,
        mut dropped: Tally,
        built: &[SortedPartition],
    ) -> Result<Tally, PushError> {
        let (mut read_back, mut idle) = (Tally::default(), 0);
        for part in built {
            dropped.merge(&part.dropped);
            idle += part.idle;
            read_back.merge(&Tally {
                records: part.summary.records,
                bytes: part.summary.key_bytes + part.summary.value_bytes,
                content: part.summary.content,
            });
        }
        let source_tally = match self.plan.duplicates {
            Duplicates::Compose(_) | Duplicates::ComposeInAnyOrder(_) => Tally {
                records: source.records - dropped.records - idle,
                ..read_back
            },
            _ => source.without(&dropped),
        };
        if source_tally == read_back {
            return Ok(read_back);
        }
        Err(PushError::Mismatch {
            source_tally,
            read_back,
        })
    }
}

impl Outputs {
    /// Returns the number of records by operation.
    pub fn applied(&self) -> ComposedRows {
        ComposedRows::of(self.runs.iter().flatten())
    }
}
