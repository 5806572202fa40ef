//! Holds the steps that pushes and loads share: reading rows into the sort, and building runs.

use std::sync::Arc;

use forebay_engine::{NewRun, Store};
use forebay_io::Throttle;

use super::build::{BuildJob, Outputs, tallies};
use super::read::{self, ReadRows};
use super::source_reader::{OpenSources, SourceReader, of_table};
use super::{BadRows, PushError};
use crate::encode::RowEncoder;
use crate::progress::Progress;
use crate::sort::{Boundaries, Finish, SortPlan};
use crate::sources::SourceOptions;

/// A push or a load with its sort plan.
pub struct Work<'a> {
    plan: SortPlan,
    bad_rows: &'a BadRows,
    /// The types are those of a table, so other types cannot fix a bad row.
    has_table_types: bool,
    store: &'a Store,
    throttle: Throttle,
    progress: &'a dyn Progress,
}

impl<'a> Work<'a> {
    pub fn new(
        plan: SortPlan,
        bad_rows: &'a BadRows,
        rate_bytes: Option<u64>,
        store: &'a Store,
        progress: &'a dyn Progress,
    ) -> Self {
        Self {
            plan,
            bad_rows,
            has_table_types: false,
            store,
            throttle: Throttle::new(rate_bytes, Arc::clone(store.clock())),
            progress,
        }
    }

    pub fn with_table_types(self) -> Self {
        Self {
            has_table_types: true,
            ..self
        }
    }

    /// Reads sources that were opened with `options`. `open` opens them again, with options that
    /// say more about the types.
    pub fn read<E: From<PushError>>(
        &self,
        options: &SourceOptions,
        opened: OpenSources,
        open: impl FnOnce(&SourceOptions) -> Result<OpenSources, E>,
    ) -> Result<(RowEncoder, ReadRows), E> {
        let (plan, throttle, progress) = (&self.plan, &self.throttle, self.progress);
        let looking = SourceReader {
            plan: Some(plan),
            threads: plan.threads,
            throttle,
            progress,
        };
        looking.read(options, opened, open, |sources, encoder| {
            let bad_rows = self.bad_rows;
            let read = read::read(
                bad_rows, plan, sources, encoder, throttle, self.store, progress,
            );
            read.map_err(|error| match self.has_table_types {
                true => of_table(error),
                false => error,
            })
        })
    }

    /// Writes the partitions, each at the place that `new_run` gives.
    pub fn build(
        mut self,
        read: &ReadRows,
        boundaries: &Boundaries,
        finish: &dyn Finish,
        new_run: &dyn Fn(usize) -> NewRun,
    ) -> Result<Outputs, PushError> {
        self.plan.settle_pages(&tallies(&read.collected).0);
        let job = BuildJob {
            plan: &self.plan,
            finish,
            throttle: &self.throttle,
            progress: self.progress,
        };
        let built = job.build(&read.collected, boundaries, new_run);
        let built = built.map_err(|error| error.in_files(&read.files))?;
        match built.kept.records == 0 && read.rejected > 0 {
            true => Err(PushError::NothingLeft),
            false => Ok(built),
        }
    }
}
