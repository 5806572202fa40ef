//! The runs of loads on this node, or being fetched, until their entries are applied.
//!
//! The files are among the table's runs, but the table does not know them. A restart removes them,
//! and the node fetches them again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use forebay_engine::live::LiveTable;
use forebay_engine::{NewRun, PartitionId, RunId, TableName, VersionFile};
use forebay_host::LoadedRuns;
use parking_lot::Mutex;
use thiserror::Error;

use crate::measures::reports::LoadedState;
use crate::model::EndedLoad;
use crate::routing::live::{OrderedLoad, ReplicaOrder};

/// The time between two tries to fetch a run.
const RETRY: Duration = Duration::from_secs(2);

type LoadPlace = (TableName, PartitionId);

/// The fetched and pending runs of loads, by partition.
#[derive(Debug, Default)]
pub struct LoadRuns {
    parts: Mutex<BTreeMap<LoadPlace, PartitionLoads>>,
}

/// The loads of a partition.
#[derive(Debug, Default)]
struct PartitionLoads {
    /// The load in progress.
    ordered: Option<OrderedLoad>,
    last: EndedLoad,
    /// An entry waits for the run of this load, which has ended. Only the replicas that added the
    /// run still have it.
    missed: Option<u64>,
    /// Runs by the numbers of their loads.
    runs: BTreeMap<u64, LoadRun>,
}

#[derive(Debug, Default)]
struct LoadRun {
    state: LoadRunState,
    /// Set when the run is no longer wanted.
    is_over: Arc<AtomicBool>,
}

#[derive(Debug)]
enum LoadRunState {
    Missing {
        /// Its local run and files, once known.
        begun: Option<(NewRun, Vec<VersionFile>)>,
        not_before: Duration,
        /// Why the run was not fetched, and will not be.
        problem: Option<String>,
    },
    Here(NewRun),
}

impl Default for LoadRunState {
    fn default() -> Self {
        Self::Missing {
            begun: None,
            not_before: Duration::ZERO,
            problem: None,
        }
    }
}

/// A run that has to be fetched.
#[derive(Debug, Clone)]
pub struct MissingRun {
    pub table: TableName,
    pub partition: PartitionId,
    pub load: OrderedLoad,
    /// The local run that an earlier try began.
    pub begun: Option<NewRun>,
    pub is_over: Arc<AtomicBool>,
}

/// The last proposal of this node to a group.
#[derive(Debug, Clone, Copy)]
pub struct ProposedLoad {
    pub load: u64,
    pub term: u64,
    pub at: Duration,
}

/// Why a run was not fetched.
#[derive(Debug, Error)]
pub enum FetchFailure {
    /// The fetcher tries again.
    #[error("{0}")]
    Passes(String),
    /// The fetcher tries again, too, but nothing suggests that it will succeed: the load should
    /// end.
    #[error("{0}")]
    Lasts(String),
}

impl LoadRuns {
    /// Replaces all earlier orders.
    pub fn order(&self, orders: &[ReplicaOrder]) {
        let mut parts = self.parts.lock();
        let mut before = std::mem::take(&mut *parts);
        for order in orders.iter().filter(|order| !order.is_new) {
            let place = (order.table.clone(), order.partition);
            let mut loads = before.remove(&place).unwrap_or_default();
            loads.ordered.clone_from(&order.load);
            loads.last = order.last_load;
            if let Some(load) = &order.load {
                loads.runs.entry(load.number).or_default();
            }
            if !loads.runs.is_empty() || loads.last.number > 0 {
                parts.insert(place, loads);
            }
        }
        for loads in before.into_values() {
            loads.runs.values().for_each(LoadRun::end);
        }
    }

    /// Returns a run to fetch now.
    pub fn next(&self, now: Duration) -> Option<MissingRun> {
        let parts = self.parts.lock();
        let mut parts = parts.iter();
        parts.find_map(|((table, partition), loads)| {
            let load = loads.ordered.clone()?;
            let run = loads.runs.get(&load.number)?;
            match &run.state {
                LoadRunState::Missing {
                    begun, not_before, ..
                } if *not_before <= now => Some(MissingRun {
                    table: table.clone(),
                    partition: *partition,
                    begun: begun.as_ref().map(|(new, _)| new.clone()),
                    is_over: Arc::clone(&run.is_over),
                    load,
                }),
                _ => None,
            }
        })
    }

    /// Records the local run that a fetch writes.
    pub fn begins(&self, of: &MissingRun, new: &NewRun, files: &[VersionFile]) {
        self.change(of, |state| {
            if let LoadRunState::Missing { begun, .. } = state {
                *begun = Some((new.clone(), files.to_vec()));
            }
        });
    }

    /// Records that a run was fetched and read back. Returns whether it is still wanted.
    pub fn came(&self, of: &MissingRun, new: NewRun) -> bool {
        self.change(of, |state| {
            debug_assert!(
                matches!(state, LoadRunState::Missing { .. }),
                "the run of load {} came twice: {state:?}",
                of.load.number
            );
            *state = LoadRunState::Here(new);
        })
    }

    pub fn failed(&self, now: Duration, of: &MissingRun, why: FetchFailure) {
        self.change(of, |state| {
            if let LoadRunState::Missing {
                not_before,
                problem,
                ..
            } = state
            {
                *not_before = now + RETRY;
                *problem = match why {
                    FetchFailure::Passes(_) => None,
                    FetchFailure::Lasts(words) => Some(words),
                };
            }
        });
    }

    fn change(&self, of: &MissingRun, change: impl FnOnce(&mut LoadRunState)) -> bool {
        let mut parts = self.parts.lock();
        let loads = parts.get_mut(&(of.table.clone(), of.partition));
        let run = loads.and_then(|loads| loads.runs.get_mut(&of.load.number));
        let run = run.filter(|run| Arc::ptr_eq(&run.is_over, &of.is_over));
        run.map(|run| change(&mut run.state)).is_some()
    }

    /// Returns whether the run of the load in progress is on this node.
    pub fn is_here(&self, table: &TableName, partition: PartitionId, load: u64) -> bool {
        self.find(table, partition, load).is_some()
    }

    /// Returns whether the partition has missed a load, and cannot continue.
    pub fn has_missed(&self, table: &TableName, partition: PartitionId) -> bool {
        let parts = self.parts.lock();
        let loads = parts.get(&(table.clone(), partition));
        loads.is_some_and(|loads| loads.missed.is_some())
    }

    /// Returns the progress of a load that is not added yet; `came` counts the fetched bytes of
    /// files.
    pub fn state(
        &self,
        table: &TableName,
        partition: PartitionId,
        came: impl FnOnce(&[VersionFile]) -> u64,
    ) -> Option<LoadedState> {
        let files = {
            let parts = self.parts.lock();
            let loads = parts.get(&(table.clone(), partition))?;
            let run = loads.runs.get(&loads.ordered.as_ref()?.number)?;
            match &run.state {
                LoadRunState::Here(_) => return Some(LoadedState::Here),
                LoadRunState::Missing {
                    problem: Some(problem),
                    ..
                } => return Some(LoadedState::Failed(problem.clone())),
                LoadRunState::Missing { begun, .. } => begun.as_ref()?.1.clone(),
            }
        };
        Some(LoadedState::Coming(came(&files)))
    }

    /// Forgets a table whose local files are removed, or will be.
    pub fn forget(&self, table: &TableName) {
        let mut parts = self.parts.lock();
        for ((_, _), loads) in parts.iter_mut().filter(|((name, _), _)| name == table) {
            for run in loads.runs.values_mut() {
                run.end();
                *run = LoadRun::default();
            }
        }
    }

    /// Removes runs that are no longer needed: of a load that the partition has, or that was
    /// cancelled.
    pub fn tidy(&self, table: &LiveTable) {
        let mut parts = self.parts.lock();
        for ((_, partition), loads) in parts
            .iter_mut()
            .filter(|((name, _), _)| name == table.name())
        {
            let Ok(applied) = table.applied(*partition) else {
                continue;
            };
            loads.missed = loads.missed.filter(|load| applied.loaded < *load);
            let (ordered, last) = (loads.ordered.as_ref().map(|load| load.number), loads.last);
            loads.runs.retain(|load, run| {
                let is_given_up = last.number == *load && !last.is_added;
                let is_missing = matches!(run.state, LoadRunState::Missing { .. });
                let is_over = is_missing && ordered != Some(*load);
                let stays = applied.loaded < *load && !is_given_up && !is_over;
                if !stays {
                    run.end();
                    run.discard(table);
                }
                stays
            });
        }
    }
}

impl LoadRun {
    fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    fn discard(&self, table: &LiveTable) {
        if let LoadRunState::Here(new) = &self.state {
            table.discard_runs([&new.id].into_iter());
        }
    }
}

impl LoadedRuns for LoadRuns {
    fn find(&self, table: &TableName, partition: PartitionId, load: u64) -> Option<RunId> {
        let mut parts = self.parts.lock();
        let loads = parts.get_mut(&(table.clone(), partition))?;
        if let Some(LoadRunState::Here(new)) = loads.runs.get(&load).map(|run| &run.state) {
            return Some(new.id.clone());
        }
        let is_under_way = loads.ordered.as_ref().is_some_and(|of| of.number == load);
        if !is_under_way && loads.last.number >= load {
            loads.missed = Some(load);
        }
        None
    }

    fn taken(&self, table: &TableName, partition: PartitionId, load: u64) {
        let mut parts = self.parts.lock();
        if let Some(loads) = parts.get_mut(&(table.clone(), partition))
            && let Some(run) = loads.runs.remove(&load)
        {
            run.end();
        }
    }
}
