//! Stores that hold a part of their tables' partitions, and a helper that installs versions in
//! them.

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::{Arc, Mutex};

use forebay_engine::{Holding, Manifest, OpenPartitions, PartitionId, Store, Table};
use forebay_io::Disk;
use forebay_io::sim::SimDisk;
use forebay_run::Order;

use super::{name, push, root, rows, store_on};

pub const PARTITIONS: u32 = 6;

/// The partitions of these ids.
#[derive(Debug, Default)]
pub struct Ids(Mutex<BTreeSet<u32>>);

impl Ids {
    pub fn set(&self, ids: impl IntoIterator<Item = u32>) {
        *self.0.lock().unwrap() = ids.into_iter().collect();
    }

    pub fn get(&self) -> BTreeSet<u32> {
        self.0.lock().unwrap().clone()
    }
}

impl Holding for Ids {
    fn held(&self, _: &Manifest) -> OpenPartitions {
        OpenPartitions::Only(self.get().into_iter().map(PartitionId).collect())
    }
}

pub fn table(store: &Store) -> Table {
    store.table(&name("t")).unwrap()
}

/// Versions 1 to `versions` of table "t".
pub fn source(order: Order, versions: u64) -> (SimDisk, Store) {
    let disk = SimDisk::new();
    let store = store_on(&disk, 1);
    for version in 1..=versions {
        push(&store, "t", order, &rows(version, 120), PARTITIONS as usize).unwrap();
    }
    (disk, store)
}

pub fn partial(disk: &SimDisk) -> (Store, Arc<Ids>) {
    let ids = Arc::new(Ids::default());
    (store_on(disk, 2).holding(ids.clone()), ids)
}

pub fn manifest(disk: &SimDisk, version: u64) -> Vec<u8> {
    let path = root().join(format!("tables/t/versions/{version}.manifest"));
    disk.read(&path).unwrap()
}

/// Fetches the missing files of the held partitions; returns their number.
pub fn install(from: &SimDisk, to: &SimDisk, store: &Store, version: u64) -> usize {
    let manifest = manifest(from, version);
    let install = store.begin_install(&name("t"), &manifest).unwrap();
    let mut came = 0;
    for file in install.files() {
        if !to.exists(&file.path).unwrap() {
            let mut out = to.create(&file.path).unwrap();
            out.write_all(&from.read(&file.path).unwrap()).unwrap();
            out.sync().unwrap();
            came += 1;
        }
    }
    let report = install.verify(&mut |_| {}).unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    install.commit().unwrap();
    came
}
