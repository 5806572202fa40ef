//! What an operator wishes for: the arguments of `cluster add`, `drain`, `replace`, `replicas` and
//! `rebalance`, and of `cluster plan` with each.

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
    /// Without any, all that hold nothing and were not drained
    nodes: Vec<NodeName>,
}

#[derive(Debug, Args)]
pub struct DrainArgs {
    /// What `cluster status` calls them
    #[arg(required = true)]
    nodes: Vec<NodeName>,
}

#[derive(Debug, Args)]
pub struct ReplaceArgs {
    /// It holds nothing afterwards
    gone: NodeName,

    /// It holds nothing yet
    new: NodeName,
}

#[derive(Debug, Args)]
pub struct TableReplicas {
    table: TableName,

    /// On so many nodes, 1 to 5
    #[arg(value_name = "N", value_parser = parse_replicas)]
    count: usize,
}

#[derive(Debug, Args)]
pub struct RebalanceArgs {}

/// Words that say what nodes are to hold.
pub trait MoveRequest: Args {
    /// With the numbers of the nodes that are named.
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

/// One of them, by its name.
#[derive(Debug, Subcommand)]
pub enum AnyWords {
    /// Let nodes that hold nothing come to hold their share
    Add(AddArgs),
    /// Let others come to hold what these hold
    Drain(DrainArgs),
    /// Let one node take the place of another
    Replace(ReplaceArgs),
    /// Let so many nodes come to hold each part of a table
    Replicas(TableReplicas),
    /// Even out what nodes hold
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

/// Nodes that hold nothing, and that nobody drained.
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
