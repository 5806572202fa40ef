//! `forebay cluster`: making a cluster, and operating it.

mod ask;
mod create;
mod disaster;
mod force_recover;
mod moving;
mod set;
mod split;
pub mod status;
mod store_files;
mod upgrade;
mod watch;

use clap::{Args, Subcommand};

use crate::context::Context;
use crate::exit::Outcome;
use moving::WordsWithYes;
pub use moving::{read_plan, serving_summaries};
pub use status::paces;

/// Make a cluster of nodes over a store, see how it is, and operate it
///
/// A cluster's nodes are servers (forebay serve --cluster) over one store. Tables are divided over
/// them, with replicas; a push is prepared, verified and swapped on all nodes or on none. What the
/// cluster is, is written in the store: there is no further service.
/// docs/how-to/set-up-a-cluster.md has the rest.
#[derive(Debug, Args)]
pub struct Cluster {
    #[command(subcommand)]
    what: ClusterCommand,
}

#[derive(Debug, Subcommand)]
enum ClusterCommand {
    Create(create::CreateCluster),
    Status(status::StatusArgs),
    /// Let nodes that hold nothing come to hold their share
    ///
    /// Without names all that hold nothing, but those that were drained. Without --yes the plan is
    /// shown, and nothing is changed. With --json one object {plan, ended, reason, seconds}: plan
    /// is {wish, cuts, batches, copied_bytes, expected_s, nodes, note}, and nodes lists {node,
    /// before_bytes, after_bytes, copied_bytes}; ended is done or stopped, null without --yes. What
    /// is only shown ends with exit code 2, unless there is nothing to do.
    Add(WordsWithYes<moving::AddArgs>),
    /// Let other nodes come to hold what these hold; it ends when they hold nothing
    ///
    /// Then they can be stopped and removed. A node that is down can be drained: others bring what
    /// it held from each other and from the store. The rest is as for `cluster add`.
    Drain(WordsWithYes<moving::DrainArgs>),
    /// Let one node, which holds nothing, take the place of another
    ///
    /// In the same zone nothing else moves. The rest is as for `cluster add`.
    Replace(WordsWithYes<moving::ReplaceArgs>),
    /// Let so many nodes come to hold each part of a table
    ///
    /// The rest is as for `cluster add`.
    Replicas(WordsWithYes<moving::TableReplicas>),
    /// Even out what nodes hold
    ///
    /// The rest is as for `cluster add`.
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
    Upgrade(upgrade::Upgrade),
    Restore(disaster::RestoreArgs),
    RepairStore(disaster::RepairStoreArgs),
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
        ClusterCommand::Upgrade(args) => upgrade::run(args, context),
        ClusterCommand::Restore(args) => disaster::restore(args, context),
        ClusterCommand::RepairStore(args) => disaster::repair_store(args, context),
    }
}
