//! The simulated time, the schedule of events, and the run as a whole.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use forebay_io::sim::Rng;
use xxhash_rust::xxh3::xxh3_64;

use super::checks::Checks;
use super::clients::Clients;
use super::hosts::SimHost;
use super::real::RealKind;
use super::stale::StaleReads;
use crate::ids::{GroupId, PeerId};
use crate::memory::Durability;
use crate::time::Now;

pub const MS: u64 = 1000;
pub const SECOND: u64 = 1000 * MS;
pub const GROUP: GroupId = GroupId(7);

pub type Job = Box<dyn FnOnce(&mut World)>;

/// A process on a host, in one of its lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Life {
    pub host: usize,
    pub life: u64,
}

#[derive(Debug, Default)]
pub struct SimNet {
    /// Pairs (from, to) between which nothing arrives.
    pub cuts: BTreeSet<(usize, usize)>,
    /// How many of a thousand frames are lost, repeated, or late.
    pub loss: u64,
    pub doubles: u64,
    pub late: u64,
}

/// The kind of store that replicas use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stores {
    Model,
    /// The engine and its log.
    Real(RealKind),
}

pub struct World {
    pub stores: Stores,
    pub now: u64,
    queue: BTreeMap<(u64, u64), Job>,
    queued: u64,
    pub rng: Rng,
    pub trace: u64,
    pub durability: Durability,
    pub hosts: Vec<SimHost>,
    pub net: SimNet,
    pub clients: Clients,
    pub checks: Checks,
    pub stale: StaleReads,
    pub counts: BTreeMap<&'static str, u64>,
    pub violation: Option<String>,
    /// The hosts that are to have a replica.
    pub wanted: BTreeSet<usize>,
    /// The host of each peer that ever existed.
    pub peers: BTreeMap<PeerId, usize>,
    pub is_stormy: bool,
    /// Whether leaders evaluate commands, and propose effects.
    pub evaluates: bool,
}

impl World {
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng(seed);
        let durability = match rng.below(3) {
            0 => Durability::Sync,
            1 => Durability::Os,
            _ => Durability::EveryMs(100),
        };
        Self {
            stores: Stores::Model,
            now: SECOND,
            queue: BTreeMap::new(),
            queued: 0,
            rng,
            trace: seed,
            durability,
            hosts: Vec::new(),
            net: SimNet::default(),
            clients: Clients::default(),
            checks: Checks::default(),
            stale: StaleReads::default(),
            counts: BTreeMap::new(),
            violation: None,
            wanted: BTreeSet::new(),
            peers: BTreeMap::new(),
            is_stormy: false,
            evaluates: false,
        }
    }

    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.rng.below(high - low + 1)
    }

    /// Returns true this many times of a thousand.
    pub fn chance(&mut self, per_mille: u64) -> bool {
        self.rng.below(1000) < per_mille
    }

    pub fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_insert(0) += 1;
    }

    pub fn fail(&mut self, problem: String) {
        let at_ms = self.now / MS;
        self.violation
            .get_or_insert(format!("at {at_ms} ms: {problem}"));
    }

    pub fn mix(&mut self, bytes: &[u8]) {
        self.trace = self.trace.rotate_left(7) ^ xxh3_64(bytes) ^ self.now;
    }

    pub fn after(&mut self, delay: u64, job: impl FnOnce(&mut World) + 'static) {
        self.queued += 1;
        let key = (self.now + delay, self.queued);
        self.queue.insert(key, Box::new(job));
    }

    /// Runs until then, or until a check fails.
    pub fn run_for(&mut self, micros: u64) {
        let end = self.now + micros;
        while self.violation.is_none() {
            let first = self.queue.first_entry();
            let Some(entry) = first.filter(|entry| entry.key().0 <= end) else {
                break;
            };
            let ((at, _), job) = entry.remove_entry();
            self.now = at;
            job(self);
        }
        self.now = self.now.max(end);
    }

    /// Runs until a condition holds, at most for this long; returns how long that took.
    pub fn run_until(&mut self, most: u64, holds: impl Fn(&World) -> bool) -> Option<u64> {
        let begun = self.now;
        while self.now < begun + most && self.violation.is_none() {
            if holds(self) {
                return Some(self.now - begun);
            }
            self.run_for(10 * MS);
        }
        None
    }

    /// Returns the time by a host's clocks.
    pub fn clock(&self, host: usize) -> Now {
        let host = &self.hosts[host];
        // Multiply first: otherwise a slow clock would go back once a second.
        let skewed = self.now as i64 + self.now as i64 * host.drift_ppm / 1_000_000;
        let since = skewed as u64 + 5 * SECOND;
        Now {
            monotonic: Duration::from_micros(since),
            unix_ms: (1_000_000_000 + skewed / 1000 + host.unix_offset_ms) as u64,
        }
    }

    /// Returns how long a frame is in transit, or `None` if it does not arrive.
    pub fn transit(&mut self, from: usize, to: usize) -> Option<u64> {
        let loss = self.net.loss;
        if self.net.cuts.contains(&(from, to)) || self.chance(loss) {
            return None;
        }
        let late = self.net.late;
        let most = if self.chance(late) {
            4 * SECOND
        } else {
            3 * MS
        };
        Some(self.between(100, most))
    }

    /// Isolates a host from all others.
    pub fn isolate(&mut self, at: usize) {
        for other in (0..self.hosts.len()).filter(|other| *other != at) {
            self.net.cuts.extend([(at, other), (other, at)]);
        }
    }

    pub fn rejoin(&mut self, at: usize) {
        self.net.cuts.retain(|(from, to)| *from != at && *to != at);
    }
}
