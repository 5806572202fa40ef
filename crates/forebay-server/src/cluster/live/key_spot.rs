//! The place of a key of a live table, and the arguments of a command by partition.

use forebay_cluster::{ChildRoute, LivePlaces, LiveRoute, NodeId};
use forebay_engine::live::LiveTable;
use forebay_engine::{Bounds, PartitionId};
use forebay_replica::GroupId;

use super::super::ask::Requester;
use super::super::node::Cluster;
use super::super::page::Spot;
use crate::command::{Command, split};
use crate::resp::{Args, OwnedArgs};

/// The place of a key, as of one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveSpot {
    pub partition: PartitionId,
    pub group: GroupId,
    /// Only in hashed tables.
    pub slot: Option<u16>,
    /// The nodes that have it, the assumed leader first.
    pub nodes: Vec<NodeId>,
    /// The children that the partition is being split into.
    pub children: Vec<ChildRoute>,
}

/// The target of a request to one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LiveAt {
    /// These keys.
    Keys(Vec<Vec<u8>>),
    /// The part of the partition from a place in the table's order.
    Place {
        table: Vec<u8>,
        spot: Spot,
        /// The bounds, if the partition has to be exactly this one.
        whole: Option<Bounds>,
    },
}

/// The keys of a command that are in one partition, or in no live table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandPart {
    /// `None` for batch tables.
    pub group: Option<GroupId>,
    pub args: OwnedArgs,
    /// The indexes of the keys among the command's keys, from 0.
    pub keys: Vec<usize>,
}

impl LiveSpot {
    /// Returns the place of a key. `None` if nothing is known of it at the moment.
    pub fn of(places: &LivePlaces, wire: &[u8]) -> Option<Self> {
        let (table, key) = split(wire).ok()?;
        let place = places.table(table)?;
        let route = place.route(key)?;
        Some(Self {
            partition: route.partition,
            group: route.group,
            slot: place.slot(key),
            nodes: route.nodes.clone(),
            children: route.children.clone(),
        })
    }

    fn at(route: &LiveRoute) -> Self {
        Self {
            partition: route.partition,
            group: route.group,
            slot: None,
            nodes: route.nodes.clone(),
            children: route.children.clone(),
        }
    }
}

impl Requester<'_> {
    /// Returns the place as it is known now. A split that this node's replica has already applied
    /// is known before the map names the children.
    pub fn spot(&self, at: &LiveAt) -> Option<LiveSpot> {
        let mut spot = at.now(self.cluster)?;
        let children = std::mem::take(&mut spot.children);
        if !children.is_empty()
            && let Some(child) = self.child_of_here(at, &children)
        {
            (spot.partition, spot.group) = (child.partition, child.group);
        }
        Some(spot)
    }

    /// Returns the child that has all of it, if the partition is already split on this node.
    fn child_of_here(&self, at: &LiveAt, children: &[ChildRoute]) -> Option<ChildRoute> {
        let tables = self.work.shared.tables().keep();
        let table = tables.live(at.table())?;
        let mut children = children.iter();
        let its = |child: &&ChildRoute| at.lies_in(child.partition, table);
        children.find(its).copied()
    }
}

impl LiveAt {
    /// Returns the place by the current map.
    pub fn now(&self, cluster: &Cluster) -> Option<LiveSpot> {
        let live = cluster.member().live();
        match self {
            Self::Keys(keys) => LiveSpot::of(&live, keys.first()?),
            Self::Place { table, spot, .. } => {
                let route = live.table(table)?.route_at(&spot.bound())?;
                Some(LiveSpot::at(route))
            }
        }
    }

    /// Returns whether the table's partitions are known to have changed since the request.
    pub fn has_changed(&self, cluster: &Cluster) -> bool {
        let live = cluster.member().live();
        match self {
            Self::Keys(keys) => are_apart(&live, keys),
            Self::Place { whole: None, .. } => false,
            Self::Place {
                table,
                spot,
                whole: Some(whole),
            } => {
                let place = live.table(table);
                let route = place.and_then(|place| place.route_at(&spot.bound()));
                route.is_some_and(|route| route.bounds != *whole)
            }
        }
    }

    /// Returns whether it is in a partition, as this node's table is divided.
    pub fn lies_in(&self, id: PartitionId, table: &LiveTable) -> bool {
        match self {
            Self::Keys(keys) => keys.iter().all(|wire| {
                let key = split(wire).map(|(_, key)| key);
                key.is_ok_and(|key| table.partition_of(key) == Some(id))
            }),
            Self::Place { spot, .. } => {
                let mut ranges = table.partitions().into_iter();
                ranges.any(|range| range.id == id && range.bounds.holds(&spot.bound()))
            }
        }
    }

    /// Returns the name of the table.
    pub fn table(&self) -> &[u8] {
        match self {
            Self::Keys(keys) => {
                let first = keys.first().map(|wire| split(wire));
                first.map_or(&[], |found| found.map_or(&[], |(table, _)| table))
            }
            Self::Place { table, .. } => table,
        }
    }
}

/// Returns whether keys are known to be in several partitions.
fn are_apart(live: &LivePlaces, keys: &[Vec<u8>]) -> bool {
    let mut groups = keys
        .iter()
        .filter_map(|wire| Some(LiveSpot::of(live, wire)?.group));
    let first = groups.next();
    groups.any(|group| Some(group) != first)
}

/// Divides a command by the partitions of its keys. Arguments that follow a key stay with it.
pub fn divide(
    command: &Command,
    args: &Args<'_>,
    group_of: impl Fn(&[u8]) -> Option<GroupId>,
) -> Vec<CommandPart> {
    let mut parts: Vec<CommandPart> = Vec::new();
    let step = usize::try_from(command.keys.step).unwrap_or(1).max(1);
    for (number, at) in command.key_places(args.len()).enumerate() {
        let group = group_of(args.get(at));
        let known = parts.iter().position(|part| part.group == group);
        let index = known.unwrap_or_else(|| {
            parts.push(CommandPart {
                group,
                args: [args.get(0)].into_iter().collect(),
                keys: Vec::new(),
            });
            parts.len() - 1
        });
        let part = &mut parts[index];
        part.keys.push(number);
        let its = at..(at + step).min(args.len());
        its.for_each(|at| part.args.push(args.get(at)));
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{COMMANDS, find};

    /// Groups by the last letter of the key.
    fn group(wire: &[u8]) -> Option<GroupId> {
        wire.last().map(|letter| GroupId(u64::from(letter - b'a')))
    }

    fn divided(line: &str) -> Vec<(u64, Vec<usize>, String)> {
        let args: OwnedArgs = line.split(' ').collect();
        let args = args.borrow();
        let command = &COMMANDS[find(args.get(0)).unwrap()];
        let text = |args: &OwnedArgs| {
            let words = args.borrow();
            let words = words.iter().map(|arg| String::from_utf8_lossy(arg));
            words.collect::<Vec<_>>().join(" ")
        };
        let parts = divide(command, &args, group).into_iter();
        parts
            .map(|part| (part.group.unwrap().0, part.keys, text(&part.args)))
            .collect()
    }

    #[test]
    fn keys_of_a_partition_stay_together_and_in_order() {
        let wanted = [
            (0, vec![0, 2], "DEL t:1a t:3a".to_owned()),
            (1, vec![1], "DEL t:2b".to_owned()),
        ];
        assert_eq!(divided("DEL t:1a t:2b t:3a"), wanted);
        assert_eq!(divided("UNLINK t:1a").len(), 1);
    }

    #[test]
    fn values_stay_with_their_keys() {
        let wanted = [
            (1, vec![0, 2], "mset t:b 1 t:b 3".to_owned()),
            (0, vec![1], "mset t:a 2".to_owned()),
        ];
        assert_eq!(divided("mset t:b 1 t:a 2 t:b 3"), wanted);
    }
}
