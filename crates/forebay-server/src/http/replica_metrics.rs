//! A node's Prometheus metrics about its replicas of live tables.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use forebay_cluster::LivePlace;
use forebay_cluster::local::LocalReplicas;
use forebay_cluster::reports::GroupReport;
use forebay_engine::TableName;
use forebay_replica::GroupId;

use super::metrics_page::Page;
use crate::cluster::Cluster;

/// The state of the replicas of a table's partitions, as far as this node knows.
#[derive(Debug, Default, PartialEq, Eq)]
struct ReplicasHere {
    partitions: u64,
    here: u64,
    led: u64,
    leaderless: u64,
    unhealthy: u64,
    silent: u64,
    behind: u64,
    /// 1 if this node has a problem with the table, such as a full disk; else 0.
    troubled: u64,
}

type ReplicaMetrics = fn(&ReplicasHere) -> u64;

/// Metrics by table: name, help and value.
const FAMILIES: [(&str, &str, ReplicaMetrics); 8] = [
    (
        "forebay_cluster_partitions",
        "Partitions of a live table, as far as this node knows it.",
        |replicas| replicas.partitions,
    ),
    (
        "forebay_cluster_replicas",
        "Partitions of a live table that this node has a replica of.",
        |replicas| replicas.here,
    ),
    (
        "forebay_cluster_led_partitions",
        "Partitions of a live table whose leader is here.",
        |replicas| replicas.led,
    ),
    (
        "forebay_cluster_leaderless_partitions",
        "Partitions of a live table whose replica here knows nobody who leads.",
        |replicas| replicas.leaderless,
    ),
    (
        "forebay_cluster_unhealthy_replicas",
        "Replicas here that are lost or unhealthy, and are being replaced.",
        |replicas| replicas.unhealthy,
    ),
    (
        "forebay_cluster_unreachable_replicas",
        "Replicas on other nodes that do not answer their leader here.",
        |replicas| replicas.silent,
    ),
    (
        "forebay_cluster_replica_lag_entries",
        "The most entries that a replica which answers its leader here lacks of what is decided.",
        |replicas| replicas.behind,
    ),
    (
        "forebay_cluster_replicas_with_problems",
        "Whether a full disk, or another trouble that /ready names, holds the replicas here up.",
        |replicas| replicas.troubled,
    ),
];

pub fn metrics(page: &mut Page, cluster: &Cluster, sees: &dyn Fn(&str) -> bool) {
    let member = cluster.member();
    let replicas = member.replicas();
    let troubles = replicas.as_ref().map(|replicas| replicas.troubles());
    let troubles = troubles.unwrap_or_default();
    let reports = replicas.map(|replicas| replicas.reports());
    let reports = reports.unwrap_or_default().into_iter();
    let reports: BTreeMap<GroupId, GroupReport> =
        reports.map(|report| (report.group, report)).collect();
    let live = member.live();
    let seen = live.tables().filter(|(table, _)| sees(table.as_str()));
    let of = |(table, place)| {
        let mut replicas = ReplicasHere::of(place, &reports);
        replicas.troubled = u64::from(troubles.contains_key(table));
        (table, replicas)
    };
    let tables: Vec<(&TableName, ReplicasHere)> = seen.map(of).collect();
    if let Some(replicas) = member.replicas() {
        logs(
            page,
            &replicas,
            live.tables().filter(|(table, _)| sees(table.as_str())),
        );
    }
    for (name, help, of) in FAMILIES {
        page.begin(name, "gauge", help);
        for (table, replicas) in &tables {
            page.line(name, &[("table", table.as_str())], of(replicas));
        }
    }
}

/// Adds the size of logs, and how lagging replicas caught up.
fn logs<'a>(
    page: &mut Page,
    replicas: &LocalReplicas,
    tables: impl Iterator<Item = (&'a TableName, &'a LivePlace)>,
) {
    let name = "forebay_cluster_log_bytes";
    let help = "Files of the log of a live table's replicas here: what a restart needs, and what is \
                kept for replicas that were away.";
    page.begin(name, "gauge", help);
    for (table, place) in tables {
        let log = place
            .routes()
            .iter()
            .find_map(|route| replicas.log(route.group));
        let Some((needed, kept)) = log.map(|log| log.size_bytes()) else {
            continue;
        };
        for (what, bytes) in [("needed", needed), ("kept", kept)] {
            page.line(name, &[("table", table.as_str()), ("for", what)], bytes);
        }
    }
    let counts = replicas.host().counts();
    let help = "Copies of partitions fetched by replicas here, as no log went back far enough.";
    let copies = counts.copies.load(Ordering::Relaxed);
    page.one("forebay_cluster_copies_total", "counter", help, copies);
    let help = "Bytes of log entries read from files here, for lagging replicas on other nodes.";
    let bytes = counts.tail_bytes.load(Ordering::Relaxed);
    page.one(
        "forebay_cluster_log_sent_bytes_total",
        "counter",
        help,
        bytes,
    );
}

impl ReplicasHere {
    fn of(place: &LivePlace, reports: &BTreeMap<GroupId, GroupReport>) -> Self {
        let mut all = Self::default();
        for route in place.routes() {
            all.partitions += 1;
            if let Some(report) = reports.get(&route.group) {
                all.count(report);
            }
        }
        all
    }

    fn count(&mut self, report: &GroupReport) {
        self.here += 1;
        self.unhealthy += u64::from(report.is_troubled());
        let leaderless = report.leaderless.as_ref();
        self.leaderless += u64::from(leaderless.is_some_and(|one| one.votes(report.peer)));
        let Some(lead) = &report.leads else {
            return;
        };
        self.led += 1;
        let members = &lead.members;
        let others = members.voters.iter().chain(&members.learners);
        let others = others.filter(|peer| **peer != report.peer);
        let answers = |peer| lead.behind.iter().any(|(other, _)| *other == peer);
        self.silent += others.filter(|peer| !answers(**peer)).count() as u64;
        let most = lead.behind.iter().map(|(_, entries)| *entries).max();
        self.behind = self.behind.max(most.unwrap_or(0));
    }
}

#[cfg(test)]
mod tests {
    use forebay_cluster::reports::{LeaderReport, LeaderlessReplica, ReplicaProblem};
    use forebay_replica::{Membership, PeerId};

    use super::*;

    fn report() -> GroupReport {
        GroupReport {
            group: GroupId(7),
            peer: PeerId(1),
            term: 3,
            problem: None,
            is_unhealthy: false,
            leads: None,
            leaderless: None,
            load: None,
            traffic: None,
        }
    }

    fn members() -> Membership {
        Membership::founders(&[PeerId(1), PeerId(2), PeerId(3)])
    }

    #[test]
    fn each_replica_is_counted_by_its_state() {
        let mut all = ReplicasHere::default();
        all.count(&report());
        all.count(&GroupReport {
            problem: Some(ReplicaProblem::Damaged),
            ..report()
        });
        all.count(&GroupReport {
            leaderless: Some(LeaderlessReplica {
                members: members(),
                term: 3,
                index: 9,
                stamp_ms: 1,
            }),
            ..report()
        });
        // The third peer does not answer; the leader itself is not asked.
        all.count(&GroupReport {
            leads: Some(LeaderReport {
                members: members(),
                behind: vec![(PeerId(2), 5)],
                size: None,
            }),
            ..report()
        });
        let wanted = ReplicasHere {
            partitions: 0,
            here: 4,
            led: 1,
            leaderless: 1,
            unhealthy: 1,
            silent: 1,
            behind: 5,
            troubled: 0,
        };
        assert_eq!(all, wanted);
    }
}
