//! Events for operators: one for each change between two revisions of the catalog.

use forebay_engine::TableName;

use crate::ids::NodeName;
use crate::model::{
    LoadStage, Model, MoveStage, NodeEntry, NodeState, Phase, PlanGoal, Rebalance, RequestId,
    Rollout, RolloutRole, TableEntry, TableLoad,
};

/// A change of a cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterEvent {
    /// The name of this kind of change, the same for each change of the kind.
    pub what: &'static str,
    /// Whether an operator may have to act.
    pub is_wrong: bool,
    pub node: Option<NodeName>,
    pub table: Option<TableName>,
    /// Versions or counts, before and after the change.
    pub from: Option<u64>,
    pub to: Option<u64>,
    /// The id that `forebay cluster cancel` takes.
    pub request: Option<RequestId>,
    pub reason: Option<String>,
}

/// Returns the events that lead from one model to a later one, nodes first.
pub fn events_between(old: &Model, new: &Model) -> Vec<ClusterEvent> {
    let mut events = Vec::new();
    nodes_between(old, new, &mut events);
    drained_between(old, new, &mut events);
    tables_between(old, new, &mut events);
    rollouts_between(old, new, &mut events);
    plans_between(old, new, &mut events);
    loads_between(old, new, &mut events);
    if old.timing() != new.timing() {
        events.push(ClusterEvent::of("the node timeout changed"));
    }
    events
}

impl ClusterEvent {
    fn of(what: &'static str) -> Self {
        Self {
            what,
            ..Self::default()
        }
    }

    fn wrong(what: &'static str) -> Self {
        Self {
            is_wrong: true,
            ..Self::of(what)
        }
    }

    fn at_node(self, node: &NodeName) -> Self {
        Self {
            node: Some(node.clone()),
            ..self
        }
    }

    fn of_table(self, table: &TableName) -> Self {
        Self {
            table: Some(table.clone()),
            ..self
        }
    }

    fn counts(self, from: usize, to: usize) -> Self {
        Self {
            from: Some(from as u64),
            to: Some(to as u64),
            ..self
        }
    }
}

fn nodes_between(old: &Model, new: &Model, events: &mut Vec<ClusterEvent>) {
    if old.nodes == new.nodes {
        return;
    }
    for node in new.all_nodes() {
        let event = match old.node(node.id) {
            None => Some(ClusterEvent::of("node joined the cluster")),
            Some(before) => node_change(before, node),
        };
        events.extend(event.map(|event| event.at_node(&node.name)));
        let is_paused = |node: &NodeEntry| node.paused_until_unix_ms.is_some();
        if is_paused(node) && !old.node(node.id).is_some_and(is_paused) {
            events.push(ClusterEvent::of("node paused for maintenance").at_node(&node.name));
        }
    }
    let removed = old.all_nodes().filter(|node| new.node(node.id).is_none());
    events.extend(
        removed.map(|node| ClusterEvent::of("node removed from the cluster").at_node(&node.name)),
    );
}

fn node_change(before: &NodeEntry, now: &NodeEntry) -> Option<ClusterEvent> {
    let is_other = before.incarnation != now.incarnation;
    Some(match (before.state, now.state) {
        (NodeState::Up, NodeState::Up) if is_other => ClusterEvent::of("node restarted"),
        (NodeState::Down { .. } | NodeState::Left { .. }, NodeState::Up) => {
            ClusterEvent::of("node is up again")
        }
        (NodeState::Up | NodeState::Left { .. }, NodeState::Down { .. }) => {
            ClusterEvent::wrong("node is down")
        }
        (NodeState::Up | NodeState::Down { .. }, NodeState::Left { .. }) => {
            ClusterEvent::of("node stopped in order")
        }
        _ => return None,
    })
}

fn drained_between(old: &Model, new: &Model, events: &mut Vec<ClusterEvent>) {
    let (before, now) = (&old.work.drained, &new.work.drained);
    for node in now.difference(before).filter_map(|id| new.node(*id)) {
        events.push(ClusterEvent::of("node is drained").at_node(&node.name));
    }
    for node in before.difference(now).filter_map(|id| new.node(*id)) {
        events.push(ClusterEvent::of("node takes data again").at_node(&node.name));
    }
}

fn tables_between(old: &Model, new: &Model, events: &mut Vec<ClusterEvent>) {
    for (page, tables) in &new.tables {
        if old.tables.get(page) == Some(tables) {
            continue;
        }
        for (name, entry) in &tables.tables {
            let event = match old.table(name) {
                None => Some(ClusterEvent::of("table made")),
                Some(before) => table_change(before, entry),
            };
            events.extend(event.map(|event| event.of_table(name)));
        }
    }
    for (page, tables) in &old.tables {
        if new.tables.get(page) == Some(tables) {
            continue;
        }
        let dropped = tables
            .tables
            .keys()
            .filter(|name| new.table(name).is_none());
        events.extend(dropped.map(|name| ClusterEvent::of("table dropped").of_table(name)));
    }
    for (name, groups) in &new.groups {
        let before = old.groups.get(name).map(|groups| groups.count());
        let now = groups.count();
        if let Some(before) = before.filter(|before| *before != now) {
            let split = ClusterEvent::of("partitions of the table split");
            events.push(split.of_table(name).counts(before, now));
        }
    }
}

fn table_change(before: &TableEntry, now: &TableEntry) -> Option<ClusterEvent> {
    match before.made != now.made && now.made.is_some() && before.made.is_some() {
        true => Some(ClusterEvent::of("table dropped and made again")),
        false if before.replicas != now.replicas => {
            let changed = ClusterEvent::of("replicas of the table changed");
            Some(changed.counts(before.replicas, now.replicas))
        }
        false => None,
    }
}

fn rollouts_between(old: &Model, new: &Model, events: &mut Vec<ClusterEvent>) {
    if old.work.rollouts == new.work.rollouts {
        return;
    }
    for (id, rollout) in &new.work.rollouts {
        let before = old.work.rollouts.get(id);
        let waits = rollout.phase == Phase::Preparing && rollout.reason.is_some();
        let event = match before {
            Some(before) if before.phase == rollout.phase => {
                match waits && before.reason != rollout.reason {
                    true => ClusterEvent::wrong("rollout waits"),
                    false => continue,
                }
            }
            _ => phase_event(rollout),
        };
        let reason = match (rollout.phase, rollout.excluded.is_empty()) {
            (Phase::Confirmed, false) => {
                let excluded = rollout.excluded.iter().map(|id| new.node_name(*id));
                let excluded: Vec<String> = excluded.collect();
                Some(format!("left out: {}", excluded.join(", ")))
            }
            (Phase::Confirmed, true) => None,
            _ => rollout.reason.clone(),
        };
        for (table, part) in &rollout.tables {
            events.push(ClusterEvent {
                from: part.from,
                to: Some(part.to),
                request: Some(rollout.request.clone()),
                reason: reason.clone(),
                ..event.clone().of_table(table)
            });
        }
    }
}

fn phase_event(rollout: &Rollout) -> ClusterEvent {
    let mut parts = rollout.tables.values();
    let is_rollback = parts.any(|part| part.role == RolloutRole::Rollback);
    let is_whole = rollout.excluded.is_empty();
    match (rollout.phase, is_rollback) {
        (Phase::Preparing, false) => ClusterEvent::of("rollout began"),
        (Phase::Preparing, true) => ClusterEvent::of("rollback began"),
        (Phase::Committed, false) => ClusterEvent::of("rollout committed"),
        (Phase::Committed, true) => ClusterEvent::of("rollback committed"),
        (Phase::Confirmed, false) => ClusterEvent {
            is_wrong: !is_whole,
            ..ClusterEvent::of("rollout confirmed")
        },
        (Phase::Confirmed, true) => ClusterEvent {
            is_wrong: !is_whole,
            ..ClusterEvent::of("rollback confirmed")
        },
        (Phase::Aborted, _) => ClusterEvent::wrong("rollout aborted before its commit"),
        (Phase::Reverting, _) => ClusterEvent::wrong("rollout is being reverted"),
        (Phase::Reverted, _) => ClusterEvent::wrong("rollout reverted"),
    }
}

fn plans_between(old: &Model, new: &Model, events: &mut Vec<ClusterEvent>) {
    let request_of = |plan: &Rebalance| plan.request.clone();
    for plan in &new.work.rebalances {
        let mut known = old.work.rebalances.iter();
        let before = known.find(|known| known.request == plan.request);
        let was_over = before.is_some_and(|before| before.stage.is_over());
        let event = match plan.stage {
            _ if was_over => continue,
            MoveStage::Done => ClusterEvent::of("plan done"),
            MoveStage::Stopped if plan.cancelled => ClusterEvent::of("plan cancelled"),
            MoveStage::Stopped => ClusterEvent::wrong("plan stopped before its end"),
            _ if before.is_none() => ClusterEvent::of("plan began"),
            _ if before.is_some_and(|before| before.done != plan.done) => {
                ClusterEvent::of("plan finished a batch of moves")
            }
            _ => continue,
        };
        events.push(ClusterEvent {
            table: table_of(&plan.goal),
            request: Some(request_of(plan)),
            reason: plan.reason.clone(),
            ..event.counts(plan.done, plan.batches)
        });
    }
}

fn table_of(goal: &PlanGoal) -> Option<TableName> {
    match goal {
        PlanGoal::Replicas { table, .. }
        | PlanGoal::Insert { table, .. }
        | PlanGoal::Place { table } => Some(table.clone()),
        PlanGoal::Drain(_) | PlanGoal::Add(_) | PlanGoal::Replace { .. } | PlanGoal::Even => None,
    }
}

fn loads_between(old: &Model, new: &Model, events: &mut Vec<ClusterEvent>) {
    for load in &new.work.loads {
        let mut known = old.work.loads.iter();
        let before = known.find(|known| known.number == load.number);
        if before.is_some_and(|before: &TableLoad| before.stage == load.stage) {
            continue;
        }
        let event = match load.stage {
            LoadStage::Fetching => ClusterEvent::of("load began"),
            LoadStage::Adding => ClusterEvent::of("load is added to the partitions"),
            LoadStage::Done => ClusterEvent::of("load added"),
            LoadStage::Stopped => ClusterEvent::wrong("load stopped: nothing was added"),
        };
        events.push(ClusterEvent {
            request: Some(load.request.clone()),
            reason: load.reason.clone(),
            ..event.of_table(&load.table)
        });
    }
}
