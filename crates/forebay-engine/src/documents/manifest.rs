//! The manifest: the document that lists the runs of a version.
//!
//! A manifest names every run of a version, partition by partition, with lengths, counts and
//! content sums, and contains the schema of the rows. It is a sealed document: damage is detected,
//! and an unknown format is refused by its number. Code trusts a manifest only after
//! [`Manifest::check`] accepts it: names are plain, the partitions cover the whole order, and all
//! counts add up.

use forebay_run::content::ContentSum;
use forebay_run::format::{Order, RunSummary};
use forebay_run::number::Number;
use forebay_run::operation::DeltaKind;
use forebay_run::row::{Kind, Schema};
use serde::{Deserialize, Serialize};

use crate::documents::column_profile::ColumnStats;
use crate::documents::seal::{DocumentError, Upgrade, seal, unseal_upgrading};
use crate::documents::upgrade::{as_it_is, name_partitions};
use crate::keys::bound::Bound;
use crate::keys::partition::{
    Bounds, OpenPartitions, PartitionId, PartitionRange, check_apart, check_whole, numbered,
};
use crate::keys::route::Router;
use crate::name::{RunId, TableName};

/// The format number of manifests that this program writes. It reads older formats, too.
pub const MANIFEST_FORMAT: u64 = 3;

/// Upgrades from formats 1 and 2, each to the next one.
const UPGRADES: [Upgrade; 2] = [name_partitions, as_it_is];

/// The description of one version of a table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    pub(crate) forebay_manifest: u64,
    pub table: TableName,
    pub version: u64,
    /// When the push began, in milliseconds since 1970-01-01 UTC.
    pub created_unix_ms: u64,
    pub order: Order,
    pub value: ValueKind,
    /// The columns of a row; for a bytes or list table, its one column.
    pub schema: Schema,
    /// The template that made the keys, as given to the push.
    pub key: String,
    /// The meaning of `+` in the deltas of this table, if declared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delta: Option<DeltaKind>,
    /// Whether, and when, its rows expire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<Ttl>,
    /// The version whose runs this one includes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub onto: Option<u64>,
    /// Adjacent partitions, from the beginning of the order to its end.
    pub partitions: Vec<Partition>,
    /// The sum over the partitions.
    pub totals: Totals,
    /// The counts of each column that was counted.
    #[serde(default)]
    pub stats: Vec<ColumnStats>,
    /// The source of the version, for people to read.
    #[serde(default)]
    pub source: String,
}

/// The kind of a table's values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ValueKind {
    /// Rows of the manifest's schema.
    Row,
    /// The bytes of one column.
    Bytes { column: String },
    /// The numbers of one column, 8 bytes each; readers get their decimal text.
    Number { column: String, number: Number },
    /// Lists of `item`, from one column.
    List { column: String, item: Kind },
}

/// A partition of a table, with its runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Partition {
    pub id: PartitionId,
    pub bounds: Bounds,
    /// The sum over the runs. With several runs, newer records may replace or delete older ones, so
    /// readers find fewer rows.
    pub totals: Totals,
    /// Oldest first. A push of a whole table writes one run, or none if the partition is empty. A
    /// push onto another version adds one.
    pub runs: Vec<RunRef>,
}

/// One run of a partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunRef {
    pub id: RunId,
    /// Counts, lengths of the two files, content.
    pub summary: RunSummary,
    /// The counts of operations; absent if all are updates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operations: Option<OperationCounts>,
}

/// The number of records of a run that are not updates, by operation.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OperationCounts {
    pub inserts: u64,
    pub deletes: u64,
    pub deltas: u64,
}

/// The rule by which the rows of a table expire.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ttl {
    /// After so many milliseconds from the push that wrote them.
    AfterMs(u64),
    /// At the time in this column of the sources.
    Column(String),
}

/// Counts of records.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Totals {
    pub rows: u64,
    /// Keys and values, in bytes.
    pub bytes: u64,
    pub content: ContentSum,
}

/// The part of a [`Manifest`] that a push supplies. The rest follows from the push itself and the
/// sums.
#[derive(Debug, Clone)]
pub struct ManifestDraft {
    pub order: Order,
    pub value: ValueKind,
    pub schema: Schema,
    pub key: String,
    pub delta: Option<DeltaKind>,
    pub ttl: Option<Ttl>,
    pub onto: Option<u64>,
    pub partitions: Vec<Partition>,
    pub stats: Vec<ColumnStats>,
    pub source: String,
}

impl ManifestDraft {
    /// Returns the draft of a version with the rows of `base`, or more, in these partitions. It has
    /// no column counts.
    pub fn like(base: &Manifest, partitions: Vec<Partition>, source: String) -> Self {
        Self {
            order: base.order,
            value: base.value.clone(),
            schema: base.schema.clone(),
            key: base.key.clone(),
            delta: base.delta,
            ttl: base.ttl.clone(),
            onto: Some(base.version),
            partitions,
            stats: Vec::new(),
            source,
        }
    }
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
    /// Returns the partitions of a whole table, numbered from 0. Each extends from its bound to the
    /// next one and has its runs, oldest first.
    pub fn side_by_side(parts: impl IntoIterator<Item = (Bound, Vec<RunRef>)>) -> Vec<Self> {
        let (lowers, runs): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
        let ranges = numbered(lowers).into_iter();
        let partition = |(range, runs): (PartitionRange, Vec<RunRef>)| Self {
            id: range.id,
            bounds: range.bounds,
            totals: sum(&runs),
            runs,
        };
        ranges.zip(runs).map(partition).collect()
    }

    /// Returns the partition with other runs, oldest first.
    #[must_use]
    pub fn with_runs(&self, runs: Vec<RunRef>) -> Self {
        Self {
            id: self.id,
            bounds: self.bounds.clone(),
            totals: sum(&runs),
            runs,
        }
    }

    /// Returns the least and the greatest number of rows that readers can find, apart from expired
    /// ones. The effect of newer runs on older ones is not known without reading both.
    pub fn rows_between(&self) -> (u64, u64) {
        let Some((oldest, newer)) = self.runs.split_first() else {
            return (0, 0);
        };
        let split = |run: &RunRef| {
            let deletes = run.operations.unwrap_or_default().deletes;
            (deletes, run.summary.records.saturating_sub(deletes))
        };
        let (_, rows) = split(oldest);
        newer.iter().fold((rows, rows), |(least, most), run| {
            let (deletes, others) = split(run);
            (least.saturating_sub(deletes), most.saturating_add(others))
        })
    }
}

fn sum(runs: &[RunRef]) -> Totals {
    let mut sum = Totals::default();
    runs.iter()
        .for_each(|run| sum.add(&Totals::of_run(&run.summary)));
    sum
}

impl RunRef {
    /// Returns the counts of operations: updates, inserts, deletes, deltas.
    pub fn counts(&self) -> [u64; 4] {
        let OperationCounts {
            inserts,
            deletes,
            deltas,
        } = self.operations.unwrap_or_default();
        let others = inserts.saturating_add(deletes).saturating_add(deltas);
        let updates = self.summary.records.saturating_sub(others);
        [updates, inserts, deletes, deltas]
    }
}

impl Manifest {
    /// Returns the manifest of the draft, numbered and added up. It may be inconsistent: call
    /// [`Manifest::check`].
    pub fn from_draft(
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
            delta: draft.delta,
            ttl: draft.ttl,
            onto: draft.onto,
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

    /// Returns the number of rows that readers find, apart from expired ones. If
    /// [`Manifest::is_merged`] is false, it is the greatest possible number.
    pub fn rows(&self) -> u64 {
        self.rows_between().1
    }

    /// Returns the least and the greatest number of rows that readers can find, apart from expired
    /// ones.
    pub fn rows_between(&self) -> (u64, u64) {
        let parts = self.partitions.iter().map(Partition::rows_between);
        parts.fold((0, 0), |sum: (u64, u64), part| {
            (sum.0.saturating_add(part.0), sum.1.saturating_add(part.1))
        })
    }

    /// Returns the bytes of keys and values of all runs.
    pub fn bytes(&self) -> u64 {
        self.totals.bytes
    }

    /// Returns whether no partition has several runs. Counts and sums are then those of the rows.
    pub fn is_merged(&self) -> bool {
        self.partitions.iter().all(|part| part.runs.len() <= 1)
    }

    /// Returns the greatest number of runs in a partition: a look-up may read so many.
    pub fn runs_deep(&self) -> usize {
        let deep = self.partitions.iter().map(|part| part.runs.len());
        deep.max().unwrap_or(0)
    }

    /// Returns the sum over all rows, if known.
    pub fn content(&self) -> Option<ContentSum> {
        self.is_merged().then_some(self.totals.content)
    }

    /// Returns the manifest with other runs in one partition, oldest first.
    #[must_use]
    pub fn with_runs(mut self, partition: usize, runs: Vec<RunRef>) -> Self {
        if let Some(part) = self.partitions.get_mut(partition) {
            *part = part.with_runs(runs);
        }
        self.totals = self.partitions.iter().map(|part| &part.totals).collect();
        self
    }

    /// Returns the bounds of the held partitions, each with its index in the list.
    pub(crate) fn held<'a>(
        &'a self,
        held: &'a OpenPartitions,
    ) -> impl Iterator<Item = (usize, &'a Bounds)> {
        let places = self.partitions.iter().enumerate();
        let here = places.filter(|(_, partition)| held.holds(partition.id));
        here.map(|(place, partition)| (place, &partition.bounds))
    }

    /// Returns the router that finds the partition of a key.
    pub(crate) fn router(&self, held: &OpenPartitions) -> Router {
        Router::new(&self.table, self.order, self.held(held))
    }

    /// Returns the runs of the held partitions, in the order of the partitions.
    pub(crate) fn runs_held<'a>(
        &'a self,
        held: &'a OpenPartitions,
    ) -> impl Iterator<Item = &'a RunRef> {
        let places = self.held(held).map(|(place, _)| place);
        places.flat_map(|place| &self.partitions[place].runs)
    }

    /// Returns all runs, in the order of the partitions.
    pub fn runs(&self) -> impl Iterator<Item = &RunRef> {
        self.partitions.iter().flat_map(|partition| &partition.runs)
    }

    /// Returns the length of all its files.
    pub fn file_bytes(&self) -> u64 {
        self.runs()
            .flat_map(|run| [run.summary.file_bytes, run.summary.ext_bytes])
            .fold(0, u64::saturating_add)
    }

    /// Returns the number of pages of all runs.
    pub fn pages(&self) -> u64 {
        self.runs()
            .fold(0, |sum, run| sum.saturating_add(run.summary.pages))
    }

    /// Returns the nulls of a column, if they were counted.
    pub fn nulls(&self, column: &str) -> Option<u64> {
        self.stats
            .iter()
            .find(|stats| stats.column == column)
            .map(|stats| stats.nulls)
    }

    /// Parses a manifest file and checks everything that does not need the runs. Returns it with
    /// its checksum, which distinguishes it from any other manifest.
    pub fn parse(bytes: &[u8]) -> Result<(Self, u64), DocumentError> {
        let field = "forebay_manifest";
        let unsealed = unseal_upgrading::<Self>(bytes, field, MANIFEST_FORMAT, &UPGRADES)?;
        let checked = unsealed.document.check();
        checked.map_err(DocumentError::Inconsistent)?;
        Ok((unsealed.document, unsealed.sum))
    }

    /// Returns the bytes of the manifest's file and their checksum.
    pub fn to_bytes(&self) -> Result<(Vec<u8>, u64), DocumentError> {
        seal(self)
    }

    /// Checks bounds, names and sums; the error text describes the first fault.
    pub fn check(&self) -> Result<(), String> {
        if self.version == 0 {
            return Err("version 0: versions begin at 1".into());
        }
        self.check_bounds()?;
        self.check_runs()?;
        for partition in &self.partitions {
            let id = partition.id;
            let checked = partition.check();
            checked.map_err(|problem| format!("partition {id}: {problem}"))?;
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
        let parts = self.partitions.iter();
        let bounds = parts.clone().map(|part| (part.id, &part.bounds));
        check_apart(self.order, bounds)?;
        check_whole(self.order, parts.map(|part| &part.bounds))
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
            Some(ColumnStats { column, nulls, .. }) => Err(format!(
                "column {column:?} has {nulls} nulls in {} rows",
                self.totals.rows
            )),
            None => self.check_profiles(),
        }
    }

    fn check_profiles(&self) -> Result<(), String> {
        let wrong = self.stats.iter().find(|stats| {
            let values = stats.values.as_ref();
            values.is_some_and(|values| !values.check())
        });
        match wrong {
            Some(stats) => Err(format!(
                "column {:?} counts more values of a kind than values",
                stats.column
            )),
            None => Ok(()),
        }
    }
}

impl Partition {
    fn check(&self) -> Result<(), String> {
        let sum = sum(&self.runs);
        if sum != self.totals {
            return Err(format!("its runs hold {sum}, it says {}", self.totals));
        }
        let more = |run: &&RunRef| {
            let counts = run.counts().into_iter();
            counts.fold(0, u64::saturating_add) > run.summary.records
        };
        match self.runs.iter().find(more) {
            Some(run) => Err(format!("run {} has more operations than records", run.id)),
            None => Ok(()),
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
