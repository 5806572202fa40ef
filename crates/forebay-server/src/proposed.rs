//! Connects replicas to the server that applies their decided proposals.

use std::fmt::Debug;
use std::sync::{OnceLock, Weak};

use bytes::Bytes;
use forebay_engine::live::LiveTable;
use forebay_host::{Commands, StateError};

/// A server that runs the commands of proposals.
pub trait RunsProposals: Debug + Send + Sync {
    /// Runs a proposal as [`Commands::run`] does.
    fn run_proposal(
        &self,
        table: &LiveTable,
        stamp_ms: u64,
        operations: &[u8],
    ) -> Result<Bytes, StateError>;
}

/// Applies decided proposals once the server has started. It is created before the server, for the
/// replicas that the server uses. Decided proposals wait until the server starts.
#[derive(Debug, Default)]
pub struct ProposedCommands {
    server: OnceLock<Weak<dyn RunsProposals>>,
}

impl ProposedCommands {
    /// Sets the server, which is starting.
    pub(crate) fn begin(&self, server: Weak<dyn RunsProposals>) {
        // A second server over the same replicas serves them, and applies nothing of its own.
        let _ = self.server.set(server);
    }
}

impl Commands for ProposedCommands {
    fn run(
        &self,
        table: &LiveTable,
        stamp_ms: u64,
        operations: &[u8],
    ) -> Result<Bytes, StateError> {
        let server = self.server.get().and_then(Weak::upgrade);
        let ended = || StateError::Later("the server does not serve now".to_owned());
        let server = server.ok_or_else(ended)?;
        server.run_proposal(table, stamp_ms, operations)
    }
}
