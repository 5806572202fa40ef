//! The state of a cluster, for people and their programs.

use std::collections::{BTreeMap, BTreeSet};

use forebay_engine::TableName;
use serde::{Deserialize, Serialize};

use crate::coordinator::Coordinator;
use crate::ids::{HostPort, NodeId};
use crate::message::Readiness;
use crate::model::{Head, Identity, Model, NodeEntry, NodeState, Phase, Rollout};
use crate::time::Now;

/// See the module's text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    pub cluster: String,
    pub healthy: bool,
    /// What is wrong, and what to do.
    pub problems: Vec<String>,
    pub revision: u64,
    pub term: u64,
    pub coordinator: Option<String>,
    pub nodes: Vec<NodeStatus>,
    pub tables: Vec<TableStatus>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeStatus {
    pub name: String,
    pub zone: String,
    /// up, starting, silent, down, left or paused.
    pub state: String,
    pub listen: HostPort,
    /// The revision whose tables it serves, where that is known.
    pub serves: Option<u64>,
    pub free_bytes: Option<u64>,
    pub problems: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TableStatus {
    pub table: TableName,
    pub version: Option<u64>,
    /// What a rollback would go to.
    pub previous: Option<u64>,
    /// How many nodes hold each part; wanted may be more than there are nodes.
    pub replicas: usize,
    pub replicas_wanted: usize,
    pub rollout: Option<RolloutStatus>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RolloutStatus {
    pub request: String,
    pub to: u64,
    pub phase: Phase,
    pub done_bytes: u64,
    pub total_bytes: u64,
    /// Nodes that are ready, and all that take part.
    pub ready: usize,
    pub participants: usize,
    pub left_out: BTreeSet<String>,
}

impl Status {
    /// What the catalog tells; with a coordinator, what it has heard, too.
    pub fn of(
        identity: &Identity,
        head: &Head,
        model: &Model,
        coordinator: Option<(&Coordinator, Now)>,
    ) -> Self {
        let nodes: Vec<NodeStatus> = model
            .all_nodes()
            .map(|node| NodeStatus::of(node, coordinator))
            .collect();
        let tables = model.all_tables().map(|(name, entry)| TableStatus {
            table: name.clone(),
            version: entry.serving,
            previous: entry.history.last().copied(),
            replicas: replicas(model, entry.replicas),
            replicas_wanted: entry.replicas,
            rollout: model
                .work
                .rollout_of(name)
                .map(|rollout| RolloutStatus::of(name, rollout, model, coordinator)),
        });
        let tables: Vec<TableStatus> = tables.collect();
        let problems = problems(model, &nodes, &tables);
        Self {
            cluster: identity.name.clone(),
            healthy: problems.is_empty(),
            problems,
            revision: head.revision,
            term: head.term,
            coordinator: None,
            nodes,
            tables,
        }
    }
}

impl NodeStatus {
    fn of(node: &NodeEntry, coordinator: Option<(&Coordinator, Now)>) -> Self {
        let heard = coordinator.and_then(|(coordinator, _)| coordinator.heard().get(&node.id));
        let is_silent =
            coordinator.is_some_and(|(coordinator, _)| coordinator.suspects().contains(&node.id));
        let is_starting = heard.is_some_and(|heard| heard.serves == 0);
        let state = match node.state {
            NodeState::Up if is_starting => "starting",
            NodeState::Up if is_silent => "silent",
            NodeState::Up => "up",
            _ if node.paused_until_unix_ms.is_some() => "paused",
            NodeState::Down { .. } => "down",
            NodeState::Left { .. } => "left",
        };
        Self {
            name: node.name.to_string(),
            zone: node.zone.to_string(),
            state: state.to_owned(),
            listen: node.listen.clone(),
            serves: heard.map(|heard| heard.serves),
            free_bytes: heard.and_then(|heard| heard.free_bytes),
            problems: heard.map_or_else(Vec::new, |heard| heard.problems.clone()),
        }
    }
}

impl RolloutStatus {
    fn of(
        table: &TableName,
        rollout: &Rollout,
        model: &Model,
        coordinator: Option<(&Coordinator, Now)>,
    ) -> Self {
        let (mut done, mut total, mut ready) = (0, 0, 0);
        let heard = coordinator.map(|(coordinator, _)| coordinator.heard());
        for node in &rollout.participants {
            let heard = heard.and_then(|heard| heard.get(node));
            match heard.and_then(|heard| heard.rollouts.get(&rollout.id)) {
                Some(Readiness::Bringing {
                    done_bytes,
                    total_bytes,
                }) => {
                    done += done_bytes;
                    total += total_bytes;
                }
                Some(Readiness::Ready { .. }) => ready += 1,
                _ => {}
            }
        }
        Self {
            request: rollout.request.to_string(),
            to: rollout.tables.get(table).map_or(0, |part| part.to),
            phase: rollout.phase,
            done_bytes: done,
            total_bytes: total,
            ready,
            participants: rollout.participants.len(),
            left_out: names(model, &rollout.left_out),
        }
    }
}

/// The names of nodes.
pub fn names(model: &Model, ids: &BTreeSet<NodeId>) -> BTreeSet<String> {
    let name = |id: &NodeId| {
        let node = model.node(*id);
        node.map_or_else(|| format!("node {id}"), |node| node.name.to_string())
    };
    ids.iter().map(name).collect()
}

/// How many nodes hold each part of a table.
fn replicas(model: &Model, wanted: usize) -> usize {
    wanted.min(model.all_nodes().count())
}

fn problems(model: &Model, nodes: &[NodeStatus], tables: &[TableStatus]) -> Vec<String> {
    let mut problems = Vec::new();
    if nodes.is_empty() {
        problems.push("the cluster has no nodes: start some (forebay serve --cluster)".to_owned());
    }
    for node in nodes {
        match node.state.as_str() {
            "silent" => problems.push(format!(
                "node {} is silent: look at its log, and at the network",
                node.name
            )),
            "left" => problems.push(format!(
                "node {} is stopped: start it again; until then what it holds is on a node less",
                node.name
            )),
            "down" => problems.push(format!(
                "node {} is down: start it again; what it held is on other nodes as far as there are \
                 replicas",
                node.name
            )),
            _ => {}
        }
        let its = node.problems.iter();
        problems.extend(its.map(|problem| format!("node {}: {problem}", node.name)));
    }
    let mut few: BTreeMap<usize, Vec<&TableName>> = BTreeMap::new();
    for table in tables
        .iter()
        .filter(|table| table.replicas < table.replicas_wanted)
    {
        few.entry(table.replicas_wanted)
            .or_default()
            .push(&table.table);
    }
    let count = model.all_nodes().count();
    for (wanted, tables) in few {
        let names: Vec<String> = tables.iter().take(5).map(ToString::to_string).collect();
        let more = if tables.len() > 5 { ", ..." } else { "" };
        problems.push(format!(
            "{}{more}: {wanted} replicas are wanted, and there are {count} nodes: add nodes",
            names.join(", ")
        ));
    }
    problems
}
