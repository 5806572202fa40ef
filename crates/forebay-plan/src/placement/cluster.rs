//! The input of a placement: nodes, partitions, load, and the current placement.
//!
//! It is read from JSON and checked. Each error names the field. docs/reference/placement-json.md
//! describes the fields.

use serde::Deserialize;

use super::layout::Placement;
use super::replicas::{Bounds, Objective, ReplicaBudget, within_budget};
use crate::InputError;
use crate::input;

/// The most replicas, partitions, or slots of a node. More are refused, to protect memory.
const MOST_REPLICAS: usize = 100_000_000;
const MOST_NODES: usize = 1_000_000;

/// The input as written in JSON.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Input {
    #[serde(default)]
    pub name: Option<String>,
    pub nodes: usize,
    /// The most partitions of each node.
    #[serde(default)]
    pub slots: Option<PerNode<usize>>,
    #[serde(default)]
    pub node_bytes: Option<PerNode<u64>>,
    pub load: Vec<f64>,
    #[serde(default)]
    pub predicted: Option<Vec<f64>>,
    #[serde(default)]
    pub bytes: Option<Vec<u64>>,
    #[serde(default)]
    pub zones: Option<Vec<String>>,
    #[serde(default)]
    pub current: Option<Vec<Vec<u32>>>,
    #[serde(default)]
    pub drain: Vec<usize>,
    #[serde(default)]
    pub lost: Vec<usize>,
    #[serde(default)]
    pub min: Option<usize>,
    #[serde(default)]
    pub max: Option<usize>,
    #[serde(default)]
    pub total: Option<usize>,
}

/// One number for all nodes, or a list with one for each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PerNode<T> {
    All(T),
    Each(Vec<T>),
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for PerNode<T> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NumberOrList<T>(std::marker::PhantomData<T>);

        impl<'de, T: Deserialize<'de>> serde::de::Visitor<'de> for NumberOrList<T> {
            type Value = PerNode<T>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a whole number of at least 0, or a list of them")
            }

            fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Self::Value, E> {
                T::deserialize(serde::de::value::U64Deserializer::new(number)).map(PerNode::All)
            }

            fn visit_seq<A: serde::de::SeqAccess<'de>>(
                self,
                list: A,
            ) -> Result<Self::Value, A::Error> {
                let list = serde::de::value::SeqAccessDeserializer::new(list);
                Vec::deserialize(list).map(PerNode::Each)
            }
        }

        deserializer.deserialize_any(NumberOrList(std::marker::PhantomData))
    }
}

impl<T: Copy> PerNode<T> {
    fn spread(&self, nodes: usize, path: &str) -> Result<Vec<T>, InputError> {
        match self {
            Self::All(value) => Ok(vec![*value; nodes]),
            Self::Each(values) => {
                same_length(values.len(), nodes, path, "nodes")?;
                Ok(values.clone())
            }
        }
    }
}

/// The future of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Stays,
    /// The node serves until its partitions are elsewhere, and receives none.
    Drains,
    /// The node is gone, with all its data.
    Lost,
}

/// A node of a placement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterNode {
    /// The most partitions that it may have; `None` if only bytes count.
    pub max_partitions: Option<usize>,
    pub bytes: Option<u64>,
    /// Its zone: nodes with the same number fail together.
    pub zone: usize,
    pub fate: Fate,
}

/// The checked input of a placement: what there is, and what the placement may use.
#[derive(Debug, Clone)]
pub struct PlacementProblem {
    pub name: Option<String>,
    pub nodes: Vec<ClusterNode>,
    pub zones: Vec<String>,
    /// The load that the placement is made for: the predicted load if given, otherwise the present
    /// one.
    pub loads: Vec<f64>,
    /// The present load, if `loads` is predicted; `None` if `loads` is the present load.
    pub now: Option<Vec<f64>>,
    /// The bytes of each partition, if given. Otherwise every partition counts 1.
    pub sizes: Option<Vec<u64>>,
    pub current: Option<Placement>,
    pub min: usize,
    pub max: usize,
    /// The number of slots to fill, if given.
    total: Option<usize>,
}

impl Input {
    pub fn check(self) -> Result<PlacementProblem, InputError> {
        let partitions = self.load.len();
        check_counts(self.nodes, partitions)?;
        let load = checked_loads(&self.load, "load")?;
        let predicted = match &self.predicted {
            Some(predicted) => {
                same_length(predicted.len(), partitions, "predicted", "partitions")?;
                Some(checked_loads(predicted, "predicted")?)
            }
            None => None,
        };
        if let Some(sizes) = &self.bytes {
            same_length(sizes.len(), partitions, "bytes", "partitions")?;
            if sizes
                .iter()
                .try_fold(0u64, |sum, &size| sum.checked_add(size))
                .is_none()
            {
                return Err(InputError::new("bytes", "the sum is above 2^64 bytes"));
            }
        }
        if self.node_bytes.is_some() && self.bytes.is_none() {
            let what = "missing, and node_bytes limits them; give the bytes of each partition";
            return Err(InputError::new("bytes", what));
        }
        let (nodes, zones) = self.checked_nodes()?;
        let current = match &self.current {
            Some(current) => Some(checked_placement(current, self.nodes, partitions)?),
            None => None,
        };
        let (loads, now) = match predicted {
            Some(predicted) => (predicted, Some(load)),
            None => (load, None),
        };
        let cluster = PlacementProblem {
            name: self.name,
            nodes,
            zones,
            loads,
            now,
            sizes: self.bytes,
            current,
            min: self.min.unwrap_or(1),
            max: self.max.unwrap_or(usize::MAX),
            total: self.total,
        };
        cluster.check_nodes()?;
        Ok(cluster)
    }

    fn checked_nodes(&self) -> Result<(Vec<ClusterNode>, Vec<String>), InputError> {
        let slots = match &self.slots {
            Some(slots) => Some(slots.spread(self.nodes, "slots")?),
            None => None,
        };
        if let Some(slots) = slots.iter().flatten().find(|&&slots| slots > MOST_REPLICAS) {
            let what = format!("{slots} are more than the {MOST_REPLICAS} that are planned for");
            return Err(InputError::new("slots", what));
        }
        let bytes = match &self.node_bytes {
            Some(bytes) => Some(bytes.spread(self.nodes, "node_bytes")?),
            None => None,
        };
        let (zone_of, zones) = match &self.zones {
            Some(names) => {
                same_length(names.len(), self.nodes, "zones", "nodes")?;
                number_names(names)
            }
            None => ((0..self.nodes).collect(), Vec::new()),
        };
        let mut nodes: Vec<ClusterNode> = (0..self.nodes)
            .map(|node| ClusterNode {
                max_partitions: slots.as_ref().map(|slots| slots[node]),
                bytes: bytes.as_ref().map(|bytes| bytes[node]),
                zone: zone_of[node],
                fate: Fate::Stays,
            })
            .collect();
        for (list, path, fate) in [
            (&self.drain, "drain", Fate::Drains),
            (&self.lost, "lost", Fate::Lost),
        ] {
            for (place, &node) in list.iter().enumerate() {
                let path = || format!("{path}[{place}]");
                let Some(entry) = nodes.get_mut(node) else {
                    let what = format!("{node} is no node; there are {}, from 0", self.nodes);
                    return Err(InputError::new(path(), what));
                };
                if entry.fate != Fate::Stays {
                    let what = format!("node {node} is named twice among drain and lost");
                    return Err(InputError::new(path(), what));
                }
                entry.fate = fate;
            }
        }
        Ok((nodes, zones))
    }
}

impl PlacementProblem {
    pub fn partitions(&self) -> usize {
        self.loads.len()
    }

    /// Returns the nodes that a placement may use.
    pub fn staying(&self) -> Vec<usize> {
        let stays = |&node: &usize| self.nodes[node].fate == Fate::Stays;
        (0..self.nodes.len()).filter(stays).collect()
    }

    /// Returns the most partitions that a node may have after the placement. A node that is limited
    /// by bytes alone may have all.
    pub fn max_partitions(&self, node: usize) -> usize {
        match self.nodes[node].fate {
            Fate::Stays => self.nodes[node].max_partitions.unwrap_or(self.partitions()),
            Fate::Drains | Fate::Lost => 0,
        }
    }

    pub fn size(&self, partition: u32) -> u64 {
        self.sizes
            .as_ref()
            .map_or(1, |sizes| sizes[partition as usize])
    }

    /// Returns the bounds of the replication vector: as many replicas as there are slots, unless
    /// the input asks for fewer or limits them.
    pub fn bounds(&self) -> Result<Bounds, InputError> {
        let staying = self.staying();
        let max = self.max.min(staying.len());
        let slots = self.all_slots();
        let most = self.partitions().saturating_mul(max);
        let least = self.partitions().saturating_mul(self.min);
        if self.total.is_none() && slots < least {
            return Err(self.too_few_slots(slots));
        }
        let bounds = Bounds {
            min: self.min,
            max,
            total: self.total.unwrap_or(slots.min(most)),
        };
        bounds.check(self.partitions())?;
        if bounds.total > MOST_REPLICAS {
            let what = format!(
                "{} replicas are more than the {MOST_REPLICAS} that are planned for; lower `max` or \
                 give fewer",
                bounds.total
            );
            return Err(InputError::new("total", what));
        }
        Ok(bounds)
    }

    /// Returns whether the total number of replicas was given.
    pub fn has_total(&self) -> bool {
        self.total.is_some()
    }

    /// Refuses nodes that have no room for their partitions.
    pub fn check_room(&self) -> Result<(), InputError> {
        let limited = |node: &ClusterNode| node.max_partitions.is_some() || node.bytes.is_some();
        if !self.nodes.iter().all(limited) {
            let what = "missing; give the slots of a node, or node_bytes and bytes";
            return Err(InputError::new("slots", what));
        }
        let slots = self.all_slots();
        if slots < self.partitions().saturating_mul(self.min) {
            return Err(self.too_few_slots(slots));
        }
        if let Some(total) = self.total
            && total > slots
        {
            let what = format!("{total} replicas are more than the {slots} slots of the nodes");
            return Err(InputError::new("total", what));
        }
        self.check_bytes()?;
        self.bounds().map(|_| ())
    }

    fn all_slots(&self) -> usize {
        let slots = self
            .staying()
            .into_iter()
            .map(|node| self.max_partitions(node));
        slots.fold(0, usize::saturating_add)
    }

    fn too_few_slots(&self, slots: usize) -> InputError {
        let what = format!(
            "{slots} in all are fewer than {} partitions x {} need; add nodes or slots",
            self.partitions(),
            self.min
        );
        InputError::new("slots", what)
    }

    /// Returns the replication vector for `loads` within the nodes' slots and bytes.
    pub fn replicas(&self, loads: &[f64], objective: Objective) -> Result<Vec<usize>, InputError> {
        let budget = match (&self.sizes, self.all_bytes()) {
            (Some(sizes), Some(bytes)) => Some(ReplicaBudget { bytes, sizes }),
            _ => None,
        };
        within_budget(loads, self.bounds()?, objective, budget)
    }

    /// Returns the bytes of all nodes that stay, if all have a limit.
    fn all_bytes(&self) -> Option<u128> {
        let staying = self.staying();
        let bytes = staying
            .iter()
            .map(|&node| self.nodes[node].bytes.map(u128::from));
        bytes.sum()
    }

    /// Returns the zone of a node; 0 for all if zones do not matter.
    pub fn zone(&self, node: usize) -> usize {
        if self.zoned() {
            self.nodes[node].zone
        } else {
            0
        }
    }

    /// Returns whether the distribution of replicas over zones matters.
    pub fn zoned(&self) -> bool {
        self.zones.len() > 1
    }

    fn check_nodes(&self) -> Result<(), InputError> {
        let staying = self.staying().len();
        if staying == 0 {
            let what = "every node is drained or lost; leave one to hold the partitions";
            return Err(InputError::new("nodes", what));
        }
        if self.min == 0 {
            return Err(InputError::new(
                "min",
                "0 replicas would lose the partition; at least 1",
            ));
        }
        if self.min > staying {
            let what = format!(
                "{} replicas need as many nodes; only {staying} nodes may receive partitions",
                self.min
            );
            return Err(InputError::new("min", what));
        }
        Ok(())
    }

    fn check_bytes(&self) -> Result<(), InputError> {
        let Some(room) = self.all_bytes() else {
            return Ok(());
        };
        let data: u128 = (0..self.partitions() as u32)
            .map(|id| u128::from(self.size(id)))
            .sum();
        if data * self.min as u128 > room {
            let what = format!(
                "{room} bytes in all are fewer than the {data} bytes of the partitions x {} replica(s)",
                self.min
            );
            return Err(InputError::new("node_bytes", what));
        }
        Ok(())
    }
}

fn check_counts(nodes: usize, partitions: usize) -> Result<(), InputError> {
    if nodes == 0 {
        return Err(InputError::new(
            "nodes",
            "0 nodes can hold nothing; at least 1",
        ));
    }
    if partitions == 0 {
        return Err(InputError::new(
            "load",
            "is empty; give the load of each partition",
        ));
    }
    for (count, most, path) in [
        (nodes, MOST_NODES, "nodes"),
        (partitions, MOST_REPLICAS, "load"),
    ] {
        if count > most {
            let what = format!("{count} are more than the {most} that are planned for");
            return Err(InputError::new(path, what));
        }
    }
    Ok(())
}

fn checked_loads(loads: &[f64], path: &str) -> Result<Vec<f64>, InputError> {
    let checked: Vec<f64> = loads
        .iter()
        .enumerate()
        .map(|(place, &load)| input::amount(load, || format!("{path}[{place}]")))
        .collect::<Result<_, _>>()?;
    if !checked.iter().sum::<f64>().is_finite() {
        return Err(InputError::new(
            path,
            "the sum is beyond what a number can hold",
        ));
    }
    Ok(checked)
}

fn checked_placement(
    current: &[Vec<u32>],
    nodes: usize,
    partitions: usize,
) -> Result<Placement, InputError> {
    if current.len() > nodes {
        let what = format!("{} lists for {nodes} nodes", current.len());
        return Err(InputError::new("current", what));
    }
    for (node, held) in current.iter().enumerate() {
        for (place, &partition) in held.iter().enumerate() {
            if partition as usize >= partitions {
                let path = format!("current[{node}][{place}]");
                let what = format!("{partition} is no partition; there are {partitions}, from 0");
                return Err(InputError::new(path, what));
            }
        }
    }
    let mut lists = current.to_vec();
    // Nodes at the end that are not listed are new and empty.
    lists.resize(nodes, Vec::new());
    Ok(Placement::new(lists))
}

fn same_length(has: usize, wants: usize, path: &str, of: &str) -> Result<(), InputError> {
    if has == wants {
        return Ok(());
    }
    let what = format!("has {has} entries for {wants} {of}");
    Err(InputError::new(path, what))
}

/// Numbers names by their first appearance.
fn number_names(names: &[String]) -> (Vec<usize>, Vec<String>) {
    let mut seen = std::collections::HashMap::new();
    let mut zones = Vec::new();
    let numbers = names
        .iter()
        .map(|name| {
            *seen.entry(name).or_insert_with(|| {
                zones.push(name.clone());
                zones.len() - 1
            })
        })
        .collect();
    (numbers, zones)
}
