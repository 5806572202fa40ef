//! Replicas that come of the right halves of partitions which are cut in two.

use std::sync::Arc;

use forebay_host::{EngineLog, Halves, RightHalf, StateError, WriteError};

use super::note::{KeptNote, NotedHalf, NotedPeer};

/// Keeps those of a table.
#[derive(Debug)]
pub struct TableHalves {
    pub log: Arc<EngineLog>,
    pub note: Arc<KeptNote>,
}

impl Halves for TableHalves {
    fn begin(&self, half: &RightHalf) -> Result<(), StateError> {
        let begun = self.log.begin_half(half.group);
        begun.map_err(|error| match error {
            WriteError::Full(problem) => StateError::Later(problem),
            WriteError::Broken(problem) => StateError::Never(problem),
        })?;
        let peer = NotedPeer {
            partition: half.partition,
            group: half.group,
            peer: half.peer,
        };
        let noted = NotedHalf {
            group: half.group,
            planned_in: half.planned_in,
        };
        let written = self
            .note
            .change(|note| note.without(peer).with(peer).with_half(noted));
        written.map_err(|error| StateError::Later(error.to_string()))
    }
}
