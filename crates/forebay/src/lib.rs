//! The forebay command: the parser, and one file a command under `commands/`. The work itself is
//! done by the libraries. [`main`] is the binary; [`embed`] runs the same commands for a program
//! that they are part of, and [`distributed`] a push whose rows its tasks bring.

/// Writes a line to standard error, where it can be written: what the command does does not depend
/// on it.
macro_rules! tell {
    ($($words:tt)*) => {{
        use std::io::Write as _;
        _ = writeln!(std::io::stderr(), $($words)*);
    }};
}

mod choices;
mod cli;
mod commands;
mod context;
pub mod distributed;
pub mod embed;
mod exit;
mod failure;
mod global;
mod human;
mod key;
mod log;
mod memory;
mod output;
mod progress;
mod pulling;
mod render;
mod result_file;
mod target;
mod uploading;

use std::process::ExitCode;

use clap::Parser;

pub use context::{Context, Opened};
pub use failure::{Failure, words};
pub use human::parse_lifetime;
pub use target::Target;

/// Runs the command line that the process was started with.
pub fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    forebay_io::raw::raise_open_files_limit();
    forebay_io::raw::ignore_file_size_signal();
    let context = Context::new(&cli.global);
    exit::report(context.output, cli::run(cli.command, &context))
}
