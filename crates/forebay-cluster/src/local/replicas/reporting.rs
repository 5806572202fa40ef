//! Reports of the local replicas to the cluster.

use std::collections::BTreeMap;

use forebay_engine::live::PartitionSize;
use forebay_host::GroupFacts;
use forebay_replica::GroupId;

use super::commons::{ReplicaCommons, ReplicaPlace, ReplicaStanding};
use crate::local::traffic::CountedTraffic;
use crate::measures::reports::{GroupReport, LeaderReport, LeaderlessReplica, ReplicaProblem};

impl ReplicaCommons {
    /// Returns the reports of all ordered replicas of which something is known.
    pub fn reports(&self) -> Vec<GroupReport> {
        self.look_at_traffic();
        let standings = self.standings.lock().clone();
        let reports = standings.iter();
        reports
            .map(|(place, standing)| self.report(*place, standing))
            .collect()
    }

    fn report(&self, (group, peer): ReplicaPlace, standing: &ReplicaStanding) -> GroupReport {
        let plain = |term: u64, problem: Option<ReplicaProblem>| GroupReport {
            group,
            peer,
            term,
            problem,
            is_unhealthy: false,
            leads: None,
            leaderless: None,
            load: None,
            traffic: None,
        };
        let log = match standing {
            ReplicaStanding::Made { term } => return plain(*term, None),
            ReplicaStanding::Unhealthy(problem) => return plain(0, Some(*problem)),
            ReplicaStanding::Runs(log) => log,
        };
        let facts = self.host.facts(group).filter(|facts| facts.me == peer);
        let Some(facts) = facts else {
            return plain(0, None);
        };
        if facts.halted.is_some() {
            let problem = match log.upgrade().and_then(|log| log.failure()) {
                // It is unknown which of its promises the files contain.
                Some(_) => ReplicaProblem::Forgot,
                None => ReplicaProblem::Damaged,
            };
            return plain(facts.term, Some(problem));
        }
        let missed = self.has_missed(group).then_some(ReplicaProblem::Missed);
        GroupReport {
            load: self.load_position(group),
            traffic: self.traffic.of(&group),
            is_unhealthy: facts.is_unhealthy.is_some(),
            leads: lead(&facts).map(|lead| LeaderReport {
                size: self.size_of(group),
                ..lead
            }),
            leaderless: leaderless(&facts),
            ..plain(facts.term, missed)
        }
    }
}

impl ReplicaCommons {
    /// Returns the approximate size of the partition of a local running replica.
    fn size_of(&self, group: GroupId) -> Option<PartitionSize> {
        self.sizes.seen(group, self.clock.monotonic(), |known| {
            let running = self.running.lock();
            let replica = running.get(&group)?;
            let (name, partition) = (replica.table.clone(), replica.partition);
            drop(running);
            let table = self.tables.load().get(&name)?.clone();
            table.size_of(partition, known)
        })
    }
}

impl ReplicaCommons {
    fn look_at_traffic(&self) {
        self.traffic.look(self.clock.monotonic(), || {
            let tables = self.tables.load();
            let counted = tables
                .iter()
                .flat_map(|(name, table)| table.traffic().into_iter().map(move |one| (name, one)));
            let counted: BTreeMap<_, _> = counted
                .map(|(name, (partition, counted))| ((name, partition), counted))
                .collect();
            let running = self.running.lock();
            let groups = running.iter().filter_map(|(group, replica)| {
                let counted = counted.get(&(&replica.table, replica.partition))?;
                Some((*group, *counted))
            });
            let groups: Vec<_> = groups.collect();
            // A replica's lock must be taken before all others.
            drop(running);
            let replicas = groups.into_iter().map(|(group, counted)| CountedTraffic {
                of: group,
                counted,
                is_there: self.host.facts(group).is_some_and(|facts| is_there(&facts)),
            });
            replicas.collect()
        });
    }
}

/// Returns whether a replica that knows its leader has applied all entries that it knows to be
/// decided, including one of this term.
fn is_there(facts: &GroupFacts) -> bool {
    let applied = facts.applied;
    facts.leader.is_some() && applied.term == facts.term && applied.index >= facts.committed
}

/// Returns the position of a replica that knows no leader.
fn leaderless(facts: &GroupFacts) -> Option<LeaderlessReplica> {
    facts.leader.is_none().then(|| LeaderlessReplica {
        members: facts.membership.as_ref().clone(),
        term: facts.last.term,
        index: facts.last.index,
        stamp_ms: facts.stamp_ms,
    })
}

/// Returns a leader's report, once it has applied an entry of its term.
fn lead(facts: &GroupFacts) -> Option<LeaderReport> {
    let leads = facts.leader == Some(facts.me) && facts.applied.term == facts.term;
    let answers = facts
        .matched
        .iter()
        .filter(|(peer, _)| !facts.unreachable.contains(peer));
    let behind = answers.map(|(peer, matched)| (*peer, facts.committed.saturating_sub(*matched)));
    leads.then(|| LeaderReport {
        members: facts.membership.as_ref().clone(),
        behind: behind.collect(),
        size: None,
    })
}
