//! The checks of `forebay doctor`: each is a function that returns its finding.

pub mod cluster;
pub mod machine;
pub mod store;

use serde::Serialize;

/// The verdict of a check, from the best to the worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    Ok,
    /// It works, but perhaps not for long, or not everywhere.
    Warning,
    /// Something that Forebay needs does not work.
    Failed,
}

/// One check and its finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub check: &'static str,
    pub verdict: Severity,
    /// One sentence: the finding and, if it is bad, what to do.
    pub found: String,
}

impl Finding {
    pub fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Self::new(check, Severity::Ok, found)
    }

    pub fn warning(check: &'static str, found: impl Into<String>) -> Self {
        Self::new(check, Severity::Warning, found)
    }

    pub fn failed(check: &'static str, found: impl Into<String>) -> Self {
        Self::new(check, Severity::Failed, found)
    }

    fn new(check: &'static str, verdict: Severity, found: impl Into<String>) -> Self {
        let found = found.into();
        Self {
            check,
            verdict,
            found,
        }
    }
}
