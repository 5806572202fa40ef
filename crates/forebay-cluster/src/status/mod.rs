//! The status of a cluster, for people and their programs.

mod problems;

use std::collections::BTreeSet;

use forebay_engine::TableName;
use serde::{Deserialize, Serialize};

use crate::coordinator::{
    Coordinator, MovesLeft, serving_reads, splits_wait_for, unfinished_splits,
};
use crate::ids::{HostPort, NodeId};
use crate::live_status::{LiveStatus, LiveTableStatus};
use crate::load_status::LoadStatus;
use crate::message::Readiness;
use crate::model::{
    Head, Identity, Model, MoveStage, NodeEntry, NodeState, Phase, PlanGoal, Rebalance, Rollout,
    TableEntry,
};
use crate::planning::holders;
use crate::reads_status::ReadsStatus;
use crate::time::Now;
use problems::{notes, problems, unserved};

/// The status of a cluster, as `forebay cluster status` reports it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    pub cluster: String,
    pub healthy: bool,
    /// The problems, and what to do about them.
    pub problems: Vec<String>,
    /// The format of the catalog.
    #[serde(default)]
    pub format: u64,
    pub revision: u64,
    pub term: u64,
    /// The time without a heartbeat after which a node counts as down.
    #[serde(default)]
    pub node_timeout_ms: u64,
    /// The coordinator's node. `None`: no coordinator is known.
    pub coordinator: Option<String>,
    /// The source of this status.
    #[serde(default)]
    pub source: StatusSource,
    /// Parts that can be neither read nor written now, and why. Each is also in `problems`.
    #[serde(default)]
    pub down: Vec<String>,
    /// Whether the catalog itself is lost or an old copy.
    #[serde(default)]
    pub catalog_lost: bool,
    pub nodes: Vec<NodeStatus>,
    pub tables: Vec<TableStatus>,
    /// The plan that is carried out.
    pub plan: Option<PlanStatus>,
    /// The loads into live tables that are under way.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub loads: Vec<LoadStatus>,
    /// The state of live tables' partitions, if there are any and the coordinator reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub live: Option<LiveStatus>,
    /// The read rates of batch tables, if there are any and the coordinator reports them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reads: Option<ReadsStatus>,
    /// Notes that are no problems, but worth knowing.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// The source of a cluster's status.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StatusSource {
    /// Only the store. No node confirmed the status, and it may be old.
    #[default]
    Catalog,
    /// A node that reaches no coordinator.
    Node,
    /// The coordinator, which receives the heartbeats of all nodes.
    Coordinator,
}

/// The health of a cluster in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    Well,
    /// Something is wrong. As far as is known, everything is still served.
    Degraded,
    /// The cluster, a table or a part of one cannot be read or written.
    Down,
    NotKnown,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeStatus {
    pub name: String,
    pub zone: String,
    /// The state: up, starting, unreachable, down, left, paused, or not known (no coordinator has
    /// received a heartbeat).
    pub state: String,
    pub listen: HostPort,
    /// The revision whose tables the node serves, if known.
    pub serves: Option<u64>,
    /// Whether the node holds parts of tables, or is to hold some.
    pub holds: bool,
    pub free_bytes: Option<u64>,
    /// The bytes a second that the node last fetched, during a fetch.
    #[serde(default)]
    pub fetched_bytes_per_s: Option<u64>,
    pub problems: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TableStatus {
    pub table: TableName,
    pub version: Option<u64>,
    /// The version to which a rollback would go.
    pub previous: Option<u64>,
    /// The nodes that hold each part. The desired number may exceed the number of nodes.
    pub replicas: usize,
    pub replicas_desired: usize,
    pub rollout: Option<RolloutStatus>,
    /// Whether the table is a live table.
    #[serde(default)]
    pub mode: TableMode,
    /// The state of a live table, if the coordinator reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub live: Option<LiveTableStatus>,
    /// When the table's last backup began, by the store's record. Nodes do not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup_unix_ms: Option<u64>,
}

/// The way in which a table gets its content.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TableMode {
    /// By versions that are pushed.
    #[default]
    Batch,
    /// By writes.
    Live,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RolloutStatus {
    pub request: String,
    pub to: u64,
    pub phase: Phase,
    pub done_bytes: u64,
    pub total_bytes: u64,
    /// The participants that are ready, and all participants.
    pub ready: usize,
    pub participants: usize,
    /// What the rollout waits for, unless it is a node that fetches.
    #[serde(default)]
    pub reason: Option<String>,
    pub excluded: BTreeSet<String>,
}

/// A plan that is carried out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlanStatus {
    pub request: String,
    /// The goal of the plan.
    pub goal: String,
    pub stage: MoveStage,
    /// The finished batches, and all batches.
    pub done: usize,
    pub batches: usize,
    pub done_bytes: u64,
    pub copied_bytes: u64,
    /// The nodes that still fetch something, or that are to have a voting replica and have none.
    pub waits_for: BTreeSet<String>,
    /// The live partitions that are not yet on the nodes that this batch gives them.
    #[serde(default)]
    pub live_partitions: usize,
    /// Those of `live_partitions` without a majority. The plan waits until they have one.
    #[serde(default)]
    pub live_without_majority: usize,
    /// The partitions that this batch still has to split.
    #[serde(default)]
    pub splits_left: usize,
    /// The estimated rest of the time, by the pace so far. `None`: no pace is known.
    pub remaining_s: Option<u64>,
    /// An operator cancelled the plan. The batch under way is undone.
    #[serde(default)]
    pub cancelled: bool,
}

impl Status {
    /// Returns the status by the catalog, and by the coordinator's reports if there are any.
    pub fn of(
        identity: &Identity,
        head: &Head,
        model: &Model,
        coordinator: Option<(&Coordinator, Now)>,
    ) -> Self {
        let holding = holders(model);
        let mut nodes: Vec<NodeStatus> = model
            .all_nodes()
            .map(|node| NodeStatus::of(node, holding.contains(&node.id), coordinator))
            .collect();
        nodes.sort_by(|one, other| one.name.cmp(&other.name));
        let mut tables: Vec<TableStatus> = model
            .all_tables()
            .map(|(name, entry)| TableStatus::of(name, entry, model, coordinator))
            .collect();
        tables.sort_by(|one, other| one.table.cmp(&other.table));
        let mut problems = problems(model, &nodes, &tables);
        let why_not = coordinator.and_then(|(coordinator, _)| coordinator.replace_problem());
        problems
            .extend(why_not.map(|why| format!("what lost nodes held stays on a node less: {why}")));
        let down = unserved(model, &nodes);
        problems.extend(down.iter().cloned());
        let live = coordinator.and_then(|(coordinator, now)| {
            LiveStatus::of(model, coordinator.received_reports(), now)
        });
        let mut notes = notes(head, model, &nodes);
        let balance = coordinator.into_iter();
        let balance = balance.flat_map(|(coordinator, _)| coordinator.balance_reported());
        notes.extend(balance.map(|reported| format!("load is kept balanced: {reported}")));
        let plan = model.work.moving();
        let plan = plan.map(|plan| PlanStatus::of(plan, model, coordinator));
        let mut status = Self {
            cluster: identity.name.clone(),
            healthy: problems.is_empty(),
            problems,
            format: head.forebay_head,
            revision: head.revision,
            term: head.term,
            node_timeout_ms: model.timing().node_timeout().as_millis() as u64,
            coordinator: None,
            source: match coordinator {
                Some(_) => StatusSource::Coordinator,
                None => StatusSource::Catalog,
            },
            down,
            catalog_lost: false,
            live: None,
            notes,
            nodes,
            tables,
            plan,
            reads: coordinator.and_then(|(coordinator, now)| {
                let received = coordinator.received_reports().reads;
                ReadsStatus::of(model, &serving_reads(received, model, now))
            }),
            loads: LoadStatus::all(model, coordinator.map(|(coordinator, _)| coordinator)),
        };
        live.into_iter().for_each(|live| status.notify_live(live));
        status
    }
}

impl Status {
    /// Adds the state of live tables, as a coordinator knows it.
    pub fn notify_live(&mut self, live: LiveStatus) {
        self.problems.extend(live.problems());
        self.down.extend(live.down());
        self.healthy = self.problems.is_empty();
        self.notes.extend(live.notes());
        for table in &mut self.tables {
            table.live = live.tables.get(&table.table).cloned();
        }
        self.live = Some(live);
    }

    /// Records that no coordinator receives heartbeats or handles requests. `held_up_by` describes
    /// the process that keeps others from writing the catalog, if there is one.
    pub fn without_coordinator(&mut self, held_up_by: Option<&str>) {
        self.healthy = false;
        let next = match held_up_by {
            Some(holder) => format!("{holder}; if that process hangs, end it"),
            None => "look at the logs of the nodes, and whether they can write into the store"
                .to_owned(),
        };
        let problem = "there is no coordinator: nothing is pushed or moved";
        self.problems.insert(0, format!("{problem}; {next}"));
    }

    /// Records that no node has confirmed the catalog. `why` has the reason for each node that was
    /// asked.
    pub fn unconfirmed(&mut self, why: &[String]) {
        self.healthy = false;
        let asked = match why {
            [] => "the catalog names no node that answers HTTP (forebay serve --http)".to_owned(),
            why => why.join("; "),
        };
        let problem = format!(
            "no node confirmed what follows, which the catalog says, and it may be old: {asked}"
        );
        self.problems.insert(0, problem);
        self.unheard(|_| false);
    }

    /// Sets the state of nodes that are up, but were not received, to "not known".
    fn unheard(&mut self, is_received: impl Fn(&str) -> bool) {
        let up = self.nodes.iter_mut().filter(|node| node.state == "up");
        for node in up.filter(|node| !is_received(&node.name)) {
            "not known".clone_into(&mut node.state);
        }
    }

    pub fn health(&self) -> Health {
        match self.source {
            _ if self.healthy => Health::Well,
            StatusSource::Catalog => Health::NotKnown,
            _ if self.down.is_empty() => Health::Degraded,
            _ => Health::Down,
        }
    }

    /// Records that one node alone is the source: it reaches no coordinator. If there is an alarm,
    /// the catalog is lost and there is no coordinator.
    pub fn by_node(&mut self, node: &str, alarm: Option<String>) {
        (self.healthy, self.source) = (false, StatusSource::Node);
        self.unheard(|name| name == node);
        if let Some(alarm) = alarm {
            return self.alarm(alarm);
        }
        let problem = format!(
            "node {node} reaches no coordinator, and reports what it knows itself: ask again, or \
             ask another node (forebay cluster status asks several); if that lasts for half a \
             minute, read the logs of the nodes, and check whether they can write to the store"
        );
        self.problems.insert(0, problem);
    }

    /// Adds the differences in another node's status.
    pub fn compare(&mut self, who: &str, differs: &Self, other: &str) {
        let mut problem = None;
        if self.cluster != differs.cluster {
            let (here, there) = (&self.cluster, &differs.cluster);
            problem = Some(format!(
                "{who} is of cluster {here}, and {other} of {there}: ask nodes of one cluster"
            ));
        } else if self.is_whole() && !differs.is_whole() {
            problem = Some(format!(
                "{other} reaches no coordinator, and {who} does: look at the network between them"
            ));
        } else if self.catalog_lost && !differs.catalog_lost {
            problem = Some(format!(
                "{who} says that the catalog is lost, and {other} does not yet"
            ));
        }
        self.healthy &= problem.is_none();
        self.problems.extend(problem);
        if differs.source == StatusSource::Node {
            // Such a node knows by itself only that it is up.
            let answers = |name: &str| {
                let mut nodes = differs.nodes.iter();
                nodes.any(|node| node.name == name && node.state == "up")
            };
            let unheard = self
                .nodes
                .iter_mut()
                .filter(|node| node.state == "not known");
            unheard
                .filter(|node| answers(&node.name))
                .for_each(|node| "up".clone_into(&mut node.state));
        }
    }

    /// Returns whether the status has more than what a single node, or the catalog, knows.
    pub fn is_whole(&self) -> bool {
        self.coordinator.is_some() || self.catalog_lost
    }

    /// Records that the catalog itself is lost or an old copy.
    pub fn alarm(&mut self, problem: String) {
        (self.healthy, self.catalog_lost) = (false, true);
        if !self.problems.contains(&problem) {
            self.problems.insert(0, problem);
        }
    }
}

impl NodeStatus {
    fn of(node: &NodeEntry, holds: bool, coordinator: Option<(&Coordinator, Now)>) -> Self {
        let received =
            coordinator.and_then(|(coordinator, _)| coordinator.received().get(&node.id));
        let is_silent =
            coordinator.is_some_and(|(coordinator, _)| coordinator.suspects().contains(&node.id));
        let is_starting = received.is_some_and(|received| received.serves == 0);
        let state = match node.state {
            NodeState::Up if coordinator.is_some() && received.is_none() => "not known",
            NodeState::Up if is_starting => "starting",
            NodeState::Up if is_silent => "unreachable",
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
            serves: received.map(|received| received.serves),
            holds,
            free_bytes: received.and_then(|received| received.room.free_bytes),
            fetched_bytes_per_s: received.and_then(|received| received.room.fetched_bytes_per_s),
            problems: received.map_or_else(Vec::new, |received| received.problems.clone()),
        }
    }
}

impl TableStatus {
    fn of(
        name: &TableName,
        entry: &TableEntry,
        model: &Model,
        coordinator: Option<(&Coordinator, Now)>,
    ) -> Self {
        let rollout = model.work.rollout_of(name);
        Self {
            table: name.clone(),
            version: entry.serving,
            previous: entry.history.last().copied(),
            replicas: replicas(model, entry),
            replicas_desired: entry.replicas,
            rollout: rollout.map(|rollout| RolloutStatus::of(name, rollout, model, coordinator)),
            mode: match entry.live() {
                Some(_) => TableMode::Live,
                None => TableMode::Batch,
            },
            live: None,
            backup_unix_ms: None,
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
        let received = coordinator.map(|(coordinator, _)| coordinator.received());
        for node in &rollout.participants {
            let received = received.and_then(|received| received.get(node));
            match received.and_then(|received| received.rollouts.get(&rollout.id)) {
                Some(Readiness::Fetching {
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
            reason: rollout.reason.clone(),
            excluded: names(model, &rollout.excluded),
        }
    }
}

impl PlanStatus {
    fn of(plan: &Rebalance, model: &Model, coordinator: Option<(&Coordinator, Now)>) -> Self {
        // Once lists have changed, the batch has been copied.
        let is_copied = matches!(plan.stage, MoveStage::Changed { .. });
        let of_batch = || model.batch_of(plan).map_or(0, |batch| batch.copied_bytes);
        let mut done_bytes = plan.done_bytes + if is_copied { of_batch() } else { 0 };
        let mut waits_for = BTreeSet::new();
        let mut live = MovesLeft::default();
        let mut splits_left = 0;
        let received = coordinator.map(|(coordinator, _)| coordinator.received());
        if matches!(plan.stage, MoveStage::Copying { .. }) {
            for (node, received) in received.into_iter().flatten() {
                if let Some(Readiness::Fetching {
                    done_bytes: here, ..
                }) = &received.moving
                {
                    done_bytes += here;
                    waits_for.insert(*node);
                }
            }
            let batch = model.batch_of(plan);
            let waiting = batch.as_ref().map(|batch| unfinished_splits(model, batch));
            let waiting = waiting.unwrap_or_default();
            splits_left = waiting.len();
            waits_for.extend(splits_wait_for(model, &waiting));
            if let Some(((coordinator, _), batch)) = coordinator.zip(batch) {
                live = MovesLeft::of(model, coordinator.groups(), &batch);
                waits_for.extend(&live.nodes);
                // Live tables report no bytes, so their progress is counted in partitions.
                if done_bytes == plan.done_bytes {
                    done_bytes += live.done_of(batch.copied_bytes);
                }
            }
        }
        let done_bytes = done_bytes.min(plan.copied_bytes);
        let now_ms = coordinator.map(|(_, now)| now.unix_ms);
        let remaining_s = now_ms.and_then(|now_ms| {
            let passed_ms = now_ms.checked_sub(plan.begun_unix_ms)?;
            plan.left(passed_ms, done_bytes).map(|left| left.as_secs())
        });
        Self {
            request: plan.request.to_string(),
            goal: shown_goal(&plan.goal, model),
            stage: plan.stage,
            done: plan.done,
            batches: plan.batches,
            done_bytes,
            copied_bytes: plan.copied_bytes,
            waits_for: names(model, &waits_for),
            live_partitions: live.partitions,
            live_without_majority: live.without_majority,
            splits_left,
            remaining_s: remaining_s.filter(|_| !plan.cancelled),
            cancelled: plan.cancelled,
        }
    }
}

/// Describes a plan's goal in a few words.
pub fn shown_goal(goal: &PlanGoal, model: &Model) -> String {
    let all = |nodes: &BTreeSet<NodeId>| {
        let names: Vec<String> = names(model, nodes).into_iter().collect();
        names.join(", ")
    };
    let one = |node: &NodeId| all(&BTreeSet::from([*node]));
    match goal {
        PlanGoal::Drain(nodes) => format!("drain {}", all(nodes)),
        PlanGoal::Add(nodes) => format!("add {}", all(nodes)),
        PlanGoal::Replace { gone, new } => format!("{} in the place of {}", one(new), one(gone)),
        PlanGoal::Even => "even out what nodes hold".to_owned(),
        PlanGoal::Insert { table, with } => {
            let with = with.iter().map(|index| format!(", {index}"));
            format!(
                "make {table}{} ready for a bulk insert",
                with.collect::<String>()
            )
        }
        PlanGoal::Place { table } => format!("place {table} by the load on it"),
        PlanGoal::Replicas { table, count: 1 } => format!("1 replica of {table}"),
        PlanGoal::Replicas { table, count } => format!("{count} replicas of {table}"),
    }
}

/// Returns the names of nodes.
pub fn names(model: &Model, ids: &BTreeSet<NodeId>) -> BTreeSet<String> {
    ids.iter().map(|id| model.node_name(*id)).collect()
}

/// Returns how many nodes hold each part of a table.
fn replicas(model: &Model, entry: &TableEntry) -> usize {
    let layout = model.layout_of(entry);
    let lists = layout.into_iter().flat_map(|layout| layout.ranges());
    let least = lists.map(|range| entry.of_list(&range.list).len()).min();
    least.unwrap_or(0)
}
