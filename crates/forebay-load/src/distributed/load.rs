//! Drives a distributed load: begins it, hands out its recipe and builds its runs.

use arrow_array::{RecordBatch, RecordBatchIterator};
use arrow_schema::SchemaRef;
use forebay_engine::live::Load;
use forebay_engine::{Bound, PartitionRange, Store};
use forebay_run::Order;

use super::recipe::{Choice, LoadRows, Recipe};
use super::settle::{ExpectedReports, SettledReports, losses_of, lossy};
use super::ticket::TaskTicket;
use super::wire::samples_of;
use super::{DistributedError, driver};
use crate::encode::{Encoded, OperationChoice, RowEncoder, ValueChoice};
use crate::load::fit::TableFit;
use crate::load::{BuiltLoad, LoadReport, LoadRequest, LoadSample, composition};
use crate::push::ComposedRows;
use crate::sources::{Batches, Input};
use crate::types::row_schema;

/// A distributed load in progress. If it is dropped before its end, it leaves nothing.
#[derive(Debug)]
pub struct DistributedLoad {
    request: LoadRequest,
    load: Load,
    ticket: TaskTicket,
    encoder: RowEncoder,
    operations: OperationChoice,
}

impl DistributedLoad {
    /// Begins a load of rows with this schema. The request's own sources are ignored; `name` is the
    /// source of the rows. This checks the request against the table and the schema.
    pub fn begin(
        mut request: LoadRequest,
        mut load: Load,
        store: &Store,
        schema: SchemaRef,
        name: &str,
    ) -> Result<Self, DistributedError> {
        driver::refuse_for_tasks(&request.bad_rows, request.rate_bytes)?;
        let none = RecordBatchIterator::new([], schema);
        request.sources = Input::Batches(Batches::new(name, Some(0), none));
        let fit = TableFit::new(&request, load.options(), store.clock().unix_ms());
        let operations = fit.operations()?;
        let (_, encoder) = fit.open(&request.source_options)?;
        let ticket = TaskTicket::Load(load.share());
        Ok(Self {
            request,
            load,
            ticket,
            encoder,
            operations,
        })
    }

    /// Returns whether the order of two rows of a key matters.
    pub fn is_by_age(&self) -> bool {
        self.choice().0.is_by_age()
    }

    fn choice(&self) -> (Choice, bool) {
        let (duplicates, with_operations) = composition(&self.request, self.load.options());
        (Choice::of(duplicates), with_operations)
    }

    /// Returns the number of the table's partitions.
    pub fn partitions(&self) -> usize {
        self.load.partitions().len()
    }

    /// Returns a sample of this many rows from the results of [`super::RowTask::sample`].
    pub fn sample(
        &self,
        samples: &[RecordBatch],
        rows: u64,
    ) -> Result<LoadSample, DistributedError> {
        let mut taken = Vec::new();
        for batch in samples {
            samples_of(batch, &mut taken)?;
        }
        Ok(LoadSample::of_keys(taken, rows))
    }

    /// Replaces the table's partitions, after the cluster's catalog changed them.
    pub fn repartition(&mut self, partitions: Vec<PartitionRange>) {
        self.load.repartition(partitions);
    }

    /// Returns the document that tasks need.
    pub fn recipe(&self, store: &str) -> Result<Recipe, DistributedError> {
        let bad = |problem: String| DistributedError::BadRecipe(problem);
        let columns = row_schema(self.encoder.batch_schema());
        let (duplicates, with_operations) = self.choice();
        let request = &self.request;
        let options = self.load.options();
        Ok(Recipe {
            forebay_recipe: Recipe::FORMAT,
            store: store.to_owned(),
            ticket: self.ticket.clone(),
            source: request.sources.to_string(),
            columns: columns.map_err(|error| bad(error.to_string()))?,
            losses: losses_of(&request.source_options),
            key: self.encoder.template().to_string(),
            value: value_of(self.encoder.encoded()),
            delta: None,
            ttl: None,
            order: options.order,
            compression: options.compression,
            page_bytes: None,
            duplicates,
            skip_bad_rows: request.bad_rows == crate::push::BadRows::Skip,
            memory_bytes: request.memory_bytes,
            partitions: self.begins()?,
            load: Some(LoadRows {
                stored: self.encoder.schema().columns().len(),
                operations: self.operations.clone(),
                with_operations,
            }),
        })
    }

    /// Returns the partitions' lower bounds. They have to cover all keys: each key is on some node
    /// of the cluster.
    fn begins(&self) -> Result<Vec<Bound>, DistributedError> {
        let mut end = Some(match self.load.options().order {
            Order::Hashed => Bound::Slot(0),
            Order::Ordered => Bound::Key(Vec::new()),
        });
        let mut begins = Vec::new();
        for range in self.load.partitions() {
            if end.as_ref() != Some(&range.bounds.lower) {
                break;
            }
            begins.push(range.bounds.lower.clone());
            end.clone_from(&range.bounds.upper);
        }
        match end {
            None => Ok(begins),
            Some(end) => Err(DistributedError::Gap {
                table: self.load.table().clone(),
                begins: end.to_string(),
            }),
        }
    }

    /// Returns the load described by the reports, one for each partition, if they cover everything
    /// that was read. It is not staged yet.
    pub fn build(self, reports: &[String]) -> Result<BuiltLoad, DistributedError> {
        self.load.check_lock_held()?;
        let losses = losses_of(&self.request.source_options);
        let expected = ExpectedReports {
            ticket: &self.ticket,
            duplicates: self.choice().0.duplicates(),
            losses: &losses,
            columns: 0,
        };
        let SettledReports {
            runs,
            kept,
            duplicates,
            whole,
            ..
        } = expected.settle(reports, self.partitions())?;
        let report = LoadReport {
            table: self.request.table.clone(),
            rows: kept.records,
            bytes: kept.bytes,
            applied: ComposedRows::of(runs.iter().flatten()),
            rejected: whole.rejected,
            lossy: lossy(losses, &whole),
            duplicates,
            seconds: 0.0,
        };
        let ids = self.load.partitions().iter().map(|range| range.id);
        let runs = ids.zip(runs).filter_map(|(id, run)| Some((id, run?)));
        Ok(BuiltLoad {
            runs: runs.collect(),
            load: self.load,
            report,
        })
    }
}

fn value_of(encoded: &Encoded) -> ValueChoice {
    match encoded.clone() {
        Encoded::Row => ValueChoice::Row,
        Encoded::Number { column, number } => ValueChoice::Number { column, number },
        Encoded::Bytes { column } | Encoded::List { column, .. } => ValueChoice::Column(column),
    }
}
