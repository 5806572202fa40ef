//! The manifest of a live table: its content on the disk.
//!
//! One sealed document names every run of every partition, oldest first, and the first segment of
//! the log that is still needed. It is replaced as a whole, so that runs of all partitions change
//! together with the log.

use std::collections::{HashMap, HashSet};

use forebay_run::format::RunSummary;
use serde::{Deserialize, Serialize};

use crate::documents::seal::{DocumentError, Unsealed, Upgrade, seal, unseal_upgrading};
use crate::documents::upgrade::{name_live_partitions, number_live_partitions};
use crate::keys::partition::{Bounds, FIRST_EPOCH, PartitionId, PartitionRange, check_apart};
use crate::live::basics::applied::AppliedPlace;
use crate::live::basics::options::{LiveDraft, LiveOptions};
use crate::live::basics::removed::RemovedRanges;
use crate::name::{RunId, TableName};

/// The format number of live manifests that this program writes. It reads earlier ones, too.
pub const LIVE_MANIFEST_FORMAT: u64 = 3;
const UPGRADES: [Upgrade; 2] = [name_live_partitions, number_live_partitions];

/// The list of a live table's partitions and runs, with its options.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LiveManifest {
    forebay_live: u64,
    pub table: TableName,
    /// Drawn when the table was made. It distinguishes its log from that of another table of the
    /// same name.
    pub table_id: u64,
    /// When the table was made, in milliseconds since 1970-01-01 UTC.
    pub created_unix_ms: u64,
    pub options: LiveOptions,
    /// Segments of the log below this number are in the runs.
    pub log_from: u64,
    /// The load that was added last. It shows whether a load that is being taken was added already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_load: Option<RunId>,
    /// Partitions that the table held and released. Their ids are reserved: such a partition may
    /// come back, not older than it was, and no other one gets its id.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gone: Vec<GonePartition>,
    /// The partitions that the table holds, in the table's order.
    pub partitions: Vec<LivePartition>,
}

/// A partition that the table held before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GonePartition {
    pub id: PartitionId,
    /// The epoch in which it was released.
    pub epoch: u64,
}

/// A partition and its runs, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LivePartition {
    pub id: PartitionId,
    pub bounds: Bounds,
    /// See [`PartitionContent::epoch`](crate::live::PartitionContent::epoch).
    pub epoch: u64,
    /// See [`PartitionContent::applied`](crate::live::PartitionContent::applied).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied: Option<AppliedPlace>,
    pub runs: Vec<LiveRunRef>,
}

/// One run of a partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LiveRunRef {
    pub id: RunId,
    /// How many times its records were merged: see `levels`.
    pub level: u32,
    /// When the earliest of its deltas was written, if it has some; 0 if unknown. See
    /// [`LiveShared::droppable_ms`](crate::live::partition::shared::LiveShared::droppable_ms).
    pub deltas_since_ms: Option<u64>,
    /// The partition's part of the file, if the file has records of other partitions as well: the
    /// partition's bounds. `summary` then counts all records of the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<Bounds>,
    /// The deleted ranges of older runs of the partition.
    #[serde(default, skip_serializing_if = "RemovedRanges::is_empty")]
    pub removed: RemovedRanges,
    pub summary: RunSummary,
}

impl LiveManifest {
    pub fn new(table: TableName, table_id: u64, created_unix_ms: u64, draft: LiveDraft) -> Self {
        let is_replicated = draft.options.replication.is_some();
        let partition = |range: PartitionRange| LivePartition {
            id: range.id,
            bounds: range.bounds,
            epoch: FIRST_EPOCH,
            applied: is_replicated.then(AppliedPlace::default),
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
            gone: Vec::new(),
            partitions: draft.partitions.into_iter().map(partition).collect(),
        }
    }

    /// Returns the same table, with nothing in a log.
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

    /// Reads and checks a manifest file's bytes, of this format or of an earlier one. Also returns
    /// the number of their format.
    pub fn parse(bytes: &[u8]) -> Result<(Self, u64), DocumentError> {
        let field = "forebay_live";
        let unsealed: Unsealed<Self> =
            unseal_upgrading(bytes, field, LIVE_MANIFEST_FORMAT, &UPGRADES)?;
        let manifest = unsealed.document;
        let checked = manifest.options.check();
        let checked = checked.and_then(|()| manifest.check_partitions());
        checked.map_err(DocumentError::Inconsistent)?;
        Ok((manifest, unsealed.format))
    }

    /// Checks that the partitions are disjoint, that each id is unique, and that no record of a run
    /// belongs to two of them. The text says what is wrong.
    pub fn check_partitions(&self) -> Result<(), String> {
        self.check_runs()?;
        self.check_applied()?;
        let partitions = self.partitions.iter();
        check_apart(
            self.options.order,
            partitions.map(|partition| (partition.id, &partition.bounds)),
        )?;
        let here = self.partitions.iter().map(|partition| partition.id);
        let mut ids: HashSet<PartitionId> = here.collect();
        match self.gone.iter().find(|gone| !ids.insert(gone.id)) {
            Some(twice) => Err(format!(
                "partition {} is removed, and also present or removed a second time",
                twice.id
            )),
            None => Ok(()),
        }
    }

    /// Checks that either each partition has a place in a log, or none has.
    fn check_applied(&self) -> Result<(), String> {
        let is_replicated = self.options.replication.is_some();
        let mut partitions = self.partitions.iter();
        let other = partitions.find(|partition| partition.applied.is_some() != is_replicated);
        match other {
            None => Ok(()),
            Some(other) if is_replicated => Err(format!(
                "partition {} does not say how far it has come in the log of its group",
                other.id
            )),
            Some(other) => Err(format!(
                "partition {} has come to a place in a log, and the table is not replicated",
                other.id
            )),
        }
    }

    /// Raises the place of a partition's runs, if it is later than before.
    pub fn raise(&mut self, id: PartitionId, applied: &AppliedPlace) {
        let mut partitions = self.partitions.iter_mut();
        let found = partitions.find(|partition| partition.id == id);
        let now = found.and_then(|partition| partition.applied.as_mut());
        if let Some(now) = now.filter(|now| now.position() <= applied.position()) {
            debug_assert!(
                now.loaded <= applied.loaded && now.term <= applied.term,
                "the runs of partition {id} are at {now:?}, and would go to {applied:?}"
            );
            let stamp_ms = now.stamp_ms.max(applied.stamp_ms);
            *now = applied.clone();
            now.stamp_ms = stamp_ms;
        }
    }

    /// Returns the place in its log up to which the runs of a partition have it.
    pub fn applied(&self, id: PartitionId) -> Option<&AppliedPlace> {
        let mut partitions = self.partitions.iter();
        partitions
            .find(|partition| partition.id == id)?
            .applied
            .as_ref()
    }

    /// Checks that partitions that share a run see disjoint parts of it, each within its bounds.
    fn check_runs(&self) -> Result<(), String> {
        let mut named: HashMap<&RunId, (PartitionId, bool)> = HashMap::new();
        for partition in &self.partitions {
            for run in &partition.runs {
                let range = run.range.as_ref();
                if range.is_some_and(|range| *range != partition.bounds) {
                    return Err(format!(
                        "run {} has another range than its partition",
                        run.id
                    ));
                }
                let this = (partition.id, range.is_some());
                match named.insert(&run.id, this) {
                    Some((other, true)) if this.1 && other != partition.id => {}
                    Some(_) => return Err(format!("run {} is named twice", run.id)),
                    None => {}
                }
            }
        }
        Ok(())
    }

    /// Takes a partition out of the list, and reserves its id; `None` if the table does not hold
    /// it.
    pub fn give_up(&mut self, id: PartitionId) -> Option<LivePartition> {
        let place = self.partitions.iter().position(|part| part.id == id)?;
        let partition = self.partitions.remove(place);
        let epoch = partition.epoch;
        self.gone.push(GonePartition { id, epoch });
        Some(partition)
    }

    /// Puts a partition into the list. The text says why it cannot be adopted; this manifest is
    /// unusable then.
    pub fn take_in(&mut self, partition: LivePartition) -> Result<(), String> {
        if let Some(place) = self.gone.iter().position(|gone| gone.id == partition.id) {
            let gone = self.gone.remove(place);
            if partition.epoch < gone.epoch {
                return Err(format!(
                    "it was given up here in epoch {}, and this is epoch {}, before that",
                    gone.epoch, partition.epoch
                ));
            }
        }
        self.partitions.push(partition);
        let lower = |partition: &LivePartition| partition.bounds.lower.clone();
        self.partitions.sort_by_key(lower);
        self.check_partitions()
    }

    /// Returns whether the table holds this partition.
    pub fn has(&self, id: PartitionId) -> bool {
        self.partitions.iter().any(|partition| partition.id == id)
    }

    /// Returns the ids and bounds of the partitions.
    pub fn ranges(&self) -> Vec<PartitionRange> {
        self.partitions.iter().map(LivePartition::range).collect()
    }

    /// Returns the runs of a partition that the table holds.
    pub fn runs_of(&mut self, id: PartitionId) -> Option<&mut Vec<LiveRunRef>> {
        let found = self
            .partitions
            .iter_mut()
            .find(|partition| partition.id == id);
        found.map(|partition| &mut partition.runs)
    }

    /// Returns all runs; a run that partitions share only once.
    pub fn files(&self) -> impl Iterator<Item = &LiveRunRef> {
        let mut seen = HashSet::new();
        self.runs().filter(move |run| seen.insert(&run.id))
    }

    /// Returns the number of runs of which a partition sees a part.
    pub fn split_runs(&self) -> usize {
        self.files().filter(|run| run.range.is_some()).count()
    }

    /// Returns whether a partition names the run.
    pub fn names(&self, run: &RunId) -> bool {
        self.runs().any(|named| named.id == *run)
    }

    /// Returns the runs of all partitions, one partition after the other.
    pub fn runs(&self) -> impl Iterator<Item = &LiveRunRef> {
        self.partitions.iter().flat_map(|partition| &partition.runs)
    }
}

impl LiveRunRef {
    /// Returns the length of its files, including that of long values.
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
    use crate::live::basics::options::Replication;
    use crate::live::basics::removed::KeyRange;

    #[test]
    fn a_manifest_is_read_back_and_any_changed_byte_is_detected() {
        let table = TableName::new("t").unwrap();
        let mut manifest = LiveManifest::new(table, 7, 5, LiveDraft::hashed());
        let id = RunId::new("a-1").unwrap();
        let bounds = manifest.partitions[1].bounds.clone();
        manifest.partitions[1].runs.push(LiveRunRef {
            id,
            level: 2,
            deltas_since_ms: Some(4),
            range: Some(bounds),
            removed: RemovedRanges::of(KeyRange::all()),
            summary: RunSummary::default(),
        });
        let bytes = manifest.to_bytes().unwrap();
        let parsed = LiveManifest::parse(&bytes).unwrap();
        assert_eq!(parsed, (manifest, LIVE_MANIFEST_FORMAT));
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
            range: None,
            removed: RemovedRanges::default(),
            summary: RunSummary::default(),
        };
        let mut twice = manifest.clone();
        twice.partitions[0].runs.push(run.clone());
        assert!(!refused(&twice));
        twice.partitions[1].runs.push(run);
        assert!(refused(&twice));
        // Shared by two partitions with separate parts of it. Then by no other, or twice.
        let mut shared = twice.clone();
        for part in &mut shared.partitions[..2] {
            part.runs[0].range = Some(part.bounds.clone());
        }
        assert!(!refused(&shared));
        let mut astray = shared.clone();
        astray.partitions[0].runs[0].range = Some(shared.partitions[1].bounds.clone());
        assert!(refused(&astray));
        let again = shared.partitions[0].runs[0].clone();
        shared.partitions[0].runs.push(again);
        assert!(refused(&shared));
        manifest.partitions[0].bounds.upper = None;
        assert!(refused(&manifest));
    }

    #[test]
    fn an_id_stands_for_one_partition_for_good() {
        let table = TableName::new("t").unwrap();
        let mut manifest = LiveManifest::new(table, 7, 5, LiveDraft::hashed());
        manifest.partitions[1].epoch = 4;
        let id = manifest.partitions[1].id;
        let gone = manifest.give_up(id).unwrap();
        assert_eq!(manifest.give_up(id), None);
        let (read, _) = LiveManifest::parse(&manifest.to_bytes().unwrap()).unwrap();
        assert_eq!(read.gone, [GonePartition { id, epoch: 4 }]);
        let older = LivePartition {
            epoch: 3,
            ..gone.clone()
        };
        let why = manifest.clone().take_in(older).unwrap_err();
        assert!(why.contains("given up here in epoch 4"), "{why}");
        let mut back = manifest.clone();
        back.take_in(gone.clone()).unwrap();
        assert_eq!((back.gone.len(), &back.partitions[1]), (0, &gone));
        manifest.partitions.push(gone);
        assert!(LiveManifest::parse(&manifest.to_bytes().unwrap()).is_err());
    }

    #[test]
    fn a_place_only_rises() {
        let table = TableName::new("t").unwrap();
        let draft = LiveDraft::hashed().replicated(Replication::Leader);
        let mut manifest = LiveManifest::new(table, 7, 5, draft);
        let id = manifest.partitions[1].id;
        let at = |index, done, stamp_ms| AppliedPlace {
            term: 1,
            index,
            stamp_ms,
            done,
            ..AppliedPlace::default()
        };
        let steps = [
            (at(5, 1, 50), at(5, 1, 50)),
            (at(5, 0, 60), at(5, 1, 50)),
            (at(4, 7, 60), at(5, 1, 50)),
            (at(5, 1, 40), at(5, 1, 50)),
            (at(5, 1, 60), at(5, 1, 60)),
            (at(6, 0, 60), at(6, 0, 60)),
        ];
        for (raised, wanted) in steps {
            manifest.raise(id, &raised);
            assert_eq!(manifest.applied(id), Some(&wanted), "{raised:?}");
        }
        let bytes = manifest.to_bytes().unwrap();
        assert_eq!(LiveManifest::parse(&bytes).unwrap().0, manifest);
        manifest.partitions[0].applied = None;
        assert!(LiveManifest::parse(&manifest.to_bytes().unwrap()).is_err());
        manifest.options.replication = None;
        assert!(LiveManifest::parse(&manifest.to_bytes().unwrap()).is_err());
        manifest
            .partitions
            .iter_mut()
            .for_each(|part| part.applied = None);
        assert!(LiveManifest::parse(&manifest.to_bytes().unwrap()).is_ok());
    }

    #[test]
    fn values_that_an_older_format_lacks_are_added() {
        let table = TableName::new("t").unwrap();
        let manifest = LiveManifest::new(table, 7, 5, LiveDraft::hashed());
        let mut old = serde_json::to_value(&manifest).unwrap();
        old["forebay_live"] = 2.into();
        for partition in old["partitions"].as_array_mut().unwrap() {
            let partition = partition.as_object_mut().unwrap();
            partition.remove("epoch");
        }
        let (bytes, _) = seal(&old).unwrap();
        assert_eq!(LiveManifest::parse(&bytes), Ok((manifest, 2)));
        for (found, refused) in [(0, true), (1, false), (4, true)] {
            old["forebay_live"] = found.into();
            let (bytes, _) = seal(&old).unwrap();
            let error = LiveManifest::parse(&bytes).unwrap_err();
            let is_format = matches!(error, DocumentError::Format { .. });
            assert_eq!(is_format, refused, "format {found}: {error}");
        }
    }
}
