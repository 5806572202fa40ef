//! Prints results, progress and errors.

use forebay_run::error::lines_without_controls;
use serde_json::json;

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
