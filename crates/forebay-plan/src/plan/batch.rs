//! Cutting a plan into parts that are carried out one after the other, and going on after a stop.

use super::{Action, Plan, Step};

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
    /// Ranges of steps that carry at most `bytes` each, a single larger step alone. A batch waits
    /// only for steps of its own and of those before it: when one is done, the map is one that can
    /// be left as it is, and the rest goes on from there.
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

    /// What is left when these steps are done: their positions in the old plan, and a plan of them
    /// alone, with its own dependencies. It has no price of its own.
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

    /// The same plan in which each move is its three parts, for executors that know no moves.
    pub fn expanded(&self) -> Plan {
        let mut steps: Vec<Step> = Vec::new();
        let mut last = Vec::with_capacity(self.steps.len());
        for step in &self.steps {
            let after = step.after.iter();
            let after = after
                .filter_map(|&before| last.get(before as usize).copied())
                .collect();
            let Action::Move {
                partition,
                from,
                to,
            } = step.action
            else {
                last.push(steps.len() as u32);
                steps.push(Step {
                    after,
                    ..step.clone()
                });
                continue;
            };
            let copy = steps.len() as u32;
            let part = |action, after| Step {
                after,
                ..Step::new(action, 0.0, 0.0)
            };
            steps.push(Step {
                action: Action::Copy {
                    partition,
                    from,
                    to,
                },
                after,
                ..step.clone()
            });
            steps.push(part(
                Action::HandOver {
                    partition,
                    from,
                    to,
                },
                vec![copy],
            ));
            steps.push(part(
                Action::Drop {
                    partition,
                    node: from,
                },
                vec![copy + 1],
            ));
            last.push(copy + 2);
        }
        Plan {
            steps,
            ..self.clone()
        }
    }
}

impl Step {
    /// Bytes that cross the network.
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
    fn a_stopped_plan_goes_on_to_the_same_end() {
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
        let expanded = plan.expanded();
        assert_eq!(expanded.steps.len(), 1 + 3 * 3);
        assert_eq!(expanded.simulate(map.clone()), plan.simulate(map));
        let bytes = |plan: &Plan| plan.steps.iter().map(Step::bytes_carried).sum::<f64>();
        assert_eq!(bytes(&expanded), bytes(&plan));
    }
}
