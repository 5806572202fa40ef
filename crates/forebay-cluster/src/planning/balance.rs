//! Detects uneven load on the nodes, and plans its balancing without an operator.
//!
//! The plan changes the table that causes most of the hottest node's load, within limits.

use forebay_engine::TableName;
use forebay_plan::placement::load_plan::LoadLimits;

use super::{
    BATCH_BYTES, KnownLoad, PlaceByLoad, PlaceProposal, SPARE, Summaries, propose_place,
    propose_place_reads,
};
use crate::ids::NodeId;
use crate::measures::reads::BatchReads;
use crate::measures::traffic::TrafficWindow;
use crate::model::{LayoutName, Model, MovePlan, Survey};

/// The window of the measurements. The load of an hour ago may be over.
const WINDOW: TrafficWindow = TrafficWindow::Minute;
/// The share of its load that the hottest node may keep at most. If a plan does not reach it,
/// nothing is changed.
const WORTH: f64 = 0.9;
/// If no placement could lower the hottest node's load below this share, nothing more is copied.
const NEAR: f64 = 0.9;

/// The node with the highest load.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadPeak {
    pub node: NodeId,
    /// The load in keys read a minute, or the equivalent cost.
    pub load: f64,
    /// The mean load of the nodes that are up and not drained.
    pub mean: f64,
    /// The table that causes most of the load on the node.
    pub table: TableName,
}

/// The most that a balancing plan may copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BalanceBounds {
    pub most_copies: usize,
    pub most_bytes: u64,
}

/// A balancing plan, and the reason for it.
#[derive(Debug, Clone, PartialEq)]
pub struct BalanceProposal {
    pub plan: MovePlan,
    pub words: String,
}

impl LoadPeak {
    /// Returns the hottest node. `None`: no table has any load.
    pub fn of(model: &Model, reads: &BatchReads, survey: &Survey) -> Option<Self> {
        let known = KnownLoad {
            summaries: &Summaries::new(),
            reads,
            survey,
        };
        let loads = known.by_node(model, WINDOW, |_| true);
        let takes = |node: &NodeId| {
            model.node(*node).is_some_and(|entry| entry.is_up())
                && !model.work.drained.contains(node)
        };
        let nodes = model.all_nodes().map(|node| node.id).filter(takes).count();
        let hottest = loads.iter().max_by(|one, other| one.1.total_cmp(other.1));
        let (node, load) = hottest.filter(|_| nodes > 0)?;
        let share = |table: &TableName| {
            let loads = known.by_node(model, WINDOW, |one| one == table);
            loads.get(node).copied().unwrap_or(0.0)
        };
        let tables = model.all_tables().map(|(table, _)| (table, share(table)));
        let (table, _) = tables.max_by(|one, other| one.1.total_cmp(&other.1))?;
        Some(Self {
            node: *node,
            load: *load,
            mean: loads.values().sum::<f64>() / nodes as f64,
            table: table.clone(),
        })
    }

    pub fn ratio(&self) -> f64 {
        match self.mean > 0.0 {
            true => self.load / self.mean,
            false => 1.0,
        }
    }

    /// Describes the peak for people.
    pub fn words(&self, model: &Model) -> String {
        let node = model.node_name(self.node);
        format!(
            "node {node} has {:.1} x the mean load, most of it by table {}",
            self.ratio(),
            self.table
        )
    }
}

/// Returns a plan, or why there is none, for people. If the table is a batch table, `known` must
/// have its serving version.
pub fn propose_balance(
    model: &Model,
    known: KnownLoad<'_>,
    table: &TableName,
    bounds: BalanceBounds,
) -> Result<BalanceProposal, String> {
    let place = |most_copies| {
        let by = PlaceByLoad {
            table,
            window: WINDOW,
            limits: LoadLimits {
                most_copies,
                share: NEAR,
            },
        };
        let is_live = model.groups.contains_key(table);
        let made = match is_live {
            true => propose_place(model, known, &by, BATCH_BYTES),
            false => propose_place_reads(model, known, &by, SPARE, BATCH_BYTES),
        };
        made.map_err(|error| error.to_string())
    };
    check_layout(model, table)?;
    let mut made = place(bounds.most_copies)?;
    let mut most_copies = bounds.most_copies;
    while made.proposal.copied_bytes() > bounds.most_bytes && most_copies > 0 {
        most_copies /= 2;
        made = place(most_copies)?;
    }
    let (before, after) = made.placed.hottest();
    let words = words(model, table, &made);
    match after <= WORTH * before {
        true => Ok(BalanceProposal {
            plan: made.proposal.plan,
            words,
        }),
        false => Err(format!(
            "no plan with at most {} replicas and {} bytes to copy makes it {:.0}% less: {}",
            bounds.most_copies,
            bounds.most_bytes,
            100.0 * (1.0 - WORTH),
            next_step(table, &made)
        )),
    }
}

/// Checks that clients still find a table if its parts move to other nodes. Redis Cluster clients
/// use the layout that hashed batch tables share.
fn check_layout(model: &Model, table: &TableName) -> Result<(), String> {
    match model.table(table) {
        Some(entry) if entry.layout == LayoutName::Main => Err(format!(
            "batch table {table} shares its layout with other hashed tables, which clients of Redis Cluster go by: \
             forebay plan place {table} --from-load 1m makes a plan that gives it one of its own, and from then on its \
             load is spread"
        )),
        _ => Ok(()),
    }
}

fn words(model: &Model, table: &TableName, made: &PlaceProposal) -> String {
    let placed = &made.placed;
    let hottest = |loads: &[f64]| {
        let (place, load) = loads
            .iter()
            .enumerate()
            .max_by(|one, other| one.1.total_cmp(other.1))?;
        let node = model.node_name(*made.nodes.get(place)?);
        Some(format!("{node} {:.1} x", load / placed.mean.max(1.0)))
    };
    let (before, after) = (hottest(&placed.before), hottest(&placed.after));
    format!(
        "{table}: the hottest node's load was {} the mean, and is to be {}; partitions that others come to lead: {}, \
         replicas that are copied: {} ({} bytes){}",
        before.unwrap_or_default(),
        after.unwrap_or_default(),
        placed.handed_over,
        placed.copies,
        made.proposal.copied_bytes(),
        too_hot(table, made).map_or_else(String::new, |words| format!("; {words}"))
    )
}

fn next_step(table: &TableName, made: &PlaceProposal) -> String {
    let more =
        || format!("forebay plan place {table} --from-load 1m shows what more copies would do");
    too_hot(table, made).unwrap_or_else(more)
}

fn too_hot(table: &TableName, made: &PlaceProposal) -> Option<String> {
    let hot = made.partitions.iter().filter(|one| one.split_at.is_some());
    let count = hot.count();
    let words = || {
        format!(
            "partitions that are too hot for any node: {count}; split them (forebay plan place \
             {table} --from-load 1m shows where)"
        )
    };
    (count > 0).then(words)
}

#[cfg(test)]
#[path = "balance_tests.rs"]
mod tests;
