//! What an operator wishes for: the arguments of `cluster add`, `drain`, `replace`, `replicas` and
//! `rebalance`, and of `cluster plan` with each.

use std::collections::BTreeSet;

use anyhow::bail;
use clap::{Args, Subcommand};
use forebay_cluster::model::{Model, Wish};
use forebay_cluster::planning::holders;
use forebay_cluster::{NodeId, NodeName};
use forebay_engine::TableName;

use crate::rollout_args::parse_replicas;

#[derive(Debug, Args)]
pub struct Add {
    /// Without any, all that hold nothing and were not drained
    nodes: Vec<NodeName>,
}

#[derive(Debug, Args)]
pub struct Drain {
    /// What `cluster status` calls them
    #[arg(required = true)]
    nodes: Vec<NodeName>,
}

#[derive(Debug, Args)]
pub struct Replace {
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
pub struct Even {}

/// Words that say what nodes are to hold.
pub trait Words: Args {
    /// With the numbers of the nodes that are named.
    fn wish(&self, model: &Model) -> anyhow::Result<Wish>;
}

impl Words for Add {
    fn wish(&self, model: &Model) -> anyhow::Result<Wish> {
        let nodes = match self.nodes.is_empty() {
            true => idle(model)?,
            false => ids(&self.nodes, model)?,
        };
        Ok(Wish::Add(nodes))
    }
}

impl Words for Drain {
    fn wish(&self, model: &Model) -> anyhow::Result<Wish> {
        Ok(Wish::Drain(ids(&self.nodes, model)?))
    }
}

impl Words for Replace {
    fn wish(&self, model: &Model) -> anyhow::Result<Wish> {
        let (gone, new) = (id(&self.gone, model)?, id(&self.new, model)?);
        Ok(Wish::Replace { gone, new })
    }
}

impl Words for TableReplicas {
    fn wish(&self, _: &Model) -> anyhow::Result<Wish> {
        let (table, count) = (self.table.clone(), self.count);
        Ok(Wish::Replicas { table, count })
    }
}

impl Words for Even {
    fn wish(&self, _: &Model) -> anyhow::Result<Wish> {
        Ok(Wish::Even)
    }
}

/// One of them, by its name.
#[derive(Debug, Subcommand)]
pub enum AnyWords {
    /// Let nodes that hold nothing come to hold their share
    Add(Add),
    /// Let others come to hold what these hold
    Drain(Drain),
    /// Let one node take the place of another
    Replace(Replace),
    /// Let so many nodes come to hold each part of a table
    Replicas(TableReplicas),
    /// Even out what nodes hold
    Rebalance(Even),
}

impl AnyWords {
    pub fn wish(&self, model: &Model) -> anyhow::Result<Wish> {
        match self {
            Self::Add(words) => words.wish(model),
            Self::Drain(words) => words.wish(model),
            Self::Replace(words) => words.wish(model),
            Self::Replicas(words) => words.wish(model),
            Self::Rebalance(words) => words.wish(model),
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
