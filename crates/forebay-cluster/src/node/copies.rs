//! The versions that a node is to have, and how far it is with each.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use forebay_engine::{Bounds, TableName};

use crate::ids::NodeId;
use crate::message::Readiness;
use crate::model::{Model, Proof, RolloutId};
use crate::time::Now;
use crate::version::{ranges_answered, ranges_of};

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
    /// It has been ready before, with other ranges: those are here still.
    is_here: bool,
    /// Whether it is open, or is to be.
    is_open: bool,
}

/// What is to be here of a version.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WantedVersion {
    /// What others look for here: this first.
    pub answered: Vec<Bounds>,
    /// With what is on its way here, or held on for a while.
    pub held: Vec<Bounds>,
    /// Whether it is to be open, and is waited for; else it is kept to roll back to.
    pub is_open: bool,
}

#[derive(Debug)]
pub enum CopyState {
    Fetching {
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
    pub prepare: Vec<Prepare>,
    pub forget: Vec<VersionPlace>,
}

/// A version that is to be brought.
#[derive(Debug, Clone, PartialEq)]
pub struct Prepare {
    pub place: VersionPlace,
    pub ranges: Vec<Bounds>,
    /// Whether it is to be opened, to serve.
    pub open: bool,
}

/// See the module's text.
#[derive(Debug, Default)]
pub struct Copies(BTreeMap<VersionPlace, Copy>);

/// What a node has to have by a model.
pub fn wanted(model: &Model, me: NodeId) -> BTreeMap<VersionPlace, WantedVersion> {
    let mut wanted = BTreeMap::new();
    for (name, entry) in model.all_tables() {
        let rollouts = model.work.under_way();
        let parts = rollouts.filter_map(|rollout| {
            let part = rollout.tables.get(name)?;
            let from = part.from.filter(|_| !rollout.phase.wants_versions());
            rollout.phase.wants_versions().then_some(part.to).or(from)
        });
        let versions: BTreeSet<u64> = entry.serving.into_iter().chain(parts).collect();
        let layout = model.layout_of(entry);
        let of_layout = layout.map(|layout| WantedVersion {
            answered: ranges_answered(layout, entry, me),
            held: ranges_of(layout, entry, me),
            is_open: true,
        });
        let open = of_layout.unwrap_or_default();
        // So that a rollback finds it wherever the table has come meanwhile.
        if let Some(before) = entry.history.last() {
            let kept = WantedVersion {
                is_open: false,
                ..open.clone()
            };
            wanted.insert((name.clone(), *before), kept);
        }
        let versions = versions.into_iter();
        wanted.extend(versions.map(|version| ((name.clone(), version), open.clone())));
    }
    wanted
}

/// The versions that are kept once they are here: of a rollout that is not over what is, or was, to
/// serve, and what served before, as not all nodes have ended it yet.
pub fn kept(model: &Model) -> impl Iterator<Item = VersionPlace> {
    let rollouts = model.work.under_way();
    let tables = rollouts.flat_map(|rollout| &rollout.tables);
    tables.flat_map(|(name, part)| {
        let versions = part.from.into_iter().chain([part.to]);
        versions.map(|version| (name.clone(), version))
    })
}

impl Copy {
    fn is_here(&self) -> bool {
        self.is_here || matches!(self.state, CopyState::Ready(_))
    }

    /// Whether all is here that is to be.
    pub fn is_whole(&self, wanted: &WantedVersion) -> bool {
        self.ranges == wanted.held && matches!(self.state, CopyState::Ready(_))
    }
}

impl Copies {
    pub fn get(&self, place: &VersionPlace) -> Option<&Copy> {
        self.0.get(place)
    }

    fn is_here(&self, place: &VersionPlace) -> bool {
        self.0.get(place).is_some_and(Copy::is_here)
    }

    /// Begins what is wanted and not there, and gives up what is there and not wanted.
    pub fn reconcile(
        &mut self,
        now: Now,
        wanted: &BTreeMap<VersionPlace, WantedVersion>,
        kept: &BTreeSet<VersionPlace>,
    ) -> Work {
        let mut work = Work::default();
        let mut unwanted: Vec<VersionPlace> = self.0.keys().cloned().collect();
        unwanted.retain(|place| {
            let is_kept = kept.contains(place) && self.is_here(place);
            !wanted.contains_key(place) && !is_kept
        });
        for place in unwanted {
            self.0.remove(&place);
            work.forget.push(place);
        }
        // What is kept to roll back to waits for what is to serve.
        let is_missing = |(place, wanted): &(&VersionPlace, &WantedVersion)| {
            wanted.is_open && !self.0.get(place).is_some_and(|copy| copy.is_whole(wanted))
        };
        let missing = wanted.iter().filter(is_missing);
        let busy: BTreeSet<&TableName> = missing.map(|((table, _), _)| table).collect();
        for (place, wanted) in wanted {
            let copy = self.0.get(place);
            let is_here = copy.is_some_and(Copy::is_here);
            if !wanted.is_open && busy.contains(&place.0) {
                if copy.is_some() && !is_here && !kept.contains(place) {
                    self.0.remove(place);
                    work.forget.push(place.clone());
                }
                continue;
            }
            // What others look for here comes before what is on its way.
            let ranges = match is_here {
                true => &wanted.held,
                false => &wanted.answered,
            };
            let is_due = match copy {
                None => true,
                Some(copy) if copy.ranges != *ranges => true,
                Some(copy) if wanted.is_open && !copy.is_open => true,
                Some(Copy {
                    state: CopyState::Failed { retry_at, .. },
                    ..
                }) => *retry_at <= now.monotonic,
                Some(_) => false,
            };
            if is_due {
                self.begin(place, ranges, is_here, wanted.is_open);
                work.prepare.push(Prepare {
                    place: place.clone(),
                    ranges: ranges.clone(),
                    open: wanted.is_open,
                });
            }
        }
        work
    }

    fn begin(&mut self, place: &VersionPlace, ranges: &[Bounds], is_here: bool, is_open: bool) {
        let state = CopyState::Fetching {
            done_bytes: 0,
            total_bytes: 0,
        };
        let copy = Copy {
            ranges: ranges.to_vec(),
            state,
            is_here,
            is_open,
        };
        self.0.insert(place.clone(), copy);
    }

    /// `None`: what was being brought is wanted no longer, or with other ranges.
    fn fetching(&mut self, place: &VersionPlace, ranges: &[Bounds]) -> Option<&mut Copy> {
        let copy = self.0.get_mut(place)?;
        let is_that = copy.ranges == ranges && !matches!(copy.state, CopyState::Ready(_));
        is_that.then_some(copy)
    }

    pub fn came(&mut self, place: &VersionPlace, ranges: &[Bounds], proof: Proof) {
        if let Some(copy) = self.fetching(place, ranges) {
            copy.state = CopyState::Ready(proof);
        }
    }

    pub fn advanced(&mut self, place: &VersionPlace, done: u64, total: u64) {
        if let Some(Copy {
            state:
                CopyState::Fetching {
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
        if let Some(copy) = self.fetching(place, ranges) {
            let pause = (RETRY * 2u32.pow(tries_before.min(5))).min(RETRY_MOST);
            copy.state = CopyState::Failed {
                problem,
                tries: tries_before + 1,
                retry_at: now.monotonic + pause,
            };
        }
    }

    /// How a rollout stands here: of the tables that it is about.
    pub fn readiness(&self, places: &[VersionPlace]) -> Readiness {
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
                Some(CopyState::Fetching {
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
        Readiness::Fetching {
            done_bytes: done,
            total_bytes: total,
        }
    }

    /// How far what others are to look for here, or have looked for, is brought; `None`: all of it
    /// is here.
    pub fn moving(&self, wanted: &BTreeMap<VersionPlace, WantedVersion>) -> Option<Readiness> {
        let open = wanted.iter().filter(|(_, wanted)| wanted.is_open);
        let missing: Vec<VersionPlace> = open
            .filter(|(place, wanted)| !self.get(place).is_some_and(|copy| copy.is_whole(wanted)))
            .map(|(place, _)| place.clone())
            .collect();
        match self.readiness(&missing) {
            _ if missing.is_empty() => None,
            // With other ranges, which is not the end.
            Readiness::Ready { .. } => Some(Readiness::Fetching {
                done_bytes: 0,
                total_bytes: 0,
            }),
            moving => Some(moving),
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
