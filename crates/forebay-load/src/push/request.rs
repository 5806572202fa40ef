//! What to push, and how.

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

/// A push that is asked for.
#[derive(Debug, Clone)]
pub struct PushRequest {
    pub table: TableName,
    pub sources: Input,
    pub source_options: SourceOptions,
    /// A push onto another version has its key.
    pub key: Option<KeyTemplate>,
    pub value: ValueChoice,
    /// Go on with the runs of this version, and with all that it declares: of what follows, order,
    /// partitions and duplicates have no meaning then.
    pub onto: Option<BaseVersion>,
    /// The column that says what a row does, in a push onto another version.
    pub operation_column: Option<String>,
    /// What deltas do in this table. Numbers are stored as such then, and need one column as the
    /// value.
    pub delta: Option<DeltaKind>,
    /// When rows expire.
    pub ttl: Option<Ttl>,
    pub order: Order,
    /// By default by size: [`super::partitions::by_size`].
    pub partitions: Option<u32>,
    /// Where the partitions begin; then their number is not given.
    pub boundaries: Option<GivenBoundaries>,
    /// Places at which partitions begin in any case, where they are not given and the table is not
    /// small: those at which the nodes of a cluster divide it.
    pub cuts: Vec<Bound>,
    /// They begin there also where the table is small, or their number is given.
    pub always_cut: bool,
    pub compression: Compression,
    /// By default as [`forebay_run::RunOptions::for_records_of`] chooses.
    pub page_bytes: Option<u32>,
    pub duplicates: Duplicates,
    pub bad_rows: BadRows,
    /// The memory that the push may use for records.
    pub memory_bytes: u64,
    pub threads: usize,
    /// At most so many bytes of records a second, in reading and in writing each.
    pub rate_bytes: Option<u64>,
    /// The version's number; by default one more than the greatest.
    pub version: Option<u64>,
    /// Limits beside the defaults.
    pub limits: Vec<Limit>,
    /// Swap even when a limit is passed.
    pub force: bool,
    /// Whether to swap at all.
    pub swap: bool,
    /// How many versions to keep.
    pub keep: usize,
}

/// The version that a push goes on with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BaseVersion {
    /// The one that serves.
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
