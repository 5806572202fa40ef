//! The state of the groups of live tables, for people and their programs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use forebay_engine::{PartitionId, TableName};
use serde::{Deserialize, Serialize};

use crate::coordinator::ReceivedReports;
use crate::ids::NodeId;
use crate::lost_majority::LostPartition;
use crate::model::{GroupEntry, Model, PeerEntry, PeerState, TableEntry};
use crate::time::Now;
use crate::traffic_status::TrafficStatus;

/// A group without a leader for this long is reported.
const LEADERLESS: Duration = Duration::from_secs(5);
/// The maximum number of partitions without a majority that are listed one by one.
const MOST_LOST: usize = 256;

/// The number of partitions of live tables in each state. A partition can count in several states.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveStatus {
    pub partitions: usize,
    /// Partitions for which no leader was ever reported.
    pub unfounded: Partitions,
    /// Partitions without a reported leader for some seconds, or none yet to this coordinator.
    pub without_leader: Partitions,
    /// Fewer than a majority of their voters are on nodes that are up and have kept their data.
    pub without_majority: Partitions,
    /// Partitions on fewer nodes than their table wants, or moving to others.
    pub short: Partitions,
    /// Partitions that are being split.
    #[serde(default)]
    pub being_split: Partitions,
    /// New partitions of a split for which no leader was reported yet.
    #[serde(default)]
    pub children: Partitions,
    #[serde(default)]
    pub tables: BTreeMap<TableName, LiveTableStatus>,
    /// The first of the partitions without a majority, and the remaining replicas of each.
    #[serde(default)]
    pub lost: Vec<LostPartition>,
    /// The traffic of each node.
    #[serde(default)]
    pub traffic: TrafficStatus,
}

/// The state of the partitions of one table.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveTableStatus {
    pub partitions: usize,
    /// The number of partitions that have a leader.
    pub led: usize,
    pub without_majority: usize,
    /// Nodes whose replicas do not answer their leaders, and the number of such replicas.
    pub unreachable: BTreeMap<String, usize>,
    /// Nodes that are getting replicas, and the number of replicas that they do not have yet.
    pub joining: BTreeMap<String, usize>,
    /// Nodes that lost replicas, and the number of lost replicas.
    pub lost: BTreeMap<String, usize>,
    /// Nodes with unhealthy replicas, which are needed until others replace them, and their number.
    #[serde(default)]
    pub unhealthy: BTreeMap<String, usize>,
}

/// A number of partitions, and the first of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Partitions {
    pub count: usize,
    pub first: Option<(TableName, PartitionId)>,
}

impl Partitions {
    fn add(&mut self, table: &TableName, group: &GroupEntry) {
        self.count += 1;
        self.first
            .get_or_insert_with(|| (table.clone(), group.partition));
    }

    fn words(&self) -> String {
        let first = self.first.as_ref();
        let first = first.map_or_else(String::new, |(table, partition)| {
            format!("partition {partition} of {table}")
        });
        match self.count {
            0 | 1 => first,
            count => format!("{first} and {} more", count - 1),
        }
    }
}

impl LiveStatus {
    /// Computes the state from the reports to a coordinator; `None` if there are no live tables.
    pub fn of(model: &Model, received: ReceivedReports<'_>, now: Now) -> Option<Self> {
        let mut status = Self::default();
        for (table, entry) in model.live_tables() {
            for (group, wanted) in model.desired_groups(table) {
                let looked = Look {
                    model,
                    so_far: received,
                    group,
                };
                status.partitions += 1;
                looked.count(status.tables.entry(table.clone()).or_default(), now);
                let is_child = group.split_from.is_some() && model.work.moving().is_some();
                if group.term == 0 && is_child {
                    status.children.add(table, group);
                } else if group.term == 0 {
                    status.unfounded.add(table, group);
                } else if !looked.is_led(now) {
                    status.without_leader.add(table, group);
                }
                if let Some(lost) = LostPartition::of(model, received.groups, table, group) {
                    status.without_majority.add(table, group);
                    let of_table = status.tables.entry(table.clone()).or_default();
                    of_table.without_majority += 1;
                    status.lost.push(lost);
                    status.lost.truncate(MOST_LOST);
                }
                if group.split.is_some() {
                    status.being_split.add(table, group);
                }
                if looked.is_short(entry, wanted) {
                    status.short.add(table, group);
                }
            }
        }
        status.traffic = TrafficStatus::of(model, received);
        (status.partitions > 0).then_some(status)
    }

    /// Describes partitions that can be neither read nor written, and what to do.
    pub fn down(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut problem = |partitions: &Partitions, words: &str| {
            if partitions.count > 0 {
                problems.push(format!("{}: {words}", partitions.words()));
            }
        };
        let accept = self.what_of_lost();
        problem(&self.without_majority, &accept);
        // Partitions without a majority have no leader either.
        let only_unled = Partitions {
            count: match self.without_leader.count > self.without_majority.count {
                true => self.without_leader.count,
                false => 0,
            },
            ..self.without_leader.clone()
        };
        problem(
            &only_unled,
            "no leader is known, and nothing is written: wait; if that lasts, look at the network between the nodes \
             that have it",
        );
        problem(
            &self.unfounded,
            "the replicas have not elected a leader yet: if that lasts, look at the logs of the nodes that are to have it",
        );
        problems
    }

    /// Describes the problems, and what to do.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = self.down();
        for (table, status) in &self.tables {
            status.problems(table, &mut problems);
        }
        problems
    }

    /// Describes what is not a problem but worth knowing.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        for (partitions, words) in [
            (
                &self.short,
                "not all replicas are where they are wanted yet",
            ),
            (&self.being_split, "it is being split: wait"),
            (
                &self.children,
                "it came of a split just now, and elects its leader: wait",
            ),
        ] {
            if partitions.count > 0 {
                notes.push(format!("{}: {words}", partitions.words()));
            }
        }
        for (table, status) in &self.tables {
            let joining = by_node(table, &status.joining, "replicas on their way there: wait");
            notes.extend(joining);
        }
        notes
    }

    /// Describes what to do about partitions without a majority.
    fn what_of_lost(&self) -> String {
        let gone = self.lost.iter().flat_map(|lost| &lost.gone);
        let down = gone.filter(|gone| gone.may_return);
        let nodes: BTreeSet<&str> = down.map(|gone| gone.node.as_str()).collect();
        let nodes: Vec<&str> = nodes.into_iter().collect();
        let start = match nodes.is_empty() {
            true => "no node that is down has any of it".to_owned(),
            false => format!("start {} again", nodes.join(", ")),
        };
        let tables: BTreeSet<&str> = self.lost.iter().map(|lost| lost.table.as_str()).collect();
        let tables: Vec<String> = tables
            .into_iter()
            .map(|table| format!("forebay cluster force-recover {table}"))
            .collect();
        let is_hopeless =
            |lost: &&LostPartition| lost.remaining.is_empty() && lost.waits_for.is_empty();
        let hopeless = self.lost.iter().find(is_hopeless).map(|lost| {
            format!(
                "; of partition {} of {} nothing is left where nodes are up: without the others the table can only be \
                 dropped",
                lost.partition, lost.table
            )
        });
        format!(
            "no majority of the replicas is on nodes that are up and have their data, so nothing \
             is answered: {start}; if the other replicas are lost for good: {}{}",
            tables.join(", "),
            hopeless.unwrap_or_default()
        )
    }
}

impl LiveTableStatus {
    fn problems(&self, table: &TableName, problems: &mut Vec<String>) {
        let unreachable = "replicas without an answer to their leaders (right after a start that is so): wait; if that lasts, look at the node's log and its disk";
        let lost = "replicas forgot or were damaged, and others take their place: wait";
        let unhealthy = "replicas met damage, and others take their place once there is a majority without them: wait; if \
                      that lasts, start the nodes that are down (a table with one replica has no other)";
        problems.extend(by_node(table, &self.unreachable, unreachable));
        problems.extend(by_node(table, &self.lost, lost));
        problems.extend(by_node(table, &self.unhealthy, unhealthy));
    }
}

fn by_node(
    table: &TableName,
    nodes: &BTreeMap<String, usize>,
    words: &str,
) -> impl Iterator<Item = String> {
    let line =
        move |(node, count): (&String, &usize)| match (*count, words.strip_prefix("replicas")) {
            (1, Some(rest)) => format!("{table} on {node}: 1 replica{rest}"),
            (count, _) => format!("{table} on {node}: {count} {words}"),
        };
    nodes.iter().map(line)
}

/// A group under examination.
struct Look<'a> {
    model: &'a Model,
    so_far: ReceivedReports<'a>,
    group: &'a GroupEntry,
}

impl Look<'_> {
    /// Returns whether a leader was reported lately. A new coordinator has received no reports yet.
    fn is_led(&self, now: Now) -> bool {
        let groups = self.so_far.groups;
        let Some(received) = groups.led(self.group.group) else {
            return false;
        };
        let leading = groups.leading(self.group.group);
        let node = leading.and_then(|leading| self.so_far.nodes.get(&leading.node));
        let at = node.map_or(received, |node| received.max(node.at));
        now.since(at) < LEADERLESS
    }

    fn count(&self, status: &mut LiveTableStatus, now: Now) {
        let groups = self.so_far.groups;
        let leading = groups.leading(self.group.group);
        let is_led = self.group.term > 0 && self.is_led(now);
        status.partitions += 1;
        status.led += usize::from(is_led && leading.is_some());
        for peer in &self.group.peers {
            let lead = leading.filter(|leading| is_led && leading.node != peer.node);
            let members = lead.map(|leading| &leading.lead.members);
            let is_voter = members.is_some_and(|members| members.voters.contains(&peer.peer));
            let answers = |(behind, _): &(_, u64)| *behind == peer.peer;
            let is_silent =
                is_voter && !lead.is_some_and(|leading| leading.lead.behind.iter().any(answers));
            let counted = match peer.state {
                PeerState::Lost => &mut status.lost,
                _ if peer.is_unhealthy => &mut status.unhealthy,
                _ if is_silent => &mut status.unreachable,
                state if state.stays() && members.is_some() && !is_voter => &mut status.joining,
                _ => continue,
            };
            *counted.entry(self.name_of(peer)).or_default() += 1;
        }
    }

    fn name_of(&self, peer: &PeerEntry) -> String {
        let node: NodeId = peer.node;
        let entry = self.model.node(node);
        entry.map_or_else(|| format!("node {node}"), |entry| entry.name.to_string())
    }

    fn is_short(&self, entry: &TableEntry, wanted: &[NodeId]) -> bool {
        let is_there = self.so_far.groups.is_there(self.group, wanted);
        !is_there || wanted.len() < entry.replicas
    }
}
