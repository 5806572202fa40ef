//! Defines the document that says everything tasks need to know of a push or a load.
//!
//! It may be sent anywhere, because it holds no secrets. A task finds the store's credentials in
//! its own environment.

use std::path::PathBuf;
use std::sync::Arc;

use arrow_schema::Schema as ArrowSchema;
use forebay_engine::{Bound, MAX_PARTITIONS, Ttl, seal, unseal};
use forebay_io::Disk;
use forebay_run::operation::DeltaKind;
use forebay_run::row::Schema;
use forebay_run::{Compression, Order, RunOptions};
use serde::{Deserialize, Serialize};

use super::DistributedError;
use super::gather::Gatherer;
use super::ticket::TaskTicket;
use crate::convert::Loss;
use crate::encode::{OperationChoice, RowEncoder, ValueChoice};
use crate::key::KeyTemplate;
use crate::push::rows::PushRows;
use crate::sort::{Boundaries, Duplicates, SortPlan, SortSpace};
use crate::types::{arrow_schema, row_schema};

/// A task that encodes holds back at most this fraction of the memory of a task that writes.
const GATHERED_PART: u64 = 16;

/// A place in the columns, and the loss allowed there.
pub(super) type PlacedLoss = (String, Loss);

/// The document that describes a push or a load to its tasks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    pub(super) forebay_recipe: u64,
    /// The URL or the full path of the store.
    pub store: String,
    pub ticket: TaskTicket,
    /// The source of the rows, for messages.
    pub source: String,
    /// The columns that the table needs.
    pub(super) columns: Schema,
    /// Places in these columns, and the losses allowed there.
    pub(super) losses: Vec<PlacedLoss>,
    pub(super) key: String,
    pub(super) value: ValueChoice,
    pub(super) delta: Option<DeltaKind>,
    pub(super) ttl: Option<Ttl>,
    pub(super) order: Order,
    pub(super) compression: Compression,
    pub(super) page_bytes: Option<u32>,
    pub(super) duplicates: Choice,
    pub(super) skip_bad_rows: bool,
    /// The memory for the records of one task.
    pub(super) memory_bytes: u64,
    /// The lower bounds of partitions; empty until they are set.
    pub(super) partitions: Vec<Bound>,
    /// The additional part for a load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) load: Option<LoadRows>,
}

/// How rows of a load become records.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LoadRows {
    /// The first columns, up to this number, are those of the table.
    pub stored: usize,
    pub operations: OperationChoice,
    /// Whether records carry operations.
    pub with_operations: bool,
}

/// How two records of one key are resolved: one stays, or both are combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Choice {
    Fail,
    First,
    Last,
    Compose(DeltaKind),
    ComposeInAnyOrder(DeltaKind),
}

impl Choice {
    pub fn of(duplicates: Duplicates) -> Self {
        match duplicates {
            Duplicates::Fail => Self::Fail,
            Duplicates::First => Self::First,
            Duplicates::Last => Self::Last,
            Duplicates::Compose(kind) => Self::Compose(kind),
            Duplicates::ComposeInAnyOrder(kind) => Self::ComposeInAnyOrder(kind),
        }
    }

    pub fn duplicates(self) -> Duplicates {
        match self {
            Self::Fail => Duplicates::Fail,
            Self::First => Duplicates::First,
            Self::Last => Duplicates::Last,
            Self::Compose(kind) => Duplicates::Compose(kind),
            Self::ComposeInAnyOrder(kind) => Duplicates::ComposeInAnyOrder(kind),
        }
    }

    /// Returns whether the order of two records of one key decides the result.
    pub fn is_by_age(self) -> bool {
        !matches!(self, Self::Fail | Self::ComposeInAnyOrder(_))
    }
}

impl Recipe {
    pub(super) const FORMAT: u64 = 2;

    pub fn to_bytes(&self) -> Result<Vec<u8>, DistributedError> {
        let (bytes, _) = seal(self).map_err(DistributedError::Recipe)?;
        Ok(bytes)
    }

    pub fn parse(bytes: &[u8]) -> Result<Self, DistributedError> {
        let (recipe, _) = unseal::<Self>(bytes, "forebay_recipe", Self::FORMAT)
            .map_err(DistributedError::Recipe)?;
        recipe.check().map_err(DistributedError::BadRecipe)?;
        Ok(recipe)
    }

    fn check(&self) -> Result<(), String> {
        if let Some(bytes) = self.page_bytes
            && !matches!(bytes, 4096 | 8192 | 16384 | 32768)
        {
            return Err(format!("pages of {bytes} bytes"));
        }
        let count = self.partitions.len();
        if count > MAX_PARTITIONS {
            return Err(format!("{count} partitions"));
        }
        let first = match self.order {
            Order::Hashed => Bound::Slot(0),
            Order::Ordered => Bound::Key(Vec::new()),
        };
        let alike = |bound: &Bound| std::mem::discriminant(bound) == std::mem::discriminant(&first);
        let rises = self.partitions.windows(2).all(|pair| pair[0] < pair[1]);
        let begins = self.partitions.first().is_none_or(|bound| *bound == first);
        if !begins || !rises || !self.partitions.iter().all(alike) {
            return Err("its partitions do not rise from the very start".to_owned());
        }
        Ok(())
    }

    pub(super) fn rows(&self) -> Result<PushRows, DistributedError> {
        let key: Result<KeyTemplate, _> = self.key.parse();
        Ok(PushRows {
            key: key.map_err(|error| DistributedError::BadRecipe(error.to_string()))?,
            value: self.value.clone(),
            delta: self.delta,
            ttl: self.ttl.clone(),
            now_ms: self.ticket.created_unix_ms(),
        })
    }

    /// Creates the encoder of the rows.
    pub(super) fn encoder(&self) -> Result<RowEncoder, DistributedError> {
        let arrow = arrow_schema(&self.columns);
        // Its constructor finds columns that contradict each other.
        let bad = |problem: String| DistributedError::BadRecipe(problem);
        row_schema(&arrow).map_err(|error| bad(error.to_string()))?;
        let rows = self.rows()?;
        let encoder = match &self.load {
            None => rows.encoder(&arrow),
            Some(load) => {
                let columns = arrow.fields().split_at_checked(load.stored);
                let (stored, extra) = columns.ok_or_else(|| {
                    let (stored, all) = (load.stored, arrow.fields().len());
                    bad(format!("{stored} columns of {all} are stored"))
                })?;
                let stored = Arc::new(ArrowSchema::new(stored.to_vec()));
                let choice = Some(&load.operations);
                RowEncoder::beside(&stored, extra.to_vec(), &rows.key, &rows.value, choice)
            }
        };
        encoder.map_err(|error| bad(error.to_string()))
    }

    pub(super) fn boundaries(&self) -> Result<Boundaries, DistributedError> {
        if self.partitions.is_empty() {
            return Err(DistributedError::NoBoundaries);
        }
        Ok(Boundaries::at(self.partitions.clone()))
    }

    /// Creates the gatherer of a source's records, once the partitions are set.
    pub(super) fn gatherer(&self, source: u32) -> Gatherer {
        let most_bytes = (self.memory_bytes / GATHERED_PART) as usize;
        Gatherer::new(source, self.partitions.len(), most_bytes)
    }

    /// Returns the sort plan for the task of a partition: one thread.
    pub(super) fn sort_plan(&self, disk: Arc<dyn Disk>, scratch: PathBuf) -> SortPlan {
        let run = RunOptions::new(
            self.order,
            self.compression,
            &self.ticket.table().wire_prefix(),
        );
        let space = SortSpace {
            disk,
            scratch,
            memory_bytes: self.memory_bytes,
            threads: 1,
        };
        let duplicates = self.duplicates.duplicates();
        SortPlan::new(
            space,
            run,
            self.page_bytes,
            duplicates,
            self.with_operations(),
        )
    }

    /// Returns whether records carry operations, as in [`crate::sort::SortPlan`].
    pub(super) fn with_operations(&self) -> bool {
        let load = self.load.as_ref();
        load.map_or(self.ttl.is_some(), |load| load.with_operations)
    }
}
