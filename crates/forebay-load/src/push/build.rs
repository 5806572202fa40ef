//! The second half of a push or a load: the partitions' runs, held against what came in.

use forebay_engine::{NewRun, RunRef};

use super::{ComposedRows, PushError};
use crate::progress::{Progress, Unit};
use crate::sort::{
    Boundaries, CollectedRecords, Duplicates, Finish, SortPlan, SortedPartition, Tally,
    write_partitions,
};
use forebay_io::Throttle;

/// What building runs takes.
pub struct BuildJob<'a> {
    pub plan: &'a SortPlan,
    pub finish: &'a dyn Finish,
    pub throttle: &'a Throttle,
    pub progress: &'a dyn Progress,
}

/// What was written.
pub struct Outputs {
    /// At the index of its partition, if that got any.
    pub runs: Vec<Option<RunRef>>,
    pub kept: Tally,
    pub duplicates: u64,
}

/// What came in, and what was left out of it while it was collected.
pub fn tallies(collected: &[CollectedRecords]) -> (Tally, Tally) {
    let (mut source, mut dropped) = (Tally::default(), Tally::default());
    for part in collected {
        source.merge(&part.seen);
        dropped.merge(&part.dropped);
    }
    (source, dropped)
}

impl BuildJob<'_> {
    /// Writes the partitions, each at the place that `new_run` gives, and holds what was read back
    /// of them against what came in.
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

    /// What was read back, if it is what came in. Records that were composed have other content
    /// than those that came, so that they are only counted; their runs are read back all the same.
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
    /// What the records of the runs do.
    pub fn applied(&self) -> ComposedRows {
        ComposedRows::of(self.runs.iter().flatten())
    }
}
