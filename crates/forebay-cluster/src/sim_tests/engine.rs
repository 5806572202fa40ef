//! The model of a node's engine: versions are fetched, opened, and made to serve.

use std::collections::{BTreeMap, BTreeSet};

use forebay_engine::{Bound, Bounds, TableName};
use forebay_run::Order;
use forebay_run::content::ContentSum;
use forebay_run::hash::SLOTS;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::live::{LiveProcess, ReplicaPlace, SimReplica};
use super::world::{Life, MS, Moment, SECOND, World};
use crate::model::{Head, Model, Proof};
use crate::node::{Activation, FollowerEvent, Node, NodeEvent, Serve, VersionPlace};
use crate::routing::version::{PartitionSummary, VersionSummary, ranges_answered};

const PARTITIONS: u64 = 8;

/// The disk of a host, which survives when its process dies.
#[derive(Debug, Default)]
pub struct SimDiskState {
    pub remembered: Option<(Head, Model)>,
    pub copies: BTreeMap<VersionPlace, Vec<Bounds>>,
    /// Tables that served on this host, until the host drops them.
    pub tables: BTreeSet<TableName>,
    /// Replicas of live tables.
    pub replicas: BTreeMap<ReplicaPlace, SimReplica>,
}

/// The faults of a host's engine.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Trouble {
    pub is_full: bool,
    /// Its fetches give wrong proofs.
    pub is_damaged: bool,
    /// Nothing makes progress.
    pub is_stuck: bool,
    pub is_slow: bool,
    pub refuses_activation: bool,
}

#[derive(Debug)]
pub struct SimProcess {
    pub node: Node,
    pub incarnation: u64,
    /// How often its node became the coordinator.
    pub terms_of: u64,
    /// The versions that answer.
    pub active: BTreeMap<TableName, Serve>,
    /// The last revision by which each version was made to serve.
    pub served: BTreeMap<VersionPlace, u64>,
    pub is_activating: bool,
    pub is_cut_off: bool,
    pub open: BTreeMap<VersionPlace, Vec<Bounds>>,
    jobs: BTreeMap<VersionPlace, u64>,
    pub unanswered: BTreeSet<u64>,
    pub checked_revision: Option<u64>,
    pub live: LiveProcess,
}

impl SimProcess {
    pub fn new(node: Node, incarnation: u64) -> Self {
        Self {
            node,
            incarnation,
            terms_of: 0,
            active: BTreeMap::new(),
            served: BTreeMap::new(),
            is_activating: false,
            is_cut_off: false,
            open: BTreeMap::new(),
            jobs: BTreeMap::new(),
            unanswered: BTreeSet::new(),
            checked_revision: None,
            live: LiveProcess::default(),
        }
    }
}

/// Returns the store's manifest of a version. Every version has other rows.
pub fn summary(table: &TableName, order: Order, version: u64) -> VersionSummary {
    let bound = |at: u64| match order {
        Order::Hashed => Bound::Slot((at * SLOTS as u64 / PARTITIONS) as u16),
        Order::Ordered if at == 0 => Bound::Key(Vec::new()),
        Order::Ordered => Bound::Key(vec![b'a' + at as u8]),
    };
    let partitions = (0..PARTITIONS).map(|at| PartitionSummary {
        bounds: Bounds {
            lower: bound(at),
            upper: (at + 1 < PARTITIONS).then(|| bound(at + 1)),
        },
        rows: 1000 + version + at,
        content: ContentSum(xxh3_64_with_seed(
            table.as_str().as_bytes(),
            version * 100 + at,
        )),
        file_bytes: 1 << 20,
    });
    VersionSummary {
        order,
        partitions: partitions.collect(),
    }
}

pub fn order_of(table: &TableName) -> Order {
    match table.as_str() {
        "words" => Order::Ordered,
        _ => Order::Hashed,
    }
}

/// A fetch in progress.
#[derive(Clone)]
struct CopyFetch {
    by: Life,
    job: u64,
    place: VersionPlace,
    ranges: Vec<Bounds>,
    /// The number of tenths that are on the host.
    done: u64,
}

impl World {
    pub fn prepare(&mut self, by: Life, place: VersionPlace, ranges: Vec<Bounds>) {
        let job = self.rng.draw();
        let has = self.hosts[by.host].disk.copies.get(&place) == Some(&ranges);
        if let Some(process) = self.process(by) {
            process.jobs.insert(place.clone(), job);
        }
        let fetching = CopyFetch {
            by,
            job,
            place,
            ranges,
            done: if has { 10 } else { 0 },
        };
        let pause = self.rng.between(5, 50) * MS;
        self.after(pause, |world| world.fetch_copy(fetching));
    }

    fn fetch_copy(&mut self, mut copy: CopyFetch) {
        let is_current = |process: &SimProcess| process.jobs.get(&copy.place) == Some(&copy.job);
        let id = copy.job;
        let Some(process) = self.process(copy.by) else {
            return;
        };
        let is_current = is_current(process) && process.jobs.get(&copy.place) == Some(&id);
        if !is_current {
            return;
        }
        let host = &self.hosts[copy.by.host];
        if host.trouble.is_stuck || host.paused {
            return self.after(SECOND, |world| world.fetch_copy(copy));
        }
        if copy.done < 10 {
            if host.trouble.is_full {
                return self.fail_copy(copy, "the disk is full");
            }
            if !self.has_source(copy.by.host, &copy.place) {
                return self.fail_copy(copy, "no source is reachable");
            }
            copy.done += self.rng.between(2, 5);
            let advanced = FollowerEvent::Advanced {
                place: copy.place.clone(),
                done_bytes: copy.done,
                total_bytes: 10,
            };
            self.notify(copy.by, NodeEvent::Follower(advanced));
            let most = if self.hosts[copy.by.host].trouble.is_slow {
                4000
            } else {
                400
            };
            let pause = self.rng.between(20, most) * MS;
            return self.after(pause, |world| world.fetch_copy(copy));
        }
        self.finish_copy(copy);
    }

    fn finish_copy(&mut self, copy: CopyFetch) {
        self.at_moment(Moment::Verifying);
        let (table, version) = &copy.place;
        let mut proof = summary(table, order_of(table), *version).proof(&copy.ranges);
        let host = &mut self.hosts[copy.by.host];
        if host.trouble.is_damaged {
            proof.content += ContentSum(1);
        }
        host.disk
            .copies
            .insert(copy.place.clone(), copy.ranges.clone());
        let process = self.hosts[copy.by.host].process.as_ref();
        let before = process.and_then(|process| process.open.get(&copy.place).cloned());
        if let Some(process) = self.process(copy.by) {
            process.jobs.remove(&copy.place);
            process.open.insert(copy.place.clone(), copy.ranges.clone());
        }
        self.check_answered(copy.by, &copy.place, before.as_deref());
        let CopyFetch { place, ranges, .. } = copy;
        let came = FollowerEvent::Came {
            place,
            ranges,
            proof,
        };
        self.notify(copy.by, NodeEvent::Follower(came));
    }

    /// Checks that open ranges stay open if others are routed to them.
    fn check_answered(&mut self, by: Life, place: &VersionPlace, before: Option<&[Bounds]>) {
        let model = self.store.current();
        let name = &self.hosts[by.host].name;
        let lost = || {
            let entry = model.table(&place.0)?;
            let layout = model.layout_of(entry)?;
            let id = model.node_named(name)?.id;
            let answered = ranges_answered(layout, entry, id);
            let open = self.hosts[by.host].process.as_ref()?.open.get(place)?;
            let mut lowers = answered.iter().map(|range| &range.lower);
            let is_in = |ranges: &[Bounds], at: &Bound| ranges.iter().any(|one| covers(one, at));
            let gone = lowers.find(|at| is_in(before.unwrap_or(&[]), at) && !is_in(open, at))?;
            let is_serving = entry.serving == Some(place.1);
            is_serving.then(|| {
                format!(
                    "{name} gives up {gone} of {}, but others are routed to it",
                    place.0
                )
            })
        };
        if let Some(problem) = lost() {
            self.fail(problem);
        }
    }

    fn fail_copy(&mut self, copy: CopyFetch, problem: &str) {
        if let Some(process) = self.process(copy.by) {
            process.jobs.remove(&copy.place);
        }
        let failed = FollowerEvent::Failed {
            place: copy.place,
            ranges: copy.ranges,
            problem: problem.to_owned(),
        };
        self.notify(copy.by, NodeEvent::Follower(failed));
    }

    fn has_source(&self, host: usize, place: &VersionPlace) -> bool {
        let peers = self.hosts.iter().enumerate();
        let mut having = peers.filter(|(_, peer)| {
            let process = peer.process.as_ref().filter(|_| !peer.paused);
            process.is_some_and(|process| process.open.contains_key(place))
        });
        self.reaches_store(host)
            || having.any(|(at, _)| {
                let cuts = &self.net.cuts;
                at != host && !cuts.contains(&(host, at)) && !cuts.contains(&(at, host))
            })
    }

    pub fn forget(&mut self, by: Life, place: &VersionPlace) {
        let Some(process) = self.process(by) else {
            return;
        };
        process.jobs.remove(place);
        process.open.remove(place);
        let active = process.active.get(&place.0);
        if active.is_some_and(|active| active.version == place.1) {
            let text = format!(
                "version {} of {} is forgotten while it serves",
                place.1, place.0
            );
            self.fail(text);
        }
        self.hosts[by.host].disk.copies.remove(place);
    }

    pub fn activate(&mut self, by: Life, activating: Activation) {
        if let Some(process) = self.process(by) {
            process.is_activating = true;
        }
        let host = &mut self.hosts[by.host];
        let is_slow = host.trouble.is_slow;
        // Versions that serve from now on also serve after a restart.
        if let Some(process) = &host.process
            && let Some((head, model)) = process.node.follower().known()
        {
            host.disk.remembered = Some((head.clone(), model.clone()));
        }
        let pause = self.rng.between(1, if is_slow { 3000 } else { 60 }) * MS;
        self.after(pause, move |world| world.activated(by, activating));
    }

    fn activated(&mut self, by: Life, activating: Activation) {
        if self.hosts[by.host].paused {
            return self.after(SECOND, move |world| world.activated(by, activating));
        }
        let Activation {
            revision,
            mut tables,
            dropped,
        } = activating;
        let mut problems = BTreeMap::new();
        let host = &mut self.hosts[by.host];
        if host.trouble.refuses_activation {
            let table = tables.keys().next().cloned();
            problems.extend(table.map(|table| (table, "it cannot be mapped".to_owned())));
        }
        for table in dropped {
            // As if a version of it were being copied.
            match self.rng.chance(300) {
                true => drop(problems.insert(table, "a push runs".to_owned())),
                false => drop(host.disk.tables.remove(&table)),
            }
        }
        host.disk.tables.extend(tables.keys().cloned());
        tables.retain(|table, _| !problems.contains_key(table));
        let Some(process) = self.process(by) else {
            return;
        };
        let closed = tables.iter().find(|(table, serve)| {
            !process
                .open
                .contains_key(&((*table).clone(), serve.version))
        });
        if let Some((table, serve)) = closed {
            let text = format!(
                "version {} of {table} starts to serve, but is closed",
                serve.version
            );
            return self.fail(text);
        }
        let places = tables
            .iter()
            .map(|(table, serve)| ((table.clone(), serve.version), revision));
        process.served.extend(places);
        (process.active, process.is_activating) = (tables, false);
        self.read_at(by.host);
        let activated = FollowerEvent::Activated { revision, problems };
        self.notify(by, NodeEvent::Follower(activated));
    }

    /// Sets up the initial state of a process.
    pub fn restarted(&mut self, at: usize) {
        let host = &mut self.hosts[at];
        if self.wrong.serves_at_once
            && let Some((_, model)) = &host.disk.remembered
            && let Some(process) = &mut host.process
        {
            let serving = model.all_tables().filter_map(|(table, entry)| {
                let serve = Serve {
                    version: entry.serving?,
                    history: Vec::new(),
                    ranges: Vec::new(),
                };
                Some((table.clone(), serve))
            });
            process.active = serving.collect();
        }
    }
}

/// Returns whether a range contains a bound.
pub fn covers(range: &Bounds, at: &Bound) -> bool {
    range.lower <= *at && range.upper.as_ref().is_none_or(|upper| at < upper)
}

/// Returns the proof of a version's rows.
pub fn expected_proof(place: &VersionPlace, ranges: &[Bounds]) -> Proof {
    summary(&place.0, order_of(&place.0), place.1).proof(ranges)
}
