//! One module a command: its arguments, what it does, how it prints.

pub mod compact;
pub mod completions;
pub mod create;
pub mod diff;
pub mod drop;
pub mod dry_run;
pub mod export;
pub mod get;
pub mod load;
pub mod man;
pub mod plan;
pub mod pull;
pub mod push;
pub mod pushed;
pub mod reading;
pub mod rollback;
pub mod scan;
pub mod serve;
pub mod swap;
pub mod tables;
pub mod verify;
pub mod versions;

use crate::cli::Command;
use crate::context::Context;
use crate::exit::Outcome;

/// Runs one command.
pub fn run(command: Command, context: &Context) -> anyhow::Result<Outcome> {
    match command {
        Command::Push(args) => push::run(args, context),
        Command::Pull(args) => pull::run(&args, context),
        Command::Create(args) => create::run(&args, context),
        Command::Load(args) => load::run(args, context),
        Command::Serve(args) => serve::run(args, context),
        Command::Get(args) => get::run(&args, context),
        Command::Scan(args) => scan::run(&args, context),
        Command::Tables(_) => tables::run(context),
        Command::Versions(args) => versions::run(&args, context),
        Command::Swap(args) => swap::run(&args, context),
        Command::Rollback(args) => rollback::run(&args, context),
        Command::Verify(args) => verify::run(&args, context),
        Command::Diff(args) => diff::run(&args, context),
        Command::Export(args) => export::run(&args, context),
        Command::Compact(args) => compact::run(&args, context),
        Command::Drop(args) => drop::run(&args, context),
        Command::Plan(args) => plan::run(&args, context),
        Command::Completions(args) => completions::run(&args),
        Command::Man(_) => man::run(),
    }
}
