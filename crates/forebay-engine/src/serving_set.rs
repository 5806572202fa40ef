//! What serves at a moment, and what is known of it.

use std::sync::Arc;

use crate::name::TableName;
use crate::version::Version;

/// One consistent set of serving versions.
#[derive(Debug, Default)]
pub struct Tables {
    /// Sorted by name.
    entries: Box<[(TableName, Arc<Version>)]>,
    /// Open, but not what serves; sorted by name.
    others: Box<[(TableName, Arc<Version>)]>,
}

/// What a follower knows of one table, for metrics and people.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TableState {
    pub serving: Option<u64>,
    /// The version kept open for an instant rollback.
    pub previous: Option<u64>,
    /// The version opened ahead of its activation.
    pub ahead: Option<u64>,
    /// The version that the pointer names; it differs from `serving` while that cannot be opened.
    pub wanted: Option<u64>,
    /// The pointer's sequence number.
    pub sequence: u64,
    pub rows: u64,
    /// Keys and values of the serving version, in bytes.
    pub bytes: u64,
    /// The files of the serving version that are open, in bytes.
    pub file_bytes: u64,
    /// What the serving version holds in memory beside its mapped files, in bytes.
    pub memory_bytes: u64,
    /// How many times another version came to serve here since the start.
    pub swaps: u64,
    /// How many times a pointer or a version could not be read.
    pub load_errors: u64,
    /// What is wrong now.
    pub problem: Option<String>,
}

/// What a follower knows, as of its last look.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServingState {
    /// Sorted by name.
    pub tables: Vec<(TableName, TableState)>,
    /// Why the store itself cannot be looked at.
    pub problem: Option<String>,
    /// Versions that were swapped out and still have readers.
    pub retired: usize,
}

/// A table came to serve another version, or none any more.
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

    /// A version of the table by its number, if it is open: the one that serves, the one that a
    /// rollback would go to, or one opened ahead.
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

    /// The same set, in which these versions serve their tables.
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

    /// The serving version of the table of that name.
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
