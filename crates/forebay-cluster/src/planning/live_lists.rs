//! Checks that a plan does not make a live table's preference lists unsafe.

use forebay_engine::TableName;

use crate::ids::NodeId;
use crate::model::{Model, live_replicas};

/// Checks that no partition of a live table gets fewer nodes than the table's replicas. Of so few
/// nodes a majority may be all. `before`: the cluster as it is; `after`: the cluster after the
/// plan.
pub fn check_live_lists(before: &Model, after: &Model) -> Result<(), String> {
    for (table, entry) in after.live_tables() {
        let replicas = live_replicas(entry.replicas)?;
        let ranges = after.layout_of(entry).into_iter();
        let least = ranges.flat_map(|layout| layout.ranges().map(|range| range.list.len()));
        let least = least.min().unwrap_or(0);
        if least < replicas {
            return Err(format!(
                "the plan leaves partitions of live table {table} with {least} nodes, and it is to have {replicas} \
                 replicas: add nodes first"
            ));
        }
        check_reach(before, after, table)?;
    }
    Ok(())
}

/// Checks that each partition that moves is to be on at least one node that is up.
fn check_reach(before: &Model, after: &Model, table: &TableName) -> Result<(), String> {
    let is_up = |node: &NodeId| before.node(*node).is_some_and(|entry| entry.is_up());
    let stood = before.wanted_groups(table);
    for (group, wanted) in after.wanted_groups(table) {
        let is_moved = stood
            .iter()
            .any(|(known, list)| known.group == group.group && *list != wanted);
        if is_moved && !wanted.iter().any(is_up) {
            let down: Vec<String> = wanted.iter().map(|node| before.node_name(*node)).collect();
            return Err(format!(
                "the plan leaves partition {} of live table {table} to nodes that are down ({}), \
                 which cannot fetch it: start them, or put other nodes in their place first \
                 (forebay cluster replace)",
                group.partition,
                down.join(", ")
            ));
        }
    }
    Ok(())
}
