//! The replicas of live tables on a node: their tables and logs, and the host that runs them.
//!
//! Tables and logs are in the node's cache. One thread carries out the orders of the catalog,
//! retries failed ones, and moves the groups that this node leads towards their desired members. It
//! runs whenever the state of a replica changes, and about once a second.
//!
//! | module | what |
//! | --- | --- |
//! | `carry_out_orders` | orders: which tables this node has, and the end of the others |
//! | `peers` | single replicas: creates, runs and removes them; replicas that result from splits |
//! | `opening`, `peers_file` | a table with its log, and the peers of its partitions |
//! | `steering`, `reporting` | actions of leaders; reports to the cluster |
//! | `settling` | whether all replicas are ready, for rolling restarts |
//! | `checkpoints`, `checkpoint_steps` | the led parts of a table at one moment, for a backup |
//! | `copy_fetcher`, `source`, `copy_wire` | copies of partitions: fetches and serves them |
//! | `load_fetcher`, `load_runs`, `staged_files`, `adding` | loads and their runs |
//! | `host` | starts the host; the rate at which it sends the log; the wake-up of threads |
//! | `roster`, `commons` | addresses of peers; state that the threads share |
//! | `worker` | the thread |

mod adding;
mod carry_out_orders;
mod checkpoint_steps;
mod checkpoints;
mod commons;
mod copy_fetcher;
mod copy_wire;
mod host;
mod load_fetcher;
mod load_runs;
mod opening;
mod peers;
mod peers_file;
mod reporting;
mod roster;
mod settling;
mod source;
mod staged_files;
mod steering;
#[cfg(test)]
mod tests;
mod worker;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use forebay_engine::live::{Budget, LiveTable};
use forebay_engine::{Store, TableName};
use forebay_host::{EngineLog, GroupFacts, ReplicaHost};
use forebay_io::{Clock, Disk, Random};
use forebay_objects::PullThrottle;
use forebay_replica::{GroupId, TICK};
use parking_lot::Mutex;

use crate::ids::NodeId;
use crate::link::{DeferredAnswer, Peers};
use crate::measures::reports::GroupReport;
use crate::routing::live::ReplicaOrders;
use crate::wire::from_bytes;
use carry_out_orders::ReplicaKeeper;
pub use checkpoints::PartError;
use commons::ReplicaCommons;
use copy_fetcher::CopyFetcherParts;
use copy_wire::CopyQuestion;
use host::{Waker, start_host};
use load_fetcher::LoadFetcher;
use opening::TableOpener;
use peers::PeerMaker;
use roster::SharedRoster;
pub use settling::ReplicaWait;
pub use staged_files::StagedFiles;
use worker::ReplicaWorker;

/// The live tables that are open on this node, by name.
pub type OpenLiveTables = ArcSwap<BTreeMap<TableName, LiveTable>>;

/// The parts from which a node's replicas are built.
#[derive(Debug)]
pub struct ReplicaParts {
    /// The node's cache. Its live tables are those of which the node has replicas. It also provides
    /// files, clock and randomness.
    pub cache: Store,
    pub peers: Arc<dyn Peers>,
    /// The memory for writes to all live tables that are not in runs yet.
    pub memory_bytes: usize,
    /// See [`boot_id`].
    pub boot_id: u128,
    /// The number of threads that apply entries.
    pub appliers: usize,
    /// The number of bytes of each table's log to keep for lagging peers, beyond the needs of
    /// restarts.
    pub log_retention_bytes: u64,
    /// Limits the rate of copies and logs, together with all other fetches of the node.
    pub throttle: Arc<PullThrottle>,
    /// The source of runs of loads.
    pub staged: Arc<dyn StagedFiles>,
}

/// The node that owns the replicas.
pub trait ReplicaWatch: Debug + Send + Sync {
    /// Returns whether leaders may propose the ordered changes: the orders are the catalog's
    /// current ones.
    fn may_steer(&self) -> bool;

    /// Reports the state of the replicas, about once a second and whenever it has changed.
    /// `troubles`: why tables are not in their ordered state.
    fn replicas_stand(&self, reports: Vec<GroupReport>, troubles: Vec<String>);
}

/// The replicas of live tables on this node. Dropping it without [`LocalReplicas::close`] ends it
/// as a kill would.
#[derive(Debug)]
pub struct LocalReplicas {
    commons: Arc<ReplicaCommons>,
    keeper: Arc<Mutex<ReplicaKeeper>>,
    worker: ReplicaWorker,
    fetcher: LoadFetcher,
    clock: Arc<dyn Clock>,
}

impl LocalReplicas {
    pub fn new(parts: ReplicaParts) -> io::Result<Self> {
        let (disk, clock) = (
            Arc::clone(parts.cache.disk()),
            Arc::clone(parts.cache.clock()),
        );
        let random = Arc::clone(parts.cache.random());
        let roster = Arc::<SharedRoster>::default();
        let changed = Arc::<Waker>::default();
        let host = start_host(&parts, &clock, &roster, &changed)?;
        let commons = Arc::new(ReplicaCommons::new(&parts, host, &roster));
        let keeper = ReplicaKeeper {
            opener: TableOpener {
                cache: parts.cache,
                budget: Budget::new(parts.memory_bytes),
                boot_id: parts.boot_id,
                log_retention_bytes: parts.log_retention_bytes,
            },
            maker: PeerMaker {
                copy_fetcher: CopyFetcherParts {
                    peers: parts.peers,
                    roster,
                    disk: Arc::clone(&disk),
                    throttle: parts.throttle,
                },
                loads: Arc::clone(&commons.loads),
            },
            commons: Arc::clone(&commons),
            random,
            tables: BTreeMap::new(),
            problems: BTreeMap::new(),
            reported: BTreeMap::new(),
        };
        let keeper = Arc::new(Mutex::new(keeper));
        let (kept, shared) = (Arc::clone(&keeper), Arc::clone(&commons));
        let worker = ReplicaWorker::start(kept, shared, Arc::clone(&clock))?;
        changed.set(worker.waker());
        let news = worker.waker();
        let fetcher = LoadFetcher::start(Arc::clone(&commons), Arc::clone(&clock), disk, news)?;
        Ok(Self {
            commons,
            keeper,
            worker,
            fetcher,
            clock,
        })
    }

    /// Sets the node that allows leaders to change their groups, and receives the replicas' state.
    pub fn watched_by(&self, watch: Arc<dyn ReplicaWatch>) {
        self.worker.watched_by(watch);
    }

    /// Carries out orders in place of all earlier ones. Does not wait.
    ///
    /// REQUIRES: the head with these orders is saved on the disk.
    pub fn carry_out(&self, orders: ReplicaOrders) {
        self.worker.carry_out(orders);
    }

    /// Returns the state of all ordered replicas, as far as known.
    pub fn reports(&self) -> Vec<GroupReport> {
        self.commons.reports()
    }

    /// Reports that a reader found damage in an open table. The affected replica soon becomes
    /// unhealthy. Does not wait.
    pub fn damage_met(&self) {
        self.worker.wake();
    }

    /// Returns why an operator should not stop the next node yet: replicas are not ready,
    /// unhealthy, or without room.
    pub fn waits_for(&self) -> Vec<ReplicaWait> {
        let mut all = self.commons.settling.waits_for();
        let troubles = self.commons.troubles.lock();
        all.extend(troubles.iter().map(|(table, why)| ReplicaWait {
            table: table.clone(),
            why: why.clone(),
            is_coming: false,
        }));
        all
    }

    /// Returns whether this node knows which replicas it has to have.
    pub fn are_known(&self) -> bool {
        self.commons.settling.is_known()
    }

    /// Returns why tables are not in their ordered state, such as a full disk, by table.
    pub fn troubles(&self) -> BTreeMap<TableName, String> {
        self.commons.troubles.lock().clone()
    }

    /// Returns the log of a table, by any of its groups that runs on this node.
    pub fn log(&self, group: GroupId) -> Option<Arc<EngineLog>> {
        self.commons.log(group)
    }

    pub fn host(&self) -> &ReplicaHost {
        &self.commons.host
    }

    /// Returns the tables of which this node has replicas. Reads need a read permit of the host.
    pub fn tables(&self) -> &Arc<OpenLiveTables> {
        &self.commons.tables
    }

    /// Returns the leader of a group according to the local replica. None if it knows none, or
    /// there is no local replica.
    pub fn leader(&self, group: GroupId) -> Option<NodeId> {
        let leader = self.commons.host.leader(group)?;
        self.commons.roster.load().node(group, leader)
    }

    /// Receives messages from replicas of another node.
    pub fn receive(&self, frame: Bytes) -> io::Result<()> {
        self.commons.host.receive(frame).map_err(io::Error::other)
    }

    /// Answers another node that asks for a copy of a partition, or a part of it.
    pub fn answer_copy(&self, message: Bytes) -> DeferredAnswer<io::Result<Bytes>> {
        let commons = Arc::clone(&self.commons);
        Box::pin(async move {
            let answer = tokio::task::spawn_blocking(move || commons.answer_copy(&message));
            answer.await.map_err(io::Error::other)?
        })
    }

    /// Hands the groups that this node leads over to other leaders, before the node stops. Returns
    /// when that is done, or after `within`; writes continue meanwhile.
    pub fn hand_over(&self, within: Duration) {
        let end = self.clock.monotonic() + within;
        while self.commons.hand_over() > 0 && self.clock.monotonic() < end {
            self.clock.sleep(TICK);
        }
    }

    fn stop(&self) {
        self.worker.stop();
        // This cancels its fetches.
        self.commons.loads.order(&[]);
        self.fetcher.stop();
    }

    /// Ends all replicas, and records that their promises are complete, for after a restart of the
    /// machine. No orders are carried out afterwards.
    pub fn close(&self) {
        self.stop();
        self.keeper.lock().close();
    }
}

impl Drop for LocalReplicas {
    fn drop(&mut self) {
        self.stop();
        self.keeper.lock().let_all_go();
    }
}

impl ReplicaCommons {
    /// Answers a copy question. May block.
    fn answer_copy(&self, message: &[u8]) -> io::Result<Bytes> {
        match from_bytes(message)? {
            CopyQuestion::Begin {
                group,
                from,
                at_least,
            } => {
                let facts = self.host.facts(group);
                let is_well =
                    |facts: GroupFacts| facts.halted.is_none() && facts.is_unhealthy.is_none();
                let is_well = facts.is_some_and(is_well);
                let state = {
                    let running = self.running.lock();
                    let replica = running.get(&group);
                    let replica = replica.filter(|running| is_well && running.peer == from);
                    replica.map(|running| Arc::clone(&running.state))
                };
                let not_here = || {
                    io::Error::other(format!("peer {from} of {group} is not here, or met damage"))
                };
                let begun = self
                    .source
                    .begin(group, &*state.ok_or_else(not_here)?, at_least);
                begun.inspect_err(|_| self.notice_damage())
            }
            CopyQuestion::Read {
                copy,
                file,
                offset,
                bytes,
            } => {
                let read = self.source.read(copy, file, offset, bytes);
                read.inspect_err(|_| self.notice_damage())
            }
            CopyQuestion::Doubt { copy, run } => {
                let sound = self.source.check(copy, run);
                self.notice_damage();
                sound.map(|()| Bytes::new())
            }
            CopyQuestion::End { copy } => {
                self.source.end(copy);
                Ok(Bytes::new())
            }
        }
    }
}

/// Returns an id of the machine's boot, which distinguishes a reboot from a restart of the process.
/// If the system has none, each start counts as another boot.
pub fn boot_id(disk: &dyn Disk, random: &dyn Random) -> u128 {
    let said = disk.read(Path::new("/proc/sys/kernel/random/boot_id"));
    let text = said.ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let digits = text.map(|text| text.trim().replace('-', ""));
    let said = digits.and_then(|digits| u128::from_str_radix(&digits, 16).ok());
    let number = || u128::from(random.next_u64());
    said.unwrap_or_else(|| (number() << 64) | number())
}
