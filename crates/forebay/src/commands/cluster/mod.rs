//! `forebay cluster`: making a cluster, and operating it.

mod ask;
mod create;
mod status;

use clap::{Args, Subcommand};

use crate::context::Context;
use crate::exit::Outcome;

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
    Pause(ask::Pause),
    Remove(ask::Remove),
    Cancel(ask::Cancel),
}

pub fn run(args: &Cluster, context: &Context) -> anyhow::Result<Outcome> {
    match &args.what {
        What::Create(args) => create::run(args, context),
        What::Status(_) => status::run(context),
        What::Pause(args) => ask::pause(args, context),
        What::Remove(args) => ask::remove(args, context),
        What::Cancel(args) => ask::cancel(args, context),
    }
}
