//! The plan that every planner makes: steps, their order and their price.

mod batch;
mod map;
mod schedule;
mod simulate;

use serde::{Deserialize, Serialize};

pub use map::{Node, Partition, PartitionMap};
pub use schedule::StepTime;
pub use simulate::{Simulation, SimulationError};

use crate::Key;

/// The action of a step. Partitions are numbered as in the map. A split gives its right piece the
/// next unused number.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub enum Action {
    /// Splits a partition in two on every node that has it. It keeps the keys below `at`; `right`
    /// gets the others.
    Split {
        partition: u32,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        at: Option<Key>,
        right: u32,
    },
    /// Makes a replica on `to` from the one on `from`.
    Copy { partition: u32, from: u32, to: u32 },
    /// Drops a replica that is not the primary.
    Drop { partition: u32, node: u32 },
    /// Makes the replica on `to` the primary in place of the one on `from`.
    HandOver { partition: u32, from: u32, to: u32 },
    /// Moves the replica on `from` to `to`: copies it, hands over if it was the primary, and drops
    /// it. The new replica takes the old one's place in the list.
    Move { partition: u32, from: u32, to: u32 },
}

/// One step: its action, what it carries, and the steps that have to be done before.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Step {
    #[serde(flatten)]
    pub action: Action,
    /// The records that cross the network; for a split, those of the right piece.
    pub records: f64,
    pub bytes: f64,
    /// The positions in the plan of the steps that this one waits for; all are earlier.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<u32>,
}

/// The price of one node, and its load at each stage, in the planner's unit of load.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct NodePrice {
    /// Its load before the plan.
    pub before: f64,
    /// Its load after all steps.
    pub after: f64,
    pub moved_in: f64,
    pub moved_out: f64,
    /// The load that would be inserted on it without the plan.
    pub insert_before: f64,
    /// The load that is inserted on it after the plan.
    pub insert_after: f64,
}

/// The price of a plan.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Price {
    /// The cost of moving: that of the node that pays most.
    #[serde(rename = "move")]
    pub moving: f64,
    /// The cost of inserting: that of the node that pays most.
    pub insert: f64,
    pub total: f64,
    pub nodes: Vec<NodePrice>,
}

/// An ordered list of steps with their cost. docs/reference/plan-json.md describes the JSON.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub steps: Vec<Step>,
    pub price: Price,
    /// No plan for the same input costs less.
    pub lower_bound: f64,
    /// The time that the steps and then the inserts take, if bandwidths were given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_seconds: Option<f64>,
}
