//! Simulates a plan on a partition map, step by step: checks that it is possible, and returns the
//! result.

use thiserror::Error;

use super::{Action, Partition, PartitionMap, Plan, Step};

/// A reason why a step cannot be done, or a map is invalid.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SimulationError {
    #[error("the map's partition {partition} {problem}")]
    Map { partition: usize, problem: String },
    #[error("step {step}: {problem}")]
    Step { step: usize, problem: String },
}

/// A simulation of a partition map under change.
#[derive(Debug, Clone)]
pub struct Simulation {
    map: PartitionMap,
    /// The live replicas that each partition has to keep.
    required: Vec<usize>,
    done: Vec<bool>,
}

impl Simulation {
    /// Starts with a map. Every partition has a primary, and its replicas are on distinct nodes.
    pub fn new(map: PartitionMap) -> Result<Self, SimulationError> {
        for (index, partition) in map.partitions.iter().enumerate() {
            if let Err(problem) = check(partition, map.nodes.len()) {
                return Err(SimulationError::Map {
                    partition: index,
                    problem,
                });
            }
        }
        let count = map.partitions.len() as u32;
        let required = (0..count)
            .map(|partition| map.live(partition).min(map.min_live as usize))
            .collect();
        Ok(Self {
            map,
            required,
            done: Vec::new(),
        })
    }

    pub fn map(&self) -> &PartitionMap {
        &self.map
    }

    pub fn into_map(self) -> PartitionMap {
        self.map
    }

    /// Does one step. If it returns an error, nothing has changed.
    pub fn step(&mut self, step: &Step) -> Result<(), SimulationError> {
        let number = self.done.len();
        let waiting = step
            .after
            .iter()
            .find(|&&before| self.done.get(before as usize) != Some(&true));
        let result = match waiting {
            Some(before) => Err(format!(
                "waits for step {before}, which is not done before it"
            )),
            None => self.act(&step.action),
        };
        result.map_err(|problem| SimulationError::Step {
            step: number,
            problem,
        })?;
        self.done.push(true);
        Ok(())
    }

    fn act(&mut self, action: &Action) -> Result<(), String> {
        match *action {
            Action::Split {
                partition,
                ref at,
                right,
            } => self.split(partition, at.clone(), right),
            Action::Copy {
                partition,
                from,
                to,
            } => self.copy(partition, from, to),
            Action::Drop { partition, node } => self.give_up(partition, node),
            Action::HandOver {
                partition,
                from,
                to,
            } => self.hand_over(partition, from, to),
            Action::Move {
                partition,
                from,
                to,
            } => self.relocate(partition, from, to),
        }
    }

    fn partition(&self, partition: u32) -> Result<&Partition, String> {
        let found = self.map.partitions.get(partition as usize);
        found.ok_or_else(|| format!("there is no partition {partition}"))
    }

    fn partition_mut(&mut self, partition: u32) -> Result<&mut Partition, String> {
        let found = self.map.partitions.get_mut(partition as usize);
        found.ok_or_else(|| format!("there is no partition {partition}"))
    }

    /// Divides a partition's records and bytes in halves, since the real shares are unknown.
    fn split(&mut self, partition: u32, at: Option<crate::Key>, right: u32) -> Result<(), String> {
        let next = self.map.partitions.len();
        if right as usize != next {
            return Err(format!(
                "splits off partition {right} where {next} is the next number"
            ));
        }
        let required = *self.required.get(partition as usize).unwrap_or(&0);
        let left = self.partition_mut(partition)?;
        if let Some(at) = &at {
            let below = left.low.as_ref().is_some_and(|low| at <= low);
            if below || left.high.as_ref().is_some_and(|high| at >= high) {
                return Err(format!("{at} does not lie within partition {partition}"));
            }
        }
        left.records /= 2.0;
        left.bytes /= 2.0;
        let mut piece = left.clone();
        left.high.clone_from(&at);
        piece.low = at;
        self.map.partitions.push(piece);
        self.required.push(required);
        Ok(())
    }

    fn copy(&mut self, partition: u32, from: u32, to: u32) -> Result<(), String> {
        let alive = |node: u32| {
            let found = self.map.nodes.get(node as usize);
            found
                .map(|node| node.alive)
                .ok_or_else(|| format!("there is no node {node}"))
        };
        for node in [from, to] {
            if !alive(node)? {
                return Err(format!("node {node} does not live"));
            }
        }
        let replicas = &self.partition(partition)?.replicas;
        if !replicas.contains(&from) {
            return Err(format!(
                "node {from} holds no replica of partition {partition} to copy"
            ));
        }
        if replicas.contains(&to) {
            return Err(format!(
                "node {to} already holds a replica of partition {partition}"
            ));
        }
        self.partition_mut(partition)?.replicas.push(to);
        Ok(())
    }

    /// The copy takes the old replica's place, so the primary stays first.
    fn relocate(&mut self, partition: u32, from: u32, to: u32) -> Result<(), String> {
        self.copy(partition, from, to)?;
        let replicas = &mut self.partition_mut(partition)?.replicas;
        if let Some(place) = replicas.iter().position(|&node| node == from) {
            replicas.swap_remove(place);
        }
        Ok(())
    }

    fn hand_over(&mut self, partition: u32, from: u32, to: u32) -> Result<(), String> {
        let replicas = &mut self.partition_mut(partition)?.replicas;
        if replicas.first() != Some(&from) {
            return Err(format!(
                "node {from} is not the primary of partition {partition}"
            ));
        }
        let Some(place) = replicas.iter().position(|&node| node == to) else {
            return Err(format!(
                "node {to} holds no replica of partition {partition}"
            ));
        };
        replicas.swap(0, place);
        Ok(())
    }

    fn give_up(&mut self, partition: u32, node: u32) -> Result<(), String> {
        let replicas = &self.partition(partition)?.replicas;
        let Some(place) = replicas.iter().position(|&holder| holder == node) else {
            return Err(format!(
                "node {node} holds no replica of partition {partition}"
            ));
        };
        if place == 0 {
            return Err(format!(
                "node {node} is the primary of partition {partition}: hand over first"
            ));
        }
        let required = self.required[partition as usize];
        let lives = self
            .map
            .nodes
            .get(node as usize)
            .is_some_and(|node| node.alive);
        if lives && self.map.live(partition) <= required {
            return Err(format!(
                "would leave partition {partition} with fewer than {required} live replicas"
            ));
        }
        self.partition_mut(partition)?.replicas.remove(place);
        Ok(())
    }
}

fn check(partition: &Partition, nodes: usize) -> Result<(), String> {
    let replicas = &partition.replicas;
    if replicas.is_empty() {
        return Err("is on no node".to_owned());
    }
    for (place, &node) in replicas.iter().enumerate() {
        if node as usize >= nodes {
            return Err(format!("is on node {node}, of {nodes} nodes"));
        }
        if replicas[..place].contains(&node) {
            return Err(format!("is twice on node {node}"));
        }
    }
    let reversed =
        matches!((&partition.low, &partition.high), (Some(low), Some(high)) if low >= high);
    if reversed {
        return Err("ends before it begins".to_owned());
    }
    Ok(())
}

impl Plan {
    /// Carries out the whole plan on a map. Returns the resulting map, or an error for the first
    /// step that cannot be done. No partition ever has fewer live replicas than required.
    pub fn simulate(&self, map: PartitionMap) -> Result<PartitionMap, SimulationError> {
        let mut simulation = Simulation::new(map)?;
        for step in &self.steps {
            simulation.step(step)?;
        }
        Ok(simulation.into_map())
    }

    /// Checks that the plan can be carried out on a map.
    pub fn validate(&self, map: &PartitionMap) -> Result<(), SimulationError> {
        self.simulate(map.clone()).map(|_| ())
    }
}

#[cfg(test)]
#[path = "simulate_tests.rs"]
mod tests;
