//! The arguments of `cluster add`, `drain`, `replace`, `replicas` and `rebalance`.
//!
//! `cluster plan` takes each of them as a subcommand.

use std::collections::BTreeSet;

use anyhow::bail;
use clap::{Args, Subcommand};
use forebay_cluster::model::{Model, PlanGoal};
use forebay_cluster::planning::holders;
use forebay_cluster::{NodeId, NodeName};
use forebay_engine::TableName;

use crate::rollout_args::parse_replicas;

#[derive(Debug, Args)]
pub struct AddArgs {
    /// Without names: all nodes that have no data and were not drained
    nodes: Vec<NodeName>,
}

#[derive(Debug, Args)]
pub struct DrainArgs {
    /// The nodes, by the names that `cluster status` shows
    #[arg(required = true)]
    nodes: Vec<NodeName>,
}

#[derive(Debug, Args)]
pub struct ReplaceArgs {
    /// The node to replace; it has no data afterwards
    gone: NodeName,

    /// The new node; it has no data yet
    new: NodeName,
}

#[derive(Debug, Args)]
pub struct TableReplicas {
    table: TableName,

    /// The number of replicas of each partition: 1 to 5, of a live table 1, 3 or 5
    #[arg(value_name = "N", value_parser = parse_replicas)]
    count: usize,
}

#[derive(Debug, Args)]
pub struct RebalanceArgs {}

/// Arguments that say which placement an operator wants.
pub trait MoveRequest: Args {
    /// Returns the goal, with the ids of the named nodes.
    fn goal(&self, model: &Model) -> anyhow::Result<PlanGoal>;
}

impl MoveRequest for AddArgs {
    fn goal(&self, model: &Model) -> anyhow::Result<PlanGoal> {
        let nodes = match self.nodes.is_empty() {
            true => idle(model)?,
            false => ids(&self.nodes, model)?,
        };
        Ok(PlanGoal::Add(nodes))
    }
}

impl MoveRequest for DrainArgs {
    fn goal(&self, model: &Model) -> anyhow::Result<PlanGoal> {
        Ok(PlanGoal::Drain(ids(&self.nodes, model)?))
    }
}

impl MoveRequest for ReplaceArgs {
    fn goal(&self, model: &Model) -> anyhow::Result<PlanGoal> {
        let (gone, new) = (id(&self.gone, model)?, id(&self.new, model)?);
        Ok(PlanGoal::Replace { gone, new })
    }
}

impl MoveRequest for TableReplicas {
    fn goal(&self, _: &Model) -> anyhow::Result<PlanGoal> {
        let (table, count) = (self.table.clone(), self.count);
        Ok(PlanGoal::Replicas { table, count })
    }
}

impl MoveRequest for RebalanceArgs {
    fn goal(&self, _: &Model) -> anyhow::Result<PlanGoal> {
        Ok(PlanGoal::Even)
    }
}

/// A placement command by its name.
#[derive(Debug, Subcommand)]
pub enum AnyWords {
    /// Give nodes that have no data their share of the tables
    Add(AddArgs),
    /// Move all data away from these nodes
    Drain(DrainArgs),
    /// Replace one node by another
    Replace(ReplaceArgs),
    /// Change the number of replicas of a table
    Replicas(TableReplicas),
    /// Balance the data among the nodes
    Rebalance(RebalanceArgs),
}

impl AnyWords {
    pub fn goal(&self, model: &Model) -> anyhow::Result<PlanGoal> {
        match self {
            Self::Add(words) => words.goal(model),
            Self::Drain(words) => words.goal(model),
            Self::Replace(words) => words.goal(model),
            Self::Replicas(words) => words.goal(model),
            Self::Rebalance(words) => words.goal(model),
        }
    }
}

fn id(name: &NodeName, model: &Model) -> anyhow::Result<NodeId> {
    let node = model.known_node(name);
    node.map(|node| node.id).map_err(anyhow::Error::msg)
}

fn ids(names: &[NodeName], model: &Model) -> anyhow::Result<BTreeSet<NodeId>> {
    names.iter().map(|name| id(name, model)).collect()
}

/// Returns the nodes that have no data and were not drained.
fn idle(model: &Model) -> anyhow::Result<BTreeSet<NodeId>> {
    let holding = holders(model);
    let drained = &model.work.drained;
    let all = model.all_nodes().map(|node| node.id);
    let idle: BTreeSet<NodeId> = all
        .filter(|node| !holding.contains(node) && !drained.contains(node))
        .collect();
    if idle.is_empty() {
        bail!(
            "all nodes hold something already, or were drained: name one that was drained to add it again"
        );
    }
    Ok(idle)
}
