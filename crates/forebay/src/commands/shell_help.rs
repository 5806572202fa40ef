//! `forebay completions` and `forebay man`: help in a shell, from the parser's own definitions.

use std::io::{self, Write};

use clap::Args;
use clap_complete::Shell;
use clap_mangen::Man as Page;

use crate::exit::Outcome;

/// Print completions for a shell
///
/// For bash: forebay completions bash > ~/.local/share/bash-completion/completions/forebay
#[derive(Debug, Args)]
pub struct Completions {
    pub shell: Shell,
}

/// Prints the completions. `parser` is the whole command line.
pub fn completions(args: &Completions, mut parser: clap::Command) -> anyhow::Result<Outcome> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut parser, "forebay", &mut script);
    io::stdout().write_all(&script)?;
    Ok(Outcome::Done)
}

/// Print the man page
///
/// To keep it: forebay man > ~/.local/share/man/man1/forebay.1; to read it: forebay man | man -l -
#[derive(Debug, Args)]
pub struct Man {}

/// Prints the page. `command` is the whole command line.
pub fn man(mut command: clap::Command) -> anyhow::Result<Outcome> {
    command.build();
    let mut page = Vec::new();
    Page::new(command.clone()).render(&mut page)?;
    render_commands(&command, "FOREBAY", &mut page)?;
    io::stdout().write_all(&page)?;
    Ok(Outcome::Done)
}

/// Writes the sections of a command's subcommands. A command that only groups others has no section
/// of its own.
fn render_commands(command: &clap::Command, path: &str, page: &mut Vec<u8>) -> io::Result<()> {
    for sub in command
        .get_subcommands()
        .filter(|sub| sub.get_name() != "help")
    {
        let path = format!("{path} {}", sub.get_name().to_uppercase());
        if sub.has_subcommands() {
            render_commands(sub, &path, page)?;
        } else {
            render_command(sub, &path, page)?;
        }
    }
    Ok(())
}

/// Writes one command's section of the page: its synopsis, description and options.
fn render_command(command: &clap::Command, path: &str, page: &mut Vec<u8>) -> io::Result<()> {
    let man = Page::new(command.clone());
    let mut part = b"\n".to_vec();
    man.render_synopsis_section(&mut part)?;
    man.render_description_section(&mut part)?;
    man.render_options_section(&mut part)?;
    writeln!(page, ".SH \"{path}\"")?;
    // Sections of a separate page are subsections of this one.
    page.extend(
        String::from_utf8_lossy(&part)
            .replace("\n.SH ", "\n.SS ")
            .trim_start()
            .bytes(),
    );
    Ok(())
}
