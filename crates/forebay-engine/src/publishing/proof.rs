//! Records which partitions of an installed version were verified in this store.
//!
//! A verification reads the whole version, so its result is noted beside the manifest, in
//! `V.verified`. This sealed document names the manifest by its checksum. A note states that a
//! partition's files in this store were sound at that moment. The store removes the note, durably,
//! before it removes or replaces such a file. So after any crash this holds: if a note names a
//! partition, its files that exist at their lengths were verified.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use forebay_io::replace_file;
use serde::{Deserialize, Serialize};

use crate::documents::manifest::{Manifest, Partition};
use crate::documents::seal::{seal, unseal};
use crate::error::{At, StoreError};
use crate::keys::bound::Bound;
use crate::keys::partition::{OpenPartitions, PartitionId};
use crate::name::{RunId, TableName};
use crate::publishing::cleanup::remove_if_there;
use crate::publishing::verify::{PartitionProof, VerifyReport};
use crate::tables::table::{Table, check_files};

const PROOF_FORMAT: u64 = 1;

/// The partitions of a version that were verified in this store, with their counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Proof {
    forebay_proof: u64,
    pub table: TableName,
    pub version: u64,
    /// The checksum of the manifest.
    pub manifest_sum: u64,
    /// In the manifest's order.
    pub partitions: Vec<PartitionProof>,
}

impl Proof {
    pub(crate) fn new(manifest: &Manifest, sum: u64, partitions: Vec<PartitionProof>) -> Self {
        let mut proof = Self {
            forebay_proof: PROOF_FORMAT,
            table: manifest.table.clone(),
            version: manifest.version,
            manifest_sum: sum,
            partitions: Vec::new(),
        };
        let mut by_id = by_id(partitions);
        let ids = manifest.partitions.iter().map(|partition| partition.id);
        proof.partitions = ids.filter_map(|id| by_id.remove(&id)).collect();
        proof
    }

    /// Returns whether it includes all partitions `held` of the manifest.
    pub(crate) fn covers(&self, manifest: &Manifest, held: &OpenPartitions) -> bool {
        let mut proven = self.partitions.iter().map(|partition| partition.id);
        let ids = manifest.partitions.iter().map(|partition| partition.id);
        // Both have the manifest's order.
        ids.filter(|id| held.holds(*id))
            .all(|id| proven.any(|proven| proven == id))
    }

    /// Keeps only the partitions `held`.
    pub(crate) fn of(mut self, held: &OpenPartitions) -> Self {
        self.partitions.retain(|partition| held.holds(partition.id));
        self
    }
}

fn by_id(partitions: Vec<PartitionProof>) -> BTreeMap<PartitionId, PartitionProof> {
    let with_id = partitions
        .into_iter()
        .map(|partition| (partition.id, partition));
    with_id.collect()
}

impl Table {
    /// Returns the noted proof of a version; `None` if there is no note, or a damaged one, or one
    /// of another manifest.
    pub fn proof(&self, version: u64) -> Result<Option<Proof>, StoreError> {
        let (manifest, sum) = self.manifest_and_sum(version)?;
        self.proof_of(&manifest, sum)
    }

    pub(crate) fn proof_of(
        &self,
        manifest: &Manifest,
        sum: u64,
    ) -> Result<Option<Proof>, StoreError> {
        let path = self.files.proof(manifest.version);
        let bytes = match self.disk().read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            bytes => bytes.at("read", &path)?,
        };
        let read = unseal::<Proof>(&bytes, "forebay_proof", PROOF_FORMAT).ok();
        let fits = |proof: &Proof| {
            (&proof.table, proof.version, proof.manifest_sum)
                == (&manifest.table, manifest.version, sum)
        };
        let proof = read.map(|(proof, _)| proof).filter(fits);
        // With ids of the manifest only, each once, in its order.
        Ok(proof.map(|proof| Proof::new(manifest, sum, proof.partitions)))
    }

    /// Returns the proof of the held partitions of a version if it is complete: all files that this
    /// store is to have exist at their lengths and are verified. Its checksum identifies the
    /// manifest.
    pub fn proven(&self, version: u64) -> Result<Option<Proof>, StoreError> {
        let (manifest, sum) = match self.manifest_and_sum(version) {
            Err(StoreError::NoVersion { .. } | StoreError::Damaged { .. }) => return Ok(None),
            read => read?,
        };
        let held = self.store().held(&manifest);
        if check_files(&**self.disk(), &self.files, &manifest, &held).is_err() {
            return Ok(None);
        }
        let proof = self.proof_of(&manifest, sum)?;
        let whole = proof.filter(|proof| proof.covers(&manifest, &held));
        Ok(whole.map(|proof| proof.of(&held)))
    }

    /// Adds the partitions that a verification found sound to the note of a version.
    pub fn prove(&self, report: &VerifyReport) -> Result<(), StoreError> {
        let _lock = self.lock_pointer("a note of a verification")?;
        // The directory entries of the verified files must be durable before the note is.
        let runs = self.files.runs();
        self.disk().sync_dir(&runs).at("sync", &runs)?;
        let (manifest, sum) = self.manifest_and_sum(report.version)?;
        let known = self.proof_of(&manifest, sum)?;
        let mut partitions = known.map_or(Vec::new(), |proof| proof.partitions);
        partitions.extend(report.partitions.iter().cloned());
        self.write_proof(&Proof::new(&manifest, sum, partitions))
    }

    /// Removes the notes of partitions that have one of these runs, in all versions, before their
    /// files change.
    pub fn disprove(&self, runs: &[RunId]) -> Result<(), StoreError> {
        if runs.is_empty() {
            return Ok(());
        }
        let _lock = self.lock_pointer("a note of a verification")?;
        self.disprove_where(&|partition| partition.runs.iter().any(|run| runs.contains(&run.id)))
    }

    /// REQUIRES the pointer lock.
    pub(crate) fn disprove_where(
        &self,
        gone: &dyn Fn(&Partition) -> bool,
    ) -> Result<(), StoreError> {
        for version in self.version_numbers()? {
            let Ok((manifest, sum)) = self.manifest_and_sum(version) else {
                // A note of an unreadable manifest does not count.
                continue;
            };
            let Some(mut proof) = self.proof_of(&manifest, sum)? else {
                continue;
            };
            let concerned = manifest
                .partitions
                .iter()
                .filter(|partition| gone(partition));
            let ids: BTreeSet<PartitionId> = concerned.map(|partition| partition.id).collect();
            let before = proof.partitions.len();
            proof
                .partitions
                .retain(|partition| !ids.contains(&partition.id));
            if proof.partitions.len() < before {
                self.write_proof(&proof)?;
            }
        }
        Ok(())
    }

    /// REQUIRES the pointer lock.
    pub(crate) fn write_proof(&self, proof: &Proof) -> Result<(), StoreError> {
        let path = self.files.proof(proof.version);
        let sealed = seal(proof).map_err(|problem| StoreError::Damaged {
            path: path.clone(),
            problem,
        })?;
        replace_file(&**self.disk(), &path, &sealed.0).at("write", &path)
    }

    /// REQUIRES the pointer lock.
    pub(crate) fn remove_proof(&self, version: u64) -> Result<(), StoreError> {
        remove_if_there(&**self.disk(), &self.files.proof(version))
    }

    /// Returns the noted proofs of this manifest's partitions. They may be from any version in the
    /// store, this one included, that has the same runs within the same bounds.
    pub(crate) fn known_proofs(
        &self,
        manifest: &Manifest,
    ) -> Result<Vec<PartitionProof>, StoreError> {
        let by_lower: BTreeMap<&Bound, &Partition> = manifest
            .partitions
            .iter()
            .map(|partition| (&partition.bounds.lower, partition))
            .collect();
        let mut known = Vec::new();
        for version in self.version_numbers()? {
            let Ok((other, sum)) = self.manifest_and_sum(version) else {
                continue;
            };
            let Some(proof) = self
                .proof_of(&other, sum)?
                .filter(|_| other.delta == manifest.delta)
            else {
                continue;
            };
            let mut proven = by_id(proof.partitions);
            for part in &other.partitions {
                let same = by_lower
                    .get(&part.bounds.lower)
                    .filter(|same| (&same.bounds, &same.runs) == (&part.bounds, &part.runs));
                if let (Some(same), Some(found)) = (same, proven.remove(&part.id)) {
                    known.push(PartitionProof {
                        id: same.id,
                        ..found
                    });
                }
            }
        }
        Ok(known)
    }
}
