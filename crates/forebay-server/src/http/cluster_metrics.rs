//! A cluster node's Prometheus metrics about the cluster. The rules in deploy/alerts.yml use them.

use forebay_cluster::local::SPARE_BYTES;
use forebay_cluster::map::{ClusterMap, MapTable};
use forebay_cluster::{NodeFacts, PlanFacts, RolloutFacts};
use forebay_engine::TableName;

use super::metrics_page::Page;
use crate::cluster::Cluster;
use crate::shared::Shared;

pub fn metrics(page: &mut Page, shared: &Shared, sees: &dyn Fn(&str) -> bool) {
    let Some(cluster) = &shared.cluster else {
        return;
    };
    let (map, facts) = (cluster.map(), cluster.member().facts());
    head(page, &map, &facts);
    nodes(page, &map, &facts);
    tables(page, &map, sees);
    super::replica_metrics::metrics(page, cluster, sees);
    rollouts(page, &facts.rollouts);
    plan(page, facts.plan);
    disk(page, shared, &facts.rollouts);
    elsewhere(page, cluster);
}

fn head(page: &mut Page, map: &ClusterMap, facts: &NodeFacts) {
    let name = "forebay_cluster_coordinator";
    let help = "1: this node is the coordinator.";
    page.one(name, "gauge", help, u64::from(facts.is_coordinator));
    let help = "The revision of the catalog that the node routes by.";
    page.one("forebay_cluster_revision", "gauge", help, map.revision);
    let name = "forebay_cluster_served_revision";
    let help = "The newest revision of the catalog whose tables serve here.";
    page.one(name, "gauge", help, facts.serves);
    let name = "forebay_cluster_catalog_age_seconds";
    let help = "Since a head of the catalog was last heard of, from the store or any node.";
    page.begin(name, "gauge", help);
    page.line(name, &[], facts.head_received.as_secs_f64());
    let name = "forebay_cluster_catalog_lost";
    let help = "1: the catalog is lost, damaged or an old copy, and nobody changes anything.";
    page.one(name, "gauge", help, u64::from(facts.is_catalog_lost));
}

fn nodes(page: &mut Page, map: &ClusterMap, facts: &NodeFacts) {
    let name = "forebay_cluster_nodes";
    page.begin(name, "gauge", "Nodes, as this one sees them.");
    let available = map.nodes().filter(|node| node.is_available).count();
    let all = map.nodes().count();
    for (state, count) in [("available", available), ("away", all - available)] {
        page.line(name, &[("state", state)], count as u64);
    }
    let name = "forebay_cluster_node_states";
    let help = "Nodes by state, as this one knows them.";
    page.begin(name, "gauge", help);
    let counts = &facts.nodes;
    for (state, count) in [
        ("up", counts.up),
        ("suspected", counts.suspected),
        ("paused", counts.paused),
        ("down", counts.down),
        ("left", counts.left),
    ] {
        page.line(name, &[("state", state)], count as u64);
    }
}

/// How completely the nodes hold a table.
struct TableHeld {
    version: u64,
    missing: u64,
    unheld: u64,
}

type OfTable = fn(&TableHeld) -> u64;

/// Metrics by table: name, help and value.
const FAMILIES: [(&str, &str, OfTable); 3] = [
    (
        "forebay_cluster_table_version",
        "The version that serves by the catalog, as far as this node knows it; 0: none.",
        |held| held.version,
    ),
    (
        "forebay_cluster_missing_replicas",
        "Copies of ranges that are wanted and on no node that is there.",
        |held| held.missing,
    ),
    (
        "forebay_cluster_unavailable_ranges",
        "Ranges that no node holds that is there: their keys are not answered.",
        |held| held.unheld,
    ),
];

fn tables(page: &mut Page, map: &ClusterMap, sees: &dyn Fn(&str) -> bool) {
    let seen = map.tables().filter(|(table, _)| sees(table.as_str()));
    let seen = seen.map(|(name, table)| (name, TableHeld::of(map, table)));
    let seen: Vec<_> = seen.collect();
    for (name, help, of) in FAMILIES {
        page.begin(name, "gauge", help);
        for (table, held) in &seen {
            page.line(name, &[("table", table.as_str())], of(held));
        }
    }
}

impl TableHeld {
    /// A table without a version lacks nothing.
    fn of(map: &ClusterMap, table: &MapTable) -> Self {
        let (mut missing, mut unheld) = (0, 0);
        let ranges = table.layout.ranges().iter();
        for range in ranges.filter(|_| table.serving.is_some()) {
            let nodes = table.held(Some(range)).iter();
            let nodes = nodes.filter_map(|id| map.node(*id));
            let available = nodes.filter(|node| node.is_available).count();
            missing += table.replicas.saturating_sub(available) as u64;
            unheld += u64::from(available == 0);
        }
        Self {
            version: table.serving.unwrap_or(0),
            missing,
            unheld,
        }
    }
}

fn rollouts(page: &mut Page, rollouts: &RolloutFacts) {
    let (name, count) = ("forebay_cluster_rollouts", rollouts.count as u64);
    page.one(name, "gauge", "Rollouts under way.", count);
    let name = "forebay_cluster_rollout_age_seconds";
    let help = "Seconds since the oldest rollout under way began; 0: no rollout.";
    page.one(name, "gauge", help, rollouts.oldest.as_secs());
}

fn plan(page: &mut Page, plan: PlanFacts) {
    let (name, left) = (
        "forebay_cluster_plan_batches_left",
        plan.batches_left as u64,
    );
    let help = "Batches of the plan under way that are not done; 0: no plan.";
    page.one(name, "gauge", help, left);
    let name = "forebay_cluster_plan_remaining_seconds";
    let help = "How long that takes by the pace of the batches that are done; 0: not known.";
    page.one(name, "gauge", help, plan.left.as_secs());
}

fn disk(page: &mut Page, shared: &Shared, rollouts: &RolloutFacts) {
    let free = shared.store.disk().free_bytes(shared.store.root());
    if let Ok(Some(free)) = free {
        let name = "forebay_cluster_cache_free_bytes";
        let help = "What is free on the disk of the cache.";
        page.one(name, "gauge", help, free);
    }
    let states = shared.serving.states();
    // The version of a rollout is on the disk already, or being fetched.
    let rests = |table: &TableName| !rollouts.tables.contains(table);
    let resting = states.tables.iter().filter(|(table, _)| rests(table));
    let largest = resting.map(|(_, state)| state.file_bytes).max();
    let name = "forebay_cluster_cache_needed_bytes";
    let help = "What one more version of the largest table here takes, and what is to be left.";
    let needed = largest.unwrap_or(0).saturating_add(SPARE_BYTES);
    page.one(name, "gauge", help, needed);
}

fn elsewhere(page: &mut Page, cluster: &Cluster) {
    let counts = &cluster.counts;
    let name = "forebay_commands_routed_total";
    let help = "Commands whose keys are not here, by what became of them.";
    page.begin(name, "counter", help);
    for (led, count) in counts.all_led() {
        page.line(name, &[("outcome", led.label())], count);
    }
    let name = "forebay_proposals_total";
    let help = "Commands that write to live tables of the cluster, by what became of them.";
    page.begin(name, "counter", help);
    for (proposed, count) in counts.all_proposed() {
        page.line(name, &[("outcome", proposed.label())], count);
    }
    let name = "forebay_forward_seconds";
    let help = "Time of commands that other nodes were asked for.";
    page.begin(name, "histogram", help);
    page.histogram(name, &[], &counts.times());
    let help = "Times that a node refused a connection, or did not answer in time.";
    let name = "forebay_peers_suspected_total";
    page.one(name, "counter", help, counts.suspicions());
}
