//! How results, progress and errors are printed.

use forebay_run::error::lines_without_controls;
use serde_json::json;

#[derive(Debug, Clone, Copy)]
pub struct Output {
    pub json: bool,
    pub quiet: bool,
}

impl Output {
    /// Nothing is told but errors and what was asked for.
    pub fn is_silent(self) -> bool {
        self.quiet && !self.json
    }

    /// Tells something beside the result on standard error, whoever wants quiet.
    pub fn announce(self, text: &str) {
        match self.json {
            true => announce!("{}", json!({"event": "message", "text": text})),
            false => announce!("forebay: {}", lines_without_controls(text)),
        }
    }
}
