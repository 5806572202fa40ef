//! What a version consists of.
//!
//! A manifest names every run of a version, partition by partition, with lengths, counts and content
//! sums, and carries the schema of the rows. It is a sealed document: damage shows, and an unknown
//! format is refused by its number. Nothing in a manifest is believed before [`Manifest::check`]
//! passed it: names are plain, bounds rise from the very first place on, and all counts add up.

use forebay_run::content::ContentSum;
use forebay_run::format::{Order, RunSummary};
use forebay_run::operation::DeltaKind;
use forebay_run::row::{Kind, Schema};
use serde::{Deserialize, Serialize};

use crate::bound::Bound;
use crate::name::{RunId, TableName};
use crate::seal::{DocumentError, seal, unseal};

/// The format number of manifests that this program writes and reads.
pub const MANIFEST_FORMAT: u64 = 1;
/// The most partitions a table can have: one a slot.
pub const MAX_PARTITIONS: usize = 1 << 14;

/// A version of a table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    pub(crate) forebay_manifest: u64,
    pub table: TableName,
    pub version: u64,
    /// When the push began, in milliseconds since 1970-01-01 UTC.
    pub created_unix_ms: u64,
    pub order: Order,
    pub value: ValueKind,
    /// The columns of a row; of a bytes or list table, its one column.
    pub schema: Schema,
    /// The template that made the keys, as given to the push.
    pub key: String,
    /// What `+` means in the deltas of this table; batch tables have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delta: Option<DeltaKind>,
    /// Rising; the first one begins at the first place there is.
    pub partitions: Vec<Partition>,
    /// The sum over the partitions.
    pub totals: Totals,
    /// How many nulls each column has, where that was counted.
    #[serde(default)]
    pub stats: Vec<ColumnStats>,
    /// What the version was made from, for people to read.
    #[serde(default)]
    pub source: String,
}

/// What the values of a table are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ValueKind {
    /// Rows of the manifest's schema.
    Row,
    /// The bytes of one column.
    Bytes { column: String },
    /// Lists of `item`, from one column.
    List { column: String, item: Kind },
}

/// A range of a table in its sort order, from `lower` to the next partition's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Partition {
    pub lower: Bound,
    /// What the runs amount to together.
    pub totals: Totals,
    /// Oldest first. A batch push writes one run, or none when the partition is empty.
    pub runs: Vec<RunRef>,
}

/// One run of a partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunRef {
    pub id: RunId,
    /// Counts, lengths of the two files, content.
    pub summary: RunSummary,
}

/// Counts of records as a reader sees them.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Totals {
    pub rows: u64,
    /// Keys and values, in bytes.
    pub bytes: u64,
    pub content: ContentSum,
}

/// Nulls of one column.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ColumnStats {
    pub column: String,
    pub nulls: u64,
}

/// What a push says of its version; the rest of the [`Manifest`] follows from the push itself and
/// the sums.
#[derive(Debug, Clone)]
pub struct ManifestDraft {
    pub order: Order,
    pub value: ValueKind,
    pub schema: Schema,
    pub key: String,
    pub partitions: Vec<Partition>,
    pub stats: Vec<ColumnStats>,
    pub source: String,
}

impl Totals {
    pub fn add(&mut self, other: &Totals) {
        self.rows = self.rows.saturating_add(other.rows);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.content += other.content;
    }

    pub fn of_run(summary: &RunSummary) -> Self {
        Self {
            rows: summary.records,
            bytes: summary.key_bytes.saturating_add(summary.value_bytes),
            content: summary.content,
        }
    }
}

impl<'a> FromIterator<&'a Totals> for Totals {
    fn from_iter<I: IntoIterator<Item = &'a Totals>>(parts: I) -> Self {
        let mut sum = Totals::default();
        parts.into_iter().for_each(|part| sum.add(part));
        sum
    }
}

impl Partition {
    /// A partition of at most one run, as a batch push makes it.
    pub fn of_run(lower: Bound, run: Option<RunRef>) -> Self {
        let totals = run
            .as_ref()
            .map(|run| Totals::of_run(&run.summary))
            .unwrap_or_default();
        Self {
            lower,
            totals,
            runs: run.into_iter().collect(),
        }
    }
}

impl Manifest {
    pub(crate) fn from_draft(
        draft: ManifestDraft,
        table: TableName,
        version: u64,
        created_unix_ms: u64,
    ) -> Self {
        Self {
            forebay_manifest: MANIFEST_FORMAT,
            table,
            version,
            created_unix_ms,
            order: draft.order,
            value: draft.value,
            schema: draft.schema,
            key: draft.key,
            delta: None,
            totals: draft
                .partitions
                .iter()
                .map(|partition| &partition.totals)
                .collect(),
            partitions: draft.partitions,
            stats: draft.stats,
            source: draft.source,
        }
    }

    pub fn rows(&self) -> u64 {
        self.totals.rows
    }

    /// Keys and values, in bytes.
    pub fn bytes(&self) -> u64 {
        self.totals.bytes
    }

    pub fn content(&self) -> ContentSum {
        self.totals.content
    }

    /// Where the partitions begin.
    pub(crate) fn lowers(&self) -> impl ExactSizeIterator<Item = &Bound> {
        self.partitions.iter().map(|partition| &partition.lower)
    }

    /// All runs, in the order of the partitions.
    pub fn runs(&self) -> impl Iterator<Item = &RunRef> {
        self.partitions.iter().flat_map(|partition| &partition.runs)
    }

    /// The length of all its files.
    pub fn file_bytes(&self) -> u64 {
        self.runs()
            .flat_map(|run| [run.summary.file_bytes, run.summary.ext_bytes])
            .fold(0, u64::saturating_add)
    }

    /// The pages of all runs.
    pub fn pages(&self) -> u64 {
        self.runs()
            .fold(0, |sum, run| sum.saturating_add(run.summary.pages))
    }

    /// The nulls of a column, when they were counted.
    pub fn nulls(&self, column: &str) -> Option<u64> {
        self.stats
            .iter()
            .find(|stats| stats.column == column)
            .map(|stats| stats.nulls)
    }

    /// Reads a manifest file's bytes and checks all that can be checked without the runs. The number
    /// returned with it is its checksum, which tells it from any other manifest.
    pub fn parse(bytes: &[u8]) -> Result<(Self, u64), DocumentError> {
        let (manifest, sum) = unseal::<Self>(bytes, "forebay_manifest", MANIFEST_FORMAT)?;
        manifest.check().map_err(DocumentError::Inconsistent)?;
        Ok((manifest, sum))
    }

    /// The bytes of the manifest's file and their checksum.
    pub fn to_bytes(&self) -> Result<(Vec<u8>, u64), DocumentError> {
        seal(self)
    }

    /// Whether bounds, names and sums are right; the text says what is not.
    pub fn check(&self) -> Result<(), String> {
        if self.version == 0 {
            return Err("version 0: versions begin at 1".into());
        }
        self.check_bounds()?;
        self.check_runs()?;
        for (index, partition) in self.partitions.iter().enumerate() {
            partition
                .check()
                .map_err(|problem| format!("partition {index}: {problem}"))?;
        }
        let sum: Totals = self
            .partitions
            .iter()
            .map(|partition| &partition.totals)
            .collect();
        if sum != self.totals {
            return Err(format!(
                "its partitions hold {sum}, it says {}",
                self.totals
            ));
        }
        self.check_stats()
    }

    fn check_bounds(&self) -> Result<(), String> {
        let count = self.partitions.len();
        if count == 0 || count > MAX_PARTITIONS {
            return Err(format!(
                "{count} partitions: there must be 1 to {MAX_PARTITIONS}"
            ));
        }
        let first = match self.order {
            Order::Hashed => Bound::Slot(0),
            Order::Ordered => Bound::Key(Vec::new()),
        };
        if self.partitions[0].lower != first {
            let lower = &self.partitions[0].lower;
            return Err(format!(
                "the first partition begins at {lower}, not at {first}"
            ));
        }
        for pair in self.partitions.windows(2) {
            let (a, b) = (&pair[0].lower, &pair[1].lower);
            if std::mem::discriminant(a) != std::mem::discriminant(b) {
                return Err(format!("a bound of the wrong kind: {b}"));
            }
            if a >= b {
                return Err(format!("partition bounds do not rise: {a}, then {b}"));
            }
        }
        Ok(())
    }

    fn check_runs(&self) -> Result<(), String> {
        let mut ids: Vec<&RunId> = self.runs().map(|run| &run.id).collect();
        ids.sort_unstable();
        match ids.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(format!("run {} is named twice", pair[0])),
            None => Ok(()),
        }
    }

    fn check_stats(&self) -> Result<(), String> {
        let mut names: Vec<&str> = self.stats.iter().map(|stats| &*stats.column).collect();
        names.sort_unstable();
        if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(format!("column {:?} has two counts of nulls", pair[0]));
        }
        match self
            .stats
            .iter()
            .find(|stats| stats.nulls > self.totals.rows)
        {
            Some(ColumnStats { column, nulls }) => Err(format!(
                "column {column:?} has {nulls} nulls in {} rows",
                self.totals.rows
            )),
            None => Ok(()),
        }
    }
}

impl Partition {
    /// One run says exactly what the partition holds; of several, older records may be superseded.
    fn check(&self) -> Result<(), String> {
        let sum: Totals = self
            .runs
            .iter()
            .map(|run| Totals::of_run(&run.summary))
            .collect::<Vec<_>>()
            .iter()
            .collect();
        let right = match self.runs.len() {
            0 | 1 => sum == self.totals,
            _ => self.totals.rows <= sum.rows,
        };
        if right {
            Ok(())
        } else {
            Err(format!("its runs hold {sum}, it says {}", self.totals))
        }
    }
}

impl std::fmt::Display for Totals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} rows of {} bytes, content {}",
            self.rows, self.bytes, self.content
        )
    }
}

#[cfg(test)]
#[path = "manifest_tests.rs"]
mod tests;
