//! The versions that a node has to have, and its progress in each.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use forebay_engine::{Bounds, TableName};

use crate::ids::NodeId;
use crate::message::Readiness;
use crate::model::{Model, Proof, RolloutId};
use crate::routing::version::{ranges_answered, ranges_of};
use crate::time::Now;

/// The number of tries after which a rollout learns that this node cannot get a version.
const TRIES: u32 = 3;
/// The time between two tries. It doubles each time.
const RETRY: Duration = Duration::from_secs(1);
const RETRY_MOST: Duration = Duration::from_secs(30);

/// A version of a table.
pub type VersionPlace = (TableName, u64);

/// A version on this node.
#[derive(Debug)]
pub struct Copy {
    /// The ranges that the node has of it, or has to have.
    pub ranges: Vec<Bounds>,
    pub state: CopyState,
    /// The version was ready before with other ranges, which are still on the node.
    is_here: bool,
    /// Whether it is open, or has to be.
    is_open: bool,
}

/// The ranges that the node has to have of a version.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WantedVersion {
    /// Ranges for which other nodes ask this node. It fetches these first.
    pub answered: Vec<Bounds>,
    /// The ranges in `answered`, those moving to this node, and those that it still keeps for a
    /// while.
    pub held: Vec<Bounds>,
    /// Whether the version has to be open, and rollouts wait for it. If not, it is kept for a
    /// rollback.
    pub is_open: bool,
}

#[derive(Debug)]
pub enum CopyState {
    Fetching {
        done_bytes: u64,
        total_bytes: u64,
    },
    /// The version is on the node, verified and open.
    Ready(Proof),
    Failed {
        problem: String,
        tries: u32,
        retry_at: Duration,
    },
}

/// Versions to begin, and versions to give up.
#[derive(Debug, Default, PartialEq)]
pub struct Work {
    pub prepare: Vec<Prepare>,
    pub forget: Vec<VersionPlace>,
}

/// A version to fetch.
#[derive(Debug, Clone, PartialEq)]
pub struct Prepare {
    pub place: VersionPlace,
    pub ranges: Vec<Bounds>,
    /// Whether to open it, to serve.
    pub open: bool,
}

/// The versions on a node and their states.
#[derive(Debug, Default)]
pub struct Copies(BTreeMap<VersionPlace, Copy>);

/// Returns the versions that a node has to have by a model.
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
        // A rollback then finds it on the table's current nodes.
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

/// Returns the versions that are kept once they are on the node. For a rollout in progress these
/// are its new versions and the previous ones, because not all nodes have completed it yet.
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

    /// Returns whether all wanted ranges are on the node.
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

    /// Begins wanted versions that are missing, and gives up versions that are not wanted.
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
        // Versions kept for a rollback wait for those that have to serve.
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
            // Ranges for which others ask this node come before those that are moving.
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

    /// Returns the version being fetched. `None` if it is no longer wanted, or with other ranges.
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

    /// Returns the readiness for a rollout of these versions.
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

    /// Returns the progress in fetching the ranges for which others ask, or have asked, this node;
    /// `None` if it has all of them.
    pub fn moving(&self, wanted: &BTreeMap<VersionPlace, WantedVersion>) -> Option<Readiness> {
        let open = wanted.iter().filter(|(_, wanted)| wanted.is_open);
        let missing: Vec<VersionPlace> = open
            .filter(|(place, wanted)| !self.get(place).is_some_and(|copy| copy.is_whole(wanted)))
            .map(|(place, _)| place.clone())
            .collect();
        match self.readiness(&missing) {
            _ if missing.is_empty() => None,
            // The version has other ranges, so the fetch is not complete.
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

/// Returns the versions of a rollout.
pub fn places_of(model: &Model, rollout: RolloutId) -> Vec<VersionPlace> {
    let rollout = model.work.rollouts.get(&rollout);
    let tables = rollout.into_iter().flat_map(|rollout| &rollout.tables);
    tables
        .map(|(table, part)| (table.clone(), part.to))
        .collect()
}
