//! A change of lists as a plan, to be validated, simulated and drawn like every other.
//!
//! The plan's partitions are the ranges whose lists change. Its nodes are those of either layout. A
//! plan has a primary and replicas, without an order: if only the order changes, there are no
//! steps.

use std::collections::BTreeMap;

use super::{Class, LayoutChange, Line, RangeChange};
use crate::draw::{Picture, Stage, size, timeline_of_copies};
use crate::plan::{Action, Node, NodePrice, Partition, PartitionMap, Plan, Price, Step};

/// A plan that changes lists.
#[derive(Debug, Clone)]
pub struct ListPlan {
    /// The ids of the nodes, by their numbers in map and plan.
    pub ids: Vec<u32>,
    /// The map of the ranges before the plan.
    pub map: PartitionMap,
    pub plan: Plan,
}

impl LayoutChange {
    /// Returns the copies, hand-overs and drops of all ranges. Copies come from the old node that
    /// is alive and has sent least. If none is alive, they come from one that is not, and the plan
    /// cannot be carried out. The weights of `line` times `bytes_per_weight` are bytes.
    pub fn plan(
        &self,
        line: &Line,
        bytes_per_weight: f64,
        lives: impl Fn(u32) -> bool,
    ) -> ListPlan {
        let mut nodes: BTreeMap<u32, u32> = BTreeMap::new();
        for id in self
            .old
            .iter()
            .chain(&self.classes)
            .flat_map(|class| &class.list)
        {
            nodes.insert(*id, 0);
        }
        for (number, place) in (0..).zip(nodes.values_mut()) {
            *place = number;
        }
        let ids: Vec<u32> = nodes.keys().copied().collect();
        let node = |&id: &u32| Node {
            alive: lives(id),
            ..Node::default()
        };
        let partition = |range: &RangeChange| Partition {
            bytes: range.weight * bytes_per_weight,
            replicas: range.old.iter().map(|id| nodes[id]).collect(),
            ..Partition::default()
        };
        let map = PartitionMap {
            nodes: ids.iter().map(node).collect(),
            partitions: self.ranges.iter().map(partition).collect(),
            min_live: self.fewest_replicas(),
        };
        let (steps, moved) = self.steps(&nodes, &map);
        let price = self.price(&nodes, &moved, line, bytes_per_weight);
        let plan = Plan {
            steps,
            price,
            ..Plan::default()
        };
        ListPlan { ids, map, plan }
    }

    fn fewest_replicas(&self) -> u32 {
        let counts = self
            .ranges
            .iter()
            .map(|range| range.old.len().min(range.new.len()));
        counts.min().unwrap_or(1) as u32
    }

    /// Returns the steps, and what each node receives and sends.
    fn steps(&self, nodes: &BTreeMap<u32, u32>, map: &PartitionMap) -> (Vec<Step>, Vec<[f64; 2]>) {
        let mut steps: Vec<Step> = Vec::new();
        let mut moved = vec![[0.0f64; 2]; map.nodes.len()];
        for (partition, range) in (0..).zip(&self.ranges) {
            let old = &map.partitions[partition as usize];
            let first = steps.len() as u32;
            for to in range.copying().map(|id| nodes[&id]) {
                let dead = |node: u32| !map.nodes[node as usize].alive;
                let from = old.replicas.iter().copied().min_by(|&a, &b| {
                    let sent = |node: u32| moved[node as usize][1];
                    dead(a).cmp(&dead(b)).then(sent(a).total_cmp(&sent(b)))
                });
                let Some(from) = from else { continue };
                moved[to as usize][0] += old.bytes;
                moved[from as usize][1] += old.bytes;
                let copy = Action::Copy {
                    partition,
                    from,
                    to,
                };
                steps.push(Step::new(copy, 0.0, old.bytes));
            }
            let mut then = |action| {
                let after = (first..steps.len() as u32).collect();
                steps.push(Step {
                    after,
                    ..Step::new(action, 0.0, 0.0)
                });
            };
            let (from, to) = (nodes[&range.old[0]], nodes[&range.new[0]]);
            if from != to {
                then(Action::HandOver {
                    partition,
                    from,
                    to,
                });
            }
            for node in range.dropping().map(|id| nodes[&id]) {
                then(Action::Drop { partition, node });
            }
        }
        (steps, moved)
    }

    fn price(
        &self,
        nodes: &BTreeMap<u32, u32>,
        moved: &[[f64; 2]],
        line: &Line,
        bytes_per_weight: f64,
    ) -> Price {
        let before = held(&self.old, line);
        let after = held(&self.classes, line);
        let bytes = |held: &BTreeMap<u32, f64>, id: &u32| {
            held.get(id).map_or(0.0, |weight| weight * bytes_per_weight)
        };
        let price = |(id, &number): (&u32, &u32)| NodePrice {
            before: bytes(&before, id),
            after: bytes(&after, id),
            moved_in: moved[number as usize][0],
            moved_out: moved[number as usize][1],
            ..NodePrice::default()
        };
        let nodes: Vec<NodePrice> = nodes.iter().map(price).collect();
        let most = nodes
            .iter()
            .map(|node| node.moved_in + node.moved_out)
            .fold(0.0, f64::max);
        Price {
            moving: most,
            total: most,
            nodes,
            ..Price::default()
        }
    }
}

/// Returns the weight that each node has.
fn held(classes: &[Class], line: &Line) -> BTreeMap<u32, f64> {
    let mut held = BTreeMap::new();
    for (index, class) in classes.iter().enumerate() {
        let end = classes
            .get(index + 1)
            .map_or(line.places() as u32, |next| next.start);
        let weight = line.weight(class.start..end);
        for &id in &class.list {
            *held.entry(id).or_insert(0.0) += weight;
        }
    }
    held
}

impl ListPlan {
    /// Draws the plan: the bytes of each node before and after, and the flows between nodes.
    pub fn picture(&self, title: &str) -> Picture {
        let nodes = &self.plan.price.nodes;
        let stage = |title, value: fn(&NodePrice) -> f64| {
            Stage::new(title, 0, nodes.iter().map(value).collect())
        };
        let copied: f64 = self.plan.steps.iter().map(Step::bytes_carried).sum();
        let flow = |step: &Step| match step.action {
            Action::Copy { from, to, .. } => Some((from, to, step.bytes)),
            _ => None,
        };
        Picture {
            title: title.to_owned(),
            lines: vec![format!("{} are copied", size(copied))],
            stages: vec![
                stage("bytes before", |node| node.before),
                stage("bytes after", |node| node.after),
            ],
            flows: Picture::sum_flows(self.plan.steps.iter().filter_map(flow)),
            unit: "bytes".to_owned(),
            sizes: true,
            names: self.ids.iter().map(u32::to_string).collect(),
            timeline: timeline_of_copies(&self.plan, nodes.len(), "byte"),
            ..Picture::default()
        }
    }
}
