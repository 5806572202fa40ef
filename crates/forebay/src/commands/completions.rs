//! `forebay completions`: prints completions for a shell, from the parser's own definitions.

use std::io::Write;

use clap::Args;
use clap_complete::Shell;

use crate::exit::Outcome;

/// Print completions for a shell
///
/// For bash: forebay completions bash > ~/.local/share/bash-completion/completions/forebay
#[derive(Debug, Args)]
pub struct Completions {
    pub shell: Shell,
}

/// Prints the completions. `parser` is the whole command line.
pub fn run(args: &Completions, mut parser: clap::Command) -> anyhow::Result<Outcome> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut parser, "forebay", &mut script);
    std::io::stdout().write_all(&script)?;
    Ok(Outcome::Done)
}
