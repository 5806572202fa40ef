//! `forebay cluster`: creates and operates a cluster.

mod ask;
mod create;
mod force_recover;
mod moving;
mod recovery;
mod set;
mod split;
pub mod status;
mod store_files;
mod watch;

use clap::{Args, Subcommand};

use crate::context::Context;
use crate::exit::Outcome;
use moving::WordsWithYes;
pub use moving::{read_plan, serving_summaries};
pub use status::paces;

/// Create a cluster of nodes over a store, show its state, and operate it
///
/// A cluster's nodes are servers (forebay serve --cluster) over one store. Tables are divided among
/// them, with replicas. A push is prepared and verified on all nodes, and all nodes switch to it or
/// none does. The cluster's state is written in the store; there is no other service.
/// docs/how-to/set-up-a-cluster.md has the details.
#[derive(Debug, Args)]
pub struct Cluster {
    #[command(subcommand)]
    what: ClusterCommand,
}

#[derive(Debug, Subcommand)]
enum ClusterCommand {
    Create(create::CreateCluster),
    Status(status::StatusArgs),
    /// Give nodes that have no data their share of the tables
    ///
    /// Without names it adds all nodes without data, except drained ones. Without --yes it shows
    /// the plan and changes nothing. With --json one object {plan, ended, reason, seconds}: plan is
    /// {goal, splits, batches, copied_bytes, expected_s, nodes, note}, and nodes lists {node,
    /// before_bytes, after_bytes, copied_bytes}. ended is done or stopped, and null without --yes.
    /// A plan that is only shown exits with 2, unless there is nothing to do.
    Add(WordsWithYes<moving::AddArgs>),
    /// Move all data away from these nodes to other nodes
    ///
    /// Afterwards the nodes can be stopped and removed. A node that is down can be drained: the
    /// other nodes fetch its data from each other and from the store. Options and output are those
    /// of `cluster add`.
    Drain(WordsWithYes<moving::DrainArgs>),
    /// Replace one node by another that has no data
    ///
    /// In the same zone nothing else moves. Options and output are those of `cluster add`.
    Replace(WordsWithYes<moving::ReplaceArgs>),
    /// Change the number of replicas of a table
    ///
    /// Options and output are those of `cluster add`.
    Replicas(WordsWithYes<moving::TableReplicas>),
    /// Balance the data among the nodes
    ///
    /// Options and output are those of `cluster add`.
    Rebalance(WordsWithYes<moving::RebalanceArgs>),
    Plan(moving::PlanMoves),
    Apply(moving::ApplyArgs),
    Watch(watch::Watch),
    Set(set::SetArgs),
    Pause(ask::Pause),
    Remove(ask::Remove),
    Split(split::Split),
    ForceRecover(force_recover::ForceRecover),
    Cancel(ask::Cancel),
    Upgrade(set::Upgrade),
    Restore(recovery::RestoreArgs),
    RepairStore(recovery::RepairStoreArgs),
}

pub fn run(args: &Cluster, context: &Context) -> anyhow::Result<Outcome> {
    match &args.what {
        ClusterCommand::Create(args) => create::run(args, context),
        ClusterCommand::Status(args) => status::run(args, context),
        ClusterCommand::Add(args) => moving::carry(args, context),
        ClusterCommand::Drain(args) => moving::carry(args, context),
        ClusterCommand::Replace(args) => moving::carry(args, context),
        ClusterCommand::Replicas(args) => moving::carry(args, context),
        ClusterCommand::Rebalance(args) => moving::carry(args, context),
        ClusterCommand::Plan(args) => moving::plan(args, context),
        ClusterCommand::Apply(args) => moving::apply(args, context),
        ClusterCommand::Watch(args) => watch::run(args, context),
        ClusterCommand::Set(args) => set::run(args, context),
        ClusterCommand::Pause(args) => ask::pause(args, context),
        ClusterCommand::Remove(args) => ask::remove(args, context),
        ClusterCommand::Split(args) => split::run(args, context),
        ClusterCommand::ForceRecover(args) => force_recover::run(args, context),
        ClusterCommand::Cancel(args) => ask::cancel(args, context),
        ClusterCommand::Upgrade(args) => set::upgrade(args, context),
        ClusterCommand::Restore(args) => recovery::restore(args, context),
        ClusterCommand::RepairStore(args) => recovery::repair_store(args, context),
    }
}
