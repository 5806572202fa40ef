//! Whether the replicas of a node are there: what who restarts one node after the other waits for.
//!
//! A replica is there when it votes in its group, and has applied what was decided when it was
//! asked after the start. Once all are, the node has settled, and replicas that come to be here
//! later, as nodes are added, change nothing about that. One that ails does: with the next node
//! away its group might have no majority.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use forebay_engine::TableName;
use forebay_host::ReplicaHost;
use forebay_io::Clock;
use forebay_replica::{GroupId, PeerId};
use parking_lot::Mutex;

use crate::live::{ReplicaOrder, ReplicaOrders};
use crate::reports::GroupReport;

/// For so long after the start a replica is waited for that knows no leader. Longer, and the others
/// are away: they may themselves be started only once this node is ready.
const LEADERLESS: Duration = Duration::from_secs(60);

/// See the module's text.
#[derive(Debug)]
pub struct SettlingReplicas {
    clock: Arc<dyn Clock>,
    started: Duration,
    now: Mutex<SettledCounts>,
    /// Replicas that had all that was decided, since the start.
    caught_up: Arc<Mutex<BTreeSet<(GroupId, PeerId)>>>,
}

/// How many replicas of a table are to be waited for, by table and why.
#[derive(Debug, Default)]
struct SettledCounts {
    is_known: bool,
    has_settled: bool,
    waits: BTreeMap<(TableName, ReplicaStand), usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ReplicaStand {
    There,
    /// It is there, and its group has no leader: most of it is away.
    Leaderless,
    Coming,
    /// It is damaged, and its group has a leader, who takes another peer in.
    Replaced,
    /// It is damaged, and nobody can take another peer in.
    Stuck,
}

/// What a table's replicas here are waited for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaWait {
    pub table: TableName,
    pub why: String,
    /// It ends by itself, however long it takes.
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

    /// Whether it is known which replicas are to be here.
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
    /// Looks how the ordered replicas stand, by these reports, in the order of groups and peers.
    /// REQUIRES: the orders were carried out as far as they could be.
    pub fn look(&self, host: &ReplicaHost, orders: &ReplicaOrders, reports: &[GroupReport]) {
        let mut settled = SettledCounts {
            is_known: true,
            ..SettledCounts::default()
        };
        let has_settled = self.now.lock().has_settled;
        for order in &orders.replicas {
            // One that is to go is not waited for.
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

    /// Whether a replica that does not ail votes, and had all that was decided when that was asked.
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
        // Leave to read is given once all is applied here that was decided by now.
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
