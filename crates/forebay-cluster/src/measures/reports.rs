//! Reports of nodes about the groups of which they have replicas.

use forebay_engine::live::PartitionSize;
use forebay_replica::{GroupId, Membership, PeerId};
use serde::{Deserialize, Serialize};

use crate::measures::reporting::Report;
use crate::measures::traffic::ReplicaTraffic;

/// The state of a replica.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupReport {
    pub group: GroupId,
    pub peer: PeerId,
    /// The newest term that the replica knows.
    pub term: u64,
    /// Why the replica cannot take part; none if it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<ReplicaProblem>,
    /// The replica found damage and continues as far as it can. Another replica has to replace it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_unhealthy: bool,
    /// Set if the replica leads and has applied an entry of its term.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leads: Option<LeaderReport>,
    /// Its position if it knows no leader. A replica that does not vote has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leaderless: Option<LeaderlessReplica>,
    /// The replica's progress in the current load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<LoadPosition>,
    /// The replica's traffic; none if there was none for a long time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic: Option<ReplicaTraffic>,
}

/// The progress of a replica in a load.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadPosition {
    pub load: u64,
    pub state: LoadedState,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoadedState {
    /// The number of bytes of its run that the node has fetched.
    Coming(u64),
    /// The node has fetched the run and read it back; the run waits to be added.
    Here,
    /// The run is a part of the partition, and remains so after a crash.
    Added,
    /// The run cannot be added anywhere, or has no room on this node; the text says why.
    Failed(String),
}

/// The position of a replica that knows no leader.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaderlessReplica {
    /// The members as of the last entry that this replica applied.
    pub members: Membership,
    /// The term of the last entry of its log.
    pub term: u64,
    pub index: u64,
    /// The partition's time as of its last applied entry, in milliseconds since 1970-01-01 UTC.
    pub stamp_ms: u64,
}

/// A problem that makes a replica come back as a new peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplicaProblem {
    /// The replica may not remember all of its promises.
    Forgot,
    /// The replica's files cannot be read.
    Damaged,
    /// The replica lacks the run of a load that others added. It still takes part. It is replaced
    /// only if there is a majority without it.
    Missed,
}

/// A leader's knowledge of its group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaderReport {
    /// The members as of the last entry that the leader applied.
    pub members: Membership,
    /// For each other peer, the number of decided entries that it lacks. Peers that do not answer
    /// are left out.
    pub behind: Vec<(PeerId, u64)>,
    /// The approximate size of the partition; none if it was not measured yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<PartitionSize>,
}

impl LeaderlessReplica {
    /// Returns whether a peer is a voter, by the entries that the leader has applied.
    pub fn votes(&self, peer: PeerId) -> bool {
        self.members.voters.contains(&peer) || self.members.outgoing.contains(&peer)
    }
}

impl GroupReport {
    /// Returns whether the replica has to be replaced, soon or at once.
    pub fn is_troubled(&self) -> bool {
        self.problem.is_some() || self.is_unhealthy
    }
}

impl Report for GroupReport {
    type Place = (GroupId, PeerId);

    fn place(&self) -> Self::Place {
        (self.group, self.peer)
    }

    /// The lag of a voter, the size of a partition and its traffic change with each request, so
    /// they are not compared exactly.
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
    use crate::measures::traffic::TrafficRate;

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
    fn writes_alone_trigger_no_report() {
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
            "peer 2 does not answer"
        );
    }

    #[test]
    fn traffic_is_reported_again_after_a_change_of_a_quarter() {
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
    fn a_size_is_reported_again_once_it_has_doubled() {
        let sized = |bytes: u64| {
            let size = PartitionSize {
                records: bytes / 100,
                bytes,
                split_points: Vec::new(),
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
