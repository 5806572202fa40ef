//! From one placement to another: transfers in an order in which they can be done, and the plan of
//! them.

use std::collections::HashMap;

use super::super::cluster::{Cluster, Fate};
use super::super::layout::Placement;
use super::super::measure;
use crate::plan::{Action, Node, NodePrice, Partition, PartitionMap, Plan, Price, Step};

/// One change of where a partition stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transfer {
    /// A copy made from another node's, or, where no node that lives has one, from where the table
    /// came from.
    Copy {
        partition: u32,
        from: Option<u32>,
        to: u32,
    },
    Drop {
        partition: u32,
        node: u32,
    },
}

/// The transfers from the current placement to `wanted`: drops as soon as a partition has replicas
/// to spare, copies as soon as there is a free slot. Where all wait for each other (nodes that are
/// full exchange their last replicas), a node takes a copy beyond its slots until its drop follows.
pub fn transfers(cluster: &Cluster, wanted: &Placement) -> Vec<Transfer> {
    let mut state = StepState::new(cluster, wanted);
    let mut done = Vec::new();
    while !state.copies.is_empty() {
        state.drop_spare(&mut done);
        if !state.copy_where_free(&mut done) {
            state.copy_first(&mut done);
        }
    }
    state.drop_all(&mut done);
    choose_sources(cluster, &mut done);
    done
}

/// Lets each copy be made from the node that sends least so far, of those that hold the partition
/// then.
pub fn choose_sources(cluster: &Cluster, transfers: &mut [Transfer]) {
    let lives = |node: &u32| cluster.nodes[*node as usize].fate != Fate::Lost;
    let current = cluster.current.as_ref();
    let mut holders = current.map_or_else(
        || vec![Vec::new(); cluster.partitions()],
        |current| current.holders(cluster.partitions()),
    );
    for holders in &mut holders {
        holders.retain(lives);
    }
    let mut sent = vec![0u128; cluster.nodes.len()];
    for transfer in transfers {
        match transfer {
            Transfer::Copy {
                partition,
                from,
                to,
            } => {
                let held = &mut holders[*partition as usize];
                *from = held.iter().copied().min_by_key(|&node| sent[node as usize]);
                if let Some(from) = from {
                    sent[*from as usize] += u128::from(cluster.size(*partition));
                }
                held.push(*to);
            }
            Transfer::Drop { partition, node } => {
                holders[*partition as usize].retain(|holder| holder != node);
            }
        }
    }
}

struct StepState<'a> {
    cluster: &'a Cluster,
    /// Live nodes that hold a partition at this moment.
    holders: Vec<Vec<u32>>,
    free: Vec<i64>,
    /// Copies and drops to be done, the next one last.
    copies: Vec<(u32, u32)>,
    drops: Vec<(u32, u32)>,
}

impl<'a> StepState<'a> {
    fn new(cluster: &'a Cluster, wanted: &Placement) -> Self {
        let count = cluster.nodes.len();
        let current = cluster
            .current
            .clone()
            .unwrap_or_else(|| Placement::empty(count));
        let mut state = Self {
            cluster,
            holders: vec![Vec::new(); cluster.partitions()],
            free: (0..count).map(|node| cluster.slots(node) as i64).collect(),
            copies: Vec::new(),
            drops: Vec::new(),
        };
        for node in (0..count).rev() {
            let lives = cluster.nodes[node].fate != Fate::Lost;
            for partition in current.distinct(node).filter(|_| lives) {
                state.holders[partition as usize].push(node as u32);
                state.free[node] -= 1;
                if !wanted.holds(node, partition) {
                    state.drops.push((node as u32, partition));
                }
            }
            for partition in wanted.distinct(node) {
                if !(lives && current.holds(node, partition)) {
                    state.copies.push((node as u32, partition));
                }
            }
        }
        state
    }

    fn drop_spare(&mut self, done: &mut Vec<Transfer>) {
        let waiting = std::mem::take(&mut self.drops);
        for (node, partition) in waiting {
            if self.holders[partition as usize].len() > self.cluster.min {
                self.drop_one(node, partition, done);
            } else {
                self.drops.push((node, partition));
            }
        }
    }

    fn drop_all(&mut self, done: &mut Vec<Transfer>) {
        for (node, partition) in std::mem::take(&mut self.drops) {
            self.drop_one(node, partition, done);
        }
    }

    fn drop_one(&mut self, node: u32, partition: u32, done: &mut Vec<Transfer>) {
        self.holders[partition as usize].retain(|&holder| holder != node);
        self.free[node as usize] += 1;
        done.push(Transfer::Drop { partition, node });
    }

    fn copy_where_free(&mut self, done: &mut Vec<Transfer>) -> bool {
        let waiting = std::mem::take(&mut self.copies);
        let before = waiting.len();
        for (node, partition) in waiting {
            if self.free[node as usize] > 0 {
                self.copy_one(node, partition, done);
            } else {
                self.copies.push((node, partition));
            }
        }
        self.copies.len() < before
    }

    fn copy_first(&mut self, done: &mut Vec<Transfer>) {
        if let Some((node, partition)) = self.copies.pop() {
            self.copy_one(node, partition, done);
        }
    }

    fn copy_one(&mut self, node: u32, partition: u32, done: &mut Vec<Transfer>) {
        done.push(Transfer::Copy {
            partition,
            from: None,
            to: node,
        });
        self.holders[partition as usize].push(node);
        self.free[node as usize] -= 1;
    }
}

/// The partition map that the transfers begin with: replicas on nodes that live, the lowest node
/// the primary. Partitions that nobody holds any more are where they are restored to.
pub fn partition_map(cluster: &Cluster, transfers: &[Transfer]) -> PartitionMap {
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

/// The transfers as a plan. Copies from nowhere are no steps: they come before it. `least` is what
/// has to be shipped at least.
pub fn plan(cluster: &Cluster, transfers: &[Transfer], after: &Placement, least: u128) -> Plan {
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
        // What is shipped is sent by one node and received by another, and the mean node pays no
        // more than the one that pays most.
        lower_bound: 2.0 * (least.saturating_sub(restored(cluster, transfers))) as f64
            / cluster.nodes.len() as f64,
        duration_seconds: None,
    }
}

/// What comes from nowhere: every plan restores it, and none has a step or a price for it.
fn restored(cluster: &Cluster, transfers: &[Transfer]) -> u128 {
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

/// Steps with what each waits for: a copy for its source and for the slot it takes, a drop for the
/// copies and hand-overs of its partition and for the copies made from it.
#[derive(Default)]
struct Steps {
    list: Vec<Step>,
    /// The steps so far of a partition, and the drops so far on a node.
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
        let source = earlier.copied().find(|&step| {
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

fn price(cluster: &Cluster, steps: &[Step], after: &Placement) -> Price {
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
