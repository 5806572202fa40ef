//! What nodes tell of the groups whose replicas they have.

use forebay_engine::live::PartitionSize;
use forebay_replica::{GroupId, Membership, PeerId};
use serde::{Deserialize, Serialize};

use crate::reporting::Report;
use crate::traffic::ReplicaTraffic;

/// How a replica stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupReport {
    pub group: GroupId,
    pub peer: PeerId,
    /// The newest that it knows.
    pub term: u64,
    /// Why it cannot take part; none: it is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<ReplicaProblem>,
    /// It met damage, and goes on as far as it can: another is to take its place.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_unhealthy: bool,
    /// It leads, and has applied an entry of its term.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leads: Option<LeaderReport>,
    /// How far it is, where it knows nobody who leads: one that does not vote has nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leaderless: Option<LeaderlessReplica>,
    /// How far it is with the load that is under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<LoadPosition>,
    /// How much is done there; none: nothing, for long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic: Option<ReplicaTraffic>,
}

/// How far a replica is with a load.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadPosition {
    pub load: u64,
    pub state: LoadedState,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoadedState {
    /// So many bytes of its run have come.
    Coming(u64),
    /// Its run is here, read back, and waits.
    Here,
    /// It is a part of the partition here, and stays so after a crash.
    Added,
    /// What can be added nowhere, or has no room here; the words say why.
    Failed(String),
}

/// How far a replica is that knows nobody who leads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaderlessReplica {
    /// As applied there.
    pub members: Membership,
    /// Where its log ends.
    pub term: u64,
    pub index: u64,
    /// The partition's time as of what is applied, in milliseconds since 1970-01-01 UTC.
    pub stamp_ms: u64,
}

/// What makes a replica come back as a new peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplicaProblem {
    /// It may not remember all that it promised.
    Forgot,
    /// Its files cannot be read.
    Damaged,
    /// It has not got the run of a load that others added. It takes part still, and is replaced
    /// only where a majority is there without it.
    Missed,
}

/// What a leader knows of its group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaderReport {
    /// As applied there.
    pub members: Membership,
    /// How many entries each other peer lacks of what is decided; those that do not answer are not
    /// in it.
    pub behind: Vec<(PeerId, u64)>,
    /// About how much the partition holds; none: it was not looked at yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<PartitionSize>,
}

impl LeaderlessReplica {
    /// Whether a peer counts, by what it has applied.
    pub fn votes(&self, peer: PeerId) -> bool {
        self.members.voters.contains(&peer) || self.members.outgoing.contains(&peer)
    }
}

impl GroupReport {
    /// Whether the replica is to be replaced, soon or at once.
    pub fn is_troubled(&self) -> bool {
        self.problem.is_some() || self.is_unhealthy
    }
}

impl Report for GroupReport {
    type Place = (GroupId, PeerId);

    fn place(&self) -> Self::Place {
        (self.group, self.peer)
    }

    /// How far a voter is behind changes with each write, and how much a partition holds, and is
    /// asked, too.
    fn is_like(&self, other: &Self) -> bool {
        let shape = |report: &Self| {
            let lead = report.leads.as_ref();
            let size = lead.and_then(|lead| lead.size.as_ref());
            let size = size.map(|size| size.bytes.checked_ilog2());
            let behind = lead.map(|lead| {
                let learners = &lead.members.learners;
                let rough = |(peer, entries): &(PeerId, u64)| {
                    let entries = entries.checked_ilog2().unwrap_or(0);
                    (*peer, if learners.contains(peer) { entries } else { 0 })
                };
                lead.behind.iter().map(rough).collect::<Vec<_>>()
            });
            let leaderless = report.leaderless.clone();
            let load = report.load.clone();
            let problem = (report.problem, report.is_unhealthy);
            let state = (
                report.term,
                problem,
                report.traffic.unwrap_or_default().requests_roughly(),
            );
            (state, behind, size, leaderless, load)
        };
        let members = |report: &Self| report.leads.as_ref().map(|lead| lead.members.clone());
        shape(self) == shape(other) && members(self) == members(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::TrafficRate;

    fn report(group: u64, term: u64) -> GroupReport {
        GroupReport {
            group: GroupId(group),
            peer: PeerId(1),
            term,
            problem: None,
            is_unhealthy: false,
            leads: None,
            leaderless: None,
            load: None,
            traffic: None,
        }
    }

    #[test]
    fn writes_are_no_news() {
        let lead = |entries| GroupReport {
            leads: Some(LeaderReport {
                members: Membership {
                    learners: vec![PeerId(3)],
                    ..Membership::founders(&[PeerId(1), PeerId(2)])
                },
                behind: entries,
                size: None,
            }),
            ..report(1, 1)
        };
        let (two, three) = (PeerId(2), PeerId(3));
        let one = lead(vec![(two, 5), (three, 1000)]);
        assert!(one.is_like(&lead(vec![(two, 900), (three, 1010)])));
        assert!(!one.is_like(&lead(vec![(two, 5), (three, 10)])));
        assert!(
            !one.is_like(&lead(vec![(three, 1000)])),
            "it does not answer"
        );
    }

    #[test]
    fn traffic_is_news_where_it_has_changed_by_a_quarter() {
        let asked = |reads: u64| GroupReport {
            traffic: Some(ReplicaTraffic {
                minute: TrafficRate {
                    reads,
                    ..TrafficRate::default()
                },
                ..ReplicaTraffic::default()
            }),
            ..report(1, 1)
        };
        assert!(report(1, 1).is_like(&asked(3)));
        assert!(asked(70_000).is_like(&asked(80_000)));
        assert!(!asked(70_000).is_like(&asked(100_000)));
        assert!(!asked(70_000).is_like(&report(1, 1)));
    }

    #[test]
    fn a_size_is_news_where_it_has_doubled() {
        let sized = |bytes: u64| {
            let size = PartitionSize {
                records: bytes / 100,
                bytes,
                marks: Vec::new(),
            };
            GroupReport {
                leads: Some(LeaderReport {
                    members: Membership::founders(&[PeerId(1)]),
                    behind: Vec::new(),
                    size: Some(size),
                }),
                ..report(1, 1)
            }
        };
        assert!(sized(70_000).is_like(&sized(90_000)));
        assert!(!sized(70_000).is_like(&sized(140_000)));
        assert!(!sized(0).is_like(&sized(140_000)));
    }
}
