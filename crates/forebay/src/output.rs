//! How results, progress and errors are printed.

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
}
