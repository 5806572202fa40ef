//! Questions at a terminal.

use std::io::{self, BufRead, IsTerminal};

use anyhow::Context as _;

/// Returns whether a person can be asked.
pub fn can_ask() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Asks a question, and returns the line typed.
pub fn ask(question: &str) -> anyhow::Result<String> {
    announce!("{question}");
    let mut typed = String::new();
    let read = io::stdin().lock().read_line(&mut typed);
    read.context("cannot read the answer from the terminal")?;
    Ok(typed.trim().to_owned())
}
