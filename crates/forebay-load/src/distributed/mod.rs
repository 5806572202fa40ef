//! Builds a push or a load with many tasks, on any number of machines.
//!
//! An existing engine reads, shuffles and schedules. Forebay encodes the rows, writes the runs and
//! publishes the version.
//!
//! 1. The driver begins a [`DistributedPush`]. It takes the table's push lock and holds it. A
//!    [`Recipe`] says everything that tasks need.
//! 2. The caller gives the boundaries of partitions, or tasks take a sample to find them
//!    ([`RowTask::sample`]).
//! 3. For each part of the source a [`RowTask`] turns rows into records. It sends them in chunks,
//!    each for one partition. At its end it adds a control row for every partition: what it sent to
//!    that partition, and what it sent in total.
//! 4. The engine routes the records of each partition to one [`PartTask`]. The task sorts them and
//!    writes the partition's run directly to the store. It reports what it received, from which
//!    sources, and what it kept.
//! 5. The driver commits ([`DistributedPush::commit`]) with one report for each partition. All
//!    reports must name the same sources, and no record may be lost or doubled. The driver then
//!    publishes the version as any push does.
//!
//! Tasks may run any number of times, also concurrently. Each attempt writes a run of its own. The
//! reports that the engine hands over decide which attempt counts. The end of the push removes the
//! other runs. The encoder, the sort and the writer are those of a push, so the runs are the same,
//! byte for byte.
//!
//! A load into a live table of a cluster ([`DistributedLoad`]) works in the same way. Its
//! partitions are those of the table, its runs are staged (`forebay_engine::live::Load`), and the
//! cluster adds the result.

mod chunk;
mod control;
mod driver;
mod gather;
mod load;
mod part;
mod recipe;
mod report;
mod rows;
mod settle;
mod ticket;
mod wire;

pub use driver::DistributedPush;
pub use load::DistributedLoad;
pub use part::PartTask;
pub use recipe::Recipe;
pub use rows::RowTask;
pub use ticket::TaskTicket;
pub use wire::record_schema;

use std::path::PathBuf;

use forebay_engine::{DocumentError, TableName};
use forebay_run::content::ContentSum;
use serde::{Deserialize, Serialize};

use crate::load::LoadError;
use crate::push::PushError;
use crate::sort::{SortError, Tally};

/// An error of a distributed push or load, or of one of its tasks. No part of it is visible.
#[derive(Debug, thiserror::Error)]
pub enum DistributedError {
    #[error(transparent)]
    Push(PushError),
    /// A bad row, as in a push by one process. There is no file of such rows, because tasks on
    /// several machines cannot share one.
    #[error("{file}: {place}: {reason}; {advice}leave such rows out by --bad-rows skip")]
    BadRow {
        file: String,
        place: String,
        reason: String,
        advice: String,
    },
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error("{option} is not for a push or a load that tasks build: {reason}")]
    Option {
        option: &'static str,
        reason: &'static str,
    },
    #[error(
        "the partition boundaries are not known yet: sample the rows and choose boundaries first, or give --boundaries"
    )]
    NoBoundaries,
    #[error("the samples stand for {bytes} bytes in {rows} rows: {problem}")]
    Samples {
        bytes: u128,
        rows: u64,
        problem: &'static str,
    },
    #[error("the recipe of the tasks cannot be used: {0}")]
    Recipe(DocumentError),
    #[error("the recipe of the tasks contradicts itself: {0}")]
    BadRecipe(String),
    #[error(
        "the catalog of the cluster has no partition of table {table} from {begins} on, so that a load cannot be split \
         along its partitions: look at forebay cluster status, then load again"
    )]
    Gap { table: TableName, begins: String },
    #[error("source {source_number}: {problem}")]
    Source { source_number: i64, problem: String },
    #[error(
        "source {source_number}: a batch has {problem}: its columns have to be the same in every task"
    )]
    Columns { source_number: u32, problem: String },
    #[error("cannot make the task's directory {}: {error}", path.display())]
    Scratch {
        path: PathBuf,
        error: std::io::Error,
    },
    #[error("a batch of records cannot be used: {0}")]
    Batch(String),
    #[error(
        "partition {partition}: {sent} were sent to it, and {came} came: the shuffle lost or doubled \
         some; nothing was written of it"
    )]
    Shuffle {
        partition: u32,
        sent: Sum,
        came: Sum,
    },
    #[error("partition {partition}: {problem}; nothing was written of it")]
    Control { partition: u32, problem: String },
    #[error("report {number} of {of}: {problem}; nothing of it is visible")]
    Report {
        number: usize,
        of: usize,
        problem: String,
    },
    #[error(
        "partition {partition} has {found} reports instead of one, of {reports} reports for {partitions} \
         partitions; nothing of it is visible"
    )]
    Reports {
        partition: u32,
        found: usize,
        reports: usize,
        partitions: usize,
    },
    #[error(
        "partition {partition} was built from {found} and partition {other} from {others}: the runs of a \
         source differed, or one was lost; nothing of it is visible. Give it again, from rows that are the same each time \
         they are read"
    )]
    Sources {
        partition: u32,
        found: Sources,
        other: u32,
        others: Sources,
    },
    #[error(
        "all partitions together got {came}, and the sources sent {sent}; nothing of it is visible"
    )]
    Total { sent: Sum, came: Sum },
}

impl From<PushError> for DistributedError {
    fn from(error: PushError) -> Self {
        match error {
            PushError::BadRow {
                file,
                place,
                reason,
                advice,
            } => Self::BadRow {
                file,
                place,
                reason,
                advice,
            },
            error => Self::Push(error),
        }
    }
}

impl From<SortError> for DistributedError {
    fn from(error: SortError) -> Self {
        Self::Push(error.into())
    }
}

impl From<crate::encode::EncodeError> for DistributedError {
    fn from(error: crate::encode::EncodeError) -> Self {
        Self::Push(error.into())
    }
}

impl From<crate::sources::SourceError> for DistributedError {
    fn from(error: crate::sources::SourceError) -> Self {
        Self::Push(error.into())
    }
}

impl From<forebay_engine::StoreError> for DistributedError {
    fn from(error: forebay_engine::StoreError) -> Self {
        Self::Push(error.into())
    }
}

/// A count of records and a checksum of their content, as sent between tasks.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sum {
    pub records: u64,
    /// The bytes of keys and values.
    pub bytes: u64,
    pub content: ContentSum,
}

impl std::fmt::Display for Sum {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            records,
            bytes,
            content,
        } = self;
        write!(
            formatter,
            "{records} records of {bytes} bytes, content {content}"
        )
    }
}

impl From<Tally> for Sum {
    fn from(tally: Tally) -> Self {
        Self {
            records: tally.records,
            bytes: tally.bytes,
            content: tally.content,
        }
    }
}

impl From<Sum> for Tally {
    fn from(sum: Sum) -> Self {
        Self {
            records: sum.records,
            bytes: sum.bytes,
            content: sum.content,
        }
    }
}

impl Sum {
    /// Returns the sum of both; `None` if it overflows.
    fn plus(self, other: Self) -> Option<Self> {
        Some(Self {
            records: self.records.checked_add(other.records)?,
            bytes: self.bytes.checked_add(other.bytes)?,
            content: self.content + other.content,
        })
    }

    /// Subtracts a part; `None` if it is not a part of this sum.
    fn minus(self, part: Self) -> Option<Self> {
        Some(Self {
            records: self.records.checked_sub(part.records)?,
            bytes: self.bytes.checked_sub(part.bytes)?,
            content: self.content - part.content,
        })
    }
}

/// A set of sources: their number, and a sum over the totals of each, in any order.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sources {
    pub count: u64,
    pub digest: ContentSum,
}

impl std::fmt::Display for Sources {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} sources (digest {})", self.count, self.digest)
    }
}

#[cfg(test)]
mod tests;
