//! Tracks whether the replicas of a node are ready, for rolling restarts.
//!
//! A replica is ready when it votes in its group and has applied all entries that were decided when
//! it was asked after the start. Once all replicas are ready, the node has settled. Replicas that
//! the node gets later, as nodes are added, do not change that. An unhealthy replica does: if the
//! next node stopped, its group might have no majority.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use forebay_engine::TableName;
use forebay_host::ReplicaHost;
use forebay_io::Clock;
use forebay_replica::{GroupId, PeerId};
use parking_lot::Mutex;

use crate::measures::reports::GroupReport;
use crate::routing::live::{ReplicaOrder, ReplicaOrders};

/// How long after the start to wait for a replica that knows no leader. After that, the other nodes
/// are probably down: perhaps they start only once this node is ready.
const LEADERLESS: Duration = Duration::from_secs(60);

/// The readiness of the local replicas since the node's start.
#[derive(Debug)]
pub struct SettlingReplicas {
    clock: Arc<dyn Clock>,
    started: Duration,
    now: Mutex<SettledCounts>,
    /// Replicas that had applied all decided entries at some time since the start.
    caught_up: Arc<Mutex<BTreeSet<(GroupId, PeerId)>>>,
}

/// The number of replicas to wait for, by table and reason.
#[derive(Debug, Default)]
struct SettledCounts {
    is_known: bool,
    has_settled: bool,
    waits: BTreeMap<(TableName, ReplicaStand), usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ReplicaStand {
    There,
    /// It is ready, and its group has no leader: most of the group is unavailable.
    Leaderless,
    Coming,
    /// It is damaged, and its group has a leader, which adds another peer.
    Replaced,
    /// It is damaged, and no leader can add another peer.
    Stuck,
}

/// A reason to wait for replicas of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaWait {
    pub table: TableName,
    pub why: String,
    /// The wait ends by itself, however long it takes.
    pub is_coming: bool,
}

impl SettlingReplicas {
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            started: clock.monotonic(),
            clock,
            now: Mutex::default(),
            caught_up: Arc::default(),
        }
    }

    /// Returns whether this node knows which replicas it has to have.
    pub fn is_known(&self) -> bool {
        self.now.lock().is_known
    }

    pub fn waits_for(&self) -> Vec<ReplicaWait> {
        let now = self.now.lock();
        let waits = now.waits.iter();
        let wait = |((table, stands), count): (&(TableName, ReplicaStand), &usize)| {
            let why = match stands {
                ReplicaStand::There => return None,
                ReplicaStand::Leaderless => {
                    "here know no leader: nothing of them is read or written"
                }
                ReplicaStand::Coming if now.has_settled => return None,
                ReplicaStand::Coming => "here are not there yet, or catch up",
                ReplicaStand::Replaced | ReplicaStand::Stuck => {
                    "here met damage, or forgot what they promised: others are to take their place"
                }
            };
            Some(ReplicaWait {
                table: table.clone(),
                why: format!("live table {table}: {count} replicas {why}"),
                is_coming: matches!(stands, ReplicaStand::Coming | ReplicaStand::Replaced),
            })
        };
        waits.filter_map(wait).collect()
    }
}

impl SettlingReplicas {
    /// Examines the ordered replicas by these reports, which are in the order of groups and peers.
    /// REQUIRES: the orders were carried out as far as possible.
    pub fn look(&self, host: &ReplicaHost, orders: &ReplicaOrders, reports: &[GroupReport]) {
        let mut settled = SettledCounts {
            is_known: true,
            ..SettledCounts::default()
        };
        let has_settled = self.now.lock().has_settled;
        for order in &orders.replicas {
            // Do not wait for a replica that has to be removed.
            let mut wanted = order.wanted.peers.iter();
            if !wanted.any(|wanted| wanted.peer == order.peer) {
                continue;
            }
            let place = (order.group, order.peer);
            let reported =
                reports.binary_search_by_key(&place, |report| (report.group, report.peer));
            let report = reported.ok().and_then(|at| reports.get(at));
            let stands = match report {
                Some(report) if report.is_troubled() => self.damaged(host, order.group),
                Some(_) if has_settled || self.is_there(host, order) => led(host, order.group),
                Some(_) | None => ReplicaStand::Coming,
            };
            *settled
                .waits
                .entry((order.table.clone(), stands))
                .or_default() += 1;
        }
        for (table, count) in orders.missing.iter().filter(|(_, count)| **count > 0) {
            let coming = (table.clone(), ReplicaStand::Coming);
            *settled.waits.entry(coming).or_default() += count;
        }
        let mut stands = settled.waits.keys().map(|(_, stands)| *stands);
        settled.has_settled = stands.all(|stands| match stands {
            ReplicaStand::There | ReplicaStand::Leaderless => true,
            ReplicaStand::Coming => has_settled,
            ReplicaStand::Replaced | ReplicaStand::Stuck => false,
        });
        *self.now.lock() = settled;
    }

    fn damaged(&self, host: &ReplicaHost, group: GroupId) -> ReplicaStand {
        match host.facts(group) {
            Some(facts) if facts.leader.is_some() && facts.membership.voters.len() > 1 => {
                ReplicaStand::Replaced
            }
            _ => ReplicaStand::Stuck,
        }
    }

    /// Returns whether a healthy replica votes, and had applied all entries that were decided when
    /// asked.
    fn is_there(&self, host: &ReplicaHost, order: &ReplicaOrder) -> bool {
        let place = (order.group, order.peer);
        let facts = host.facts(order.group);
        let Some(facts) = facts.filter(|facts| facts.me == order.peer) else {
            return false;
        };
        if facts.leader.is_none() && self.clock.monotonic() >= self.started + LEADERLESS {
            return true;
        }
        if self.caught_up.lock().contains(&place) {
            return facts.membership.voters.contains(&order.peer);
        }
        // The host grants a read permit once this replica has applied all entries decided by now.
        let caught_up = Arc::clone(&self.caught_up);
        let done = move |leave: Result<_, _>| {
            if leave.is_ok() {
                caught_up.lock().insert(place);
            }
        };
        host.read(order.group, Box::new(done));
        false
    }
}

fn led(host: &ReplicaHost, group: GroupId) -> ReplicaStand {
    match host.facts(group) {
        Some(facts) if facts.leader.is_none() => ReplicaStand::Leaderless,
        _ => ReplicaStand::There,
    }
}
