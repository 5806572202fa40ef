//! Plans that change the assignment of ranges to nodes.
//!
//! Operators see a plan first. Then the coordinator carries it out, batch by batch. All hashed
//! tables share one layout, and each ordered table has its own. A plan covers all of them.
//!
//! The cost of a plan is computed partition by partition, from the manifests of the serving
//! versions and from the leaders' reports about live tables. A node that is to hold any part of a
//! partition copies the whole partition.

mod balance;
mod duration;
mod fits;
mod insert;
mod insert_bound;
mod known_load;
mod own_lists;
mod picture;
mod place;
mod place_reads;
mod places;
mod price;
mod surveyed;
mod thinned_ranges;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use forebay_engine::{Bound, Bounds, TableName};
use thiserror::Error;

use crate::ids::NodeId;
use crate::model::{
    Layout, ListChange, Model, MoveBatch, MovePlan, PlanGoal, ReplicasChange, RequestId,
    live_replicas,
};
use crate::routing::layouts::{listed, longer_lists};
use crate::routing::version::VersionSummary;

pub use balance::{BalanceBounds, BalanceProposal, LoadPeak, propose_balance};
pub use duration::Paces;
pub use fits::{check_live_lists, fits, fits_all};
pub use insert::{
    BulkInsert, BulkRows, InsertProposal, KnownCluster, SLOW_PACE, Verdict, propose_insert,
    slowest_pace,
};
pub use known_load::{FOLLOWED_WRITE, KnownLoad, LED_WRITE};
use own_lists::OwnLists;
#[cfg(test)]
pub use own_lists::ranges;
pub use place::{
    MeasuredLoads, PlaceByLoad, PlaceProposal, PlacedPartition, loads_of, propose_place,
};
pub use place_reads::{SPARE, batch_loads_of, propose_place_reads};
use places::Places;
pub use price::carry_out;
use price::{PricedBatches, price};
pub use surveyed::{share_below, surveyed};
pub use thinned_ranges::ThinnedRanges;
use thinned_ranges::thinned;

/// The most bytes that a batch copies, unless a single place has more.
pub const BATCH_BYTES: u64 = 1 << 30;

/// The serving versions and the live tables' contents, by table.
pub type Summaries = BTreeMap<TableName, VersionSummary>;

/// A plan, and its cost.
#[derive(Debug, Clone)]
pub struct Proposal {
    pub plan: MovePlan,
    /// The bytes of each node that holds something before or afterwards.
    pub nodes: BTreeMap<NodeId, NodeBytes>,
    /// The copies, in the order of the batches.
    pub copies: Vec<BatchCopy>,
    /// The ranges that will be on fewer nodes that are up.
    pub thinned: Option<ThinnedRanges>,
    /// The expected duration, if known.
    pub expected: Option<Duration>,
}

/// The bytes that a node holds before and afterwards, and the bytes that it copies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NodeBytes {
    pub before: u64,
    pub after: u64,
    pub copied: u64,
}

/// The bytes that one node copies from another, or from the store, for a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchCopy {
    pub batch: usize,
    /// The source node. `None`: the store, because no node of the copying node's zone has the data.
    pub from: Option<NodeId>,
    pub to: NodeId,
    pub bytes: u64,
}

impl Proposal {
    /// Creates a proposal from priced batches, for the cluster as it is.
    fn of(model: &Model, priced: PricedBatches, goal: PlanGoal) -> Self {
        Self {
            plan: priced.plan(goal),
            thinned: thinned(model, &priced.after),
            nodes: priced.nodes,
            copies: priced.copies,
            expected: None,
        }
    }

    /// Returns an existing plan with its present cost. Refuses if the ranges that it changes have
    /// changed since. While another plan is carried out, this is not checked.
    pub fn again(model: &Model, summaries: &Summaries, plan: MovePlan) -> Result<Self, String> {
        if model.work.moving().is_none() {
            fits_all(model, &plan.batches)?;
        }
        let priced = price(model, summaries, plan.batches, None);
        Ok(Self::of(model, priced, plan.goal))
    }

    pub fn copied_bytes(&self) -> u64 {
        self.copies.iter().map(|copy| copy.bytes).sum()
    }
}

/// The reason why there is no plan.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PlanningError {
    #[error("the cluster has no tables yet: layouts are made over all nodes with the first one")]
    NoTables,
    #[error("node {0} holds parts of tables already")]
    HoldsAlready(String),
    #[error("node {0} holds nothing")]
    HoldsNothing(String),
    #[error("no node would be left that holds anything: add others first")]
    NobodyLeft,
    #[error("the cluster has no table {0}")]
    NoTable(TableName),
    #[error("the cluster has no live table {0}")]
    NoLiveTable(TableName),
    #[error(
        "plan {0} is carried out: wait for it (forebay cluster watch), or end it (forebay cluster cancel {0}), then \
         ask again"
    )]
    Moving(RequestId),
    #[error(
        "how much {count} of the partitions of table {table} hold is not known: they have no leader, or it was elected \
         just now; ask again in some seconds, and if that lasts, start the nodes that are down (forebay cluster status)"
    )]
    Unsurveyed { table: TableName, count: usize },
    #[error("table {table} has {count} replicas already")]
    SameReplicas { table: TableName, count: usize },
    #[error("{0} replicas: a table has 1 to {most}", most = crate::routing::layouts::MOST_REPLICAS)]
    Replicas(usize),
    #[error("{0}")]
    Planner(String),
}

/// Refuses while a plan is carried out, because the present assignment will change.
fn refuse_while_moving(model: &Model) -> Result<(), PlanningError> {
    match model.work.moving() {
        Some(plan) => Err(PlanningError::Moving(plan.request.clone())),
        None => Ok(()),
    }
}

/// Makes a plan for a goal.
pub fn propose(
    model: &Model,
    summaries: &Summaries,
    goal: &PlanGoal,
    most_batch_bytes: u64,
) -> Result<Proposal, PlanningError> {
    refuse_while_moving(model)?;
    check(model, goal)?;
    let mut batches = Vec::new();
    if let PlanGoal::Replicas { table, count } = goal {
        batches = more_replicas(model, summaries, table, *count)?;
    } else {
        let nodes = nodes_afterwards(model, goal)?;
        for (name, layout) in model.used_layouts() {
            if let Some(own) = OwnLists::of(model, summaries, name, &nodes) {
                batches.extend(own.moved(goal));
                continue;
            }
            let places = Places::of(model, summaries, name, layout);
            let changed = places.changed(model, goal, name, layout, &nodes)?;
            batches.extend(places.batches(name, &changed, most_batch_bytes));
        }
    }
    let priced = price(model, summaries, batches, Some(most_batch_bytes));
    check_live_lists(model, &priced.after).map_err(PlanningError::Planner)?;
    Ok(Proposal::of(model, priced, goal.clone()))
}

fn check(model: &Model, goal: &PlanGoal) -> Result<(), PlanningError> {
    let holders = holders(model);
    if holders.is_empty() {
        return Err(PlanningError::NoTables);
    }
    // A replacement that is partly done is completed.
    if let PlanGoal::Replace { gone, new } = goal {
        if holders.contains(new) {
            return Err(PlanningError::HoldsAlready(model.node_name(*new)));
        }
        if !holders.contains(gone) {
            return Err(PlanningError::HoldsNothing(model.node_name(*gone)));
        }
    }
    Ok(())
}

/// Returns the nodes that hold something.
pub fn holders(model: &Model) -> BTreeSet<NodeId> {
    let layouts = model.used_layouts();
    layouts.flat_map(|(_, layout)| listed(layout)).collect()
}

/// Returns the nodes that a batch gives something to hold.
pub fn fetching(model: &Model, batch: &MoveBatch) -> BTreeSet<NodeId> {
    let mut nodes = BTreeSet::new();
    for change in &batch.lists {
        let tables = model.all_tables();
        let tables = tables.filter(|(_, table)| table.layout == change.layout);
        for (_, table) in tables {
            let (old, new) = (table.of_list(&change.old), table.of_list(&change.new));
            nodes.extend(new.iter().filter(|node| !old.contains(node)));
        }
    }
    for change in &batch.replicas {
        let entry = model.table(&change.table);
        let layout = entry.and_then(|entry| model.layout_of(entry));
        let ranges = layout.into_iter().flat_map(|layout| layout.ranges());
        let more = ranges.flat_map(|range| range.list.iter().take(change.to).skip(change.from));
        nodes.extend(more);
    }
    nodes
}

fn nodes_afterwards(model: &Model, goal: &PlanGoal) -> Result<BTreeSet<NodeId>, PlanningError> {
    let (drained, added) = (goal.drained(), goal.added());
    let mut nodes = holders(model);
    nodes.extend(&added);
    nodes.retain(|node| {
        let is_drained = model.work.drained.contains(node) && !added.contains(node);
        !drained.contains(node) && !is_drained
    });
    match nodes.is_empty() {
        true => Err(PlanningError::NobodyLeft),
        false => Ok(nodes),
    }
}

fn more_replicas(
    model: &Model,
    summaries: &Summaries,
    table: &TableName,
    count: usize,
) -> Result<Vec<MoveBatch>, PlanningError> {
    if !(1..=crate::routing::layouts::MOST_REPLICAS).contains(&count) {
        return Err(PlanningError::Replicas(count));
    }
    let no_table = || PlanningError::NoTable(table.clone());
    let entry = model.table(table).ok_or_else(no_table)?;
    if entry.live().is_some() {
        live_replicas(count).map_err(PlanningError::Planner)?;
    }
    let layout = model.layout_of(entry).ok_or_else(no_table)?;
    if entry.replicas == count {
        let table = table.clone();
        return Err(PlanningError::SameReplicas { table, count });
    }
    let nodes = listed(layout);
    let own = OwnLists::of(model, summaries, &entry.layout, &nodes);
    let mut batches = own.map_or_else(Vec::new, |own| own.of_length(count));
    let is_short = |layout: &Layout| layout.ranges().any(|range| range.list.len() < count);
    if !entry.by_range && is_short(layout) {
        // Longer lists move nothing by themselves.
        let longer = longer_lists(model, layout, count).map_err(PlanningError::Planner)?;
        let uppers = longer.iter().skip(1).map(|range| Some(range.lower.clone()));
        let uppers: Vec<Option<Bound>> = uppers.chain([None]).collect();
        let changes = layout.ranges().zip(&longer).zip(uppers);
        let changes = changes.filter(|((old, new), _)| old.list != new.list);
        let lists: Vec<ListChange> = changes
            .map(|((old, new), upper)| ListChange {
                layout: entry.layout.clone(),
                bounds: Bounds {
                    lower: old.lower.clone(),
                    upper,
                },
                old: old.list.clone(),
                new: new.list.clone(),
            })
            .collect();
        if !lists.is_empty() {
            batches.push(MoveBatch {
                lists,
                ..MoveBatch::default()
            });
        }
    }
    let change = ReplicasChange {
        table: table.clone(),
        from: entry.replicas,
        to: count,
    };
    batches.push(MoveBatch {
        replicas: vec![change],
        ..MoveBatch::default()
    });
    Ok(batches)
}

#[cfg(test)]
mod tests;
