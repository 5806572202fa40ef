//! A readable table of either kind: a version of a batch table, or a live table.

use std::ops::Bound;
use std::sync::Arc;

use forebay_run::Order;
use forebay_run::number::Number;
use forebay_run::row::Schema;
use forebay_run::scan::{Direction, ScanRange};

use crate::documents::manifest::ValueKind;
use crate::error::ReadError;
use crate::keys::partition::PartitionRange;
use crate::live::{LiveError, LiveLookup, LiveScan, LiveTable};
use crate::name::TableName;
use crate::tables::scan::VersionScan;
use crate::tables::version::{Lookup, Value, Version};

/// A table of either kind, as a reader sees it.
#[derive(Debug, Clone, Copy)]
pub enum Source<'a> {
    Batch(&'a Arc<Version>),
    Live(&'a LiveTable),
}

/// A walk through a table.
#[derive(Debug)]
pub enum Scan {
    Batch(VersionScan),
    Live(LiveScan),
}

/// The reason that a table of either kind could not be read.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    #[error(transparent)]
    Batch(#[from] ReadError),
    #[error(transparent)]
    Live(#[from] LiveError),
}

impl SourceError {
    /// Returns whether a key belongs to a partition that this store does not hold.
    pub fn is_not_here(&self) -> bool {
        matches!(
            self,
            Self::Batch(ReadError::NotHere { .. }) | Self::Live(LiveError::NotHere { .. })
        )
    }

    /// Returns whether a version's file, or its device, no longer returns the data that was
    /// written. Other copies of the version may be sound.
    pub fn is_damaged_version(&self) -> bool {
        matches!(self, Self::Batch(ReadError::Run { source, .. }) if source.is_damage())
    }
}

impl<'a> Source<'a> {
    pub fn table(self) -> &'a TableName {
        match self {
            Source::Batch(version) => version.table(),
            Source::Live(table) => table.name(),
        }
    }

    #[inline]
    pub fn kind(self) -> &'a ValueKind {
        match self {
            Source::Batch(version) => &version.manifest().value,
            Source::Live(table) => &table.options().value,
        }
    }

    pub fn schema(self) -> &'a Schema {
        match self {
            Source::Batch(version) => &version.manifest().schema,
            Source::Live(table) => &table.options().schema,
        }
    }

    /// Returns the type of the values, if they are numbers.
    #[inline]
    pub fn number(self) -> Option<Number> {
        match self {
            Source::Batch(version) => match &version.manifest().value {
                ValueKind::Number { number, .. } => Some(*number),
                _ => None,
            },
            Source::Live(table) => table.options().delta.and_then(|kind| kind.number()),
        }
    }

    pub fn order(self) -> Order {
        match self {
            Source::Batch(version) => version.order(),
            Source::Live(table) => table.order(),
        }
    }

    /// Returns the partitions that this store holds, in the table's order.
    pub fn partitions(self) -> Vec<PartitionRange> {
        match self {
            Source::Batch(version) => version.partitions(),
            Source::Live(table) => table.partitions(),
        }
    }

    /// Returns the rows of a batch table; for a live one
    /// [`LiveStats::most_keys`](crate::live::LiveStats::most_keys).
    pub fn rows(self) -> u64 {
        match self {
            Source::Batch(version) => version.manifest().rows(),
            Source::Live(table) => table.stats().most_keys(),
        }
    }

    #[inline]
    pub fn get(self, key: &[u8]) -> Result<Option<Value<'a>>, SourceError> {
        match self {
            Source::Batch(version) => Ok(version.get(key)?),
            Source::Live(table) => Ok(table.get(key)?.map(Value::Owned)),
        }
    }

    #[inline]
    pub fn try_get(self, key: &[u8]) -> Result<Lookup<'a>, SourceError> {
        match self {
            Source::Batch(version) => Ok(version.try_get(key)?),
            Source::Live(table) => Ok(match table.try_get(key)? {
                LiveLookup::Found(value) => Lookup::Found(Value::Owned(value)),
                LiveLookup::Absent => Lookup::Absent,
                LiveLookup::NotResident => Lookup::NotResident,
            }),
        }
    }

    pub fn scan(self, range: ScanRange, direction: Direction) -> Scan {
        match self {
            Source::Batch(version) => Scan::Batch(version.scan_range(range, direction)),
            Source::Live(table) => Scan::Live(table.snapshot().scan_range(range, direction)),
        }
    }

    /// Walks the records whose keys begin with `prefix`. Only for ordered tables.
    pub fn scan_prefix(self, prefix: &[u8], direction: Direction) -> Result<Scan, SourceError> {
        let behind = ScanRange::behind_prefix(prefix);
        let behind = behind.as_ref().map(Vec::as_slice);
        self.scan_keys(Bound::Included(prefix), behind, direction)
    }

    /// Only for ordered tables.
    pub fn scan_keys(
        self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        direction: Direction,
    ) -> Result<Scan, SourceError> {
        Ok(match self {
            Source::Batch(version) => Scan::Batch(version.scan_keys(from, to, direction)?),
            Source::Live(table) => Scan::Live(table.scan(from, to, direction)?),
        })
    }
}

impl Scan {
    pub fn advance(&mut self) -> Result<bool, SourceError> {
        Ok(match self {
            Scan::Batch(scan) => scan.advance()?,
            Scan::Live(scan) => scan.advance()?,
        })
    }

    pub fn hash(&self) -> u64 {
        match self {
            Scan::Batch(scan) => scan.hash(),
            Scan::Live(scan) => scan.hash(),
        }
    }

    pub fn key(&self) -> &[u8] {
        match self {
            Scan::Batch(scan) => scan.key(),
            Scan::Live(scan) => scan.key(),
        }
    }

    pub fn value(&self) -> &[u8] {
        match self {
            Scan::Batch(scan) => scan.value(),
            Scan::Live(scan) => scan.value(),
        }
    }
}
