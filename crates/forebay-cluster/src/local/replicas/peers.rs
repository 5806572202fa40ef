//! Creates, runs and removes single replicas, and creates those of the children of a split.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use forebay_engine::live::PartitionContent;
use forebay_engine::replica_log::EntryPlace;
use forebay_engine::{Bounds, PartitionId, PartitionRange};
use forebay_host::{
    ChildReplica, ChildReplicas, EngineLog, ForcedPeer, NewReplica, PartitionState, StateError,
    StateParts, WriteError, begin_alone, place_of, start_again,
};
use forebay_replica::Start;
use parking_lot::Mutex;
use tracing::info;

use super::commons::{ReplicaCommons, RunningReplica};
use super::copy_fetcher::{CopyFetcherParts, PeerCopyFetcher};
use super::load_runs::LoadRuns;
use super::opening::{HeldTable, KeepError, found};
use super::peers_file::{SavedChild, SavedPeer, SavedPeers};
use super::roster::nodes_of;
use crate::measures::reports::ReplicaProblem;
use crate::routing::live::ReplicaOrder;

/// The parts from which replicas are created.
#[derive(Debug)]
pub struct PeerMaker {
    pub copy_fetcher: CopyFetcherParts,
    pub loads: Arc<LoadRuns>,
}

impl PeerMaker {
    /// Removes replicas that are not ordered. The remains of an ordered peer stay until a new peer
    /// replaces it.
    pub fn remove_unordered(
        &self,
        commons: &ReplicaCommons,
        held: &mut HeldTable,
        list: &[&ReplicaOrder],
        revision: u64,
    ) -> Result<(), KeepError> {
        let note = held.note.get();
        for peer in note.peers.iter().copied() {
            let is_wanted = |order: &&ReplicaOrder| {
                SavedPeer::of(order) == peer || SavedPeer::inherited(order) == Some(peer)
            };
            if !list.iter().any(is_wanted) && !note.is_ahead(peer, revision) {
                self.remove(commons, held, peer)?;
            }
        }
        let mut kept: BTreeSet<PartitionId> = BTreeSet::new();
        kept.extend(held.note.get().peers.iter().map(|peer| peer.partition));
        let old = list.iter().filter(|order| !order.is_new);
        kept.extend(old.map(|order| order.partition));
        for range in held.table.partitions() {
            if !kept.contains(&range.id) {
                held.table.release(range.id)?;
            }
        }
        Ok(())
    }

    fn remove(
        &self,
        commons: &ReplicaCommons,
        held: &mut HeldTable,
        peer: SavedPeer,
    ) -> Result<(), KeepError> {
        if held.running.remove(&peer.group) {
            commons.end(peer.group);
        }
        held.note.change(|note| note.without(peer))?;
        held.starts.remove(&peer.group);
        held.engine_log.forget(peer.group)?;
        let SavedPeer { group, peer, .. } = peer;
        info!(table = %held.name(), group = group.0, peer = peer.0, "a replica is removed");
        Ok(())
    }

    /// Creates a new peer if it does not exist. It knows nothing and has promised nothing.
    pub fn make(
        &self,
        commons: &ReplicaCommons,
        held: &mut HeldTable,
        order: &ReplicaOrder,
    ) -> Result<(), KeepError> {
        if held.note.has(order) {
            return Ok(());
        }
        if let Some(old) = SavedPeer::inherited(order) {
            return self.inherit(commons, held, order, old);
        }
        let note = held.note.get();
        let mut others = note.peers.iter();
        if others.any(|peer| peer.partition == order.partition || peer.group == order.group) {
            let problem = format!("partition {} has another replica here", order.partition);
            return Err(KeepError::Passes(problem));
        }
        let start = match order.founders.as_ref().filter(|_| order.is_new) {
            Some(founders) => Start::founder(order.group, order.peer, founders, 0),
            None => Start::joiner(order.group, order.peer, 0),
        };
        let range = PartitionRange {
            id: order.partition,
            bounds: order.bounds.clone(),
        };
        held.table.adopt(PartitionContent {
            epoch: order.epoch,
            applied: Some(place_of(&start.applied)),
            ..PartitionContent::empty(range)
        })?;
        let behind = EntryPlace {
            term: start.before.term,
            index: start.before.index,
        };
        held.engine_log.forget(order.group)?;
        let promise = start.promise.to_bytes();
        held.engine_log.begin(order.group, behind, &promise)?;
        let child = SavedChild {
            group: order.group,
            planned_in: 0,
        };
        let is_child = order.comes_from.is_some();
        held.note.change(|note| match is_child {
            true => note.with(SavedPeer::of(order)).with_child(child),
            false => note.with(SavedPeer::of(order)),
        })?;
        held.starts.insert(order.group, start);
        let (group, peer) = (order.group.0, order.peer.0);
        info!(table = %held.name(), group, peer, "a replica is made");
        Ok(())
    }

    /// Makes a new peer continue the state of a local peer whose group no longer exists.
    fn inherit(
        &self,
        commons: &ReplicaCommons,
        held: &mut HeldTable,
        order: &ReplicaOrder,
        old: SavedPeer,
    ) -> Result<(), KeepError> {
        if !held.note.get().peers.contains(&old) {
            let problem = format!(
                "peer {}, from which it is to continue, is not on this node",
                old.peer
            );
            return Err(KeepError::Lasts(ReplicaProblem::Forgot, problem));
        }
        if held.running.remove(&old.group) {
            commons.end(old.group);
        }
        held.starts.remove(&old.group);
        let (state, _) = self.state(held, (order, old), &Arc::default());
        let forced_peer = ForcedPeer {
            group: order.group,
            peer: order.peer,
            upper: order.bounds.upper.clone(),
        };
        let (table, log) = (&held.table, &held.engine_log);
        let start = begin_alone(table, log, &state, &found(&old), forced_peer)?;
        let new = SavedPeer::of(order);
        held.note.change(|note| note.without(old).with(new))?;
        held.starts.insert(order.group, start);
        held.engine_log.forget(old.group)?;
        let (group, peer) = (order.group.0, order.peer.0);
        info!(table = %held.name(), group, peer, from = old.group.0, "a replica continues alone");
        Ok(())
    }

    /// Returns the partition state of a peer, and the bounds of its partition.
    fn state(
        &self,
        held: &HeldTable,
        (order, peer): (&ReplicaOrder, SavedPeer),
        is_over: &Arc<AtomicBool>,
    ) -> (Arc<PartitionState>, Arc<Mutex<Bounds>>) {
        let bounds = Arc::new(Mutex::new(order.bounds.clone()));
        let copy_fetcher = PeerCopyFetcher {
            parts: self.copy_fetcher.clone(),
            table: held.table.clone(),
            bounds: Arc::clone(&bounds),
            partition: order.partition,
            is_over: Arc::clone(is_over),
        };
        let children = TableChildren {
            log: Arc::clone(&held.engine_log),
            note: Arc::clone(&held.note),
        };
        let state = PartitionState::new(
            held.table.clone(),
            order.partition,
            peer.group,
            StateParts {
                copy_fetcher: Arc::new(copy_fetcher),
                loads: Arc::clone(&self.loads) as _,
            },
        );
        (
            Arc::new(state.split_for(peer.peer, Arc::new(children))),
            bounds,
        )
    }

    /// Runs an existing peer, and gives it the nodes of the others.
    pub fn run(
        &self,
        commons: &ReplicaCommons,
        held: &mut HeldTable,
        order: &ReplicaOrder,
        seed: u64,
    ) -> Result<(), KeepError> {
        if held.running.contains(&order.group) {
            commons.host.set_nodes(order.group, nodes_of(order));
            if let Some(running) = commons.running.lock().get(&order.group) {
                running.bounds.lock().clone_from(&order.bounds);
            }
            return Ok(());
        }
        let peer = SavedPeer::of(order);
        let start = match held.starts.remove(&order.group) {
            Some(start) => start,
            // It was split off from another partition since the table was opened.
            None => start_again(&held.table, &held.engine_log, &found(&peer))?,
        };
        let is_over = Arc::new(AtomicBool::new(false));
        let (state, bounds) = self.state(held, (order, peer), &is_over);
        let added = commons.host.add(NewReplica {
            start: Start { seed, ..start },
            log: Arc::clone(&held.log),
            state: Arc::clone(&state) as _,
            nodes: nodes_of(order),
        });
        added.map_err(|error| KeepError::Lasts(ReplicaProblem::Damaged, error.to_string()))?;
        let running = RunningReplica {
            peer: order.peer,
            table: order.table.clone(),
            partition: order.partition,
            state,
            bounds,
            is_over,
        };
        let other = commons.running.lock().insert(order.group, running);
        debug_assert!(
            other.is_none(),
            "two replicas of group {} run here",
            order.group
        );
        held.running.insert(order.group);
        Ok(())
    }
}

/// The log and the note in which the replicas of one table's children are recorded, when a
/// partition is split.
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
