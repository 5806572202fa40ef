//! Computes how long a plan's steps take.
//!
//! Transfers share the bandwidth of the nodes at their ends. Each node takes part in a limited
//! number at once. A step waits for those that it names.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::{Action, Node, Plan, Step};

/// A moment that can be ordered in a heap: finite and not negative.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Moment(f64);

impl Eq for Moment {}

impl Ord for Moment {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for Moment {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// The start and end of a step, in seconds from the start of the plan.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct StepTime {
    pub begin: f64,
    pub end: f64,
}

impl Step {
    /// Returns the nodes between which it carries bytes.
    pub fn transfer(&self) -> Option<(u32, u32)> {
        match self.action {
            Action::Copy { from, to, .. } | Action::Move { from, to, .. } => Some((from, to)),
            Action::Split { .. } | Action::Drop { .. } | Action::HandOver { .. } => None,
        }
    }
}

/// The running and waiting steps of each node.
struct NodeTimeline<'a> {
    plan: &'a Plan,
    nodes: &'a [Node],
    running: Vec<u32>,
    /// The steps that may begin but found a node busy, by that node.
    queue: Vec<BinaryHeap<Reverse<u32>>>,
    ends: BinaryHeap<Reverse<(Moment, u32)>>,
    waits_for: Vec<usize>,
    waiting: Vec<Vec<u32>>,
    times: Vec<StepTime>,
}

impl Plan {
    /// Returns the seconds until the last step is done. Returns `None` if a node in it has no
    /// bandwidth, or a step waits for a later one. A transfer gets its share of the slower end's
    /// bandwidth: that bandwidth divided by the most transfers of the node at once.
    pub fn moving_seconds(&self, nodes: &[Node]) -> Option<f64> {
        let times = self.step_times(nodes)?;
        Some(times.iter().map(|time| time.end).fold(0.0, f64::max))
    }

    /// Returns when each step begins and ends, if each begins as early as possible.
    pub fn step_times(&self, nodes: &[Node]) -> Option<Vec<StepTime>> {
        let ends = self.steps.iter().filter_map(Step::transfer);
        let known = |node: u32| {
            let node = nodes.get(node as usize)?;
            node.bytes_per_second.filter(|speed| *speed > 0.0)
        };
        for (from, to) in ends {
            known(from).and(known(to))?;
        }
        let mut steps = self.steps.iter().enumerate();
        if steps.any(|(index, step)| step.after.iter().any(|&before| before as usize >= index)) {
            return None;
        }
        Some(NodeTimeline::new(self, nodes).run())
    }
}

impl<'a> NodeTimeline<'a> {
    fn new(plan: &'a Plan, nodes: &'a [Node]) -> Self {
        let mut waiting = vec![Vec::new(); plan.steps.len()];
        for (index, step) in plan.steps.iter().enumerate() {
            for &before in &step.after {
                waiting[before as usize].push(index as u32);
            }
        }
        Self {
            plan,
            nodes,
            running: vec![0; nodes.len()],
            queue: vec![BinaryHeap::new(); nodes.len()],
            ends: BinaryHeap::new(),
            waits_for: plan.steps.iter().map(|step| step.after.len()).collect(),
            waiting,
            times: vec![StepTime::default(); plan.steps.len()],
        }
    }

    fn run(mut self) -> Vec<StepTime> {
        for step in 0..self.plan.steps.len() as u32 {
            if self.waits_for[step as usize] == 0 {
                self.begin(step, 0.0);
            }
        }
        while let Some(Reverse((Moment(end), step))) = self.ends.pop() {
            self.end(step, end);
        }
        self.times
    }

    fn busy(&self, node: u32) -> bool {
        self.running[node as usize] >= self.nodes[node as usize].max_transfers.max(1)
    }

    fn begin(&mut self, step: u32, now: f64) {
        let it = &self.plan.steps[step as usize];
        let Some((from, to)) = it.transfer() else {
            self.runs(step, now, now);
            return;
        };
        if let Some(busy) = [from, to].into_iter().find(|&node| self.busy(node)) {
            self.queue[busy as usize].push(Reverse(step));
            return;
        }
        for node in [from, to] {
            self.running[node as usize] += 1;
        }
        let pace = |node: u32| {
            let node = &self.nodes[node as usize];
            node.bytes_per_second.unwrap_or(f64::INFINITY) / f64::from(node.max_transfers.max(1))
        };
        let seconds = it.bytes / pace(from).min(pace(to));
        self.runs(step, now, now + seconds);
    }

    fn runs(&mut self, step: u32, begin: f64, end: f64) {
        self.times[step as usize] = StepTime { begin, end };
        self.ends.push(Reverse((Moment(end), step)));
    }

    fn end(&mut self, step: u32, now: f64) {
        if let Some((from, to)) = self.plan.steps[step as usize].transfer() {
            for node in [from, to] {
                self.running[node as usize] -= 1;
            }
            for node in [from, to] {
                self.wake(node, now);
            }
        }
        for next in std::mem::take(&mut self.waiting[step as usize]) {
            self.waits_for[next as usize] -= 1;
            if self.waits_for[next as usize] == 0 {
                self.begin(next, now);
            }
        }
    }

    /// Starts the steps that waited for a node, as far as it has room. A step whose other end is
    /// busy waits for that one.
    fn wake(&mut self, node: u32, now: f64) {
        while !self.busy(node) {
            let Some(Reverse(step)) = self.queue[node as usize].pop() else {
                return;
            };
            self.begin(step, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(speeds: &[f64], max_transfers: u32) -> Vec<Node> {
        let node = |&speed: &f64| Node {
            bytes_per_second: Some(speed),
            max_transfers,
            ..Node::default()
        };
        speeds.iter().map(node).collect()
    }

    fn moves(list: &[(u32, u32, f64)]) -> Plan {
        let step = |(partition, &(from, to, bytes)): (usize, &(u32, u32, f64))| {
            let partition = partition as u32;
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
        Plan {
            steps: list.iter().enumerate().map(step).collect(),
            ..Plan::default()
        }
    }

    #[test]
    fn the_slower_end_sets_the_pace_and_pairs_run_at_once() {
        let plan = moves(&[(0, 1, 100.0), (2, 3, 50.0)]);
        assert_eq!(
            plan.moving_seconds(&nodes(&[10.0, 5.0, 10.0, 10.0], 1)),
            Some(20.0)
        );
        assert_eq!(Plan::default().moving_seconds(&[]), Some(0.0));
        assert_eq!(plan.moving_seconds(&vec![Node::default(); 4]), None);
    }

    #[test]
    fn a_node_takes_part_in_a_limited_number_at_once() {
        let plan = moves(&[(0, 1, 100.0), (0, 2, 100.0), (0, 3, 100.0)]);
        assert_eq!(plan.moving_seconds(&nodes(&[10.0; 4], 1)), Some(30.0));
        // Two run at half the speed, then the third one.
        assert_eq!(plan.moving_seconds(&nodes(&[10.0; 4], 2)), Some(40.0));
    }

    #[test]
    fn steps_begin_when_those_before_them_end() {
        let mut plan = moves(&[(0, 1, 100.0), (2, 3, 100.0)]);
        plan.steps[1].after = vec![0];
        let times = plan.step_times(&nodes(&[10.0; 4], 1)).expect("bandwidths");
        let pairs: Vec<(f64, f64)> = times.iter().map(|time| (time.begin, time.end)).collect();
        assert_eq!(pairs, [(0.0, 10.0), (10.0, 20.0)]);
    }
}
