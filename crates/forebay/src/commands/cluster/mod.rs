//! `forebay cluster`: making a cluster, and operating it.

mod accept_loss;
mod ask;
mod create;
mod disaster;
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
use moving::Carried;
pub use moving::{read_plan, serving_summaries};
pub use status::paces;

/// Make a cluster of nodes over a store, see how it is, and operate it
///
/// A cluster's nodes are servers (forebay serve --cluster) over one store. Tables are divided over
/// them, with replicas; a push is prepared, verified and swapped on all nodes or on none. What the
/// cluster is, is written in the store: there is no further service. docs/cluster.md has the rest.
#[derive(Debug, Args)]
pub struct Cluster {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Create(create::CreateCluster),
    Status(status::StatusArgs),
    /// Let nodes that hold nothing come to hold their share
    ///
    /// Without names all that hold nothing, but those that were drained. Without --yes the plan is
    /// shown, and nothing is changed. With --json one object {plan, ended, reason, seconds}: plan
    /// is {wish, cuts, batches, copied_bytes, expected_s, nodes, note}, and nodes lists {node,
    /// before_bytes, after_bytes, copied_bytes}; ended is done or stopped, null without --yes. What
    /// is only shown ends with exit code 2, unless there is nothing to do.
    Add(Carried<moving::Add>),
    /// Let other nodes come to hold what these hold; it ends when they hold nothing
    ///
    /// Then they can be stopped and removed. A node that is down can be drained: others bring what
    /// it held from each other and from the store. The rest is as for `cluster add`.
    Drain(Carried<moving::Drain>),
    /// Let one node, which holds nothing, take the place of another
    ///
    /// In the same zone nothing else moves. The rest is as for `cluster add`.
    Replace(Carried<moving::Replace>),
    /// Let so many nodes come to hold each part of a table
    ///
    /// The rest is as for `cluster add`.
    Replicas(Carried<moving::TableReplicas>),
    /// Even out what nodes hold
    ///
    /// The rest is as for `cluster add`.
    Rebalance(Carried<moving::Even>),
    Plan(moving::PlanMoves),
    Apply(moving::Apply),
    Watch(watch::Watch),
    Set(set::SetArgs),
    Pause(ask::Pause),
    Remove(ask::Remove),
    Split(split::Split),
    AcceptLoss(accept_loss::AcceptLoss),
    Cancel(ask::Cancel),
    Upgrade(upgrade::Upgrade),
    Restore(disaster::RestoreArgs),
    Reseed(disaster::ReseedArgs),
}

pub fn run(args: &Cluster, context: &Context) -> anyhow::Result<Outcome> {
    match &args.what {
        What::Create(args) => create::run(args, context),
        What::Status(args) => status::run(args, context),
        What::Add(args) => moving::carry(args, context),
        What::Drain(args) => moving::carry(args, context),
        What::Replace(args) => moving::carry(args, context),
        What::Replicas(args) => moving::carry(args, context),
        What::Rebalance(args) => moving::carry(args, context),
        What::Plan(args) => moving::plan(args, context),
        What::Apply(args) => moving::apply(args, context),
        What::Watch(args) => watch::run(args, context),
        What::Set(args) => set::run(args, context),
        What::Pause(args) => ask::pause(args, context),
        What::Remove(args) => ask::remove(args, context),
        What::Split(args) => split::run(args, context),
        What::AcceptLoss(args) => accept_loss::run(args, context),
        What::Cancel(args) => ask::cancel(args, context),
        What::Upgrade(args) => upgrade::run(args, context),
        What::Restore(args) => disaster::restore(args, context),
        What::Reseed(args) => disaster::reseed(args, context),
    }
}
