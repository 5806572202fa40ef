//! How results are printed, and questions asked at a terminal.

pub(crate) mod human;
pub(crate) mod render;
pub(crate) mod result_file;

use std::io::{self, BufRead, IsTerminal};

use anyhow::Context as _;
use forebay_run::error::lines_without_controls;
use serde_json::json;

/// Prints results, progress and errors.
#[derive(Debug, Clone, Copy)]
pub struct Output {
    pub json: bool,
    pub quiet: bool,
}

impl Output {
    /// Returns whether only errors and requested data are printed.
    pub fn is_silent(self) -> bool {
        self.quiet && !self.json
    }

    /// Prints a message beside the result on standard error, even with --quiet.
    pub fn announce(self, text: &str) {
        match self.json {
            true => announce!("{}", json!({"event": "message", "text": text})),
            false => announce!("forebay: {}", lines_without_controls(text)),
        }
    }
}

/// Returns whether a person can be asked.
pub(crate) fn can_ask() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Asks a question, and returns the line typed.
pub(crate) fn ask(question: &str) -> anyhow::Result<String> {
    announce!("{question}");
    let mut typed = String::new();
    let read = io::stdin().lock().read_line(&mut typed);
    read.context("cannot read the answer from the terminal")?;
    Ok(typed.trim().to_owned())
}
