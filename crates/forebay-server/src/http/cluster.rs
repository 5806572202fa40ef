//! What the metrics say of a node of a cluster.

use super::metrics_page::Page;
use crate::shared::Shared;

pub fn metrics(page: &mut Page, shared: &Shared) {
    let Some(cluster) = &shared.cluster else {
        return;
    };
    let (map, counts) = (cluster.map(), &cluster.counts);
    let help = "The revision of the catalog that the node routes by.";
    page.one("forebay_cluster_revision", "gauge", help, map.revision);
    let name = "forebay_cluster_nodes";
    page.begin(name, "gauge", "Nodes, as this one sees them.");
    let available = map.nodes().filter(|node| node.is_available).count();
    let all = map.nodes().count();
    for (state, count) in [("available", available), ("away", all - available)] {
        page.line(name, &[("state", state)], count as u64);
    }
    let name = "forebay_commands_elsewhere_total";
    let help = "Commands whose keys are not here, by what became of them.";
    page.begin(name, "counter", help);
    for (led, count) in counts.all_led() {
        page.line(name, &[("outcome", led.label())], count);
    }
    let name = "forebay_forward_seconds";
    let help = "Time of commands that other nodes were asked for.";
    page.begin(name, "histogram", help);
    page.histogram(name, &[], &counts.times());
    let help = "Times that a node refused a connection, or did not answer in time.";
    let name = "forebay_peers_suspected_total";
    page.one(name, "counter", help, counts.suspicions());
}
