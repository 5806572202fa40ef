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
pub struct Settling {
    clock: Arc<dyn Clock>,
    started: Duration,
    now: Mutex<Settled>,
    /// Replicas that had all that was decided, since the start.
    caught_up: Arc<Mutex<BTreeSet<(GroupId, PeerId)>>>,
}

/// What there is to be waited for.
#[derive(Debug, Default)]
struct Settled {
    is_known: bool,
    has_settled: bool,
    /// By tables: how many ail, and how many are not there yet.
    ailing: BTreeMap<TableName, usize>,
    coming: BTreeMap<TableName, usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stands {
    There,
    Coming,
    Ailing,
}

impl Settling {
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            started: clock.monotonic(),
            clock,
            now: Mutex::default(),
            caught_up: Arc::default(),
        }
    }

    /// What has the node not ready, in words.
    pub fn waits_for(&self) -> Vec<String> {
        let now = self.now.lock();
        if !now.is_known {
            return vec![
                "which replicas of live tables are to be here is not known yet".to_owned(),
            ];
        }
        let ailing = now.ailing.iter().map(|(table, count)| {
            format!(
                "live table {table}: {count} replicas here met damage, or forgot what they promised: others \
                 are to take their place"
            )
        });
        let coming = now.coming.iter().filter(|_| !now.has_settled);
        let coming = coming.map(|(table, count)| {
            format!("live table {table}: {count} replicas here are not there yet, or catch up")
        });
        ailing.chain(coming).collect()
    }
}

impl Settled {
    fn count(&mut self, table: &TableName, stands: Stands, count: usize) {
        let counts = match stands {
            Stands::There => return,
            Stands::Coming => &mut self.coming,
            Stands::Ailing => &mut self.ailing,
        };
        if count > 0 {
            *counts.entry(table.clone()).or_default() += count;
        }
    }
}

impl Settling {
    /// Looks how the ordered replicas stand, by these reports, in the order of groups and peers.
    /// REQUIRES: the orders were carried out as far as they could be.
    pub fn look(&self, host: &ReplicaHost, orders: &ReplicaOrders, reports: &[GroupReport]) {
        let mut settled = Settled {
            is_known: true,
            ..Settled::default()
        };
        let has_settled = self.now.lock().has_settled;
        for order in &orders.replicas {
            // One that is to go is not waited for.
            let mut wanted = order.wanted.peers.iter();
            if !wanted.any(|wanted| wanted.peer == order.peer) {
                continue;
            }
            let place = (order.group, order.peer);
            let told = reports.binary_search_by_key(&place, |report| (report.group, report.peer));
            let report = told.ok().and_then(|at| reports.get(at));
            let stands = match report {
                Some(report) if report.is_troubled() => Stands::Ailing,
                Some(_) if has_settled || self.is_there(host, order) => Stands::There,
                Some(_) | None => Stands::Coming,
            };
            settled.count(&order.table, stands, 1);
        }
        for (table, count) in &orders.missing {
            settled.count(table, Stands::Coming, *count);
        }
        let is_all_there = settled.coming.is_empty();
        settled.has_settled = settled.ailing.is_empty() && (has_settled || is_all_there);
        *self.now.lock() = settled;
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
