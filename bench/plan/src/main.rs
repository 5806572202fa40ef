//! The planners' quality and speed, by instances of their own; `driver/bench_plan.py` runs it.

mod generate;
mod insert;

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
}

fn main() {
    match Cli::parse().command {
        Command::Insert(args) => insert::plan(&args),
        Command::Instances(args) => insert::dump(&args),
    }
}
