//! How the groups of live tables stand, for people and their programs.

use std::time::Duration;

use forebay_engine::{PartitionId, TableName};
use serde::{Deserialize, Serialize};

use crate::coordinator::Coordinator;
use crate::ids::NodeId;
use crate::model::{GroupEntry, Model, PeerState, TableEntry};
use crate::time::Now;

/// A group without a leader for so long is told of.
const LEADERLESS: Duration = Duration::from_secs(5);

/// How many partitions of live tables stand how; one may be counted several times.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveStatus {
    pub partitions: usize,
    /// No leader was heard of yet.
    pub unfounded: Partitions,
    /// No leader was heard of for some seconds.
    pub without_leader: Partitions,
    /// Fewer than a majority of their voters are on nodes that are up.
    pub without_majority: Partitions,
    /// They are on fewer nodes than their table wants, or come to be on others.
    pub short: Partitions,
}

/// So many partitions, and the first of them.
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
    /// As the coordinator has heard; `None`: there are no live tables.
    pub fn of(model: &Model, coordinator: &Coordinator, now: Now) -> Option<Self> {
        let mut status = Self::default();
        for (table, entry) in model.live_tables() {
            for (group, wanted) in model.wanted_groups(table) {
                let looked = Look {
                    model,
                    coordinator,
                    group,
                };
                status.partitions += 1;
                if group.term == 0 {
                    status.unfounded.add(table, group);
                } else if now.since(looked.led()) >= LEADERLESS {
                    status.without_leader.add(table, group);
                }
                if !looked.has_majority() {
                    status.without_majority.add(table, group);
                }
                if looked.is_short(entry, wanted) {
                    status.short.add(table, group);
                }
            }
        }
        (status.partitions > 0).then_some(status)
    }

    /// What is wrong, and what to do.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut problem = |partitions: &Partitions, words: &str| {
            if partitions.count > 0 {
                problems.push(format!("{}: {words}", partitions.words()));
            }
        };
        problem(
            &self.without_majority,
            "no majority of the replicas is on nodes that are up, and nothing is answered: start those that are down",
        );
        problem(
            &self.without_leader,
            "no leader is known for some seconds, and nothing is written: look at the network between the nodes that have it",
        );
        problem(
            &self.unfounded,
            "the replicas have not elected a leader yet: if that lasts, look at the logs of the nodes that are to have it",
        );
        problems
    }

    /// What is no problem, and worth knowing.
    pub fn notes(&self) -> Vec<String> {
        let count = self.short.count;
        let words = self.short.words();
        let note = format!("{words}: not all replicas are where they are wanted yet");
        (count > 0).then_some(note).into_iter().collect()
    }
}

/// A group that is looked at.
struct Look<'a> {
    model: &'a Model,
    coordinator: &'a Coordinator,
    group: &'a GroupEntry,
}

impl Look<'_> {
    /// When a leader was heard of last; nobody hears of one before it is the coordinator.
    fn led(&self) -> Duration {
        let heard = self.coordinator.groups().led(self.group.group);
        let leading = self.coordinator.groups().leading(self.group.group);
        let node = leading.and_then(|leading| self.coordinator.heard().get(&leading.node));
        let since = self.coordinator.took_over();
        let at = node.map_or(since, |node| node.at);
        heard.unwrap_or(since).max(since).max(at)
    }

    fn is_up(&self, node: NodeId) -> bool {
        let is_up = self.model.node(node).is_some_and(|node| node.is_up());
        is_up && !self.coordinator.suspects().contains(&node)
    }

    /// Of its voters, as its leader knows them, or else as they are wanted.
    fn has_majority(&self) -> bool {
        let leading = self.coordinator.groups().leading(self.group.group);
        let named = self.group.staying().map(|peer| peer.peer);
        let voters = match leading {
            Some(leading) => leading.lead.members.voters.clone(),
            None => named.collect(),
        };
        let answers = voters.iter().filter(|peer| {
            let peer = self.group.peer(**peer);
            peer.is_some_and(|peer| peer.state != PeerState::Lost && self.is_up(peer.node))
        });
        answers.count() > voters.len() / 2
    }

    fn is_short(&self, entry: &TableEntry, wanted: &[NodeId]) -> bool {
        let is_there = self.coordinator.groups().is_there(self.group, wanted);
        !is_there || wanted.len() < entry.replicas
    }
}
