//! State that the threads of a node's replicas share.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use forebay_engine::live::{LiveTable, PartitionSize};
use forebay_engine::{Bounds, PartitionId, TableName};
use forebay_host::{EngineLog, GroupState, PartitionState, ReplicaHost};
use forebay_io::Clock;
use forebay_objects::PullThrottle;
use forebay_replica::{GroupId, PeerId};
use parking_lot::Mutex;

use super::checkpoints::Checkpoints;
use super::host::Waker;
use super::load_runs::{LoadRuns, ProposedLoad};
use super::roster::SharedRoster;
use super::settling::SettlingReplicas;
use super::source::CopySource;
use super::staged_files::StagedFiles;
use super::{OpenLiveTables, ReplicaParts};
use crate::local::traffic::TrafficSeen;
use crate::measures::reports::ReplicaProblem;
use crate::routing::live::ReplicaOrder;

/// The time after which a partition is measured again.
const MEASURE_AGAIN: Duration = Duration::from_secs(10);

/// A replica, by its group and its peer.
pub type ReplicaPlace = (GroupId, PeerId);

/// The state of an ordered replica on this node.
#[derive(Debug, Clone)]
pub enum ReplicaStanding {
    /// It exists, and does not run yet.
    Made {
        term: u64,
    },
    Runs(Weak<EngineLog>),
    Unhealthy(ReplicaProblem),
}

/// A replica that runs.
#[derive(Debug)]
pub struct RunningReplica {
    pub peer: PeerId,
    pub table: TableName,
    pub partition: PartitionId,
    pub state: Arc<PartitionState>,
    /// The bounds of its partition by the catalog.
    pub bounds: Arc<Mutex<Bounds>>,
    /// Set when the replica ends: running fetches for it stop.
    pub is_over: Arc<AtomicBool>,
}

/// A partition that is prepared for a split.
#[derive(Debug)]
pub struct PreparedSplit {
    /// See [`LiveTable::prepare_split`].
    pub number: u64,
    pub begun: Duration,
}

/// The last measured size of each group that this node leads, and its time. Groups are measured
/// now and then, because a plan needs no exact number.
#[derive(Debug, Default)]
pub struct SizeCache(Mutex<BTreeMap<GroupId, (Duration, PartitionSize)>>);

impl SizeCache {
    /// Returns the last size if it is recent. Otherwise measures it with `look`, which gets the
    /// previous size.
    pub fn seen(
        &self,
        group: GroupId,
        now: Duration,
        look: impl FnOnce(Option<&PartitionSize>) -> Option<PartitionSize>,
    ) -> Option<PartitionSize> {
        let known = self.0.lock().get(&group).cloned();
        if let Some((at, size)) = &known
            && now.saturating_sub(*at) < MEASURE_AGAIN
        {
            return Some(size.clone());
        }
        let size = look(known.as_ref().map(|(_, size)| size))?;
        self.0.lock().insert(group, (now, size.clone()));
        Some(size)
    }

    pub fn forget(&self, group: GroupId) {
        self.0.lock().remove(&group);
    }
}

/// The replicas of a node, and the parts that its threads share.
#[derive(Debug)]
pub struct ReplicaCommons {
    pub host: ReplicaHost,
    pub tables: Arc<OpenLiveTables>,
    pub roster: Arc<SharedRoster>,
    pub standings: Mutex<BTreeMap<ReplicaPlace, ReplicaStanding>>,
    pub running: Mutex<BTreeMap<GroupId, RunningReplica>>,
    pub source: CopySource,
    pub checkpoints: Checkpoints,
    pub throttle: Arc<PullThrottle>,
    pub loads: Arc<LoadRuns>,
    pub staged: Arc<dyn StagedFiles>,
    /// Orders of partitions that have to add a load, or in whose tables other loads have ended.
    pub ordered_loads: Mutex<BTreeMap<GroupId, ReplicaOrder>>,
    pub proposed: Mutex<BTreeMap<GroupId, ProposedLoad>>,
    /// Prepared splits, by the group of the first child.
    pub prepared: Mutex<BTreeMap<GroupId, PreparedSplit>>,
    /// The node is stopping and hands its groups over to other leaders.
    pub hands_over: AtomicBool,
    /// Wakes the thread that fetches runs of loads.
    pub loads_ordered: Waker,
    pub settling: SettlingReplicas,
    pub sizes: SizeCache,
    pub traffic: TrafficSeen<GroupId>,
    pub clock: Arc<dyn Clock>,
    /// Why tables are not in their ordered state.
    pub troubles: Mutex<BTreeMap<TableName, String>>,
}

impl ReplicaCommons {
    pub fn new(parts: &ReplicaParts, host: ReplicaHost, roster: &Arc<SharedRoster>) -> Self {
        let cache = &parts.cache;
        let (disk, clock) = (Arc::clone(cache.disk()), Arc::clone(cache.clock()));
        Self {
            host,
            tables: Arc::default(),
            roster: Arc::clone(roster),
            standings: Mutex::default(),
            running: Mutex::default(),
            source: CopySource::new(
                disk,
                clock,
                Arc::clone(cache.random()),
                Arc::clone(&parts.throttle),
            ),
            checkpoints: Checkpoints::default(),
            throttle: Arc::clone(&parts.throttle),
            loads: Arc::default(),
            staged: Arc::clone(&parts.staged),
            ordered_loads: Mutex::default(),
            proposed: Mutex::default(),
            prepared: Mutex::default(),
            hands_over: AtomicBool::new(false),
            loads_ordered: Waker::default(),
            settling: SettlingReplicas::new(Arc::clone(cache.clock())),
            sizes: SizeCache::default(),
            traffic: TrafficSeen::default(),
            clock: Arc::clone(cache.clock()),
            troubles: Mutex::default(),
        }
    }

    /// Ends a replica: its reads, writes and copies stop.
    pub fn end(&self, group: GroupId) {
        let running = self.running.lock().remove(&group);
        if let Some(running) = &running {
            running.is_over.store(true, Ordering::Relaxed);
        }
        self.host.remove(group);
        if let Some(running) = running {
            running.state.drop_copy();
        }
        self.source.remove_of(group);
        self.checkpoints.end_held(group);
        self.sizes.forget(group);
    }

    /// Marks replicas as unhealthy whose runs have known damage.
    pub fn notice_damage(&self) {
        for (name, table) in self.tables.load().iter() {
            for (partition, problem) in table.damaged() {
                if let Some(group) = self.group_of(name, partition) {
                    self.host.fall_ill(group, &problem);
                }
            }
        }
    }

    fn group_of(&self, table: &TableName, partition: PartitionId) -> Option<GroupId> {
        let running = self.running.lock();
        let mut all = running.iter();
        let is_it =
            |replica: &RunningReplica| replica.table == *table && replica.partition == partition;
        all.find_map(|(group, replica)| is_it(replica).then_some(*group))
    }

    /// Returns the log of a group that runs on this node.
    pub fn log(&self, group: GroupId) -> Option<Arc<EngineLog>> {
        let standings = self.standings.lock();
        let of_group = standings.range((group, PeerId(0))..=(group, PeerId(u64::MAX)));
        let mut logs = of_group.filter_map(|(_, standing)| match standing {
            ReplicaStanding::Runs(log) => log.upgrade(),
            _ => None,
        });
        logs.next()
    }

    pub fn show(&self, table: &LiveTable) {
        self.tables.rcu(|tables| {
            let mut tables = BTreeMap::clone(tables);
            tables.insert(table.name().clone(), table.clone());
            tables
        });
    }

    pub fn hide(&self, name: &TableName) {
        self.loads.forget(name);
        self.tables.rcu(|tables| {
            let mut tables = BTreeMap::clone(tables);
            tables.remove(name);
            tables
        });
    }
}
