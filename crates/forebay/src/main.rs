//! The forebay command: the parser, and one file a command under `commands/`. The work itself is
//! done by the libraries.

mod cli;
mod commands;
mod context;
mod exit;
mod human;
mod log;
mod memory;
mod progress;
mod render;
mod target;

use std::process::ExitCode;

use clap::Parser;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    forebay_run::raw::raise_open_files_limit();
    let context = context::Context::new(&cli.global);
    exit::report(context.output, commands::run(cli.command, &context))
}
