//! What a live table consists of on the disk.
//!
//! One sealed document names every run of every partition, oldest first, and the first segment of
//! the log that is still needed. It is replaced as a whole, so that runs of all partitions change
//! together, and along with the log.

use std::collections::HashSet;

use forebay_run::format::RunSummary;
use serde::{Deserialize, Serialize};

use crate::live::options::{LiveDraft, LiveOptions};
use crate::live::removed::Removed;
use crate::name::{RunId, TableName};
use crate::partition::{Bounds, PartitionId, PartitionRange, check_apart};
use crate::seal::{DocumentError, seal, unseal_upgrading};
use crate::upgrade::name_live_partitions;

/// The format number of live manifests that this program writes. It reads the one before, too.
pub const LIVE_MANIFEST_FORMAT: u64 = 2;

/// See the module's text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LiveManifest {
    forebay_live: u64,
    pub table: TableName,
    /// Drawn when the table was made: tells its log from that of another table of the same name.
    pub table_id: u64,
    /// When the table was made, in milliseconds since 1970-01-01 UTC.
    pub created_unix_ms: u64,
    pub options: LiveOptions,
    /// Segments of the log below this number are in the runs.
    pub log_from: u64,
    /// The load that was added last: whoever takes loads asks whether one is in already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_load: Option<RunId>,
    /// Those that are here, in the table's order.
    pub partitions: Vec<LivePartition>,
}

/// A partition and its runs, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LivePartition {
    pub id: PartitionId,
    pub bounds: Bounds,
    pub runs: Vec<LiveRunRef>,
}

/// One run of a partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LiveRunRef {
    pub id: RunId,
    /// How many times its records were merged: see `levels`.
    pub level: u32,
    /// When the earliest of its deltas was written, if it has some; 0 where nobody knows. See
    /// [`LiveShared::droppable_ms`](crate::live::shared::LiveShared::droppable_ms).
    pub deltas_since_ms: Option<u64>,
    /// What of older runs of the partition is deleted.
    #[serde(default, skip_serializing_if = "Removed::is_empty")]
    pub removed: Removed,
    pub summary: RunSummary,
}

impl LiveManifest {
    pub fn new(table: TableName, table_id: u64, created_unix_ms: u64, draft: LiveDraft) -> Self {
        let partition = |range: PartitionRange| LivePartition {
            id: range.id,
            bounds: range.bounds,
            runs: Vec::new(),
        };
        Self {
            forebay_live: LIVE_MANIFEST_FORMAT,
            table,
            table_id,
            created_unix_ms,
            log_from: 0,
            last_load: None,
            options: draft.options,
            partitions: draft.partitions.into_iter().map(partition).collect(),
        }
    }

    /// The same table, of which nothing is in a log.
    pub fn without_log(&self) -> Self {
        Self {
            log_from: 0,
            last_load: None,
            ..self.clone()
        }
    }

    pub fn to_bytes(&self) -> Result<Vec<u8>, DocumentError> {
        seal(self).map(|(bytes, _)| bytes)
    }

    pub fn parse(bytes: &[u8]) -> Result<Self, DocumentError> {
        let (manifest, _): (Self, _) = unseal_upgrading(
            bytes,
            "forebay_live",
            LIVE_MANIFEST_FORMAT,
            name_live_partitions,
        )?;
        let checked = manifest.options.check();
        let checked = checked.and_then(|()| manifest.check_partitions());
        checked.map_err(DocumentError::Inconsistent)?;
        Ok(manifest)
    }

    /// Whether the partitions lie apart, and each run is named once; the text says what is wrong.
    pub fn check_partitions(&self) -> Result<(), String> {
        let mut ids = HashSet::new();
        if let Some(twice) = self.runs().find(|run| !ids.insert(&run.id)) {
            return Err(format!("run {} is named twice", twice.id));
        }
        let partitions = self.partitions.iter();
        check_apart(
            self.options.order,
            partitions.map(|partition| (partition.id, &partition.bounds)),
        )
    }

    /// The ids and bounds of the partitions.
    pub fn ranges(&self) -> Vec<PartitionRange> {
        self.partitions.iter().map(LivePartition::range).collect()
    }

    /// The runs of a partition that is here.
    pub fn runs_of(&mut self, id: PartitionId) -> Option<&mut Vec<LiveRunRef>> {
        let found = self
            .partitions
            .iter_mut()
            .find(|partition| partition.id == id);
        found.map(|partition| &mut partition.runs)
    }

    /// All runs.
    pub fn runs(&self) -> impl Iterator<Item = &LiveRunRef> {
        self.partitions.iter().flat_map(|partition| &partition.runs)
    }
}

impl LiveRunRef {
    /// The length of its files, that of long values included.
    pub fn files_bytes(&self) -> u64 {
        self.summary.file_bytes + self.summary.ext_bytes
    }
}

impl LivePartition {
    pub fn range(&self) -> PartitionRange {
        PartitionRange {
            id: self.id,
            bounds: self.bounds.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::removed::KeyRange;

    #[test]
    fn a_manifest_comes_back_and_any_changed_byte_shows() {
        let table = TableName::new("t").unwrap();
        let mut manifest = LiveManifest::new(table, 7, 5, LiveDraft::hashed());
        let id = RunId::new("a-1").unwrap();
        manifest.partitions[1].runs.push(LiveRunRef {
            id,
            level: 2,
            deltas_since_ms: Some(4),
            removed: Removed::of(KeyRange::all()),
            summary: RunSummary::default(),
        });
        let bytes = manifest.to_bytes().unwrap();
        assert_eq!(LiveManifest::parse(&bytes).unwrap(), manifest);
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(LiveManifest::parse(&damaged).is_err(), "byte {at}");
        }
    }

    #[test]
    fn partitions_that_overlap_are_refused() {
        let table = TableName::new("t").unwrap();
        let mut manifest = LiveManifest::new(table, 7, 5, LiveDraft::hashed());
        manifest.partitions.remove(1);
        assert!(LiveManifest::parse(&manifest.to_bytes().unwrap()).is_ok());
        let refused = |manifest: &LiveManifest| {
            let parsed = LiveManifest::parse(&manifest.to_bytes().unwrap());
            matches!(parsed, Err(DocumentError::Inconsistent(_)))
        };
        let run = LiveRunRef {
            id: RunId::new("a-1").unwrap(),
            level: 0,
            deltas_since_ms: None,
            removed: Removed::default(),
            summary: RunSummary::default(),
        };
        let mut twice = manifest.clone();
        twice.partitions[0].runs.push(run.clone());
        assert!(!refused(&twice));
        twice.partitions[1].runs.push(run);
        assert!(refused(&twice));
        manifest.partitions[0].bounds.upper = None;
        assert!(refused(&manifest));
    }
}
