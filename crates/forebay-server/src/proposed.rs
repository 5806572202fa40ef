//! Who does what replicas have decided: the server, once it has begun.

use std::fmt::Debug;
use std::sync::{OnceLock, Weak};

use bytes::Bytes;
use forebay_engine::live::LiveTable;
use forebay_host::{Commands, StateError};

/// A server that does the commands of proposals.
pub trait RunsProposals: Debug + Send + Sync {
    /// As [`Commands::run`].
    fn run_proposal(
        &self,
        table: &LiveTable,
        stamp_ms: u64,
        operations: &[u8],
    ) -> Result<Bytes, StateError>;
}

/// See the module's text. It is made before the server, for the replicas that the server shows;
/// until that has begun, what is decided waits.
#[derive(Debug, Default)]
pub struct ProposedCommands {
    server: OnceLock<Weak<dyn RunsProposals>>,
}

impl ProposedCommands {
    /// The server begins.
    pub(crate) fn begin(&self, server: Weak<dyn RunsProposals>) {
        // A second server over the same replicas shows them, and does nothing of its own.
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
