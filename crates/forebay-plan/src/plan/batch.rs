//! Divides a plan into batches that are carried out one after the other, and resumes it after a
//! stop.

use super::{Action, PartitionMap, Plan, Simulation, SimulationError, Step};

impl Step {
    pub fn new(action: Action, records: f64, bytes: f64) -> Self {
        Self {
            action,
            records,
            bytes,
            after: Vec::new(),
        }
    }
}

impl Plan {
    /// Returns ranges of steps that carry at most `bytes` each; a larger step is alone. A batch
    /// waits only for its own steps and those of earlier batches. After each batch, the map is
    /// valid and may stay as it is, and the rest can continue from it.
    pub fn batches(&self, bytes: f64) -> Vec<std::ops::Range<usize>> {
        let mut batches = Vec::new();
        let (mut start, mut sum) = (0, 0.0);
        for (index, step) in self.steps.iter().enumerate() {
            if index > start && sum + step.bytes_carried() > bytes {
                batches.push(start..index);
                (start, sum) = (index, 0.0);
            }
            sum += step.bytes_carried();
        }
        if start < self.steps.len() {
            batches.push(start..self.steps.len());
        }
        batches
    }

    /// Returns what remains after these steps are done: the positions of the remaining steps in the
    /// old plan, and a plan of them alone, with its own dependencies. It has no price of its own.
    pub fn remaining(&self, done: &[bool]) -> (Vec<usize>, Plan) {
        let is_done = |step: usize| done.get(step).copied().unwrap_or(false);
        let left: Vec<usize> = (0..self.steps.len())
            .filter(|&step| !is_done(step))
            .collect();
        let mut place = vec![0u32; self.steps.len()];
        for (new, &old) in left.iter().enumerate() {
            place[old] = new as u32;
        }
        let steps = left.iter().map(|&old| {
            let step = &self.steps[old];
            let after = step
                .after
                .iter()
                .filter(|&&before| !is_done(before as usize));
            Step {
                after: after
                    .filter_map(|&before| place.get(before as usize).copied())
                    .collect(),
                ..step.clone()
            }
        });
        let plan = Plan {
            name: self.name.clone(),
            steps: steps.collect(),
            ..Plan::default()
        };
        (left, plan)
    }

    /// Returns the same plan with each move replaced by its parts, for executors that do not
    /// support moves. The map at the start of the plan says which replicas are primaries.
    pub fn expanded(&self, map: PartitionMap) -> Result<Plan, SimulationError> {
        let mut simulation = Simulation::new(map)?;
        let mut steps: Vec<Step> = Vec::new();
        // The last part of each step.
        let mut last = Vec::with_capacity(self.steps.len());
        for step in &self.steps {
            let before = steps.len();
            let parts = parts(&step.action, simulation.map());
            simulation.step(step)?;
            for action in parts {
                let part = if steps.len() == before {
                    let after = step.after.iter();
                    let after = after.filter_map(|&before| last.get(before as usize).copied());
                    Step {
                        action,
                        after: after.collect(),
                        ..step.clone()
                    }
                } else {
                    Step {
                        after: vec![steps.len() as u32 - 1],
                        ..Step::new(action, 0.0, 0.0)
                    }
                };
                steps.push(part);
            }
            last.push(steps.len() as u32 - 1);
        }
        Ok(Plan {
            steps,
            ..self.clone()
        })
    }
}

/// Returns the parts of a step, at least one action.
fn parts(action: &Action, map: &PartitionMap) -> Vec<Action> {
    let Action::Move {
        partition,
        from,
        to,
    } = *action
    else {
        return vec![action.clone()];
    };
    let primary = map
        .partitions
        .get(partition as usize)
        .and_then(|partition| partition.replicas.first());
    let copy = Action::Copy {
        partition,
        from,
        to,
    };
    let hand_over = Action::HandOver {
        partition,
        from,
        to,
    };
    let drop = Action::Drop {
        partition,
        node: from,
    };
    match primary == Some(&from) {
        true => vec![copy, hand_over, drop],
        false => vec![copy, drop],
    }
}

impl Step {
    /// Returns the bytes that cross the network.
    pub fn bytes_carried(&self) -> f64 {
        if self.transfer().is_some() {
            self.bytes
        } else {
            0.0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Node, Partition, PartitionMap};
    use super::*;

    fn plan_and_map() -> (Plan, PartitionMap) {
        let move_of = |partition, from, to, bytes| {
            Step::new(
                Action::Move {
                    partition,
                    from,
                    to,
                },
                bytes,
                bytes,
            )
        };
        let mut steps = vec![
            Step::new(
                Action::Split {
                    partition: 0,
                    at: None,
                    right: 2,
                },
                20.0,
                20.0,
            ),
            move_of(1, 1, 0, 50.0),
            move_of(2, 0, 1, 20.0),
            move_of(0, 0, 1, 20.0),
        ];
        steps[2].after = vec![0];
        steps[3].after = vec![0, 2];
        let on = |node| Partition {
            replicas: vec![node],
            ..Partition::default()
        };
        let map = PartitionMap {
            nodes: vec![Node::default(); 2],
            partitions: vec![on(0), on(1)],
            min_live: 1,
        };
        (
            Plan {
                steps,
                ..Plan::default()
            },
            map,
        )
    }

    #[test]
    fn batches_cover_the_plan_within_their_limit() {
        let (plan, _) = plan_and_map();
        assert_eq!(plan.batches(40.0), [0..1, 1..2, 2..4]);
        assert_eq!(plan.batches(f64::INFINITY), vec![0..4]);
        assert_eq!(plan.batches(0.0), [0..1, 1..2, 2..3, 3..4]);
        assert!(Plan::default().batches(1.0).is_empty());
    }

    #[test]
    fn a_resumed_plan_has_the_same_end() {
        let (plan, map) = plan_and_map();
        let end = plan.simulate(map.clone()).expect("the whole plan");
        for stop in plan.batches(40.0) {
            let part = Plan {
                steps: plan.steps[..stop.end].to_vec(),
                ..Plan::default()
            };
            let there = part.simulate(map.clone()).expect("the first batches");
            let mut done = vec![false; plan.steps.len()];
            done[..stop.end].fill(true);
            let (left, rest) = plan.remaining(&done);
            assert_eq!(left.len(), plan.steps.len() - stop.end);
            assert_eq!(rest.simulate(there).expect("the rest"), end);
        }
    }

    #[test]
    fn an_expanded_plan_ends_at_the_same_map() {
        let (plan, map) = plan_and_map();
        let expanded = plan.expanded(map.clone()).expect("a plan that works");
        assert_eq!(expanded.steps.len(), 1 + 3 * 3);
        assert_eq!(expanded.simulate(map.clone()), plan.simulate(map));
        let bytes = |plan: &Plan| plan.steps.iter().map(Step::bytes_carried).sum::<f64>();
        assert_eq!(bytes(&expanded), bytes(&plan));
    }

    /// Only the primary can hand over.
    #[test]
    fn moves_of_replicas_end_at_the_same_nodes_when_expanded() {
        let move_of = |from, to| {
            let partition = 0;
            Step::new(
                Action::Move {
                    partition,
                    from,
                    to,
                },
                5.0,
                5.0,
            )
        };
        let mut plan = Plan {
            steps: vec![move_of(1, 3), move_of(0, 4), move_of(2, 1)],
            ..Plan::default()
        };
        // Node 1 has room for a replica after its own one is dropped.
        plan.steps[2].after = vec![0];
        let map = PartitionMap {
            nodes: vec![Node::default(); 5],
            partitions: vec![Partition {
                replicas: vec![0, 1, 2],
                ..Partition::default()
            }],
            min_live: 3,
        };
        let moved = plan.simulate(map.clone()).expect("the moves");
        assert_eq!(moved.partitions[0].replicas, [4, 3, 1]);
        let expanded = plan.expanded(map.clone()).expect("the parts");
        let hands = |step: &&Step| matches!(step.action, Action::HandOver { .. });
        assert_eq!(expanded.steps.len(), 2 + 3 + 2);
        assert_eq!(expanded.steps.iter().filter(hands).count(), 1);
        assert_eq!(expanded.steps[5].after, [1]);
        let parts = expanded.simulate(map).expect("the parts");
        let mut replicas = parts.partitions[0].replicas.clone();
        replicas[1..].sort_unstable();
        assert_eq!(replicas, [4, 1, 3]);
        let error = plan.expanded(moved).expect_err("node 1 holds it already");
        assert!(error.to_string().starts_with("step 0"), "{error}");
    }
}
