//! `forebay plan`: the planners, one module a subcommand. They read a JSON file, and touch no store.

use clap::{Args, Subcommand};

use crate::context::Context;
use crate::exit::Outcome;

/// Plan splits, moves, replicas and placements; nothing is changed
#[derive(Debug, Args)]
pub struct Plan {
    #[command(subcommand)]
    pub planner: Planner,
}

#[derive(Debug, Subcommand)]
pub enum Planner {}

pub fn run(args: &Plan, _context: &Context) -> anyhow::Result<Outcome> {
    match args.planner {}
}
