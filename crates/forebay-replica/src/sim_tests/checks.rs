//! The invariants that hold at every step, and at the end.

use std::collections::BTreeMap;

use xxhash_rust::xxh3::xxh3_64;

use super::linear::{Verdict, check};
use super::model::State;
use super::world::{Life, World};
use crate::events::Committed;
use crate::ids::{PeerId, Place};
use crate::tail::SnapshotFacts;

#[derive(Debug, Default)]
pub struct Checks {
    /// The leaders, by term.
    leaders: BTreeMap<u64, PeerId>,
    /// The entry that was applied at an index, and the state then.
    applied: BTreeMap<u64, (Place, u64)>,
    states: BTreeMap<u64, u64>,
    /// The expected state after the last entry that any replica has applied.
    model: State,
    model_index: u64,
    stamp_ms: BTreeMap<u64, u64>,
}

impl World {
    /// Checks that there is at most one leader a term.
    pub fn check_leaders(&mut self, life: Life) {
        let Some(process) = self.process(life) else {
            return;
        };
        if !process.replica.is_leader() {
            return;
        }
        let (term, me) = (process.replica.term(), process.replica.me());
        let leader = *self.checks.leaders.entry(term).or_insert_with(|| me);
        if leader != me {
            self.fail(format!("peers {leader} and {me} lead in term {term}"));
        }
    }

    /// Checks that all replicas apply the same entries in the same order, with the same resulting
    /// state.
    pub fn check_applied(&mut self, life: Life, before: &SnapshotFacts, committed: &Committed) {
        let place = committed.entry.place;
        if place.index != before.place.index + 1 {
            let (host, last) = (life.host, before.place);
            return self.fail(format!("host {host} applies {place} after {last}"));
        }
        if committed.facts.stamp_ms < before.stamp_ms {
            return self.fail(format!("the partition's time decreases at {place}"));
        }
        let hash = xxh3_64(&committed.entry.content.to_bytes());
        let known = *self
            .checks
            .applied
            .entry(place.index)
            .or_insert((place, hash));
        if known != (place, hash) {
            let host = life.host;
            return self.fail(format!(
                "host {host} applies {place}, another one {}",
                known.0
            ));
        }
        let stamp = committed.facts.stamp_ms;
        self.checks.stamp_ms.insert(place.index, stamp);
        if place.index > self.checks.model_index {
            self.checks.model_index = place.index;
            for (stamp_ms, bytes) in committed.effects() {
                self.checks.model.apply(bytes, stamp_ms);
            }
            let hash = self.checks.model.hash();
            self.checks.states.entry(place.index).or_insert(hash);
        }
        self.check_state(life);
    }

    pub fn check_state(&mut self, life: Life) {
        let Some(process) = self.process(life) else {
            return;
        };
        let index = process.applied.place.index;
        let hash = match self.store(life).map(|store| store.hash()) {
            Some(Ok(Some(hash))) => hash,
            Some(Err(trouble)) => return self.trouble(life, trouble),
            Some(Ok(None)) | None => return,
        };
        if *self.checks.states.entry(index).or_insert(hash) != hash {
            let host = life.host;
            self.fail(format!(
                "the state of host {host} differs from others at {index}"
            ));
        }
    }

    /// Returns what is not as expected once all faults are over.
    pub fn unsettled(&self) -> Option<String> {
        let Some(leader) = self.leader() else {
            let hosts = self.hosts.iter().map(|host| {
                let process = host.process.as_ref();
                process.map(|process| (&process.replica, process.applied.place))
            });
            return Some(format!(
                "there is no leader: {:?}",
                hosts.collect::<Vec<_>>()
            ));
        };
        let leader = self.hosts[leader].process.as_ref()?;
        let members = leader.replica.membership();
        let wanted: Vec<_> = self
            .wanted
            .iter()
            .filter_map(|at| self.peer_of(*at))
            .collect();
        let mut voters = members.voters.clone();
        voters.sort();
        let mut sorted = wanted.clone();
        sorted.sort();
        if voters != sorted || members.is_joint() || !members.learners.is_empty() {
            return Some(format!("the group is {members:?} instead of {sorted:?}"));
        }
        self.wanted.iter().find_map(|at| {
            let process = self.hosts[*at].process.as_ref()?;
            let (is, should) = (process.applied.place, leader.applied.place);
            (is != should).then(|| format!("host {at} is at {is}, but the leader at {should}"))
        })
    }

    /// Checks that all replicas have the expected state, and that their disks were used in the same
    /// way as in any run of this seed.
    pub fn check_at_the_end(&mut self) {
        for at in 0..self.hosts.len() {
            let life = self.life(at);
            self.check_state(life);
            let Some(disk) = &self.hosts[at].disk else {
                continue;
            };
            for (what, count) in disk.store.counts() {
                *self.counts.entry(what).or_insert(0) += count;
            }
            match disk.store.calls() {
                0 => {}
                calls => self.mix(&calls.to_le_bytes()),
            }
        }
    }

    /// Checks that a single map could have each key's history.
    pub fn check_histories(&mut self) {
        for (key, history) in self.clients.histories() {
            match check(&history) {
                Verdict::Linearizable => {}
                Verdict::Wrong => self.fail(format!("key {key} is not linearizable: {history:?}")),
                Verdict::Undecided => self.fail(format!("key {key} has too many possible orders")),
            }
        }
    }
}
