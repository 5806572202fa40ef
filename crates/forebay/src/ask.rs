//! Questions at a terminal.

use std::io::{self, BufRead, IsTerminal};

use anyhow::Context as _;

/// Whether somebody can be asked.
pub fn can_ask() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// The line that is typed after a question.
pub fn ask(question: &str) -> anyhow::Result<String> {
    announce!("{question}");
    let mut typed = String::new();
    let read = io::stdin().lock().read_line(&mut typed);
    read.context("cannot read the answer from the terminal")?;
    Ok(typed.trim().to_owned())
}
