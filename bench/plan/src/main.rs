//! The planners' quality and speed, by instances of their own; `driver/bench_plan.py` runs it.

mod cluster;
mod generate;
mod insert;
mod placement;

use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(about = "The planners' quality and speed")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Plans bulk inserts; a JSON line for each instance.
    Insert(insert::Plan),
    /// Prints the instances.
    Instances(insert::Instances),
    /// Plans a bulk insert into a live table of a large cluster; a JSON line.
    Cluster(cluster::Clusters),
    /// Places the workloads of the paper; one JSON object.
    Placements(placement::Placements),
}

fn main() {
    match Cli::parse().command {
        Command::Insert(args) => insert::plan(&args),
        Command::Instances(args) => insert::dump(&args),
        Command::Cluster(args) => cluster::run(&args),
        Command::Placements(args) => placement::run(&args),
    }
}
