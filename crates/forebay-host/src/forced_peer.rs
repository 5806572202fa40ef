//! A replica whose group has lost its majority for good, and that begins another group with all
//! that it has.
//!
//! All that its log has counts as decided: what a majority had acknowledged, and this replica has,
//! is there, whether or not the replica was told of the decision. What was never acknowledged may
//! be there as well. The other group has no member of the old one, so none of them can contest it.

use std::sync::Arc;

use forebay_engine::Bound;
use forebay_engine::live::{LiveError, LiveTable};
use forebay_replica::{
    Committed, Content, GroupId, LogEntry, Membership, OlderEntries, PeerId, Place, Promise,
    SnapshotFacts, Start,
};
use thiserror::Error;

use crate::opening::{FoundReplica, OpenError, start_again};
use crate::outside::{GroupState, StateError, WriteError};
use crate::partition_state::{PartitionState, place_of};
use crate::replica_log::{EngineLog, entry_place};
use crate::splitting::splits_at_or_behind;

/// Why a replica does not go on so.
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

/// The peer that it becomes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForcedPeer {
    pub group: GroupId,
    pub peer: PeerId,
    /// Where the partition ends by the catalog. What the log cuts off within it nobody has heard
    /// of, and it is not cut.
    pub upper: Option<Bound>,
}

/// What the first peer of the other group begins with. A crash leaves the old replica, and the same
/// may be done again, until [`EngineLog::forget`] of the old group.
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
        // It was done, and the node ended before it was noted.
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

/// Applies all entries that the log has; returns what holds behind them.
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
                // It was split, so its members were those.
                facts.membership = Arc::new(Membership::founders(&split.voters));
                content
            }
            Content::Split(_) => &Content::Nothing,
            Content::Nothing | Content::Changes(_) => content,
        };
        state.apply(&Committed {
            entry: LogEntry {
                place: *place,
                content: content.clone(),
            },
            facts: facts.clone(),
            is_awaited: false,
        })?;
    }
    Ok(facts)
}
