//! The replicas of live tables on a node: tables and logs in its cache, and the host that runs
//! them.
//!
//! One thread carries out what the catalog orders, tries again what failed, and has the groups that
//! are led here become what they are to be: whenever one of them stands otherwise, and about each
//! second.
//!
//! | module | what |
//! | --- | --- |
//! | `keeping` | orders: which tables are here, and what becomes of those that were |
//! | `peers` | single replicas: made, run, removed |
//! | `opening`, `note` | a table with its log, and which peers its partitions are |
//! | `children` | replicas that come of partitions which are split |
//! | `steering`, `reporting`, `sizes` | what leaders do; what the cluster is told |
//! | `settling` | whether all is there, for who restarts nodes |
//! | `checkpoints`, `checkpoint_steps` | what is led here of a table at one moment, for a backup |
//! | `carrier`, `shelf`, `copy_wire` | copies of partitions, brought and given |
//! | `load_fetcher`, `load_runs`, `staged_files`, `adding` | loads: their runs brought, kept, and proposed |
//! | `pace` | how fast others are sent the log |
//! | `roster`, `commons` | where peers are; what the threads share |
//! | `worker`, `waker` | the thread, and what wakes it |

mod adding;
mod checkpoint_steps;
mod checkpoints;
mod children;
mod commons;
mod copy_fetcher;
mod copy_wire;
mod keeping;
mod load_fetcher;
mod load_runs;
mod note;
mod opening;
mod pace;
mod peers;
mod reporting;
mod roster;
mod settling;
mod sizes;
mod source;
mod staged_files;
mod steering;
#[cfg(test)]
mod tests;
mod waker;
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
use forebay_host::{Commands, EngineLog, GroupFacts, HostParts, ReplicaHost};
use forebay_io::{Clock, Disk, Random};
use forebay_objects::PullThrottle;
use forebay_replica::{GroupId, TICK};
use parking_lot::Mutex;

use crate::ids::NodeId;
use crate::link::{DeferredAnswer, Peers};
use crate::live::ReplicaOrders;
use crate::reports::GroupReport;
use crate::wire::from_bytes;
pub use checkpoints::PartError;
use commons::ReplicaCommons;
use copy_fetcher::CopyFetcherParts;
use copy_wire::CopyQuestion;
use keeping::ReplicaKeeper;
use load_fetcher::LoadFetcher;
use opening::TableOpener;
use pace::TailPace;
use peers::PeerMaker;
use roster::{RosterSender, SharedRoster};
pub use settling::ReplicaWait;
pub use staged_files::StagedFiles;
use waker::Waker;
use worker::ReplicaWorker;

/// Live tables that are open here, by name.
pub type OpenLiveTables = ArcSwap<BTreeMap<TableName, LiveTable>>;

/// What the replicas of a node are made of.
#[derive(Debug)]
pub struct ReplicaParts {
    /// The node's cache: the live tables in it are those of which replicas are here. Files, clock
    /// and randomness are its.
    pub cache: Store,
    pub commands: Arc<dyn Commands>,
    pub peers: Arc<dyn Peers>,
    /// For what is written to all live tables, until it is in runs.
    pub memory_bytes: usize,
    /// See [`boot_id`].
    pub boot_id: u128,
    /// Threads that apply.
    pub appliers: usize,
    /// Of each table's log, what is kept for peers that are behind, beyond what restarts need.
    pub log_retention_bytes: u64,
    /// How fast copies come and logs go: that of all that is brought to the node.
    pub throttle: Arc<PullThrottle>,
    /// Where runs of loads come from.
    pub staged: Arc<dyn StagedFiles>,
}

/// The node that the replicas are of.
pub trait ReplicaWatch: Debug + Send + Sync {
    /// Whether leaders may propose what was ordered: it is what the catalog wants now.
    fn may_steer(&self) -> bool;

    /// Reports how the replicas stand: about each second, and whenever something has changed.
    /// `troubles`: what keeps tables from being as they are to be.
    fn replicas_stand(&self, reports: Vec<GroupReport>, troubles: Vec<String>);
}

/// See the module's text. Dropped without [`LocalReplicas::close`] it ends as a kill would.
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
                commands: parts.commands,
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

    /// Who allows leaders to steer their groups, and is told how the replicas stand.
    pub fn watched_by(&self, watch: Arc<dyn ReplicaWatch>) {
        self.worker.watched_by(watch);
    }

    /// Has orders carried out, in place of all earlier ones. Waits for nothing.
    ///
    /// REQUIRES: the head by which it was ordered is noted on the disk.
    pub fn carry_out(&self, orders: ReplicaOrders) {
        self.worker.carry_out(orders);
    }

    /// How all replicas that are ordered stand, as far as that is known.
    pub fn reports(&self) -> Vec<GroupReport> {
        self.commons.reports()
    }

    /// Somebody met damage in a table that is open here: the replica that it is of ails soon. Waits
    /// for nothing.
    pub fn damage_met(&self) {
        self.worker.wake();
    }

    /// Why the next node should not be stopped yet: replicas are not there, ail, or have no room.
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

    /// Whether it is known which replicas are to be here.
    pub fn are_known(&self) -> bool {
        self.commons.settling.is_known()
    }

    /// What keeps tables from being as they are to be, such as a full disk, by table.
    pub fn troubles(&self) -> BTreeMap<TableName, String> {
        self.commons.troubles.lock().clone()
    }

    /// The log of a table, by any of its groups that runs here.
    pub fn log(&self, group: GroupId) -> Option<Arc<EngineLog>> {
        self.commons.log(group)
    }

    pub fn host(&self) -> &ReplicaHost {
        &self.commons.host
    }

    /// The tables of which replicas are here. They are read by leave of the host alone.
    pub fn tables(&self) -> &Arc<OpenLiveTables> {
        &self.commons.tables
    }

    /// Who leads a group, as its replica here knows; none: it does not know, or there is none.
    pub fn leader(&self, group: GroupId) -> Option<NodeId> {
        let leader = self.commons.host.leader(group)?;
        self.commons.roster.load().node(group, leader)
    }

    /// Takes messages that replicas of another node sent.
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

    /// Has others lead the groups that are led here, before the node stops. Returns when they do,
    /// or after that time; writes go on meanwhile.
    pub fn hand_over(&self, within: Duration) {
        let end = self.clock.monotonic() + within;
        while self.commons.hand_over() > 0 && self.clock.monotonic() < end {
            self.clock.sleep(TICK);
        }
    }

    fn stop(&self) {
        self.worker.stop();
        // What it brings is given up.
        self.commons.loads.order(&[]);
        self.fetcher.stop();
    }

    /// Ends all replicas, and leaves what they promised so that it is known to be whole after a
    /// restart of the machine. Nothing is carried out afterwards.
    pub fn close(&self) {
        self.stop();
        self.keeper.lock().close();
    }
}

fn start_host(
    parts: &ReplicaParts,
    clock: &Arc<dyn Clock>,
    roster: &Arc<SharedRoster>,
    watch: &Arc<Waker>,
) -> io::Result<ReplicaHost> {
    ReplicaHost::start(HostParts {
        clock: Arc::clone(clock),
        post: Arc::new(RosterSender {
            roster: Arc::clone(roster),
            peers: Arc::clone(&parts.peers),
        }),
        pace: Arc::new(TailPace(Arc::clone(&parts.throttle))),
        watch: Arc::clone(watch) as _,
        appliers: parts.appliers,
        // So many requests that no process comes to those of the next.
        first_request: parts.cache.random().next_u64() >> 1,
    })
}

impl Drop for LocalReplicas {
    fn drop(&mut self) {
        self.stop();
        self.keeper.lock().let_all_go();
    }
}

impl ReplicaCommons {
    /// Takes its time.
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

/// The machine's boot, by which a restart of it is told from one of the process. Where the system
/// does not say it, each start counts as another boot.
pub fn boot_id(disk: &dyn Disk, random: &dyn Random) -> u128 {
    let said = disk.read(Path::new("/proc/sys/kernel/random/boot_id"));
    let text = said.ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let digits = text.map(|text| text.trim().replace('-', ""));
    let said = digits.and_then(|digits| u128::from_str_radix(&digits, 16).ok());
    let number = || u128::from(random.next_u64());
    said.unwrap_or_else(|| (number() << 64) | number())
}
