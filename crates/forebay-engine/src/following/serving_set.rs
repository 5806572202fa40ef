//! A consistent set of serving versions, and the state of their tables.

use std::sync::Arc;

use crate::name::TableName;
use crate::tables::version::Version;

/// One consistent set of serving versions.
#[derive(Debug, Default)]
pub struct Tables {
    /// Sorted by name.
    entries: Box<[(TableName, Arc<Version>)]>,
    /// Open versions that do not serve; sorted by name.
    others: Box<[(TableName, Arc<Version>)]>,
}

/// A follower's state of one table, for metrics and people.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TableState {
    pub serving: Option<u64>,
    /// The version kept open for an instant rollback.
    pub previous: Option<u64>,
    /// The version opened ahead of its activation.
    pub ahead: Option<u64>,
    /// The version that the pointer names. It differs from `serving` while it cannot be opened.
    pub wanted: Option<u64>,
    /// The pointer's sequence number.
    pub sequence: u64,
    pub rows: u64,
    /// Keys and values of the serving version, in bytes.
    pub bytes: u64,
    /// The files of the serving version that are open, in bytes.
    pub file_bytes: u64,
    /// The memory that the serving version needs in addition to its mapped files, in bytes.
    pub memory_bytes: u64,
    /// The number of changes of the serving version since the start.
    pub swaps: u64,
    /// The number of failures to read a pointer or a version.
    pub load_errors: u64,
    /// The current problem.
    pub problem: Option<String>,
}

/// A follower's state, as of its last look.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServingState {
    /// Sorted by name.
    pub tables: Vec<(TableName, TableState)>,
    /// Why the store itself cannot be looked at.
    pub problem: Option<String>,
    /// The reason that the store itself cannot be read.
    pub retired: usize,
}

/// A change of the version that serves a table, or the end of its serving.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub table: TableName,
    pub from: Option<u64>,
    pub to: Option<u64>,
}

impl Tables {
    /// REQUIRES: both are sorted by name.
    pub(crate) fn new(
        entries: Vec<(TableName, Arc<Version>)>,
        others: Vec<(TableName, Arc<Version>)>,
    ) -> Self {
        debug_assert!(
            entries.is_sorted_by(|(one, _), (next, _)| one < next),
            "serving versions are not sorted by table, one of each"
        );
        debug_assert!(
            others.is_sorted_by(|(one, _), (next, _)| one <= next),
            "versions that are open besides are not sorted by table"
        );
        debug_assert!(
            (entries.iter().chain(&others)).all(|(table, version)| table == version.table()),
            "a version is open under the name of another table"
        );
        let (entries, others) = (entries.into(), others.into());
        Self { entries, others }
    }

    /// Returns a version of the table by its number, if it is open: the serving one, the rollback
    /// target, or one opened ahead.
    pub fn at(&self, name: &[u8], version: u64) -> Option<&Arc<Version>> {
        let is_it = |open: &&Arc<Version>| open.version() == version;
        let other = || {
            let before = |(table, _): &(TableName, _)| table.as_str().as_bytes() < name;
            let others = self.others[self.others.partition_point(before)..].iter();
            let mut of_table = others.take_while(|(table, _)| table.as_str().as_bytes() == name);
            of_table.find_map(|(_, open)| Some(open).filter(is_it))
        };
        self.get(name).filter(is_it).or_else(other)
    }

    /// Returns the set in which these versions serve their tables.
    #[must_use]
    pub fn with(&self, versions: &[Arc<Version>]) -> Self {
        let mut entries = self.entries.to_vec();
        for version in versions {
            match entries.binary_search_by(|(table, _)| table.cmp(version.table())) {
                Ok(at) => entries[at].1 = Arc::clone(version),
                Err(at) => entries.insert(at, (version.table().clone(), Arc::clone(version))),
            }
        }
        Self::new(entries, self.others.to_vec())
    }

    /// Returns the serving version of the table of that name.
    #[inline]
    pub fn get(&self, name: &[u8]) -> Option<&Arc<Version>> {
        if let [(only, version)] = &*self.entries {
            return (only.as_str().as_bytes() == name).then_some(version);
        }
        let found = self
            .entries
            .binary_search_by(|(table, _)| table.as_str().as_bytes().cmp(name));
        found.ok().map(|at| &self.entries[at].1)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&TableName, &Arc<Version>)> {
        self.entries.iter().map(|(table, version)| (table, version))
    }
}
