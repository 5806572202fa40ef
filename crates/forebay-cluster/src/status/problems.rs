//! Describes the problems of a cluster, the parts that are down, and notes for operators.

use std::collections::{BTreeMap, BTreeSet};

use forebay_engine::TableName;

use super::{NodeStatus, TableStatus, names};
use crate::ids::NodeId;
use crate::model::{Head, LayoutName, Model, NEWEST_FORMAT};
use crate::planning::holders;

/// With less free space than this, a disk counts as full.
const LITTLE_ROOM_BYTES: u64 = 16 << 20;

pub fn problems(model: &Model, nodes: &[NodeStatus], tables: &[TableStatus]) -> Vec<String> {
    let mut problems = Vec::new();
    let has_tables = model.all_tables().next().is_some();
    if nodes.is_empty() {
        problems.push("the cluster has no nodes: start some (forebay serve --cluster)".to_owned());
    }
    for node in nodes {
        match node.state.as_str() {
            "unreachable" => problems.push(format!(
                "node {} is unreachable: look at its log, and at the network",
                node.name
            )),
            // A note says what the node should do.
            "not known" => problems.push(format!(
                "node {} has not reported to the coordinator, which has just begun",
                node.name
            )),
            "left" | "down" if is_idle(node, has_tables) => {}
            "left" => problems.push(format!(
                "node {} is stopped: start it again; until then what it holds is on a node less",
                node.name
            )),
            "down" => problems.push(format!(
                "node {} is down: start it again (end it first if it hangs); what it held is on other nodes as far as there are \
                 replicas",
                node.name
            )),
            _ => {}
        }
        if let Some(free_bytes) = node.free_bytes.filter(|free| *free < LITTLE_ROOM_BYTES) {
            problems.push(format!(
                "node {}: its disk has {free_bytes} bytes free: make room, or it fetches nothing \
                 new, and its live tables take no writes",
                node.name
            ));
        }
        let its = node.problems.iter();
        problems.extend(its.map(|problem| format!("node {}: {problem}", node.name)));
    }
    let mut few: BTreeMap<usize, Vec<&TableName>> = BTreeMap::new();
    for table in tables
        .iter()
        .filter(|table| table.replicas < table.replicas_desired)
    {
        few.entry(table.replicas_desired)
            .or_default()
            .push(&table.table);
    }
    let count = match holders(model).len() {
        1 => "1 node holds".to_owned(),
        count => format!("{count} nodes hold"),
    };
    for (wanted, tables) in few {
        let names: Vec<String> = tables.iter().take(5).map(ToString::to_string).collect();
        let more = if tables.len() > 5 { ", ..." } else { "" };
        problems.push(format!(
            "{}{more}: {wanted} replicas are wanted, and {count} tables: start more, and forebay cluster add those that hold nothing",
            names.join(", ")
        ));
    }
    problems
}

/// Describes tables, or parts of them, that no node which is up serves, or the whole cluster.
pub fn unserved(model: &Model, nodes: &[NodeStatus]) -> Vec<String> {
    let runs = |node: &NodeStatus| {
        matches!(
            node.state.as_str(),
            "up" | "starting" | "unreachable" | "not known"
        )
    };
    if !nodes.is_empty() && !nodes.iter().any(runs) {
        return vec!["no node runs: nothing is answered, and nobody coordinates".to_owned()];
    }
    let up: BTreeSet<NodeId> = model
        .all_nodes()
        .filter(|node| {
            nodes
                .iter()
                .any(|one| one.name == node.name.as_str() && runs(one))
        })
        .map(|node| node.id)
        .collect();
    let mut lost = Vec::new();
    for (name, table) in model.all_tables() {
        if table.serving.is_none() || table.live().is_some() {
            continue;
        }
        let ranges = model.layout_of(table).into_iter();
        let lists = ranges.flat_map(|layout| layout.ranges());
        let unread = |list: &&[NodeId]| list.iter().all(|node| !up.contains(node));
        let lists: Vec<&[NodeId]> = lists.map(|range| table.of_list(&range.list)).collect();
        let unread: Vec<&&[NodeId]> = lists.iter().filter(|list| unread(list)).collect();
        if let Some(first) = unread.first().filter(|first| !first.is_empty()) {
            let holders = names(model, &first.iter().copied().collect());
            let holders: Vec<&str> = holders.iter().map(String::as_str).collect();
            lost.push(format!(
                "{} of {} parts of table {name} are on no node that is up: start {} again",
                unread.len(),
                lists.len(),
                holders.join(", ")
            ));
        }
    }
    lost
}

pub fn notes(head: &Head, model: &Model, nodes: &[NodeStatus]) -> Vec<String> {
    let drained = names(model, &model.work.drained);
    // While lists change, there is no advice to give yet.
    let has_tables = model.all_tables().next().is_some() && model.work.moving().is_none();
    let idle = nodes.iter().filter(|node| is_idle(node, has_tables));
    let is_off = |node: &NodeStatus| matches!(node.state.as_str(), "left" | "down");
    let idle = idle.map(|node| match drained.contains(&node.name) {
        _ if is_off(node) => format!(
            "node {0} is {1}, and holds nothing: start it again, or remove it (forebay cluster remove {0})",
            node.name,
            if node.state == "left" { "stopped" } else { "down" }
        ),
        true => format!(
            "node {0} was drained and holds nothing: stop it and remove it, or forebay cluster add {0}",
            node.name
        ),
        false => format!(
            "node {0} holds nothing yet: forebay cluster add {0}",
            node.name
        ),
    });
    let format = head.forebay_head;
    let is_old = format < NEWEST_FORMAT;
    let old = is_old.then(|| {
        format!(
            "the catalog is of format {format}: once all nodes run this program, forebay cluster upgrade makes it \
             {NEWEST_FORMAT}"
        )
    });
    idle.chain(old).chain(shared_zone(model)).collect()
}

/// Finds a preference list whose nodes share a zone. Nodes may start in another zone than the lists
/// were made for.
fn shared_zone(model: &Model) -> Option<String> {
    let zone = |node: &NodeId| model.node(*node).map(|node| &node.zone);
    let zones: BTreeSet<_> = holders(model).iter().filter_map(zone).collect();
    // A table with fewer replicas uses the first entries of a list.
    let is_shared = |list: &[NodeId]| {
        let first = list.iter().take(zones.len());
        let of_first: BTreeSet<_> = first.clone().filter_map(zone).collect();
        of_first.len() < first.len()
    };
    // The lists of a table that was placed by load have the length that it needs.
    let own: BTreeSet<&LayoutName> = model
        .all_tables()
        .filter(|(_, table)| table.by_range)
        .map(|(_, table)| &table.layout)
        .collect();
    let layouts = model.used_layouts().filter(|(name, _)| !own.contains(name));
    let mut ranges = layouts.flat_map(|(_, layout)| layout.ranges());
    let shared = ranges.any(|range| is_shared(&range.list));
    shared.then(|| {
        "some parts have two copies in one zone, though there are zones without: forebay cluster rebalance".to_owned()
    })
}

/// Returns whether a node holds nothing and is to hold nothing, though there are tables. No table
/// depends on it.
fn is_idle(node: &NodeStatus, has_tables: bool) -> bool {
    !node.holds && has_tables
}
