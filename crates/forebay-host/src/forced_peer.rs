//! A replica whose group has lost its majority for good, and that founds another group alone.
//!
//! Everything in its log counts as decided. The new group therefore has what a majority had
//! acknowledged and this replica has, even if the replica had not learned of the decision. It may
//! also have entries that were never acknowledged. The new group has no member of the old one, so
//! none of them can contest it.

use std::sync::Arc;

use forebay_engine::Bound;
use forebay_engine::live::{LiveError, LiveTable};
use forebay_replica::{
    Committed, Content, GroupId, LogEntry, Membership, OlderEntries, PeerId, Place, Promise,
    SnapshotFacts, Start,
};
use thiserror::Error;

use crate::environment::{GroupState, StateError, WriteError};
use crate::opening::{FoundReplica, OpenError, start_again};
use crate::partition_state::{PartitionState, place_of};
use crate::replica_log::{EngineLog, entry_place};
use crate::splitting::splits_at_or_behind;

/// A reason why a replica cannot be forced to lead.
#[derive(Debug, Error)]
pub enum ForceRecoverError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    Table(#[from] LiveError),
    #[error(transparent)]
    Log(#[from] WriteError),
}

/// The first peer of the new group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForcedPeer {
    pub group: GroupId,
    pub peer: PeerId,
    /// The upper end of the partition in the catalog. Splits in the log within it are not applied:
    /// no other node knows of them.
    pub upper: Option<Bound>,
}

/// Returns what the first peer of the new group starts with. A crash leaves the old replica. The
/// caller can repeat the call until [`EngineLog::forget`] of the old group.
///
/// REQUIRES: the old replica does not run. `state` is its state.
pub fn begin_alone(
    table: &LiveTable,
    log: &EngineLog,
    state: &PartitionState,
    old: &FoundReplica,
    forced_peer: ForcedPeer,
) -> Result<Start, ForceRecoverError> {
    let found = start_again(table, log, old)?;
    let members = Arc::new(Membership::founders(&[forced_peer.peer]));
    let last = apply_all(state, &found, forced_peer.upper.as_ref())?;
    let term = last.place.term.max(found.promise.term) + 1;
    let facts = match found.applied.membership == members {
        // This was done before, and the node ended before it was recorded.
        true => last,
        false => SnapshotFacts {
            place: Place {
                term,
                index: last.place.index + 1,
            },
            membership: members,
            stamp_ms: last.stamp_ms,
        },
    };
    debug_assert!(
        facts.place.term >= found.promise.term && facts.place.index >= found.applied.place.index,
        "group {} begins at {}, and the one before it is at {} in term {}",
        forced_peer.group,
        facts.place,
        found.applied.place,
        found.promise.term
    );
    table.place_copy(old.partition, place_of(&facts))?;
    let promise = Promise {
        term: facts.place.term,
        vote: None,
        committed: facts.place.index,
    };
    log.forget(forced_peer.group)?;
    log.begin(
        forced_peer.group,
        entry_place(facts.place),
        &promise.to_bytes(),
    )?;
    Ok(Start {
        promise,
        older: OlderEntries::none(facts.place),
        before: facts.place,
        applied: facts,
        ..Start::joiner(forced_peer.group, forced_peer.peer, old.seed)
    })
}

/// Applies all entries of the log, and returns the facts after the last.
fn apply_all(
    state: &PartitionState,
    found: &Start,
    upper: Option<&Bound>,
) -> Result<SnapshotFacts, StateError> {
    let mut facts = found.applied.clone();
    for LogEntry { place, content } in &found.entries {
        debug_assert_eq!(
            place.index,
            facts.place.index + 1,
            "the log leaves out entries"
        );
        facts.place = *place;
        let content = match content {
            Content::Batch { stamp_ms, .. } => {
                facts.stamp_ms = *stamp_ms;
                content
            }
            Content::Split(split) if splits_at_or_behind(split, upper) => {
                // The partition was split, so its members were the split's voters.
                facts.membership = Arc::new(Membership::founders(&split.voters));
                content
            }
            Content::Split(_) => &Content::Empty,
            Content::Empty | Content::Changes(_) => content,
        };
        state.apply(
            &Committed {
                entry: LogEntry {
                    place: *place,
                    content: content.clone(),
                },
                facts: facts.clone(),
                is_awaited: false,
            },
            true,
        )?;
    }
    Ok(facts)
}
