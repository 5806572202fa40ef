//! Defines the request of a push: its sources, table and options.

use std::str::FromStr;

use forebay_engine::{Bound, TableName, Ttl};
use forebay_run::operation::DeltaKind;
use forebay_run::{Compression, Order};

use super::given_boundaries::GivenBoundaries;
use super::rejects::BadRows;
use crate::encode::ValueChoice;
use crate::gate::Limit;
use crate::key::KeyTemplate;
use crate::sort::Duplicates;
use crate::sources::{Input, SourceOptions};

/// A request for a push.
#[derive(Debug, Clone)]
pub struct PushRequest {
    pub table: TableName,
    pub sources: Input,
    pub source_options: SourceOptions,
    /// The key template; `None` in a push onto another version, which has one.
    pub key: Option<KeyTemplate>,
    pub value: ValueChoice,
    /// Keep the runs of this version and all of its declarations. The order, partitions and
    /// duplicates below then have no effect.
    pub onto: Option<BaseVersion>,
    /// The column that names a row's operation, in a push onto another version.
    pub operation_column: Option<String>,
    /// The kind of deltas in this table. It stores numbers as such, which needs one column as the
    /// value.
    pub delta: Option<DeltaKind>,
    /// The expiry of rows.
    pub ttl: Option<Ttl>,
    pub order: Order,
    /// The number of partitions; by default by size: [`super::partitions::by_size`].
    pub partitions: Option<u32>,
    /// The partitions' boundaries; their number must then not be given.
    pub boundaries: Option<GivenBoundaries>,
    /// Required split points, at which a cluster's nodes divide the table. They apply if no
    /// boundaries are given and the table is not small.
    pub cuts: Vec<Bound>,
    /// The split points apply even if the table is small, or the number of partitions is given.
    pub always_cut: bool,
    pub compression: Compression,
    /// The page size; by default as [`forebay_run::RunOptions::for_records_of`] chooses.
    pub page_bytes: Option<u32>,
    pub duplicates: Duplicates,
    pub bad_rows: BadRows,
    /// The memory that the push may use for records.
    pub memory_bytes: u64,
    pub threads: usize,
    /// The most bytes of records a second, for reading and for writing each.
    pub rate_bytes: Option<u64>,
    /// The version's number; by default one more than the highest.
    pub version: Option<u64>,
    /// Limits in addition to the defaults.
    pub limits: Vec<Limit>,
    /// Swap even if a limit is broken.
    pub force: bool,
    /// Whether to swap at all.
    pub swap: bool,
    /// The number of versions to keep.
    pub keep: usize,
}

/// The version onto which a push adds its records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BaseVersion {
    /// The serving version.
    Current,
    Version(u64),
}

impl FromStr for BaseVersion {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            _ if text == "current" => Ok(Self::Current),
            Ok(version) => Ok(Self::Version(version)),
            Err(_) => Err(format!(
                "'{text}' is neither current nor the number of a version"
            )),
        }
    }
}
