//! The second half of a push: the partitions' runs, held against what came in.

use forebay_engine::{NewRun, Push, RunRef};

use super::layer::Layer;
use super::partitions;
use super::throttle::Throttle;
use super::{Applied, PushError, PushRequest};
use crate::progress::{Progress, Unit};
use crate::sort::{AsTheyAre, Built, Collected, Cuts, Finish, SortPlan, Tally, write_partitions};

/// What building runs takes.
pub struct Job<'a> {
    pub request: &'a PushRequest,
    pub plan: &'a SortPlan,
    pub push: &'a Push,
    pub layer: Option<&'a Layer>,
    pub throttle: &'a Throttle,
    pub progress: &'a dyn Progress,
}

/// What was written.
pub struct Outputs {
    /// At the index of its partition, if that got any.
    pub runs: Vec<Option<RunRef>>,
    pub cuts: Cuts,
    pub kept: Tally,
    pub duplicates: u64,
    pub applied: Applied,
}

impl Job<'_> {
    /// Writes the partitions and holds what was read back of them against what came in.
    pub fn build(&self, collected: &[Collected]) -> Result<Outputs, PushError> {
        let (mut source, mut dropped) = (Tally::default(), Tally::default());
        for part in collected {
            source.merge(&part.seen);
            dropped.merge(&part.dropped);
        }
        let cuts = match self.layer {
            None => partitions::cuts(self.request, collected, source.bytes),
            Some(layer) => layer.cuts(),
        };
        let mut plan = self.plan.clone();
        if self.request.page_bytes.is_none() {
            plan.run = plan
                .run
                .for_records_of(source.bytes / source.records.max(1));
        }
        let new: Vec<NewRun> = (0..cuts.len())
            .map(|partition| self.push.new_run(partition))
            .collect();
        let records = source.records - dropped.records;
        self.progress.stage("building", Some(records), Unit::Rows);
        let finish: &dyn Finish = match self.layer {
            None => &AsTheyAre,
            Some(layer) => layer,
        };
        let built = write_partitions(
            &plan,
            &cuts,
            collected,
            finish,
            &|partition: usize| new[partition].path.clone(),
            &|bytes| self.throttle.take(bytes),
            self.progress,
        )?;
        let kept = self.compare(&source, dropped, &built)?;
        let mut outputs = Outputs {
            runs: (0..cuts.len()).map(|_| None).collect(),
            cuts,
            kept,
            duplicates: 0,
            applied: Applied::default(),
        };
        outputs.duplicates = dropped.records;
        for built in built {
            outputs.duplicates += built.dropped.records;
            let run = RunRef {
                id: new[built.partition].id.clone(),
                summary: built.summary,
                operations: built.operations,
            };
            outputs.applied.add(&run);
            if run.summary.records > 0 {
                outputs.runs[built.partition] = Some(run);
            }
        }
        Ok(outputs)
    }

    /// What was read back, if it is what came in. Records that were composed have other content than
    /// those that came, so that they are only counted; their runs are read back all the same.
    fn compare(
        &self,
        source: &Tally,
        mut dropped: Tally,
        built: &[Built],
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
        let source_tally = match self.layer {
            None => source.without(&dropped),
            Some(_) => Tally {
                records: source.records - dropped.records - idle,
                ..read_back
            },
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

impl Applied {
    fn add(&mut self, run: &RunRef) {
        let [updates, inserts, deletes, deltas] = run.counts();
        self.updates += updates;
        self.inserts += inserts;
        self.deletes += deletes;
        self.deltas += deltas;
    }
}
