//! Drives a distributed push: begins it, hands out its recipe and commits its version.

use std::time::Duration;

use arrow_array::{RecordBatch, RecordBatchIterator};
use arrow_schema::SchemaRef;
use forebay_engine::{Push, PushOptions, Store};
use forebay_run::Order;

use super::DistributedError;
use super::recipe::{Choice, PlacedLoss, Recipe};
use super::settle::{ExpectedReports, SettledReports, losses_of, lossy};
use super::ticket::TaskTicket;
use super::wire::samples_of;
use crate::encode::RowEncoder;
use crate::progress::Progress;
use crate::push::partitions::{at_cuts, by_size};
use crate::push::rows::{PushRows, RowCounts};
use crate::push::{BadRows, PushError, PushReport, PushRequest, Ready, check_limits, conclude};
use crate::sort::Boundaries;
use crate::sources::{Batches, Input};
use crate::types::row_schema;

/// A distributed push in progress. If it is dropped before its commit, it leaves nothing.
#[derive(Debug)]
pub struct DistributedPush {
    request: PushRequest,
    store: Store,
    push: Push,
    rows: PushRows,
    encoder: RowEncoder,
    boundaries: Option<Boundaries>,
    started: Duration,
}

impl DistributedPush {
    /// Begins a push of rows with this schema. The request's own sources are ignored; `name` is the
    /// source that the manifest records. This checks the request against the schema, then takes the
    /// table's push lock and holds it.
    pub fn begin(
        mut request: PushRequest,
        store: Store,
        schema: SchemaRef,
        name: &str,
    ) -> Result<Self, DistributedError> {
        refuse(&request)?;
        let started = store.clock().monotonic();
        let none = RecordBatchIterator::new([], schema);
        request.sources = Input::Batches(Batches::new(name, Some(0), none));
        // The time of the push is fixed when its lock is taken, and affects no check.
        let options = &request.source_options;
        let (_, encoder) = PushRows::of(&request, 0)?.open(&request.sources, options)?;
        let table = store.table(&request.table).ok();
        check_limits(&request, &encoder, table.as_ref())?;
        let boundaries = request.boundaries.as_ref();
        let given = boundaries.map(|given| given.of_order(request.order));
        let given = given.transpose().map_err(PushError::from)?;
        let options = PushOptions {
            version: request.version,
            shared: true,
        };
        let push = store.begin_push(&request.table, options);
        let push = push.map_err(PushError::from)?;
        let rows = PushRows::of(&request, push.created_unix_ms())?;
        let (_, encoder) = rows.open(&request.sources, &request.source_options)?;
        let boundaries = given.or_else(|| match (request.order, request.partitions) {
            (Order::Hashed, Some(partitions)) => Some(Boundaries::slots(partitions)),
            (Order::Ordered, Some(..=1)) => Some(Boundaries::by_samples(1, Vec::new())),
            _ => None,
        });
        Ok(Self {
            request,
            store,
            push,
            rows,
            encoder,
            boundaries,
            started,
        })
    }

    /// Returns whether [`DistributedPush::set_boundaries`] must be called before rows can be
    /// encoded.
    pub fn needs_samples(&self) -> bool {
        self.boundaries.is_none()
    }

    fn boundaries(&self) -> Result<&Boundaries, DistributedError> {
        (self.boundaries.as_ref()).ok_or(DistributedError::NoBoundaries)
    }

    /// Returns the number of partitions, once the boundaries are set.
    pub fn partitions(&self) -> Result<usize, DistributedError> {
        Ok(self.boundaries()?.len())
    }

    /// Sets the boundaries of partitions from the results of [`super::RowTask::sample`]. `rows` is
    /// the number of all rows of the source.
    pub fn set_boundaries(
        &mut self,
        samples: &[RecordBatch],
        rows: u64,
    ) -> Result<usize, DistributedError> {
        if self.boundaries.is_some() {
            return self.partitions();
        }
        let mut taken = Vec::new();
        for batch in samples {
            samples_of(batch, &mut taken)?;
        }
        let bytes: u128 = taken.iter().map(|(_, bytes)| u128::from(*bytes)).sum();
        if taken.is_empty() && rows > 0 {
            return Err(DistributedError::Samples {
                bytes,
                rows,
                problem: "none can be stored, or none was taken; look at the rows, or give --boundaries",
            });
        }
        let by_size = || by_size(u64::try_from(bytes).unwrap_or(u64::MAX));
        let partitions = self.request.partitions.unwrap_or_else(by_size);
        let otherwise = || match self.request.order {
            Order::Hashed => Boundaries::slots(partitions),
            Order::Ordered => Boundaries::by_samples(partitions.min(1 << 14), taken),
        };
        let cut = at_cuts(&self.request, partitions);
        self.boundaries = Some(cut.unwrap_or_else(otherwise));
        self.partitions()
    }

    /// Returns the document that tasks need. Before the boundaries are set, it only serves for
    /// taking samples.
    pub fn recipe(&self, store: &str) -> Result<Recipe, DistributedError> {
        let request = &self.request;
        let columns = row_schema(self.encoder.batch_schema());
        let boundaries = self.boundaries.as_ref();
        let partitions = boundaries.map(|boundaries| boundaries.as_slice().to_vec());
        Ok(Recipe {
            forebay_recipe: Recipe::FORMAT,
            store: store.to_owned(),
            ticket: TaskTicket::Push(self.push.ticket().clone()),
            source: request.sources.to_string(),
            columns: columns.map_err(|error| DistributedError::BadRecipe(error.to_string()))?,
            losses: losses_of(&request.source_options),
            key: self.encoder.template().to_string(),
            value: self.rows.value.clone(),
            delta: self.rows.delta,
            ttl: self.rows.ttl.clone(),
            order: request.order,
            compression: request.compression,
            page_bytes: request.page_bytes,
            duplicates: Choice::of(request.duplicates),
            skip_bad_rows: request.bad_rows == BadRows::Skip,
            memory_bytes: request.memory_bytes,
            partitions: partitions.unwrap_or_default(),
            load: None,
        })
    }

    /// Publishes the version described by the reports, one for each partition. After an error no
    /// part of it is visible.
    pub fn commit(
        self,
        reports: &[String],
        progress: &dyn Progress,
    ) -> Result<PushReport, DistributedError> {
        let boundaries = self.boundaries()?;
        self.push.check_lock_held()?;
        let ticket = TaskTicket::Push(self.push.ticket().clone());
        let losses = losses_of(&self.request.source_options);
        let expected = self.expected(&ticket, &losses);
        let SettledReports {
            runs,
            kept,
            duplicates,
            whole,
            profile,
        } = expected.settle(reports, boundaries.len())?;
        let counted = RowCounts {
            runs,
            records: kept.records,
            profile: &profile,
        };
        let source = self.request.sources.to_string();
        let order = self.request.order;
        let draft = self
            .rows
            .draft(&self.encoder, order, boundaries, counted, source);
        let ready = Ready {
            manifest: self.push.manifest(draft).map_err(PushError::from)?,
            base: None,
            applied: None,
            bytes: kept.bytes,
            rejected: whole.rejected,
            lossy: lossy(losses, &whole),
            duplicates,
        };
        let (request, store, push) = (&self.request, &self.store, self.push);
        Ok(conclude(
            request,
            store,
            push,
            ready,
            self.started,
            progress,
        )?)
    }

    fn expected<'a>(
        &'a self,
        ticket: &'a TaskTicket,
        losses: &'a [PlacedLoss],
    ) -> ExpectedReports<'a> {
        ExpectedReports {
            ticket,
            duplicates: self.request.duplicates,
            losses,
            columns: self.encoder.schema().columns().len(),
        }
    }
}

/// Refuses options that are meaningless or impossible for tasks.
fn refuse(request: &PushRequest) -> Result<(), DistributedError> {
    let option = |option, reason| Err(DistributedError::Option { option, reason });
    if request.onto.is_some() || request.operation_column.is_some() {
        return option(
            "--onto",
            "it makes a version whole; push changes by forebay push --onto",
        );
    }
    refuse_for_tasks(&request.bad_rows, request.rate_bytes)
}

/// Refuses such options among those that loads have, too.
pub(super) fn refuse_for_tasks(
    bad_rows: &BadRows,
    rate_bytes: Option<u64>,
) -> Result<(), DistributedError> {
    let option = |option, reason| Err(DistributedError::Option { option, reason });
    if matches!(bad_rows, BadRows::File(_)) {
        return option(
            "--bad-rows FILE",
            "tasks are on several machines: give fail or skip",
        );
    }
    if rate_bytes.is_some() {
        return option("--rate", "how fast tasks go is the engine's affair");
    }
    Ok(())
}
