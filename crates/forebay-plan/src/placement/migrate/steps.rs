//! Makes the plan of a migration's transfers.

use std::collections::HashMap;

use super::super::cluster::{Fate, PlacementProblem};
use super::super::layout::Placement;
use super::super::measure;
use super::order::Transfer;
use crate::plan::{Action, Node, NodePrice, Partition, PartitionMap, Plan, Price, Step};

/// Returns the partition map before the transfers: replicas on live nodes, with the lowest node as
/// the primary. Partitions that no node has any more are on the nodes that restore them.
pub fn partition_map(cluster: &PlacementProblem, transfers: &[Transfer]) -> PartitionMap {
    let nodes: Vec<Node> = cluster
        .nodes
        .iter()
        .map(|node| Node {
            alive: node.fate != Fate::Lost,
            ..Node::default()
        })
        .collect();
    let mut partitions: Vec<Partition> = (0..cluster.partitions() as u32)
        .map(|id| Partition {
            bytes: cluster.size(id) as f64,
            ..Partition::default()
        })
        .collect();
    if let Some(current) = &cluster.current {
        for (id, holders) in current
            .holders(cluster.partitions())
            .into_iter()
            .enumerate()
        {
            let lives = |node: &u32| nodes[*node as usize].alive;
            partitions[id].replicas = holders.into_iter().filter(lives).collect();
        }
    }
    for transfer in transfers {
        if let Transfer::Copy {
            partition,
            from: None,
            to,
        } = *transfer
        {
            partitions[partition as usize].replicas.push(to);
        }
    }
    PartitionMap {
        nodes,
        partitions,
        min_live: cluster.min as u32,
    }
}

/// Returns the transfers as a plan. Copies without a source are no steps: they are made before it.
/// `least` is what has to be shipped at least.
pub fn plan(
    cluster: &PlacementProblem,
    transfers: &[Transfer],
    after: &Placement,
    least: u128,
) -> Plan {
    let map = partition_map(cluster, transfers);
    let mut primary: Vec<Option<u32>> = map
        .partitions
        .iter()
        .map(|partition| partition.replicas.first().copied())
        .collect();
    let mut holders: Vec<Vec<u32>> = map
        .partitions
        .iter()
        .map(|partition| partition.replicas.clone())
        .collect();
    let mut steps = Steps::default();
    for transfer in transfers {
        match *transfer {
            Transfer::Copy { from: None, .. } => {}
            Transfer::Copy {
                partition,
                from: Some(from),
                to,
            } => {
                holders[partition as usize].push(to);
                steps.copy(partition, from, to, cluster.size(partition) as f64);
            }
            Transfer::Drop { partition, node } => {
                let held = &mut holders[partition as usize];
                held.retain(|&holder| holder != node);
                if primary[partition as usize] == Some(node)
                    && let Some(&to) = held.first()
                {
                    steps.hand_over(partition, node, to);
                    primary[partition as usize] = Some(to);
                }
                steps.drop_replica(partition, node);
            }
        }
    }
    Plan {
        name: cluster.name.clone(),
        price: price(cluster, &steps.list, after),
        steps: steps.list,
        // Each byte is sent by one node and received by another, and the mean node pays no more
        // than the one that pays most.
        lower_bound: 2.0 * (least.saturating_sub(restored(cluster, transfers))) as f64
            / cluster.nodes.len() as f64,
        duration_seconds: None,
    }
}

/// Returns the bytes of copies without a source: every plan restores them, and none has a step or a
/// price for them.
fn restored(cluster: &PlacementProblem, transfers: &[Transfer]) -> u128 {
    let size = |transfer: &Transfer| match *transfer {
        Transfer::Copy {
            partition,
            from: None,
            ..
        } => u128::from(cluster.size(partition)),
        _ => 0,
    };
    transfers.iter().map(size).sum()
}

/// Steps with their dependencies: a copy waits for its source and for the slot it takes. A drop
/// waits for the copies and hand-overs of its partition and for the copies made from it.
#[derive(Default)]
struct Steps {
    list: Vec<Step>,
    /// The previous steps of a partition, and the previous drops on a node.
    of_partition: HashMap<u32, Vec<u32>>,
    drops_on: HashMap<u32, u32>,
}

impl Steps {
    fn push(&mut self, partition: u32, action: Action, bytes: f64, mut after: Vec<u32>) {
        after.sort_unstable();
        after.dedup();
        let number = self.list.len() as u32;
        self.of_partition.entry(partition).or_default().push(number);
        self.list.push(Step {
            action,
            records: 0.0,
            bytes,
            after,
        });
    }

    fn copy(&mut self, partition: u32, from: u32, to: u32, bytes: f64) {
        let mut after: Vec<u32> = self.drops_on.get(&to).copied().into_iter().collect();
        let earlier = self.of_partition.get(&partition).into_iter().flatten();
        let source = earlier.copied().rev().find(|&step| {
            matches!(self.list[step as usize].action, Action::Copy { to, .. } if to == from)
        });
        after.extend(source);
        let action = Action::Copy {
            partition,
            from,
            to,
        };
        self.push(partition, action, bytes, after);
    }

    fn hand_over(&mut self, partition: u32, from: u32, to: u32) {
        let after = self
            .of_partition
            .get(&partition)
            .cloned()
            .unwrap_or_default();
        self.push(
            partition,
            Action::HandOver {
                partition,
                from,
                to,
            },
            0.0,
            after,
        );
    }

    fn drop_replica(&mut self, partition: u32, node: u32) {
        let mut after = self
            .of_partition
            .get(&partition)
            .cloned()
            .unwrap_or_default();
        after.extend(self.drops_on.get(&node));
        let number = self.list.len() as u32;
        self.push(partition, Action::Drop { partition, node }, 0.0, after);
        self.drops_on.insert(node, number);
    }
}

fn price(cluster: &PlacementProblem, steps: &[Step], after: &Placement) -> Price {
    let whole: f64 = cluster.loads.iter().sum();
    let empty = Placement::empty(cluster.nodes.len());
    let before = cluster.current.as_ref().unwrap_or(&empty);
    let loads = measure::routed_loads(cluster, before, &cluster.loads);
    let loads_after = measure::routed_loads(cluster, after, &cluster.loads);
    let mut nodes: Vec<NodePrice> = loads
        .iter()
        .zip(&loads_after)
        .map(|(before, after)| NodePrice {
            before: before * whole,
            after: after * whole,
            ..NodePrice::default()
        })
        .collect();
    for step in steps {
        if let Action::Copy { from, to, .. } = step.action {
            nodes[from as usize].moved_out += step.bytes;
            nodes[to as usize].moved_in += step.bytes;
        }
    }
    let moving = nodes
        .iter()
        .map(|node| node.moved_in + node.moved_out)
        .fold(0.0, f64::max);
    Price {
        moving,
        insert: 0.0,
        total: moving,
        nodes,
    }
}
