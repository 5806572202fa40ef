//! Checkpoints of live tables through their nodes: one moment over all partitions, while clients
//! write and leaders change.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use forebay_cluster::local::{LocalReplicas, PartError};
use forebay_engine::Store;
use forebay_engine::live::{Budget, JoinError, LiveDraft, RunFiles, TableCheckpoint};
use forebay_io::sim::SimDisk;
use forebay_io::{Disk, MemoryDisk, ReadFile};

use super::clients::Writers;
use super::cluster::{SimCluster, name};
use super::live::request_split;

/// The files of a node, each read whole.
#[derive(Debug)]
struct NodeFiles {
    replicas: Arc<LocalReplicas>,
    id: String,
}

impl RunFiles for NodeFiles {
    fn open(&self, file: &str) -> io::Result<Arc<dyn ReadFile>> {
        let read = self
            .replicas
            .read_taken((&name("t"), &self.id), file, 0, usize::MAX);
        let (bytes, _) = read.map_err(io::Error::other)?;
        let (disk, path) = (MemoryDisk::default(), Path::new("file"));
        let mut copy = disk.create(path)?;
        copy.write_all(&bytes)?;
        copy.sync()?;
        drop(copy);
        disk.open(path)
    }

    fn path(&self, _file: &str) -> Option<PathBuf> {
        None
    }
}

/// Takes a checkpoint; returns `None` if a change of the partitions or leaders prevents it.
fn checkpoint(cluster: &SimCluster, id: &str) -> Option<TableCheckpoint> {
    let running = cluster.nodes.iter().filter(|node| node.is_running());
    let nodes: Vec<Arc<LocalReplicas>> = running.map(|node| node.replicas()).collect();
    let table = name("t");
    let taken = || -> Result<TableCheckpoint, Option<PartError>> {
        for node in &nodes {
            node.flush_led(&table)?;
        }
        for node in &nodes {
            node.hold_led(&table, id)?;
        }
        let mut parts: Vec<(Vec<u8>, Arc<dyn RunFiles>)> = Vec::new();
        for node in &nodes {
            let files = NodeFiles {
                replicas: Arc::clone(node),
                id: id.to_owned(),
            };
            parts.push((node.take_held(&table, id)?, Arc::new(files)));
            // The steps of the nodes are not simultaneous.
            cluster.sleep(Duration::from_millis(40));
        }
        TableCheckpoint::join(parts).map_err(|error| match error {
            JoinError::NotWhole(_) => None,
            error => panic!("{error}"),
        })
    };
    match taken() {
        Ok(taken) => Some(taken),
        Err(
            None | Some(PartError::Overtaken(_) | PartError::NoCheckpoint | PartError::NoTable(_)),
        ) => {
            nodes
                .iter()
                .for_each(|node| node.end_checkpoint(&table, id));
            None
        }
        Err(Some(error)) => panic!("{error}"),
    }
}

/// Returns the numbers of the keys in a checkpoint, by writer.
fn keys_of(cluster: &SimCluster, taken: &TableCheckpoint) -> BTreeMap<String, BTreeSet<u32>> {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new());
    let (clock, random) = (&cluster.world.clock, &cluster.world.random);
    let parts = (disk, Arc::clone(clock), Arc::clone(random));
    let root = Path::new("/copy");
    taken
        .copy_to(parts.clone(), root, &mut |_| ())
        .expect("a copy");
    let store = Store::open(parts.0, parts.1, parts.2, root).expect("a store");
    let table = store.live_table(&name("t"), &Budget::new(1 << 20));
    let table = table.expect("a table");
    let mut found: BTreeMap<String, BTreeSet<u32>> = BTreeMap::new();
    let mut walk = table.entries();
    while walk.advance().expect("the next entry") {
        let key = String::from_utf8(walk.key().to_vec()).expect("a text");
        let (writer, number) = key.rsplit_once('-').expect("a writer and a number");
        let numbers = found.entry(writer.to_owned()).or_default();
        numbers.insert(number.parse().expect("a number"));
    }
    found
}

/// Each writer writes one key after another. So if a key is in the checkpoint, all earlier
/// acknowledged keys of its writer are in it too, in any partition.
fn check(
    found: &BTreeMap<String, BTreeSet<u32>>,
    acknowledged: &BTreeMap<String, BTreeSet<u32>>,
    before: &BTreeMap<String, BTreeSet<u32>>,
) {
    for (writer, numbers) in acknowledged {
        let found = found.get(writer).cloned().unwrap_or_default();
        let last = found.last().copied();
        let wanted = numbers.iter().filter(|number| Some(**number) < last);
        let lost: Vec<&u32> = wanted.filter(|number| !found.contains(number)).collect();
        assert_eq!(lost, Vec::<&u32>::new(), "of {writer}, which has {last:?}");
    }
    for (writer, numbers) in before {
        let found = found.get(writer).cloned().unwrap_or_default();
        let lost: Vec<&u32> = numbers.difference(&found).collect();
        assert_eq!(lost, Vec::<&u32>::new(), "of {writer}, from before");
    }
}

fn by_writer(keys: &[String]) -> BTreeMap<String, BTreeSet<u32>> {
    let mut all: BTreeMap<String, BTreeSet<u32>> = BTreeMap::new();
    for key in keys {
        let key = key.strip_prefix("t:").expect("a key of the table");
        let (writer, number) = key.rsplit_once('-').expect("a writer and a number");
        let numbers = all.entry(writer.to_owned()).or_default();
        numbers.insert(number.parse().expect("a number"));
    }
    all
}

#[test]
fn a_checkpoint_is_one_moment_despite_failures_and_splits() {
    let mut cluster = SimCluster::of(3);
    cluster.make_live("t", LiveDraft::hashed());
    let writers = Writers::start(&cluster, "t", &[1, 2]);
    let mut taken = Vec::new();
    for round in 0..6 {
        writers.resume(&cluster);
        match round {
            1 => cluster.node(3).kill(),
            2 => cluster.node(3).start(),
            3 => cluster.nodes[1]
                .replicas()
                .hand_over(Duration::from_secs(5)),
            4 => request_split(&cluster, 1000),
            _ => {}
        }
        let before = by_writer(&writers.acknowledged_keys());
        let made = cluster.until("a checkpoint", |cluster| {
            let id = format!("{:016x}", cluster.world.random.next_u64());
            checkpoint(cluster, &id)
        });
        taken.push((before, keys_of(&cluster, &made)));
    }
    // Held writes continued.
    writers.resume(&cluster);
    let acknowledged = by_writer(&writers.end().acknowledged);
    for (before, found) in &taken {
        check(found, &acknowledged, before);
    }
}
