//! `forebay completions`: completions for a shell, from the parser's own definitions.

use std::io::Write;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::cli::Cli;
use crate::exit::Outcome;

/// Print completions for a shell
///
/// For bash: forebay completions bash > ~/.local/share/bash-completion/completions/forebay
#[derive(Debug, Args)]
pub struct Completions {
    pub shell: Shell,
}

pub fn run(args: &Completions) -> anyhow::Result<Outcome> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "forebay", &mut script);
    std::io::stdout().write_all(&script)?;
    Ok(Outcome::Done)
}
