//! The versions that a node is to have, and how far it is with each.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use forebay_engine::{Bounds, TableName};

use crate::ids::NodeId;
use crate::model::{Model, Proof, RolloutId, TableEntry};
use crate::time::Now;
use crate::version::ranges_of;

/// How often a version is tried before a rollout is told that it cannot be had here.
const TRIES: u32 = 3;
/// Between two tries, doubling.
const RETRY: Duration = Duration::from_secs(1);
const RETRY_MOST: Duration = Duration::from_secs(30);

/// A version of a table.
pub type VersionPlace = (TableName, u64);

/// A version on this node.
#[derive(Debug)]
pub struct Copy {
    /// What it has, or is to have, of it.
    pub ranges: Vec<Bounds>,
    pub state: CopyState,
}

#[derive(Debug)]
pub enum CopyState {
    Bringing {
        done_bytes: u64,
        total_bytes: u64,
    },
    /// It is here, verified and open.
    Ready(Proof),
    Failed {
        problem: String,
        tries: u32,
        retry_at: Duration,
    },
}

/// What is to be begun, and what is to be given up.
#[derive(Debug, Default, PartialEq)]
pub struct Work {
    pub prepare: Vec<(VersionPlace, Vec<Bounds>)>,
    pub forget: Vec<VersionPlace>,
}

/// See the module's text.
#[derive(Debug, Default)]
pub struct Copies(BTreeMap<VersionPlace, Copy>);

/// What a node has to have by a model: of each version the ranges.
pub fn wanted(model: &Model, me: NodeId) -> BTreeMap<VersionPlace, Vec<Bounds>> {
    let mut wanted = BTreeMap::new();
    for (name, entry) in model.all_tables() {
        let rollouts = model.work.under_way();
        let parts = rollouts.filter_map(|rollout| {
            let part = rollout.tables.get(name)?;
            let from = part.from.filter(|_| !rollout.phase.wants_versions());
            rollout.phase.wants_versions().then_some(part.to).or(from)
        });
        let versions: BTreeSet<u64> = entry.serving.into_iter().chain(parts).collect();
        let ranges = held(model, entry, me);
        wanted.extend(
            versions
                .into_iter()
                .map(|version| ((name.clone(), version), ranges.clone())),
        );
    }
    wanted
}

/// The ranges of a table that a node holds, or is to hold.
pub fn held(model: &Model, entry: &TableEntry, me: NodeId) -> Vec<Bounds> {
    let layout = model.layout_of(entry);
    layout.map_or(Vec::new(), |layout| ranges_of(layout, entry.replicas, me))
}

/// The versions that are kept once they are here: what a rollback would go to, and what served
/// before a rollout that is not over, as not all nodes have ended it yet.
pub fn kept(model: &Model) -> impl Iterator<Item = VersionPlace> {
    let tables = model.all_tables();
    let before = tables.filter_map(|(name, entry)| Some((name.clone(), *entry.history.last()?)));
    let rollouts = model.work.under_way();
    let tables = rollouts.flat_map(|rollout| &rollout.tables);
    before.chain(tables.filter_map(|(name, part)| Some((name.clone(), part.from?))))
}

impl Copies {
    pub fn get(&self, place: &VersionPlace) -> Option<&Copy> {
        self.0.get(place)
    }

    pub fn is_ready(&self, place: &VersionPlace) -> bool {
        let copy = self.0.get(place);
        copy.is_some_and(|copy| matches!(copy.state, CopyState::Ready(_)))
    }

    /// Begins what is wanted and not there, and gives up what is there and not wanted.
    pub fn reconcile(
        &mut self,
        now: Now,
        wanted: &BTreeMap<VersionPlace, Vec<Bounds>>,
        kept: &BTreeSet<VersionPlace>,
    ) -> Work {
        let mut work = Work::default();
        let mut unwanted: Vec<VersionPlace> = self.0.keys().cloned().collect();
        unwanted.retain(|place| {
            let is_kept = kept.contains(place) && self.is_ready(place);
            !wanted.contains_key(place) && !is_kept
        });
        for place in unwanted {
            self.0.remove(&place);
            work.forget.push(place);
        }
        for (place, ranges) in wanted {
            let is_due = match self.0.get(place) {
                None => true,
                Some(copy) if copy.ranges != *ranges => true,
                Some(Copy {
                    state: CopyState::Failed { retry_at, .. },
                    ..
                }) => *retry_at <= now.monotonic,
                Some(_) => false,
            };
            if is_due {
                self.begin(place, ranges);
                work.prepare.push((place.clone(), ranges.clone()));
            }
        }
        work
    }

    fn begin(&mut self, place: &VersionPlace, ranges: &[Bounds]) {
        let state = CopyState::Bringing {
            done_bytes: 0,
            total_bytes: 0,
        };
        let copy = Copy {
            ranges: ranges.to_vec(),
            state,
        };
        self.0.insert(place.clone(), copy);
    }

    /// `None`: what was being brought is wanted no longer, or with other ranges.
    fn bringing(&mut self, place: &VersionPlace, ranges: &[Bounds]) -> Option<&mut Copy> {
        let copy = self.0.get_mut(place)?;
        let is_that = copy.ranges == ranges && !matches!(copy.state, CopyState::Ready(_));
        is_that.then_some(copy)
    }

    pub fn came(&mut self, place: &VersionPlace, ranges: &[Bounds], proof: Proof) {
        if let Some(copy) = self.bringing(place, ranges) {
            copy.state = CopyState::Ready(proof);
        }
    }

    pub fn advanced(&mut self, place: &VersionPlace, done: u64, total: u64) {
        if let Some(Copy {
            state:
                CopyState::Bringing {
                    done_bytes,
                    total_bytes,
                },
            ..
        }) = self.0.get_mut(place)
        {
            (*done_bytes, *total_bytes) = (done, total);
        }
    }

    pub fn failed(
        &mut self,
        now: Now,
        place: &VersionPlace,
        ranges: &[Bounds],
        problem: String,
        tries_before: u32,
    ) {
        if let Some(copy) = self.bringing(place, ranges) {
            let pause = (RETRY * 2u32.pow(tries_before.min(5))).min(RETRY_MOST);
            copy.state = CopyState::Failed {
                problem,
                tries: tries_before + 1,
                retry_at: now.monotonic + pause,
            };
        }
    }

    /// How a rollout stands here: of the tables that it is about.
    pub fn readiness(&self, places: &[VersionPlace]) -> crate::message::Readiness {
        use crate::message::Readiness;
        let (mut done, mut total) = (0, 0);
        let mut proofs = BTreeMap::new();
        for place in places {
            match self.0.get(place).map(|copy| &copy.state) {
                Some(CopyState::Ready(proof)) => {
                    proofs.insert(place.0.clone(), *proof);
                }
                Some(CopyState::Failed { problem, tries, .. }) if *tries >= TRIES => {
                    let problem = problem.clone();
                    return Readiness::Failed { problem };
                }
                Some(CopyState::Bringing {
                    done_bytes,
                    total_bytes,
                }) => {
                    done += done_bytes;
                    total += total_bytes;
                }
                Some(CopyState::Failed { .. }) | None => {}
            }
        }
        if proofs.len() == places.len() {
            return Readiness::Ready { proofs };
        }
        Readiness::Bringing {
            done_bytes: done,
            total_bytes: total,
        }
    }

    pub fn problems(&self) -> impl Iterator<Item = (&VersionPlace, &str)> {
        self.0.iter().filter_map(|(place, copy)| match &copy.state {
            CopyState::Failed { problem, .. } => Some((place, problem.as_str())),
            _ => None,
        })
    }
}

/// The places of a rollout's versions.
pub fn places_of(model: &Model, rollout: RolloutId) -> Vec<VersionPlace> {
    let rollout = model.work.rollouts.get(&rollout);
    let tables = rollout.into_iter().flat_map(|rollout| &rollout.tables);
    tables
        .map(|(table, part)| (table.clone(), part.to))
        .collect()
}
