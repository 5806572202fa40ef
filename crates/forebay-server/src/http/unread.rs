//! Removes from the cluster's state the tables that a user may not read.
//!
//! A line of text is about a table if one of its words is the table's name. So a line is also
//! removed if it names another table too, or contains the word for another reason. Removed lines
//! are counted.

use std::collections::BTreeSet;

use forebay_cluster::LiveStatus;
use forebay_cluster::status::Status;

use crate::shared::Shared;

/// Replaces a single text about hidden tables.
const HIDDEN: &str = "it is about a table that you may not read";

/// Removes from a state what is about tables that the caller may not read.
pub fn hide_unread(status: &mut Status, shared: &Shared, may_read: &dyn Fn(&str) -> bool) {
    let mut hidden = named(status);
    hidden.extend(known_here(shared));
    hidden.retain(|table| !may_read(table));
    if !hidden.is_empty() {
        hide(status, &hidden);
    }
}

/// Returns the tables that a state names outside its lines of text.
fn named(status: &Status) -> BTreeSet<String> {
    let tables = status.tables.iter().map(|table| &table.table);
    let tables = tables.chain(status.loads.iter().map(|load| &load.table));
    let mut names: BTreeSet<String> = tables.map(ToString::to_string).collect();
    if let Some(live) = &status.live {
        let tables = live.tables.keys();
        let tables = tables.chain(live.lost.iter().map(|lost| &lost.table));
        names.extend(tables.map(ToString::to_string));
    }
    names
}

/// Returns the tables that this node knows: lines may name one that was just removed from the
/// catalog.
fn known_here(shared: &Shared) -> BTreeSet<String> {
    let states = shared.serving.states();
    let open = states.tables.iter().map(|(table, _)| table.to_string());
    let mut names: BTreeSet<String> = open.collect();
    if let Some(cluster) = &shared.cluster {
        let (map, live) = (cluster.map(), cluster.member().live());
        names.extend(map.tables().map(|(table, _)| table.to_string()));
        names.extend(live.tables().map(|(table, _)| table.to_string()));
    }
    names
}

fn hide(status: &mut Status, hidden: &BTreeSet<String>) {
    let is_hidden = |table: &str| hidden.contains(table);
    status
        .tables
        .retain(|table| !is_hidden(table.table.as_str()));
    status.loads.retain(|load| !is_hidden(load.table.as_str()));
    if let Some(live) = &mut status.live {
        hide_live(live, hidden);
    }
    if let Some(reads) = &mut status.reads {
        reads.hottest.retain(|part| !is_hidden(part.table.as_str()));
    }
    // A rollout may cover several tables.
    let rollouts = status.tables.iter_mut();
    let reasons = rollouts.filter_map(|table| table.rollout.as_mut()?.reason.as_mut());
    let goal = status.plan.as_mut().map(|plan| &mut plan.goal);
    for text in reasons.chain(goal).filter(|text| names_any(text, hidden)) {
        HIDDEN.clone_into(text);
    }
    for node in &mut status.nodes {
        node.problems.retain(|line| !names_any(line, hidden));
    }
    hide_lines(&mut status.problems, "problem", hidden);
    hide_lines(&mut status.notes, "note", hidden);
    hide_lines(&mut status.down, "problem", hidden);
}

/// Hides live tables. The counts of partitions stay, because they cover all tables.
fn hide_live(live: &mut LiveStatus, hidden: &BTreeSet<String>) {
    let is_hidden = |table: &str| hidden.contains(table);
    live.tables.retain(|table, _| !is_hidden(table.as_str()));
    live.lost.retain(|lost| !is_hidden(lost.table.as_str()));
    let hottest = &mut live.traffic.hottest;
    hottest.retain(|hot| !is_hidden(hot.table.as_str()));
    for partitions in [
        &mut live.unfounded,
        &mut live.without_leader,
        &mut live.without_majority,
        &mut live.short,
        &mut live.being_split,
        &mut live.children,
    ] {
        let first = partitions.first.take();
        partitions.first = first.filter(|(table, _)| !is_hidden(table.as_str()));
    }
}

/// Removes lines about hidden tables, and adds how many there were.
fn hide_lines(lines: &mut Vec<String>, what: &str, hidden: &BTreeSet<String>) {
    let all = lines.len();
    lines.retain(|line| !names_any(line, hidden));
    match all - lines.len() {
        0 => {}
        1 => lines.push(format!(
            "1 more {what} is about tables that you may not read"
        )),
        count => lines.push(format!(
            "{count} more {what}s are about tables that you may not read"
        )),
    }
}

/// Returns whether one of a text's words is the name of one of these tables.
fn names_any(text: &str, tables: &BTreeSet<String>) -> bool {
    let is_between = |letter: char| !letter.is_ascii_alphanumeric() && !"_-".contains(letter);
    text.split(is_between).any(|word| tables.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn state() -> Status {
        let table = |name: &str| {
            json!({
                "table": name, "version": 1, "previous": null, "replicas": 1, "replicas_desired": 3,
                "rollout": {
                    "request": "r", "to": 2, "phase": "preparing", "done_bytes": 0, "total_bytes": 0,
                    "ready": 0, "participants": 1, "reason": format!("table {name} waits"),
                    "excluded": [],
                },
            })
        };
        let first = json!({"count": 2, "first": ["pay", 0]});
        let led = json!({"reads": 5, "writes": 1, "read_bytes": 50, "written_bytes": 10});
        let hot =
            |name: &str| json!({"table": name, "partition": 0, "node": "n1", "led": led.clone()});
        let state = json!({
            "cluster": "c", "healthy": false, "revision": 3, "term": 1, "coordinator": "n1",
            "problems": [
                "pay on n1: 1 replica is lost",
                "pay, shop: 3 replicas are wanted, and 1 nodes hold tables",
                "node n1: pay@3: it is damaged",
                "shop on n2: 1 replica is lost",
                "shop-pay on n2: 1 replica is lost",
            ],
            "notes": ["partition 0 of pay: it is being split: wait", "pays and pay_ are others"],
            "nodes": [{
                "name": "n1", "zone": "z", "state": "up", "listen": "h:1", "serves": 3,
                "holds": true, "free_bytes": 1, "problems": ["pay@3: it is damaged", "shop@1: it is, too"],
            }],
            "tables": [table("pay"), table("shop")],
            "plan": {
                "request": "r", "goal": "3 replicas of pay", "stage": "between", "done": 0, "batches": 1,
                "done_bytes": 0, "copied_bytes": 0, "waits_for": [], "remaining_s": null,
            },
            "live": {
                "partitions": 4, "unfounded": first, "without_leader": first, "without_majority": first,
                "short": first, "tables": {},
                "traffic": {"nodes": {}, "hottest": [hot("pay"), hot("shop")]},
            },
        });
        serde_json::from_value(state).unwrap()
    }

    #[test]
    fn nothing_is_left_of_hidden_tables() {
        let mut status = state();
        hide(&mut status, &BTreeSet::from(["pay".to_owned()]));
        assert_eq!(
            status.problems,
            [
                "shop on n2: 1 replica is lost",
                "shop-pay on n2: 1 replica is lost",
                "3 more problems are about tables that you may not read",
            ]
        );
        assert_eq!(
            status.notes,
            [
                "pays and pay_ are others",
                "1 more note is about tables that you may not read",
            ]
        );
        assert_eq!(status.nodes[0].problems, ["shop@1: it is, too"]);
        assert_eq!(status.plan.as_ref().unwrap().goal, HIDDEN);
        let reason = |at: usize| status.tables[at].rollout.as_ref().unwrap().reason.clone();
        assert_eq!(reason(0).unwrap(), "table shop waits");
        let text = serde_json::to_string(&status).unwrap();
        assert!(!text.contains("\"pay\""), "{text}");
        let live = status.live.unwrap();
        assert_eq!(live.without_leader.count, 2);
        assert_eq!(live.traffic.hottest.len(), 1);
        assert_eq!(status.tables.len(), 1);
    }
}
