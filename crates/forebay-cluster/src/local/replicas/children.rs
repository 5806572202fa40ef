//! Creates replicas of the children of partitions that are split.

use std::sync::Arc;

use forebay_host::{ChildReplica, ChildReplicas, EngineLog, StateError, WriteError};

use super::peers_file::{SavedChild, SavedPeer, SavedPeers};

/// The log and the note in which the children of one table are recorded.
#[derive(Debug)]
pub struct TableChildren {
    pub log: Arc<EngineLog>,
    pub note: Arc<SavedPeers>,
}

impl ChildReplicas for TableChildren {
    fn begin(&self, children: &[ChildReplica]) -> Result<(), StateError> {
        for child in children {
            let begun = self.log.begin_child(child.group);
            begun.map_err(|error| match error {
                WriteError::Full(problem) => StateError::Later(problem),
                WriteError::Broken(problem) => StateError::Never(problem),
            })?;
        }
        let written = self.note.change(|note| {
            children.iter().fold(note.clone(), |note, child| {
                let peer = SavedPeer {
                    partition: child.partition,
                    group: child.group,
                    peer: child.peer,
                };
                let noted = SavedChild {
                    group: child.group,
                    planned_in: child.planned_in,
                };
                note.without(peer).with(peer).with_child(noted)
            })
        });
        written.map_err(|error| StateError::Later(error.to_string()))
    }
}
