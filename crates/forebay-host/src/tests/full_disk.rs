//! Tests of a replica on a disk that is small for its writes: the log makes room for runs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use forebay_engine::live::{Batch, Budget, LiveDraft, LiveTable, PartitionContent, Replication};
use forebay_engine::replica_log::{ReplicaLog, ReplicaLogOptions, SEGMENT_BYTES};
use forebay_engine::{OpenPartitions, PartitionId, Store, TableName};
use forebay_io::sim::SeededRandom;
use forebay_io::{Clock, Disk, SystemClock};
use forebay_replica::{Durability, GroupId, PeerId, Refusal, Start};

use super::fakes::{FakeLoads, NoWatch};
use super::ring::{Net, Port, wait_for};
use super::small_disk::SmallDisk;
use crate::effects::Effect;
use crate::environment::NoPace;
use crate::host::{HostParts, NewReplica, ReplicaHost};
use crate::log_room::LOOK_BYTES;
use crate::log_writer::TableLog;
use crate::opening::{FoundReplica, open_replicas};
use crate::partition_state::{CopyFetcher, PartitionState, StateParts, place_of};
use crate::replica_log::{EngineLog, KEPT_BYTES};

const GROUP: GroupId = GroupId(100);
const ME: PeerId = PeerId(1);
const MIB: u64 = 1 << 20;
/// The number of keys that are overwritten, and the size of each value.
const KEYS: u64 = 40;
const VALUE_BYTES: usize = 10_000;

#[derive(Debug)]
struct SoleReplica;

impl CopyFetcher for SoleReplica {
    fn fetch_copy(
        &self,
        _: GroupId,
        _: PeerId,
        _: forebay_replica::Place,
    ) -> Result<PartitionContent, String> {
        Err("there is no other peer".to_owned())
    }
}

/// A node with the only replica of a table.
struct Node {
    disk: SmallDisk,
    host: ReplicaHost,
    log: Arc<EngineLog>,
    table: LiveTable,
}

fn open_table(disk: &Arc<dyn Disk>, budget_bytes: usize) -> LiveTable {
    let random = Arc::new(SeededRandom::new(1));
    let clock = Arc::new(SystemClock);
    let store = Store::open_or_create(Arc::clone(disk), clock, random, Path::new("/s")).unwrap();
    let draft = LiveDraft::hashed().partitions(1);
    let range = draft.partitions[0].clone();
    let draft = draft.replicated(Replication::Leader);
    let draft = draft.holding(&OpenPartitions::Only(BTreeSet::new()));
    let (name, budget) = (TableName::new("t").unwrap(), Budget::new(budget_bytes));
    let table = store.create_live(&name, draft, &budget).unwrap();
    let founder = Start::founder(GROUP, ME, &[ME], 0);
    let content = PartitionContent {
        applied: Some(place_of(&founder.applied)),
        ..PartitionContent::empty(range)
    };
    table.install(content).unwrap();
    table
}

impl Node {
    fn new(disk_bytes: u64, budget_bytes: usize, kept_bytes: u64) -> Self {
        let disk = SmallDisk::new(disk_bytes);
        let as_disk: Arc<dyn Disk> = Arc::new(disk.clone());
        let table = open_table(&as_disk, budget_bytes);
        let options = ReplicaLogOptions {
            table: TableName::new("t").unwrap(),
            table_id: 1,
            durability: forebay_engine::live::Durability::Os,
            boot_id: 7,
            segment_bytes: SEGMENT_BYTES,
        };
        let clock = Arc::new(SystemClock);
        let dir = Path::new("/s/tables/t/replicas");
        let log = ReplicaLog::open(as_disk, clock.clone(), dir, options).unwrap();
        let replica = FoundReplica {
            partition: PartitionId(0),
            group: GROUP,
            peer: ME,
            is_new: true,
            seed: 1,
        };
        let found = open_replicas(&table, log, Durability::Os, 7, &[replica]).unwrap();
        found.log.keep_for_peers(kept_bytes);
        let host = ReplicaHost::start(HostParts {
            clock: clock.clone(),
            post: Arc::new(Port(Arc::<Net>::default())),
            pace: Arc::new(NoPace),
            watch: Arc::new(NoWatch),
            appliers: 1,
            first_request: 1,
        });
        let host = host.unwrap();
        let log = Arc::clone(&found.log);
        let parts = StateParts {
            copy_fetcher: Arc::new(SoleReplica),
            loads: Arc::<FakeLoads>::default(),
        };
        let state = PartitionState::new(table.clone(), PartitionId(0), GROUP, parts);
        host.add(NewReplica {
            start: found.starts.into_values().next().unwrap(),
            log: TableLog::start(found.log, clock).unwrap(),
            state: Arc::new(state),
            nodes: BTreeMap::new(),
        })
        .unwrap();
        Self {
            disk,
            host,
            log,
            table,
        }
    }

    /// Sets a key; panics if that takes longer than any progress could.
    fn set(&self, key: u64, value: &[u8]) {
        let mut batch = Batch::new();
        batch.update(&key.to_be_bytes(), value);
        let effect = Effect::Operations(batch).encode();
        let until = SystemClock.monotonic() + Duration::from_secs(60);
        while SystemClock.monotonic() < until {
            let (reported, outcome) = channel();
            let done = Box::new(move |outcome| drop(reported.send(outcome)));
            self.host.propose(GROUP, effect.clone(), done);
            match outcome.recv_timeout(Duration::from_secs(60)) {
                Ok(Ok(_)) => return,
                Ok(Err(Refusal::Uncertain)) => {}
                Ok(Err(_)) => SystemClock.sleep(Duration::from_millis(20)),
                Err(_) => break,
            }
        }
        panic!("stuck: {}", self.words());
    }

    fn words(&self) -> String {
        let free = self.disk.free_bytes(Path::new("/s")).unwrap();
        let stats = self.table.stats();
        let (needed, kept) = self.log.size_bytes();
        format!("free {free:?}, log needed {needed}, kept {kept}, {stats:?}")
    }

    /// Overwrites keys from some threads until this many bytes were written.
    fn overwrite(&self, bytes: u64) {
        let writes = bytes / VALUE_BYTES as u64;
        std::thread::scope(|scope| {
            for writer in 0..4 {
                scope.spawn(move || {
                    for write in (writer..writes).step_by(4) {
                        self.set(write % KEYS, &value_of(write));
                    }
                });
            }
        });
    }
}

/// Returns a value that differs in all bytes for each write, so that it does not compress.
fn value_of(write: u64) -> Vec<u8> {
    let mut rng = forebay_io::sim::Rng(write);
    let words = (0..VALUE_BYTES / 8).map(|_| rng.next_u64().to_le_bytes());
    words.flatten().collect()
}

#[test]
fn one_partition_overwritten_repeatedly_never_fills_a_small_disk() {
    // The retained log is limited by free space, or by the requested size. The memtable may take
    // much of the disk, or little.
    for (budget_bytes, kept_bytes) in [(24 << 20, KEPT_BYTES), (24 << 20, MIB), (4 << 20, MIB)] {
        let disk_bytes = 24 * MIB;
        let node = Node::new(disk_bytes, budget_bytes, kept_bytes);
        node.overwrite(80 * MIB);
        // The space used depends on the speed of writers against that of flushes. The bytes that
        // are written between two checks of the disk are always left.
        let most_bytes = node.disk.most_bytes();
        let is_full = most_bytes + LOOK_BYTES > disk_bytes;
        assert!(!is_full, "{most_bytes}: {}", node.words());
        for key in 0..KEYS {
            let value = node.table.get(&key.to_be_bytes()).unwrap().unwrap();
            assert_eq!(value.len(), VALUE_BYTES);
        }
        // The host checks once a second what its own replicas no longer need.
        wait_for("the log is short", || {
            let (needed, kept) = node.log.size_bytes();
            needed + kept < 14 * MIB
        });
        assert_eq!(node.table.stats().failed, None);
    }
}

#[test]
fn the_log_retained_for_peers_is_trimmed_if_another_user_fills_the_disk() {
    let node = Node::new(64 * MIB, 4 << 20, KEPT_BYTES);
    node.overwrite(20 * MIB);
    // The host checks once a second what its own replicas no longer need.
    wait_for("the log is retained", || node.log.size_bytes().1 > 4 * MIB);
    node.disk.leave(0);
    // Without a restart, and without freeing any space.
    node.overwrite(10 * MIB);
    wait_for("the log is trimmed", || node.log.size_bytes().1 < 4 * MIB);
}
