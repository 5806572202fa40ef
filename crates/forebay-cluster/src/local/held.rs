//! The ranges of versions that this node's store holds.

use std::collections::BTreeMap;

use forebay_engine::{Bounds, Holding, Manifest, OpenPartitions, TableName};
use parking_lot::RwLock;

use crate::node::VersionPlace;
use crate::routing::version::overlaps_any;

/// The ranges held of each version; none of versions that were not added.
#[derive(Debug, Default)]
pub struct HeldRanges(RwLock<BTreeMap<VersionPlace, Vec<Bounds>>>);

impl HeldRanges {
    /// Sets the ranges of a version. Returns its previous ranges.
    pub fn set(&self, place: &VersionPlace, ranges: &[Bounds]) -> Option<Vec<Bounds>> {
        self.0.write().insert(place.clone(), ranges.to_vec())
    }

    pub fn get(&self, place: &VersionPlace) -> Option<Vec<Bounds>> {
        self.0.read().get(place).cloned()
    }

    /// Returns the ranges of each version of a table.
    pub fn of_table(&self, table: &TableName) -> BTreeMap<u64, Vec<Bounds>> {
        let held = self.0.read();
        let of_table = held.iter().filter(|((other, _), _)| other == table);
        of_table
            .map(|((_, version), ranges)| (*version, ranges.clone()))
            .collect()
    }

    pub fn forget(&self, place: &VersionPlace) {
        self.0.write().remove(place);
    }

    pub fn forget_table(&self, table: &TableName) {
        self.0.write().retain(|(other, _), _| other != table);
    }
}

impl Holding for HeldRanges {
    fn held(&self, manifest: &Manifest) -> OpenPartitions {
        let held = self.0.read();
        let place = (manifest.table.clone(), manifest.version);
        let ranges = held.get(&place).map_or(&[][..], Vec::as_slice);
        let partitions = manifest.partitions.iter();
        let here = partitions.filter(|partition| overlaps_any(&partition.bounds, ranges));
        OpenPartitions::Only(here.map(|partition| partition.id).collect())
    }
}
